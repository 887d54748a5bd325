"""Timers: when they fire, and when they do not."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors.actor import Actor
from recado.actors.dispatchers import FixedPool
from recado.actors.message import Message
from recado.actors.supervision.strategy import OneForOne
from recado.actors.system import ActorSystem
from recado.actors.testkit import Probe
from recado.actors.timers import Timers

from .stories import told


class Tick(Message[None]):
    number: int = 0


class Do(Message[None]):
    what: str
    delay: float = 1.0
    number: int = 0
    key: str | None = None


class Clockwork(Actor[Tick | Do]):
    def __init__(self, heard: list[tuple[float, int]]) -> None:
        self.heard = heard

    def pre_start(self) -> None:
        self.timers = Timers(self)

    def receive(self, message: Tick | Do) -> None:
        match message:
            case Tick(number):
                self.heard.append((self.system._clock.time(), number))
            case Do("once", delay, number, key):
                self.timers.once(delay, Tick(number), key=key)
            case Do("every", delay, number, key):
                self.timers.every(delay, Tick(number), key=key)
            case Do("cancel", key=key):
                self.timers.cancel(key)
            case Do("cancel all"):
                self.timers.cancel_all()
            case Do("fail"):
                raise RuntimeError("fail")
            case Do("stop"):
                self.stop()
            case _:
                self.unhandled(message)


Log = list[tuple[float, int]]


def heard(*steps: Do | float, seed: int | None = None) -> Log:
    """What ticked when, if this is done; numbers are seconds that pass."""
    log: Log = []

    async def story(system: ActorSystem) -> None:
        ref = await system.spawn(
            lambda: Clockwork(log), supervisor_strategy=OneForOne(max_restarts=None), name="clock"
        )
        for step in steps:
            if isinstance(step, Do):
                ref.tell(step)
                await asyncio.sleep(0)
            else:
                await asyncio.sleep(step)

    told(story, seed)
    return log


def test_once_is_once_and_every_is_again_and_again() -> None:
    assert heard(Do("once", 2.0, 7), 10.0) == [(2.0, 7)]
    assert heard(Do("every", 2.0, 7), 7.0) == [(2.0, 7), (4.0, 7), (6.0, 7)]
    assert heard(Do("once", 0.0), 0.5) == [(0.0, 0)]


def test_a_timer_takes_the_place_of_the_one_with_its_key() -> None:
    assert heard(Do("once", 2.0, 1, "a"), 1.0, Do("once", 2.0, 2, "a"), 9.0) == [(3.0, 2)]
    steps = (Do("once", 2.0, 1, "a"), Do("every", 1.5, 2, "b"), 2.0)
    assert heard(*steps) == [(1.5, 2), (2.0, 1)]


def test_what_is_cancelled_does_not_fire() -> None:
    steps = (Do("every", 1.0, 1, "a"), Do("once", 3.0, 2, "b"), 1.5)
    assert heard(*steps, Do("cancel", key="a"), 9.0) == [(1.0, 1), (3.0, 2)]
    assert heard(*steps, Do("cancel all"), 9.0) == [(1.0, 1)]
    assert heard(Do("cancel", key="never was"), Do("once", 1.0), 2.0) == [(1.0, 0)]


@pytest.mark.parametrize("end", ["fail", "stop"])
@given(seed=st.integers(0, 1_000), moment=st.sampled_from([0.0, 0.5, 1.0, 2.0]))
@settings(max_examples=30, deadline=None)
def test_no_timer_outlives_its_instance(end: str, seed: int, moment: float) -> None:
    ticks = heard(
        Do("every", 1.0, 1), Do("once", 3.0, 2), moment, Do(end), 10.0, Do("once", 1.0, 3), 5.0,
        seed=seed,
    )  # fmt: skip
    old = [number for _, number in ticks if number != 3]
    assert len(old) <= moment
    assert 2 not in old
    assert [number for _, number in ticks if number == 3] == ([3] if end == "fail" else [])


def test_a_timer_that_was_begun_when_the_end_had_come_does_not_fire() -> None:
    """From a thread, a call takes its time to get to the loop."""
    timers: list[Timers] = []

    class Late(Clockwork):
        def pre_start(self) -> None:
            super().pre_start()
            timers.append(self.timers)

    async def story(system: ActorSystem) -> int:
        ref = await system.spawn(lambda: Late([]))
        await system.stop(ref)
        timers[0].once(1.0, Tick())
        timers[0].every(1.0, Tick())
        await asyncio.sleep(5)
        return system.dead_letter_count

    assert told(story) == 0


def test_what_was_missed_is_left_out_and_nothing_drifts() -> None:
    ticks: Log = []

    async def story(system: ActorSystem) -> None:
        ref = await system.spawn(lambda: Clockwork(ticks))
        ref.tell(Do("every", 1.0))
        await asyncio.sleep(2.5)
        loop: Any = system._loop
        loop.advance(3.25)  # the loop was busy elsewhere until 5.75
        await asyncio.sleep(2.0)

    told(story)
    assert ticks == [(1.0, 0), (2.0, 0), (5.75, 0), (6.0, 0), (7.0, 0)]


def test_every_needs_an_interval() -> None:
    async def story(system: ActorSystem) -> None:
        probe = await Probe[Any].spawn(system)
        with pytest.raises(ValueError, match="must be positive"):
            Timers(probe._actor).every(0.0, Tick())

    told(story)


def test_timers_of_an_actor_that_runs_in_threads() -> None:
    log: Log = []
    finished = threading.Event()

    class Done(Clockwork):
        def receive(self, message: Tick | Do) -> None:
            super().receive(message)
            if isinstance(message, Tick) and len(log) == 3:
                finished.set()

    async def story() -> None:
        async with FixedPool(2) as pool, ActorSystem("test") as system:
            ref = await system.spawn(lambda: Done(log), dispatcher=pool)
            ref.tell(Do("every", 0.001, 1, "a"))
            await asyncio.to_thread(finished.wait, 20)

    asyncio.run(story())
    assert [number for _, number in log][:3] == [1, 1, 1]
