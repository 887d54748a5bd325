"""Stores without a disk that record how the broker calls them, for tests."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from recado.broker.binding import Binding
from recado.broker.exchange import Exchange
from recado.broker.priority_bucket import ReadLimits
from recado.broker.queue import Queue
from recado.broker.run import Run
from recado.broker.steps import Steps
from recado.broker.store import DurabilityListener, MessageStore

PAGED_IN_MESSAGES_MAX = 3


class PagingStore(MessageStore):
    """Pages messages out to memory, and knows every stored message that is not settled."""

    has_disk = True

    def __init__(self, page_out_bytes: int) -> None:
        self.page_out_bytes = page_out_bytes
        self.live: dict[Queue, set[int]] = defaultdict(set)
        self.out: dict[Queue, set[int]] = defaultdict(set)
        self.listeners: list[DurabilityListener] = []
        self.notes: list[str] = []
        self.page_ins = 0
        self._paged_out: dict[tuple[Queue, int], deque[Run]] = defaultdict(deque)

    def append_run(self, queue: Queue, run: Run) -> None:
        self._note(f"{len(run)} to {queue.name}")
        run.stored = True
        positions = {run.first_position + i * run.stride for i in range(len(run))}
        assert not positions & self.live[queue], "a position is assigned once"
        self.live[queue] |= positions

    def store_late(self, queue: Queue, run: Run, deliveries: int) -> None:
        self._note(f"{len(run)} late to {queue.name}")
        run.stored = True
        self.live[queue] |= {run.first_position + i * run.stride for i in range(len(run))}

    def page_out(self, queue: Queue, run: Run, priority: int, *, durable: bool) -> None:
        self.append_run(queue, run)
        self._paged_out[queue, priority].append(run.slice(0, len(run)))

    def page_in(self, queue: Queue, priority: int) -> list[Run]:
        self.page_ins += 1
        paged_out = self._paged_out[queue, priority]
        run = paged_out[0].take(PAGED_IN_MESSAGES_MAX)
        if run is paged_out[0]:
            paged_out.popleft()
        return [run]

    def read_paged_out(
        self, queue: Queue, priority: int, limits: ReadLimits
    ) -> Iterator[tuple[list[Run], int]]:
        position = 0
        while True:
            paged_out = self._paged_out[queue, priority]
            run = next((each for each in paged_out if each.end_position > position), None)
            if run is None:
                return
            start = max(position, run.first_position)
            count = min(PAGED_IN_MESSAGES_MAX, limits.message_count)
            position = min(start + count, run.end_position)
            yield [run.copy_range(start, position)], 1

    def take_paged_out(self, queue: Queue, run: Run, priority: int) -> None:
        left: deque[Run] = deque()
        for each in self._paged_out[queue, priority]:
            before = min(each.end_position, run.first_position)
            after = max(each.first_position, run.end_position)
            if each.first_position < before:
                left.append(each.copy_range(each.first_position, before))
            if after < each.end_position:
                left.append(each.copy_range(after, each.end_position))
        self._paged_out[queue, priority] = left

    def paged_out_bytes(self, queue: Queue) -> int:
        paged_out_runs = [
            paged_out for (owner, _), paged_out in self._paged_out.items() if owner is queue
        ]
        return sum(sum(run.body_sizes()) for paged_out in paged_out_runs for run in paged_out)

    def move(self, source: Queue, target: Queue, priority: int) -> None:
        """Simulate a restart: the target gets the paged-out messages of the source."""
        self._paged_out[target, priority] = self._paged_out.pop((source, priority))
        self.live[target] |= self.live[source]

    def drop_paged_out(self, queue: Queue) -> Steps[None]:
        for key in [each for each in self._paged_out if each[0] is queue]:
            for run in self._paged_out.pop(key):
                self.settle(queue, run.first_position, len(run), run.stride)
                yield 1

    def settle(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        positions = {first_position + i * stride for i in range(count)}
        self.live[queue] -= positions
        self.out[queue] -= positions

    def record_delivery(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        positions = {first_position + i * stride for i in range(count)}
        assert positions <= self.live[queue]
        self.out[queue] |= positions

    def queue_declared(self, queue: Queue) -> None:
        self._change(f"+queue {queue.name}")

    def queue_deleted(self, queue: Queue) -> None:
        self._change(f"-queue {queue.name}")
        self.live.pop(queue, None)

    def exchange_declared(self, vhost: str, exchange: Exchange[Any]) -> None:
        self._change(f"+exchange {exchange.name}")

    def exchange_deleted(self, vhost: str, exchange: Exchange[Any]) -> None:
        self._change(f"-exchange {exchange.name}")

    def binding_added(self, vhost: str, binding: Binding[Any]) -> None:
        self._change(f"+{binding.source} → {binding.destination.name}")

    def binding_removed(self, vhost: str, binding: Binding[Any]) -> None:
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
        self.listeners.append(listener)

    def sync(self) -> None:
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """Returns the function that ends the sync."""
        lsn = self.lsn
        self.lsn += 1
        waiting, self.listeners = self.listeners, []

        def end() -> None:
            self.durable_lsn = lsn
            for each in waiting:
                each.on_durable()

        return end


class RecordingStore(MessageStore):
    """Records the calls, and returns the stored messages as after a restart."""

    has_disk = True

    def __init__(self) -> None:
        self.log: list[str] = []
        self.live: dict[tuple[str, int], Run] = {}

    def queue_declared(self, queue: Queue) -> None:
        self.log.append(f"{queue.name} declared")

    def queue_deleted(self, queue: Queue) -> None:
        self.log.append(f"{queue.name} deleted")

    def exchange_declared(self, vhost: str, exchange: Exchange[Any]) -> None:
        self.log.append(f"{exchange.name} declared")

    def exchange_deleted(self, vhost: str, exchange: Exchange[Any]) -> None:
        self.log.append(f"{exchange.name} deleted")

    def append_run(self, queue: Queue, run: Run) -> None:
        self.durable_ops += 1
        run.stored = True
        for i in range(len(run)):
            self.live[queue.name, run.first_position + i] = run.slice(i, i + 1)
        self.log.append(f"{queue.name} entered {run.first_position}")

    def settle(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        for i in range(count):
            del self.live[queue.name, first_position + i * stride]
        self.log.append(f"{queue.name} settled {first_position}")

    def page_in(self, queue: Queue, priority: int) -> list[Run]:
        return [run for (name, _), run in self.live.items() if name == queue.name]
