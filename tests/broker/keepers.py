"""A keeper that writes nothing, for tests of who calls it and when."""

from collections import defaultdict, deque

from recado.broker.keeper import Keeper, Waiting
from recado.broker.queue import Queue
from recado.broker.run import Run

AT_A_TIME = 3


class Cupboard(Keeper):
    """Has shelves, and knows of every message that was kept and not settled."""

    keeps = True

    def __init__(self, room: int) -> None:
        self.room = room
        self.live: dict[Queue, set[int]] = defaultdict(set)
        self.out: dict[Queue, set[int]] = defaultdict(set)
        self.waiting: list[Waiting] = []
        self._shelves: dict[tuple[Queue, int], deque[Run]] = defaultdict(deque)

    def enter(self, queue: Queue, run: Run) -> None:
        self.entries += 1
        run.kept = True
        places = {run.first + i * run.step for i in range(len(run))}
        assert not places & self.live[queue], "a place is given once"
        self.live[queue] |= places

    def shelve(self, queue: Queue, run: Run, lane: int, *, durable: bool) -> None:
        self.enter(queue, run)
        self._shelves[queue, lane].append(run.slice(0, len(run)))

    def fetch(self, queue: Queue, lane: int) -> list[Run]:
        shelf = self._shelves[queue, lane]
        run = shelf[0].take(AT_A_TIME)
        if run is shelf[0]:
            shelf.popleft()
        return [run]

    def empty_shelf(self, queue: Queue, lane: int) -> None:
        for run in self._shelves.pop((queue, lane)):
            self.settle(queue, run.first, len(run), run.step)

    def settle(self, queue: Queue, first: int, count: int, step: int) -> None:
        places = {first + i * step for i in range(count)}
        self.live[queue] -= places
        self.out[queue] -= places

    def delivered(self, queue: Queue, first: int, count: int, step: int) -> None:
        places = {first + i * step for i in range(count)}
        assert places <= self.live[queue]
        self.out[queue] |= places

    def tell(self, waiting: Waiting) -> None:
        self.waiting.append(waiting)

    def sync(self) -> None:
        self.safe = self.ticket
        self.ticket += 1
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.kept()
