"""A keeper that writes nothing, for tests of who calls it and when."""

from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from recado.broker.binding import Binding
from recado.broker.exchange import Exchange
from recado.broker.keeper import Keeper, Waiting
from recado.broker.queue import Queue
from recado.broker.run import Run
from recado.broker.steps import Steps

AT_A_TIME = 3


class Cupboard(Keeper):
    """Has shelves, and knows of every message that was kept and not settled."""

    keeps = True

    def __init__(self, room: int) -> None:
        self.room = room
        self.live: dict[Queue, set[int]] = defaultdict(set)
        self.out: dict[Queue, set[int]] = defaultdict(set)
        self.waiting: list[Waiting] = []
        self.notes: list[str] = []
        self.fetches = 0
        self._shelves: dict[tuple[Queue, int], deque[Run]] = defaultdict(deque)

    def enter(self, queue: Queue, run: Run) -> None:
        self._note(f"{len(run)} to {queue.name}")
        run.kept = True
        places = {run.first + i * run.step for i in range(len(run))}
        assert not places & self.live[queue], "a place is given once"
        self.live[queue] |= places

    def shelve(self, queue: Queue, run: Run, lane: int, *, durable: bool) -> None:
        self.enter(queue, run)
        self._shelves[queue, lane].append(run.slice(0, len(run)))

    def fetch(self, queue: Queue, lane: int) -> list[Run]:
        self.fetches += 1
        shelf = self._shelves[queue, lane]
        run = shelf[0].take(AT_A_TIME)
        if run is shelf[0]:
            shelf.popleft()
        return [run]

    def shelved_bytes(self, queue: Queue) -> int:
        shelves = [shelf for (owner, _), shelf in self._shelves.items() if owner is queue]
        return sum(sum(run.body_sizes()) for shelf in shelves for run in shelf)

    def move(self, source: Queue, target: Queue, lane: int) -> None:
        """As if the target had been restarted with what the source has shelved."""
        self._shelves[target, lane] = self._shelves.pop((source, lane))
        self.live[target] |= self.live[source]

    def empty_shelves(self, queue: Queue) -> Steps[None]:
        for key in [each for each in self._shelves if each[0] is queue]:
            for run in self._shelves.pop(key):
                self.settle(queue, run.first, len(run), run.step)
                yield 1

    def settle(self, queue: Queue, first: int, count: int, step: int) -> None:
        places = {first + i * step for i in range(count)}
        self.live[queue] -= places
        self.out[queue] -= places

    def delivered(self, queue: Queue, first: int, count: int, step: int) -> None:
        places = {first + i * step for i in range(count)}
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

    def purged(self, queue: Queue) -> None:
        self._change(f"purged {queue.name}")

    def require_sync(self) -> None:
        self.entries += 1

    def begin(self) -> None:
        self.notes.append("begin")

    def end(self) -> None:
        self.notes.append("end")

    def _note(self, what: str) -> None:
        self.entries += 1
        self.notes.append(what)

    def _change(self, what: str) -> None:
        self._note(what)
        self.changed = self.ticket

    def tell(self, waiting: Waiting) -> None:
        self.waiting.append(waiting)

    def sync(self) -> None:
        self.begin_sync()()

    def begin_sync(self) -> Callable[[], None]:
        """Returns the function that ends the sync."""
        ticket = self.ticket
        self.ticket += 1
        waiting, self.waiting = self.waiting, []

        def end() -> None:
            self.safe = ticket
            for each in waiting:
                each.kept()

        return end


class Diary(Keeper):
    """Writes down what it is told, and can give it back as after a restart."""

    keeps = True

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

    def enter(self, queue: Queue, run: Run) -> None:
        self.entries += 1
        run.kept = True
        for i in range(len(run)):
            self.live[queue.name, run.first + i] = run.slice(i, i + 1)
        self.told.append(f"{queue.name} entered {run.first}")

    def settle(self, queue: Queue, first: int, count: int, step: int) -> None:
        for i in range(count):
            del self.live[queue.name, first + i * step]
        self.told.append(f"{queue.name} settled {first}")

    def fetch(self, queue: Queue, lane: int) -> list[Run]:
        return [run for (name, _), run in self.live.items() if name == queue.name]
