"""Routers: which routee gets a message, and what happens when routees stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors.actor import Actor
from recado.actors.errors import ActorStoppedError
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.actors.routers import (
    BROADCAST,
    ROUND_ROBIN,
    SMALLEST_MAILBOX,
    RoutingLogic,
    group,
    pool,
)
from recado.actors.supervision.strategy import OneForOne
from recado.actors.system import ActorSystem
from recado.actors.testkit import Probe

from .stories import Diary, Listener, Note, told


class Who(Message[str]):
    pass


class Work(Message[None]):
    seconds: float = 0.0
    fails: bool = False


class Worker(Actor[Who | Work]):
    def __init__(self, done: list[str] | None = None) -> None:
        self.done = done if done is not None else []

    async def receive(self, message: Who | Work) -> None:
        match message:
            case Who():
                self.reply(str(self.ref))
            case Work(seconds, fails):
                await asyncio.sleep(seconds)
                if fails:
                    raise RuntimeError("fails")
                self.done.append(str(self.ref))


async def workers(system: ActorSystem, count: int, done: list[str]) -> list[ActorRef[Any]]:
    return [await system.spawn(lambda: Worker(done)) for _ in range(count)]


def test_round_robin_gives_each_its_turn() -> None:
    async def story(system: ActorSystem) -> None:
        refs = await workers(system, 3, [])
        router = await system.spawn(group(refs, ROUND_ROBIN))
        answers = [await router.ask(Who()) for _ in range(7)]
        assert answers == [str(refs[at % 3]) for at in range(7)]

    told(story)


def test_the_smallest_mailbox_is_chosen_and_among_equals_the_next() -> None:
    async def story(system: ActorSystem) -> None:
        refs = await workers(system, 3, [])
        router = await system.spawn(group(refs, SMALLEST_MAILBOX))
        assert [await router.ask(Who()) for _ in range(4)] == [str(refs[at]) for at in (0, 1, 2, 0)]
        refs[1].tell(Work(100))
        refs[2].tell(Work(100))
        refs[2].tell(Work())
        await asyncio.sleep(1)
        assert {await router.ask(Who()) for _ in range(4)} == {str(refs[0])}
        refs[0].tell(Work(100))
        await asyncio.sleep(1)
        router.tell(Work())
        router.tell(Work())
        await asyncio.sleep(1)
        assert [system.mailbox_size(ref) for ref in refs] == [1, 1, 1]

    told(story)


@settings(max_examples=50, deadline=None)
@given(
    seconds=st.lists(st.sampled_from([0.0, 1.0, 5.0]), min_size=1, max_size=12),
    seed=st.none() | st.integers(0, 1_000),
)
def test_the_smallest_mailbox_never_waits_while_another_one_is_idle(
    seconds: list[float], seed: int | None
) -> None:
    """With as many actors as messages at most, nobody ever has two."""

    async def story(system: ActorSystem) -> None:
        router = await system.spawn(pool(Worker, len(seconds), SMALLEST_MAILBOX))
        for each in seconds:
            router.tell(Work(each))
            await asyncio.sleep(0.25)
            assert all(system.mailbox_size(ref) == 0 for ref in system.registry.by_class(Worker))

    told(story, seed)


def test_broadcast_is_for_everybody_and_the_first_answer_counts() -> None:
    done: list[str] = []

    async def story(system: ActorSystem) -> None:
        refs = await workers(system, 3, done)
        router = await system.spawn(group(refs, BROADCAST))
        router.tell(Work())
        assert await router.ask(Who()) in {str(ref) for ref in refs}
        await asyncio.sleep(1)
        assert sorted(done) == sorted(str(ref) for ref in refs)

    told(story)


@pytest.mark.parametrize("routing", [ROUND_ROBIN, SMALLEST_MAILBOX])
def test_the_sender_is_who_sent_and_not_the_router(routing: RoutingLogic) -> None:
    async def story(system: ActorSystem) -> None:
        asker, worker = [await Probe[Any].spawn(system) for _ in range(2)]

        class Client(Actor[Who]):
            def receive(self, message: Who) -> None:
                router.tell(message)

        router = await system.spawn(group([worker.ref], routing))
        client = await system.spawn(Client)
        client.tell(Who())
        await worker.expect(Who)
        assert worker.sender == client
        future = router.ask_future(Who())
        await worker.expect(Who)
        worker.reply("me")
        assert await future == "me"
        await asker.expect_no_message()

    told(story)


def test_who_has_stopped_gets_nothing_and_for_nobody_there_are_dead_letters() -> None:
    async def story(system: ActorSystem) -> None:
        refs = await workers(system, 3, [])
        router = await system.spawn(group(refs))
        await system.stop(refs[1])
        await asyncio.sleep(1)
        answers = [await router.ask(Who()) for _ in range(4)]
        assert answers == [str(refs[at]) for at in (0, 2, 0, 2)]
        await system.stop(refs[0])
        await system.stop(refs[2])
        await asyncio.sleep(1)
        before = system.dead_letter_count
        with pytest.raises(ActorStoppedError):
            await router.ask(Who())
        router.tell(Work())
        await asyncio.sleep(1)
        assert system.dead_letter_count == before + 2

    told(story)


def test_a_pool_makes_its_actors_and_restarts_them_in_their_place() -> None:
    async def story(system: ActorSystem) -> None:
        router = await system.spawn(pool(Worker, 3), name="pool")
        assert len(system.registry.by_class(Worker)) == 3
        before = [await router.ask(Who()) for _ in range(3)]
        for _ in range(3):
            router.tell(Work(fails=True))
        assert [await router.ask(Who()) for _ in range(3)] == before
        assert len(system.registry.by_class(Worker)) == 3
        await system.stop(router)
        assert len(system.registry) == 0

    told(story)


def test_a_pool_fails_for_an_actor_that_fails_too_often_and_is_whole_again() -> None:
    async def story(system: ActorSystem) -> None:
        once = OneForOne(1, within=None)
        router = await system.spawn(pool(Worker, 2, supervisor_strategy=once), name="pool")
        for _ in range(3):
            router.tell(Work(fails=True))
        await asyncio.sleep(1)
        assert len({await router.ask(Who()) for _ in range(4)}) == 2
        assert len(system.registry.by_class(Worker)) == 2

    told(story)


@settings(max_examples=50, deadline=None)
@given(
    routing=st.sampled_from(RoutingLogic),
    count=st.integers(1, 4),
    messages=st.integers(0, 30),
    seed=st.integers(0, 1_000),
)
def test_each_message_arrives_and_in_order_for_each_actor(
    routing: RoutingLogic, count: int, messages: int, seed: int
) -> None:
    diaries = [Diary() for _ in range(count)]

    async def story(system: ActorSystem) -> None:
        refs = [await system.spawn(partial(Listener, diary)) for diary in diaries]
        router = await system.spawn(group(refs, routing))
        for number in range(messages):
            router.tell(Note(0, number, 0.0 if number % 3 else None))
        await asyncio.sleep(100)

    told(story, seed)
    for diary in diaries:
        diary.check()
    times = Counter(number for diary in diaries for _, number in diary.notes)
    each = count if routing is BROADCAST else 1
    assert times == Counter(dict.fromkeys(range(messages), each))
    if routing is ROUND_ROBIN:
        sizes = [len(diary.notes) for diary in diaries]
        assert max(sizes) - min(sizes) <= 1
