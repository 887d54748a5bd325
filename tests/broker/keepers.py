"""A keeper that writes nothing, for tests of who calls it and when."""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from recado.broker.binding import Binding
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.broker.run import Run
from recado.broker.steps import Steps
from recado.broker.store import DurabilityListener, MessageStore

AT_A_TIME = 3


class Cupboard(MessageStore):
    """Has shelves, and knows of every message that was kept and not settled."""

    has_disk = True

    def __init__(self, room: int) -> None:
        self.page_out_bytes = room
        self.live: dict[Queue, set[int]] = defaultdict(set)
        self.out: dict[Queue, set[int]] = defaultdict(set)
        self.waiting: list[DurabilityListener] = []
        self.notes: list[str] = []
        self.fetches = 0
        self._shelves: dict[tuple[Queue, int], deque[Run]] = defaultdict(deque)

    def append_run(self, queue: Queue, run: Run) -> None:
        self._note(f"{len(run)} to {queue.name}")
        run.stored = True
        places = {run.first_position + i * run.stride for i in range(len(run))}
        assert not places & self.live[queue], "a place is given once"
        self.live[queue] |= places

    def page_out(self, queue: Queue, run: Run, priority: int, *, durable: bool) -> None:
        self.append_run(queue, run)
        self._shelves[queue, priority].append(run.slice(0, len(run)))

    def page_in(self, queue: Queue, priority: int) -> list[Run]:
        self.fetches += 1
        shelf = self._shelves[queue, priority]
        run = shelf[0].take(AT_A_TIME)
        if run is shelf[0]:
            shelf.popleft()
        return [run]

    def paged_out_bytes(self, queue: Queue) -> int:
        shelves = [shelf for (owner, _), shelf in self._shelves.items() if owner is queue]
        return sum(sum(run.body_sizes()) for shelf in shelves for run in shelf)

    def move(self, source: Queue, target: Queue, lane: int) -> None:
        """As if the target had been restarted with what the source has shelved."""
        self._shelves[target, lane] = self._shelves.pop((source, lane))
        self.live[target] |= self.live[source]

    def drop_paged_out(self, queue: Queue) -> Steps[None]:
        for key in [each for each in self._shelves if each[0] is queue]:
            for run in self._shelves.pop(key):
                self.settle(queue, run.first_position, len(run), run.stride)
                yield 1

    def settle(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        places = {first_position + i * stride for i in range(count)}
        self.live[queue] -= places
        self.out[queue] -= places

    def record_delivery(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        places = {first_position + i * stride for i in range(count)}
        assert places <= self.live[queue]
        self.out[queue] |= places

    def queue_declared(self, queue: Queue) -> None:
        self._change(f"+queue {queue.name}")

    def queue_deleted(self, queue: Queue) -> None:
        self._change(f"-queue {queue.name}")
        self.live.pop(queue, None)

    def exchange_declared(self, vhost: str, exchange: Exchange[Any]) -> None:
        self._change(f"+exchange {exchange.name}")

    def exchange_deleted(self, vhost: str, exchange: Exchange[Any]) -> None:
        self._change(f"-exchange {exchange.name}")

    def bound(self, vhost: str, binding: Binding[Any]) -> None:
        self._change(f"+{binding.source} → {binding.destination.name}")

    def unbound(self, vhost: str, binding: Binding[Any]) -> None:
        self._change(f"-{binding.source} → {binding.destination.name}")

    def queue_purged(self, queue: Queue) -> None:
        self._change(f"purged {queue.name}")

    def require_sync(self) -> None:
        self.durable_ops += 1

    def begin_atomic_group(self) -> None:
        self.notes.append("begin")

    def end_atomic_group(self) -> None:
        self.notes.append("end")

    def _note(self, what: str) -> None:
        self.durable_ops += 1
        self.notes.append(what)

    def _change(self, what: str) -> None:
        self._note(what)
        self.topology_lsn = self.lsn

    def notify_when_durable(self, listener: DurabilityListener) -> None:
        self.waiting.append(listener)

    def sync(self) -> None:
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """Returns the function that ends the sync."""
        ticket = self.lsn
        self.lsn += 1
        waiting, self.waiting = self.waiting, []

        def end() -> None:
            self.durable_lsn = ticket
            for each in waiting:
                each.on_durable()

        return end


class Diary(MessageStore):
    """Writes down what it is told, and can give it back as after a restart."""

    has_disk = True

    def __init__(self) -> None:
        self.told: list[str] = []
        self.live: dict[tuple[str, int], Run] = {}

    def queue_declared(self, queue: Queue) -> None:
        self.told.append(f"{queue.name} declared")

    def queue_deleted(self, queue: Queue) -> None:
        self.told.append(f"{queue.name} deleted")

    def exchange_declared(self, vhost: str, exchange: Exchange[Any]) -> None:
        self.told.append(f"{exchange.name} declared")

    def exchange_deleted(self, vhost: str, exchange: Exchange[Any]) -> None:
        self.told.append(f"{exchange.name} deleted")

    def append_run(self, queue: Queue, run: Run) -> None:
        self.durable_ops += 1
        run.stored = True
        for i in range(len(run)):
            self.live[queue.name, run.first_position + i] = run.slice(i, i + 1)
        self.told.append(f"{queue.name} entered {run.first_position}")

    def settle(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        for i in range(count):
            del self.live[queue.name, first_position + i * stride]
        self.told.append(f"{queue.name} settled {first_position}")

    def page_in(self, queue: Queue, priority: int) -> list[Run]:
        return [run for (name, _), run in self.live.items() if name == queue.name]
