"""The test kit: virtual time, shuffled orders, probes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from recado.actors import testkit
from recado.actors.actor import Actor
from recado.actors.errors import NoSenderError
from recado.actors.message import Message
from recado.actors.supervision.signals import Down
from recado.actors.system import ActorSystem
from recado.actors.testkit import DeadlockError, Probe, ShuffledDispatcher, run

from .stories import Diary, Listener, Note, told


class Ping(Message[str]):
    number: int = 0


class Pong(Message[None]):
    pass


def test_time_leaps_to_what_is_due() -> None:
    async def story() -> tuple[float, list[str]]:
        loop = asyncio.get_running_loop()
        order: list[str] = []
        loop.call_later(20, order.append, "late")
        loop.call_later(10, order.append, "early")
        start = loop.time()
        await asyncio.sleep(86_400 * 365)
        return loop.time() - start, order

    began = time.monotonic()
    assert run(story()) == (86_400 * 365, ["early", "late"])
    assert time.monotonic() - began < 30


def test_threads_may_come_back_while_nothing_is_due() -> None:
    async def story() -> str:
        return await asyncio.to_thread(lambda: threading.current_thread().name)

    assert run(story()) != threading.main_thread().name


def test_a_story_in_which_everybody_waits_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testkit, "THREAD_WAIT_S", 0.0)

    async def story() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        run(story())


def order(seed: int) -> list[tuple[int, int]]:
    """In which two talkers are heard by a third."""
    diary = Diary()
    listener: Any = None

    class Talker(Actor[Note]):
        def __init__(self, number: int) -> None:
            self.number = number

        def receive(self, message: Note) -> None:
            listener.tell(Note(self.number, message.number))

    async def story(system: ActorSystem) -> None:
        nonlocal listener
        listener = await system.spawn(lambda: Listener(diary))
        talkers = [
            await system.spawn(lambda: Talker(0)),
            await system.spawn(lambda: Talker(1)),
        ]
        for number in range(8):
            for talker in talkers:
                talker.tell(Note(0, number))
        await asyncio.sleep(1)

    told(story, seed)
    diary.check()
    assert len(diary.notes) == 16
    return diary.notes


def test_a_seed_is_an_order_and_other_seeds_are_others() -> None:
    orders = [tuple(order(seed)) for seed in range(20)]
    assert orders == [tuple(order(seed)) for seed in range(20)]
    assert len(set(orders)) > 15


def test_other_threads_may_send_to_shuffled_actors() -> None:
    async def story() -> None:
        async with ActorSystem("test", dispatcher=ShuffledDispatcher(1)) as system:
            probe = await Probe[Ping].spawn(system)
            await asyncio.to_thread(probe.ref.tell, Ping(1))
            assert await probe.expect(Ping) == Ping(1)

    asyncio.run(story())


def test_a_probe_keeps_what_it_is_told_until_it_is_expected() -> None:
    async def story(system: ActorSystem) -> None:
        probe = await Probe[Any].spawn(system, name="probe")
        assert system.actor("probe") == probe.ref
        probe.ref.tell(Ping(1))
        probe.ref.tell(Ping(2))
        probe.ref.tell(Pong())
        assert await probe.expect(Ping) == Ping(1)
        assert await probe.next() == Ping(2)
        with pytest.raises(AssertionError, match="expected a Ping"):
            await probe.expect(Ping)
        with pytest.raises(AssertionError, match="no message within 3 s"):
            await probe.expect(Ping)
        await probe.expect_no_message(within=100)
        probe.ref.tell(Ping(3))
        with pytest.raises(AssertionError, match="expected no message"):
            await probe.expect_no_message()

    told(story)


def test_a_probe_answers_who_asked_or_who_sent() -> None:
    async def story(system: ActorSystem) -> None:
        probe, other = await Probe[Any].spawn(system), await Probe[Any].spawn(system)
        with pytest.raises(NoSenderError):
            probe.reply(1)
        asked = probe.ref.ask_future(Ping())
        await probe.expect(Ping)
        assert probe.sender is None
        probe.reply("pong")
        assert await asked == "pong"

        class Sender(Actor[Any]):
            def receive(self, message: Any) -> None:
                (probe.ref if isinstance(message, Ping) else other.ref).tell(message)

        sender = await system.spawn(Sender)
        sender.tell(Ping())
        await probe.expect(Ping)
        assert probe.sender == sender
        probe.reply(Pong())
        await other.expect(Pong)
        probe.ref.tell(Ping())
        await probe.expect(Ping)
        with pytest.raises(NoSenderError):
            probe.reply(1)

    told(story)


def test_a_probe_sees_who_stops() -> None:
    async def story(system: ActorSystem) -> None:
        probe, other = await Probe[Any].spawn(system), await Probe[Any].spawn(system)
        probe.monitor(other.ref)
        other.ref.stop()
        assert (await probe.expect(Down)).ref == other.ref

    told(story)
