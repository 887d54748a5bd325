"""Properties of all actors with any schedule: order, one message at a time, mailboxes that survive failures."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors.actor import Actor
from recado.actors.dispatchers import FixedPool
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.actors.supervision.strategy import OneForOne
from recado.actors.system import ActorSystem

from .stories import BrokenError, Diary, Listener, Note, told

ALWAYS = OneForOne(max_restarts=None)
SEEDS = st.none() | st.integers(0, 10_000)
PAUSES = st.sampled_from([None, None, 0.0, 0.01])


class Script(Message[None]):
    """What a sender is to send: to which listener, and how that handles it."""

    steps: tuple[tuple[int, float | None, bool], ...]
    to: tuple[ActorRef[Note], ...]


class Sender(Actor[Script]):
    def __init__(self, number: int) -> None:
        self.number = number

    async def receive(self, message: Script) -> None:
        for number, (target, pause, fails) in enumerate(message.steps):
            message.to[target].tell(Note(self.number, number, pause, fails))
            if number % 3 == 2:
                await asyncio.sleep(0)


SCRIPTS = st.lists(
    st.lists(st.tuples(st.integers(0, 2), PAUSES, st.booleans()), max_size=12).map(tuple),
    min_size=1,
    max_size=3,
)


@settings(max_examples=200, deadline=None)
@given(scripts=SCRIPTS, seed=SEEDS, capacity=st.sampled_from([0, 1, 3]))
def test_each_pair_is_in_order_and_each_message_is_handled_once_whatever_fails(
    scripts: list[tuple[tuple[int, float | None, bool], ...]], seed: int | None, capacity: int
) -> None:
    diaries = [Diary(), Diary(), Diary()]

    async def story(system: ActorSystem) -> None:
        listeners = [
            await system.spawn(
                partial(Listener, diary), supervisor_strategy=ALWAYS, capacity=capacity
            )
            for diary in diaries
        ]
        for number, script in enumerate(scripts):
            sender = await system.spawn(partial(Sender, number))
            sender.tell(Script(script, tuple(listeners)))
        await asyncio.sleep(1_000)

    told(story, seed)
    for target, diary in enumerate(diaries):
        diary.check()
        sent = [
            (sender, number)
            for sender, script in enumerate(scripts)
            for number, step in enumerate(script)
            if step[0] == target
        ]
        assert sorted(diary.notes) == sorted(sent)


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(st.tuples(PAUSES, st.booleans(), st.booleans()), min_size=1, max_size=15),
    hook=PAUSES,
    seed=SEEDS,
)
def test_a_restart_keeps_the_mailbox_and_what_is_told_meanwhile(
    steps: list[tuple[float | None, bool, bool]], hook: float | None, seed: int | None
) -> None:
    diary = Diary()

    class Patient(Listener):
        async def pre_restart(self, reason: BaseException, message: object) -> None:
            diary.enter()
            await asyncio.sleep(hook or 0)
            diary.life.append(f"pre {message.number if isinstance(message, Note) else None}")
            diary.leave()

        async def pre_start(self) -> None:
            await asyncio.sleep(hook or 0)

        async def post_restart(self, reason: BaseException) -> None:
            diary.enter()
            await asyncio.sleep(hook or 0)
            diary.life.append(f"post {reason}")
            diary.leave()

    async def story(system: ActorSystem) -> None:
        ref = await system.spawn(lambda: Patient(diary), supervisor_strategy=ALWAYS)
        for number, (pause, fails, waits) in enumerate(steps):
            ref.tell(Note(0, number, pause, fails))
            if waits:
                await asyncio.sleep(0.004)
        assert await ref.ask(Note(0, len(steps)), timeout=1_000) == len(steps)

    told(story, seed)
    diary.check()
    assert diary.notes == [(0, number) for number in range(len(steps) + 1)]
    failed = [number for number, step in enumerate(steps) if step[1]]
    assert diary.life == [f"{hook} {number}" for number in failed for hook in ("pre", "post")]


@settings(max_examples=100, deadline=None)
@given(
    asks=st.lists(st.tuples(PAUSES, st.booleans()), min_size=1, max_size=10),
    seed=SEEDS,
)
def test_every_ask_has_its_own_answer_or_its_own_failure(
    asks: list[tuple[float | None, bool]], seed: int | None
) -> None:
    async def story(system: ActorSystem) -> list[object]:
        ref = await system.spawn(lambda: Listener(Diary()), supervisor_strategy=ALWAYS)
        futures = [
            ref.ask_future(Note(0, number, pause, fails), timeout=100)
            for number, (pause, fails) in enumerate(asks)
        ]
        return await asyncio.gather(*futures, return_exceptions=True)

    answers = told(story, seed)
    for number, ((_, fails), answer) in enumerate(zip(asks, answers, strict=True)):
        if fails:
            assert isinstance(answer, BrokenError)
            assert str(answer) == str(number)
        else:
            assert answer == number


@settings(max_examples=20, deadline=None)
@given(counts=st.lists(st.integers(0, 60), min_size=1, max_size=3), failing=st.integers(2, 20))
def test_with_threads_as_well_order_and_one_at_a_time(counts: list[int], failing: int) -> None:
    """Threads of the program send, threads of a pool handle, and the actor fails now and then."""
    diary = Diary()

    async def story() -> None:
        async with FixedPool(3) as pool, ActorSystem("test") as system:
            ref = await system.spawn(
                lambda: Listener(diary), supervisor_strategy=ALWAYS, dispatcher=pool
            )

            def send(sender: int, count: int) -> None:
                for number in range(count):
                    ref.tell(Note(sender, number, fails=number % failing == failing - 1))

            threads = [threading.Thread(target=send, args=each) for each in enumerate(counts)]
            for thread in threads:
                thread.start()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            assert await ref.ask(Note(len(counts), 0), timeout=30) == 0

    asyncio.run(story())
    diary.check()
    assert len(diary.notes) == sum(counts) + 1
