"""Bugs of other actor libraries, each as a test. The properties are tested in general elsewhere."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from recado.actors import (
    Actor,
    ActorRef,
    ActorStoppedError,
    ActorSystem,
    AskTimeoutError,
    Down,
    Message,
    NodeUnreachableError,
    OneForOne,
    WrongContextError,
    blocking,
)
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.options import RemoteOptions
from recado.actors.testkit import Probe, run

from .stories import BrokenError, Diary, Listener, Note, told


def test_a_throwing_constructor_leaves_no_zombie() -> None:
    class Stillborn(Actor[Note]):
        def __init__(self) -> None:
            threads.append(threading.active_count())
            raise BrokenError("in the constructor")

    threads: list[int] = []

    async def story(system: ActorSystem) -> None:
        before = threading.active_count()
        with pytest.raises(BrokenError, match="in the constructor"):
            await system.spawn(Stillborn, name="name")
        assert len(system.registry) == 0
        assert threading.active_count() == before
        with pytest.raises(Exception, match="no actor"):
            system.actor("name")
        ref = await system.spawn(lambda: Listener(Diary()), name="name")
        assert await ref.ask(Note(0, 1)) == 1

    told(story)


def test_a_throwing_constructor_at_a_restart_leaves_no_zombie_either() -> None:
    lives: list[int] = []

    class Once(Listener):
        def __init__(self) -> None:
            super().__init__(Diary())
            lives.append(1)
            if len(lives) > 1:
                raise BrokenError("in the constructor")

    async def story(system: ActorSystem) -> None:
        probe = await Probe[Any].spawn(system)
        ref = await system.spawn(Once, name="name", supervisor_strategy=OneForOne(2, within=10))
        probe.monitor(ref)
        ref.tell(Note(0, 0, fails=True))
        waiting = ref.ask_future(Note(0, 1), timeout=100)
        assert (await probe.expect(Down)).ref == ref
        with pytest.raises(ActorStoppedError):
            await waiting
        assert list(system.registry) == [probe.ref]
        assert len(lives) == 3

    told(story)


@pytest.mark.parametrize("restarts", [0, 1, 3])
def test_a_budget_of_so_many_restarts_is_that_many(restarts: int) -> None:
    """Neither one more nor one less; and a restart that is `within` seconds old does not count any more."""

    async def story(system: ActorSystem) -> None:
        strategy = OneForOne(restarts, within=8)
        ref = await system.spawn(lambda: Listener(Diary()), supervisor_strategy=strategy)
        for _ in range(restarts):
            ref.tell(Note(0, 0, fails=True))
            assert await ref.ask(Note(0, 1)) == 1
        if restarts:
            await asyncio.sleep(8)  # the edge: all of them are too old
            for _ in range(restarts):
                ref.tell(Note(0, 0, fails=True))
                assert await ref.ask(Note(0, 1)) == 1
            await asyncio.sleep(7.5)  # not yet
        ref.tell(Note(0, 0, fails=True))
        with pytest.raises(ActorStoppedError):
            await ref.ask(Note(0, 1))

    told(story)


def test_what_is_told_during_a_restart_is_not_lost() -> None:
    diary = Diary()

    class Slow(Listener):
        async def pre_restart(self, reason: BaseException, message: Any) -> None:
            await asyncio.sleep(10)

        async def pre_start(self) -> None:
            await asyncio.sleep(10)

        async def post_restart(self, reason: BaseException) -> None:
            await asyncio.sleep(10)

    async def story(system: ActorSystem) -> None:
        ref = await system.spawn(lambda: Slow(diary))
        ref.tell(Note(0, 0))
        ref.tell(Note(0, 1, fails=True))
        for number in range(2, 30):
            ref.tell(Note(0, number))
            await asyncio.sleep(1)
        assert await ref.ask(Note(0, 30), timeout=100) == 30

    told(story)
    assert diary.notes == [(0, number) for number in range(31)]


class Echo(Message[str]):
    text: str = ""


class Echoing(Actor[Echo]):
    def receive(self, message: Echo) -> None:
        self.reply_if_asked(message.text)


def test_a_remote_watch_hears_of_a_stop_of_a_failure_and_of_a_lost_node() -> None:
    async def story() -> None:
        hub = MemoryNetwork()
        quick = RemoteOptions(heartbeat_interval=0.25, failure_timeout=2.0)
        here = ActorSystem("here", transport=MemoryTransport(hub), options=quick)
        there = ActorSystem("there", transport=MemoryTransport(hub), options=quick)
        async with here, there:
            probe = await Probe[Any].spawn(here)
            for name in ("stops", "fails", "is cut off"):
                await there.spawn(
                    lambda: Listener(Diary()),
                    name=name,
                    supervisor_strategy=OneForOne(max_restarts=0),
                )
            stops, fails, cut_off = (
                here.actor(name, node="there") for name in ("stops", "fails", "is cut off")
            )
            for ref in (stops, fails, cut_off):
                probe.monitor(ref)
                assert await ref.ask(Note(0, 1)) == 1
            there.actor("stops").stop()
            down = await probe.expect(Down)
            assert (down.ref.address.name, down.reason) == ("stops", None)
            fails.tell(Note(0, 2, fails=True))
            down = await probe.expect(Down)
            assert down.ref.address.name == "fails"
            assert down.reason is not None
            hub.partition("here", "there")
            down = await probe.expect(Down, within=30)
            assert down.ref.address.name == "is cut off"
            assert isinstance(down.reason, NodeUnreachableError)

    run(story())


@pytest.mark.parametrize("waits", [False, True])
def test_a_full_mailbox_does_not_fail_the_sender(waits: bool) -> None:
    """Neither an actor, nor a task, nor a thread; all of them get their messages through, in order."""
    diary = Diary()
    target: Any = None

    class Flood(Actor[Note | int]):
        async def receive(self, message: Note | int) -> None:
            if isinstance(message, int):  # the listener's answers
                return
            for number in range(50):
                if waits:
                    await target.tell_wait(Note(1, number, 0.0))
                else:
                    target.tell(Note(1, number, 0.0))
            self.reply(0)

    async def story() -> None:
        nonlocal target
        async with ActorSystem("test") as system:
            target = await system.spawn(lambda: Listener(diary), capacity=2)
            flood = await system.spawn(Flood)

            def thread() -> None:
                for number in range(50):
                    target.tell(Note(2, number))

            async def task() -> None:
                for number in range(50):
                    await target.tell_wait(Note(3, number))

            await asyncio.gather(flood.ask(Note(0, 0)), asyncio.to_thread(thread), task())
            assert await target.ask(Note(4, 0)) == 0
            assert system.dead_letter_count == 0

    asyncio.run(story())
    diary.check()
    assert len(diary.notes) == 151


def test_a_blocking_ask_on_the_loop_is_an_error_and_not_a_deadlock() -> None:
    target: Any = None

    class Confused(Actor[Echo]):
        async def receive(self, message: Echo) -> None:
            self.reply(blocking.ask(target, message, timeout=1))

    class Sane(Actor[Echo]):
        async def receive(self, message: Echo) -> None:
            self.reply(await target.ask(message, timeout=1))

    async def story(system: ActorSystem) -> None:
        nonlocal target
        target = await system.spawn(Echoing)
        confused = await system.spawn(Confused)
        with pytest.raises(WrongContextError, match=r"await ref\.ask"):
            await confused.ask(Echo("deadlock"), timeout=5)
        assert system._clock.time() == 0.0
        sane = await system.spawn(Sane)
        assert await sane.ask(Echo("fine")) == "fine"

    told(story)


def test_actors_that_ask_each_other_time_out_and_go_on() -> None:
    """One that awaits an answer handles nothing meanwhile, so these two can only wait for their time-outs."""

    class Polite(Actor[Echo]):
        def __init__(self, number: int) -> None:
            self.number = number

        async def receive(self, message: Echo) -> None:
            if message.text == "ask":
                try:
                    await refs[1 - self.number].ask(Echo("?"), timeout=1)
                except AskTimeoutError:
                    timed_out.append(self.number)
            self.reply_if_asked(message.text)

    timed_out: list[int] = []
    refs: list[ActorRef[Echo]] = []

    async def story(system: ActorSystem) -> None:
        refs.append(await system.spawn(lambda: Polite(0)))
        refs.append(await system.spawn(lambda: Polite(1)))
        for ref in refs:
            ref.tell(Echo("ask"))
        await asyncio.sleep(5)
        assert await refs[0].ask(Echo("fine")) == "fine"

    told(story)
    assert sorted(timed_out) == [0, 1]
