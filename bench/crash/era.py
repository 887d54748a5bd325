"""An era: a broker with one data folder is started and killed many times; then everything is drained.

cycle   start · survey · publishers and consumers at work · kill -9 at some moment end     start · drain · kill
-9 · start · drain again, which must find nothing
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from bench.crash import history as h
from bench.crash.checker import check
from bench.crash.client import BrokerObjectedError, ConnectionLostError, Incarnation
from bench.crash.consumers import TEMPERS, Consumer
from bench.crash.drain import drain
from bench.crash.history import AnyEvent, History
from bench.crash.publishers import HABITS, Publisher
from bench.crash.subject import Subject, kill
from bench.crash.surveyor import Surveyor
from bench.crash.verdict import Verdict
from workshop.peers import Server

PRESENT: Final = 0.6
"""The probability that a publisher or a consumer takes part in an incarnation: queues must also grow."""
LONGEST_S: Final = 0.25
YOUNG: Final = 0.1
"""How likely a broker is killed before it serves."""
YOUNG_S: Final = (0.05, 0.25)
LARGE: Final = 0.25
"""The probability that large messages are published in an incarnation; otherwise no journal segment would become full.
"""
DRAIN_S: Final = 60.0

# Kill it at the very moment when an event of this kind occurs.
MOMENTS: Final = (
    h.Sent,
    h.Confirmed,
    h.CommitAsked,
    h.Committed,
    h.Delivered,
    h.Acked,
    h.Kept,
    h.Rejected,
    h.Declared,
    h.Deleted,
    h.Gone,
)


@dataclass
class Outcome:
    verdict: Verdict
    cycles: int
    seconds: float
    starts: list[float]
    faults: list[str]
    events: list[AnyEvent] = field(repr=False)


def live_through(
    subject: Subject,
    cycles: int,
    seed: int,
    go_on: Callable[[], bool] = lambda: True,
) -> Outcome:
    """Run so many cycles, as long as `go_on` allows, then the drain and the check."""
    begun = time.monotonic()
    era = Era(subject, Random(seed))
    done = 0
    while done < cycles and go_on():
        era.cycle()
        done += 1
    for _ in range(2):
        era.drain()
    verdict = check(era.history.events)
    seconds = time.monotonic() - begun
    faults = [*subject.faults, *era.faults]
    return Outcome(verdict, done, seconds, subject.starts, faults, era.history.events)


class Era:
    def __init__(self, subject: Subject, rng: Random) -> None:
        self.history = History()
        self.faults: list[str] = []
        self._subject = subject
        self._rng = rng
        self._surveyor = Surveyor(self.history)
        self._publishers = [Publisher(habit, self.history, rng) for habit in HABITS]
        self._consumers = [Consumer(temper, self.history, rng) for temper in TEMPERS]
        self._incarnations = 0

    def cycle(self) -> None:
        if self._rng.random() < YOUNG:
            self._subject.die_young(self._rng.uniform(*YOUNG_S))
        with self._subject.living() as server:
            asyncio.run(self._live(server))
        self.history.add(h.Died(self._incarnations))

    def drain(self) -> None:
        with self._subject.living() as server:
            incarnation = self._begin(server)
            asyncio.run(self.noting(incarnation, self._drained(incarnation)))
        self.history.add(h.Died(self._incarnations))

    def _begin(self, server: Server) -> Incarnation:
        self._incarnations += 1
        self.history.add(h.Began(self._incarnations))
        return Incarnation(self._incarnations, server.port, large=self._rng.random() < LARGE)

    async def _live(self, server: Server) -> None:
        """Run all clients until the broker is killed and each has read its remaining input."""
        rng = self._rng
        incarnation = self._begin(server)

        def end() -> None:
            if not incarnation.over:
                kill(server)
                incarnation.over = True

        timer = asyncio.get_running_loop().call_later(rng.random() * LONGEST_S, end)
        if rng.random() < 0.5:
            self.history.watch = at(rng.choice(MOMENTS), rng.randint(1, 30), end)
        roles = [each for each in self._publishers + self._consumers if rng.random() < PRESENT]
        rng.shuffle(roles)
        await self.noting(incarnation, self._surveyor.survey(incarnation))
        await asyncio.gather(*[self.noting(incarnation, role.live(incarnation)) for role in roles])
        self.history.watch = None
        timer.cancel()
        end()
        await incarnation.end()

    async def _drained(self, incarnation: Incarnation) -> None:
        await asyncio.wait_for(self._surveyor.survey(incarnation), DRAIN_S)
        await asyncio.wait_for(drain(incarnation, self.history), DRAIN_S)
        await incarnation.end()

    async def noting(self, incarnation: Incarnation, work: Coroutine[Any, Any, None]) -> None:
        """The end of a killed broker is no fault; any other end of a client is."""
        try:
            await work
        except (ConnectionLostError, BrokerObjectedError, TimeoutError) as error:
            if not (incarnation.over and isinstance(error, ConnectionLostError)):
                self.faults.append(f"in incarnation {incarnation.number}: {error!r}")


def at(kind: type[AnyEvent], count: int, end: Callable[[], None]) -> Callable[[AnyEvent], None]:
    """Calls `end` at the event that is this one of its kind."""
    left = count

    def watch(event: AnyEvent) -> None:
        nonlocal left
        if isinstance(event, kind):
            left -= 1
            if left == 0:
                end()

    return watch
