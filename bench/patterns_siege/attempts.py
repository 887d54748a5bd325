"""Whether the numbers of the attempts of one task are exact: a pure function of what was noted.

The judge follows the *copies* of a task in the broker. A task is one copy; a retry replaces it by another one, whose
last number is that of the failed attempt. A kill leaves several possibilities, and only those:

- A worker was killed after its handler had failed: the retry may have been confirmed, the original, which was not
  acknowledged, is delivered again, and both exist.
- A worker was killed after its handler had ended: the task may be delivered again.
- A worker was killed before its handler began: the delivery counts, so the next number is higher by one.
- The broker was away while a task or a retry was published: the client may have published it twice.
- The broker was away while a handler ran: the task is delivered again, and the failure of the first handler, whose
  acknowledgement has no effect any more, is published as a retry too.

An attempt continues one of the copies with the next number, plus the deliveries that are explained by kills. In the
end each copy that must exist is among the dead letters, and each dead letter was a copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import inf, nextafter
from typing import Any, Final

import msgspec

BROKER: Final = "broker"
TASKS: Final = "tasks"
ACK_S: Final = (
    1.0  # acknowledgements have no confirms: a broker that is killed so soon may have forgotten one
)


class Kill(msgspec.Struct, frozen=True):
    """A process that was killed, or a broker that was away, for some time."""

    name: str
    pid: int
    began: float
    ended: float

    def overlaps(self, began: float, ended: float) -> bool:
        return self.began <= ended and began <= self.ended


class Attempt(msgspec.Struct, frozen=True):
    """A begin in the notes of a handler, and how it went on."""

    task: int
    number: int
    pid: int
    began: float
    outcome: str | None  # "end", "fail", or None: its worker was killed
    ended: float  # inf if it did not
    settled: float  # when its worker began the next one, which it gets after the acknowledgement


class Copy(msgspec.Struct, frozen=True, order=True):
    """A copy of a task in the broker, after the attempt with this number."""

    last: int
    since: float
    must_exist: bool


def read_attempts(notes: Sequence[Mapping[str, Any]]) -> list[Attempt]:
    """Return the attempts of all tasks in the order in which they began."""
    begins: list[Mapping[str, Any]] = []
    open_begins: dict[tuple[int, int, int], list[int]] = defaultdict(list)  # indices of `begins`
    outcomes: dict[int, tuple[str, float]] = {}
    for note in sorted(notes, key=_at):
        key = note["n"], note["pid"], note["attempt"]
        if note["event"] == "begin":
            open_begins[key].append(len(begins))
            begins.append(note)
        else:
            outcomes[open_begins[key].pop(0)] = note["event"], note["at"]
    by_worker: dict[int, list[float]] = defaultdict(list)
    for note in begins:
        by_worker[note["pid"]].append(note["at"])
    found = []
    for index, note in enumerate(begins):
        outcome, ended = outcomes.get(index, (None, inf))
        settled = next((at for at in by_worker[note["pid"]] if at > ended), inf)
        found.append(
            Attempt(note["n"], note["attempt"], note["pid"], note["at"], outcome, ended, settled)
        )
    return found


def _at(note: Mapping[str, Any]) -> float:
    at: float = note["at"]
    return at


class Kills:
    """What was killed, and which tasks a kill can explain.

    A worker has one task at a time. If its handler was running when it was killed, no other task was delivered to it.
    """

    def __init__(self, kills: Sequence[Kill], attempts: Sequence[Attempt]) -> None:
        self._broker = [kill for kill in kills if kill.name == BROKER]
        self._workers = [
            (kill, self._running(kill, attempts)) for kill in kills if kill.name == TASKS
        ]

    def _running(self, kill: Kill, attempts: Sequence[Attempt]) -> int | None:
        """Return the task whose handler the kill has interrupted, if the worker had no other one."""
        running = [
            each
            for each in attempts
            if each.pid == kill.pid and each.outcome is None and each.began <= kill.ended
        ]
        if len(running) != 1 or self.of_broker(running[0].began, kill.ended):
            return None
        return running[0].task

    def of_broker(self, began: float, ended: float) -> bool:
        return any(kill.overlaps(began, ended) for kill in self._broker)

    def count_of_broker(self, began: float, ended: float) -> int:
        return sum(kill.overlaps(began, ended) for kill in self._broker)

    def of_worker(self, pid: int, began: float, ended: float) -> bool:
        return any(kill.pid == pid and kill.overlaps(began, ended) for kill, _ in self._workers)

    def end_of(self, attempt: Attempt) -> float:
        """Return the first moment after the worker of an attempt was killed, which explains no second attempt."""
        ended = (
            kill.ended
            for kill, _ in self._workers
            if kill.pid == attempt.pid and kill.ended >= attempt.began
        )
        return nextafter(min(ended, default=inf), inf)

    def explaining(self, task: int, began: float, ended: float) -> int:
        """Return how many deliveries of a task may have been lost with their workers."""
        return self.count_of_broker(began, ended) + sum(
            running in (None, task) and kill.overlaps(began, ended)
            for kill, running in self._workers
        )


class Explanation:
    """Searches a history of the copies of one task that agrees with its attempts and dead letters."""

    def __init__(
        self,
        task: int,
        published: tuple[float, float],
        attempts: Sequence[Attempt],
        dead_letters: Sequence[str | None],
        kills: Kills,
        limit: int,
    ) -> None:
        """`dead_letters` are the message ids of the notes about dead letters."""
        self._task = task
        self._attempts = attempts
        self._dead_count = len(dead_letters)
        self._dead_least_count = len(set(dead_letters))
        self._kills = kills
        self._limit = limit
        self._doubled = [Copy(0, published[0], must_exist=False)] * kills.count_of_broker(
            *published
        )
        self._first = Copy(0, published[0], must_exist=True)
        self.reached = 0  # how many attempts could be explained
        self.is_doubtful = bool(self._doubled)  # whether kills have left several possibilities

    def exists(self) -> bool:
        return self._search(0, (self._first, *self._doubled))

    def _search(self, index: int, copies: tuple[Copy, ...]) -> bool:
        self.reached = max(self.reached, index)
        if index == len(self._attempts):
            return self._ends(copies)
        attempt = self._attempts[index]
        for copy in set(copies):
            if self._continues(attempt, copy):
                others = list(copies)
                others.remove(copy)
                if self._search(index + 1, (*others, *self._after(attempt))):
                    return True
        return False

    def _continues(self, attempt: Attempt, copy: Copy) -> bool:
        excess = attempt.number - copy.last - 1
        if excess < 0 or attempt.number > self._limit:
            return False
        self.is_doubtful |= excess > 0
        if attempt.outcome is None and not self._kills.of_worker(attempt.pid, attempt.began, inf):
            return False  # it cannot vanish otherwise
        return not excess or excess <= self._kills.explaining(self._task, copy.since, attempt.began)

    def _after(self, attempt: Attempt) -> Iterator[Copy]:
        """Yield the copies that remain of the one that was attempted."""
        kills, number = self._kills, attempt.number
        if attempt.outcome is None:
            yield Copy(number, kills.end_of(attempt), must_exist=True)
            return
        # Its worker has published and acknowledged what follows before it begins the next task, or is killed.
        settled = min(attempt.settled, kills.end_of(attempt))
        doubled = 0
        if attempt.outcome == "fail":
            yield Copy(number, attempt.ended, must_exist=True)
            doubled = kills.count_of_broker(
                attempt.ended, settled
            )  # the retry may be published twice
        is_forked = kills.of_worker(attempt.pid, attempt.ended, attempt.settled)
        is_forked |= kills.of_broker(attempt.began, settled + ACK_S)
        for _ in range(is_forked + doubled):
            self.is_doubtful = True
            yield Copy(number, attempt.began, must_exist=False)

    def _ends(self, copies: Sequence[Copy]) -> bool:
        """Whether the copies that are left can be the dead letters."""
        possible = [copy for copy in copies if self._can_be_dead(copy)]
        must = sum(copy.must_exist for copy in copies)
        if sum(copy.must_exist for copy in possible) != must:
            return False
        # A dead letter too may have been published twice. Copies have the same message id, unless the task has none;
        # and so have two notes of one dead letter.
        doubled = sum(self._kills.of_broker(copy.since, inf) for copy in possible)
        return must <= self._dead_count and self._dead_least_count <= len(possible) + doubled

    def _can_be_dead(self, copy: Copy) -> bool:
        missing = self._limit - copy.last
        return missing <= self._kills.explaining(self._task, copy.since, inf)
