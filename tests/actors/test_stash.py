"""The stash: order, bounds, and its content at the end of an instance."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors.actor import Actor
from recado.actors.actor_events import DeadLetter
from recado.actors.errors import ActorStoppedError
from recado.actors.message import Message
from recado.actors.stash import Stash, StashFullError
from recado.actors.supervision.strategy import OneForOne
from recado.actors.system import ActorSystem
from recado.actors.testkit import Probe

from .stories import told

ALWAYS = OneForOne(max_restarts=None)


class Put(Message[int]):
    number: int


class Switch(Message[None]):
    is_open: bool


class Fail(Message[None]):
    pass


class Store(Actor[Put | Switch | Fail]):
    def __init__(self, stored: list[int], capacity: int = 1_000) -> None:
        self.stored = stored
        self.capacity = capacity

    def pre_start(self) -> None:
        self.stash = Stash(self, self.capacity)

    def receive(self, message: Put | Switch | Fail) -> None:
        match message:
            case Put():
                self.stash.stash()
            case Switch(is_open=True):
                self.become(self.opened)
                self.stash.unstash_all()
            case Switch():
                pass
            case Fail():
                raise RuntimeError("fail")

    async def opened(self, message: Put | Switch | Fail) -> None:
        match message:
            case Put(number):
                await asyncio.sleep(0)
                self.stored.append(number)
                self.reply_if_asked(number)
            case Switch(is_open=is_open):
                if not is_open:
                    self.become(self.receive)
            case Fail():
                raise RuntimeError("fail")


STEPS = st.lists(
    st.sampled_from(["put", "put", "put", "open", "close", "fail", "wait"]), max_size=30
)


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, seed=st.none() | st.integers(0, 1_000))
def test_all_is_handled_once_and_in_order_however_often_it_was_put_aside(
    steps: list[str], seed: int | None
) -> None:
    stored: list[int] = []

    async def story(system: ActorSystem) -> list[int]:
        ref = await system.spawn(lambda: Store(stored), supervisor_strategy=ALWAYS)
        asks = []
        for number, step in enumerate(steps):
            match step:
                case "put":
                    asks.append(ref.ask_future(Put(number), timeout=1_000))
                case "open" | "close":
                    ref.tell(Switch(step == "open"))
                case "fail":
                    ref.tell(Fail())
                case _:
                    await asyncio.sleep(1)
        ref.tell(Switch(True))
        return await asyncio.gather(*asks)

    answers = told(story, seed)
    numbers = [number for number, step in enumerate(steps) if step == "put"]
    assert answers == numbers
    assert stored == numbers


def test_one_too_many_is_a_failure_and_nothing_is_lost_by_it() -> None:
    stored: list[int] = []

    async def story(system: ActorSystem) -> None:
        ref = await system.spawn(lambda: Store(stored, 2), supervisor_strategy=ALWAYS)
        asks = [ref.ask_future(Put(number), timeout=100) for number in range(3)]
        with pytest.raises(StashFullError):
            await asks[2]
        ref.tell(Switch(True))
        assert [await asks[0], await asks[1]] == [0, 1]

    told(story)
    assert stored == [0, 1]


def test_after_a_stop_what_was_stashed_are_dead_letters() -> None:
    async def story(system: ActorSystem) -> None:
        probe = await Probe[DeadLetter].spawn(system)
        system.events.subscribe(probe.ref, DeadLetter)
        ref = await system.spawn(lambda: Store([]))
        asked = ref.ask_future(Put(1), timeout=100)
        await asyncio.sleep(1)
        assert system.mailbox_size(ref) == 0
        ref.stop()
        assert (await probe.expect(DeadLetter)).message == Put(1)
        with pytest.raises(ActorStoppedError):
            await asked

    told(story)


def test_putting_aside_a_thousand_times_costs_no_more_than_once() -> None:
    stored: list[int] = []

    async def story(system: ActorSystem) -> None:
        ref = await system.spawn(lambda: Store(stored))
        for number in range(3_000):
            ref.tell(Put(number))
            ref.tell(Switch(True))
            ref.tell(Switch(False))
            await asyncio.sleep(0)
        ref.tell(Switch(True))
        assert await ref.ask(Put(3_000), timeout=1_000) == 3_000

    told(story)
    assert stored == list(range(3_001))
