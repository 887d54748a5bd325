"""Durable mailboxes over several incarnations: stored messages, counted attempts, duplicates."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors.actor import Actor
from recado.actors.actor_events import DeadLetter
from recado.actors.durable_mailbox.journal import MessageStored, PendingMessage
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes, UnreadableRecord
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.actors.remote.errors import InvalidEnvelopeError, SerializationError
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.serialization.class_registry import manifest_of
from recado.actors.serialization.serializers import (
    JSON_FORMAT_ID,
    MSGPACK_FORMAT_ID,
    PICKLE_FORMAT_ID,
    TAGGED_MSGPACK_FORMAT_ID,
)
from recado.actors.system import ActorSystem
from recado.journal.disk import MemoryDisk
from recado.simulator.disk import SimulatedDisk
from tests.actors.remote.sender import Sender
from tests.actors.values import EXAMPLES, Ask, BestBid, Bid, Carry, Echoing, Rank, alike
from tests.feeds.io.loop import until

from .mail import ALWAYS, Introduce, Keeper, Put, incarnation


class Deal(Message[None]):
    quote: Bid | Ask


def test_what_was_taken_is_handled_in_the_next_life_in_order() -> None:
    disk = MemoryDisk()
    handled: list[int] = []

    async def first(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(
            lambda: Keeper(handled, {2: 1_000_000}),
            name="keeper",
            supervisor_strategy=ALWAYS,
            mailbox=boxes.mailbox("keeper", attempts_max=1_000_000),
        )
        assert await ref.ask(Put(1)) == 1
        await ref.tell_wait(Put(2))
        ref.stop()  # while it fails
        for number in range(3, 6):
            await ref.tell_wait(Put(number))

    async def second(system: ActorSystem, boxes: DurableMailboxes) -> None:
        assert boxes.pending_counts() == {"keeper": 4}
        ref = await system.spawn(
            lambda: Keeper(handled),
            name="keeper",
            mailbox=boxes.mailbox("keeper", attempts_max=1_000_000),
        )
        assert await ref.ask(Put(6)) == 6
        assert boxes.pending_counts() == {}

    incarnation(disk, first)
    assert handled == [1]
    incarnation(disk, second)
    assert handled == [1, 2, 3, 4, 5, 6]


def test_attempts_are_counted_over_lives() -> None:
    """Each incarnation ends in the midst of the handler; the fourth does not try any more."""
    disk = SimulatedDisk()
    begun: list[int] = []

    class Deadly(Actor[Put]):
        async def receive(self, message: Put) -> None:
            begun.append(message.number)
            if message.number == 1:
                with disk._lock:
                    crashed.append(disk.crash(survival_ratio=1.0))
            self.reply_if_asked(message.number)

    async def story(system: ActorSystem, boxes: DurableMailboxes) -> int:
        ref = await system.spawn(Deadly, name="a", mailbox=boxes.mailbox("a", attempts_max=3))
        if len(crashed) == 0:
            await ref.tell_wait(Put(1))
        await ref.ask(Put(2))
        return system.dead_letter_count

    crashed: list[SimulatedDisk] = []
    dead_letters = []
    for _ in range(4):
        dead_letters.append(incarnation(disk, story))
        disk = crashed[-1]
        disk.close()
    assert begun.count(1) == 3
    assert dead_letters == [0, 0, 0, 1]


def test_what_comes_again_from_another_node_is_taken_once() -> None:
    disk = MemoryDisk()
    handled: list[int] = []
    settled: list[tuple[int, bool]] = []

    async def story(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(lambda: Keeper(handled), name="a", mailbox=boxes.mailbox("a"))
        sender = Sender()
        for number in (1, 2, 2, 1, 3):

            def settle(taken: bool, number: int = number) -> None:
                settled.append((number, taken))

            sender.give(system, "a", Put(number), number, settle)
        await ref.tell_wait(Put(8))
        await ref.ask(Put(9))

    incarnation(disk, story, MemoryTransport(MemoryNetwork()))
    incarnation(disk, story, MemoryTransport(MemoryNetwork()))
    assert handled == [1, 2, 3, 8, 9, 8, 9]
    # As often as it came: the broker has each of them.
    assert settled == [(number, True) for number in (1, 1, 2, 2, 3)] * 2


def test_mail_from_another_node_outlives_the_node_that_took_it() -> None:
    """It comes from the disk then; if the transport gives it again as well, it is known."""
    disk = MemoryDisk()
    handled: list[int] = []

    async def story() -> None:
        hub = MemoryNetwork(durable=True)
        async with ActorSystem("here", transport=MemoryTransport(hub)) as here:
            far = here.actor("keeper", node="there")
            async with ActorSystem("there", transport=MemoryTransport(hub)) as there:
                boxes = DurableMailboxes(there, disk)
                ref = await there.spawn(
                    lambda: Keeper(handled, {1: 1_000_000}),
                    name="keeper",
                    supervisor_strategy=ALWAYS,
                    mailbox=boxes.mailbox("keeper", attempts_max=1_000_000),
                )
                assert await far.ask(Put(0)) == 0
                for number in range(1, 5):
                    far.tell(Put(number))
                while boxes.pending_counts() != {"keeper": 4}:  # noqa: ASYNC110 - nobody is told when it is so
                    await asyncio.sleep(0)
                ref.stop()
            async with ActorSystem("there", transport=MemoryTransport(hub)) as there:
                boxes = DurableMailboxes(there, disk)
                await there.spawn(
                    lambda: Keeper(handled),
                    name="keeper",
                    mailbox=boxes.mailbox("keeper", attempts_max=1_000_000),
                )
                assert await far.ask(Put(5)) == 5

    logging.getLogger("recado.actors").setLevel(logging.CRITICAL)
    try:
        asyncio.run(story())
    finally:
        logging.getLogger("recado.actors").setLevel(logging.NOTSET)
    assert handled == [0, 1, 2, 3, 4, 5]


def test_senders_and_references_in_messages_are_found_again() -> None:
    disk = MemoryDisk()

    class Asker(Actor[Any]):
        def __init__(self, target: ActorRef[Any] | None, answers: list[Any]) -> None:
            self.target = target
            self.answers = answers

        async def pre_start(self) -> None:
            if self.target is not None:
                await self.target.tell_wait(Put(7))
                await self.target.tell_wait(Introduce(self.ref))

        def receive(self, message: Any) -> None:
            self.answers.append(message)

    async def first(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(
            lambda: Keeper([], {7: 1}), name="keeper", mailbox=boxes.mailbox("keeper")
        )
        ref.stop()
        await system.spawn(lambda: Asker(ref, []), name="asker")

    async def second(system: ActorSystem, boxes: DurableMailboxes) -> list[Any]:
        answers: list[Any] = []
        handled: list[int] = []
        # The old reference names the old incarnation of the asker (AD2), so nobody gets these answers.
        await system.spawn(lambda: Asker(None, answers), name="asker")
        ref = await system.spawn(
            lambda: Keeper(handled), name="keeper", mailbox=boxes.mailbox("keeper")
        )
        await ref.ask(Put(8))
        assert handled == [7, 8]
        assert system.dead_letter_count == 2
        return answers

    incarnation(disk, first)
    assert incarnation(disk, second) == []


def test_who_asked_in_an_earlier_life_gets_no_answer_and_the_handler_does_not_fail() -> None:
    disk = MemoryDisk()
    handled: list[int] = []

    class Strict(Keeper):
        async def receive(self, message: Any) -> None:
            self.reply(message.number)
            self.handled.append(message.number)

    async def first(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(lambda: Strict(handled), name="a", mailbox=boxes.mailbox("a"))
        ref.stop()
        ref.ask_future(Put(1), timeout=1).cancel()
        await ref.tell_wait(Put(2))

    async def second(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(
            lambda: Strict(handled), name="a", mailbox=boxes.mailbox("a", attempts_max=1)
        )
        assert await ref.ask(Put(3)) == 3

    incarnation(disk, first)
    incarnation(disk, second)
    assert handled == [1, 3]  # Put(2) was told by nobody, and to reply to that is a failure


UNREADABLE: dict[str, tuple[int, str, bytes]] = {
    "a class that is gone": (MSGPACK_FORMAT_ID, "nobody.Knows", b"\x80"),
    "fields that have changed": (
        MSGPACK_FORMAT_ID,
        manifest_of(Put),
        msgspec.msgpack.encode({"old": 1}),
    ),
    "a union that was written without tags": (
        MSGPACK_FORMAT_ID,
        manifest_of(Deal),
        msgspec.msgpack.encode({"quote": {"price": 1}}),
    ),
    "a tagged class that is gone": (
        TAGGED_MSGPACK_FORMAT_ID,
        "",
        msgspec.msgpack.encode(["list", ["object", "nobody.Knows"]]),
    ),
    "a format of a later version": (99, "", b""),
    "a pickle": (PICKLE_FORMAT_ID, "", b"\x80\x05."),
    "noise": (JSON_FORMAT_ID, manifest_of(Put), b"\xff"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_unreadable_record_is_a_dead_letter_and_does_not_block_the_others(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = MemoryDisk()
    record = UNREADABLE[case]
    handled: list[int] = []

    async def first(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(lambda: Keeper([]), name="a", mailbox=boxes.mailbox("a"))
        ref.stop()
        await ref.tell_wait(Put(1))
        with monkeypatch.context() as patch:
            patch.setattr(boxes._serializers, "serialize", lambda message: record)
            await ref.tell_wait(Put(2))
        await ref.tell_wait(Put(3))

    async def second(system: ActorSystem, boxes: DurableMailboxes) -> None:
        dead_letters: list[DeadLetter] = []

        def listen(event: object) -> None:
            if isinstance(event, DeadLetter):
                dead_letters.append(event)
                other.tell(Put(9))  # also to a durable mailbox, while the other one is being opened

        other = await system.spawn(lambda: Keeper([]), name="b", mailbox=boxes.mailbox("b"))
        system._listeners.append(listen)
        ref = await system.spawn(lambda: Keeper(handled), name="a", mailbox=boxes.mailbox("a"))
        assert await ref.ask(Put(4)) == 4
        assert await other.ask(Put(10)) == 10
        assert boxes.pending_counts() == {}
        (dead_letter,) = dead_letters
        assert dead_letter.message == UnreadableRecord("a", *record)
        assert dead_letter.recipient.address.name == "a"
        assert dead_letter.reason

    async def third(system: ActorSystem, boxes: DurableMailboxes) -> None:
        await system.spawn(lambda: Keeper(handled), name="a", mailbox=boxes.mailbox("a"))
        assert system.dead_letter_count == 0

    incarnation(disk, first)
    incarnation(disk, second)
    incarnation(disk, third)
    assert handled == [1, 3, 4]


def test_the_asker_of_an_unreadable_record_learns_the_reason() -> None:
    async def story(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(lambda: Keeper([]), name="a", mailbox=boxes.mailbox("a"))
        await system.stop(ref)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                boxes._serializers,
                "serialize",
                lambda message: (MSGPACK_FORMAT_ID, "nobody.Knows", b""),
            )
            asked = ref.ask_future(Put(1))
        await system.spawn(lambda: Keeper([]), name="a", mailbox=boxes.mailbox("a"))
        with pytest.raises(InvalidEnvelopeError, match=r"nobody\.Knows"):
            await asked

    incarnation(MemoryDisk(), story)


def test_messages_of_all_types_come_back_in_the_next_life_as_they_were() -> None:
    disk = MemoryDisk()
    messages = [
        *map(Carry, EXAMPLES.values()),
        Deal(Bid(1)),
        Deal(Ask(2)),
        Deal(BestBid(3, rank=Rank.LOW)),
    ]
    seen: list[object] = []

    async def first(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(Echoing, name="a", mailbox=boxes.mailbox("a"))
        ref.stop()
        for message in (*messages, Carry(ref)):
            await ref.tell_wait(message)
        with pytest.raises(SerializationError, match=r"Carry\.value\[1\]: object"):
            await ref.tell_wait(Carry([1, object()]))

    async def second(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(lambda: Echoing(seen), name="a", mailbox=boxes.mailbox("a"))
        assert await ref.ask(Carry(1)) == 1
        assert boxes.pending_counts() == {}

    incarnation(disk, first)
    incarnation(disk, second)
    *came, to_itself, last = seen
    assert last == Carry(1)
    assert isinstance(to_itself, Carry)
    assert isinstance(to_itself.value, ActorRef)
    assert len(came) == len(messages)
    assert [alike(one, other) for one, other in zip(came, messages, strict=True)] == [True] * len(
        messages
    )


@settings(max_examples=60, deadline=None)
@given(
    failures=st.lists(st.integers(0, 3), max_size=12),
    attempts=st.integers(1, 3),
    moment=st.integers(0, 60),
    seed=st.integers(0, 1_000),
)
def test_after_a_loss_of_power_what_was_safe_is_handled_or_dead(
    failures: list[int], attempts: int, moment: int, seed: int
) -> None:
    """The power goes in the midst of it; what was promised by then is handled in this incarnation or the next."""
    disk = SimulatedDisk(seed)
    promised: list[int] = []
    handled: list[int] = []
    dead_numbers: list[int] = []

    def listen(system: ActorSystem) -> None:
        def note(event: object) -> None:
            if isinstance(event, DeadLetter):
                dead_numbers.append(event.message.number)

        system._listeners.append(note)

    async def first(system: ActorSystem, boxes: DurableMailboxes) -> SimulatedDisk:
        listen(system)
        ref = await system.spawn(
            lambda: Keeper(handled, dict(enumerate(failures))),
            supervisor_strategy=ALWAYS,
            mailbox=boxes.mailbox("a", attempts_max=attempts),
        )

        async def send() -> None:
            for number in range(len(failures)):
                await ref.tell_wait(Put(number))
                promised.append(number)

        sending = asyncio.ensure_future(send())
        for _ in range(moment):
            await asyncio.sleep(0)
        sending.cancel()
        with disk._lock:  # so that it is one moment for all files
            return disk.crash()

    async def second(system: ActorSystem, boxes: DurableMailboxes) -> None:
        listen(system)
        ref = await system.spawn(
            lambda: Keeper(handled), mailbox=boxes.mailbox("a", attempts_max=attempts)
        )
        await ref.ask(Put(-1))
        assert boxes.pending_counts() == {}

    after = incarnation(disk, first)
    incarnation(after, second)
    assert set(promised) <= set(handled) | set(dead_numbers)


@pytest.mark.parametrize("threads", [False, True])
def test_what_an_old_reference_is_told_goes_to_who_has_the_mailbox_now(threads: bool) -> None:
    """And is handled at once, though it is the old actor's cell that it was posted to (CE2)."""
    handled: list[int] = []

    async def story(system: ActorSystem, boxes: DurableMailboxes) -> None:
        old = await system.spawn(lambda: Keeper([]), name="old", mailbox=boxes.mailbox("a"))
        await system.stop(old)
        await system.spawn(lambda: Keeper(handled), name="new", mailbox=boxes.mailbox("a"))
        if threads:
            await asyncio.to_thread(old.tell, Put(1))
        else:
            old.tell(Put(1))
        await until(lambda: handled == [1])
        await until(lambda: boxes.pending_counts() == {})

    incarnation(MemoryDisk(), story)


def test_what_is_told_while_a_mailbox_changes_hands_is_handled_once() -> None:
    handled: list[int] = []
    told = 200

    async def story(system: ActorSystem, boxes: DurableMailboxes) -> None:
        enter = boxes._journal.append

        def enter_slowly(create_record: Callable[[int], MessageStored]) -> PendingMessage | None:
            """It is in the room, and others have the time to open the mailbox before it is there, too."""
            entry = enter(create_record)
            time.sleep(0.0005)  # the slowness itself
            return entry

        boxes._journal.append = enter_slowly  # type: ignore[method-assign]
        ref = await system.spawn(lambda: Keeper(handled), mailbox=boxes.mailbox("a"))

        def tell() -> None:
            for number in range(told):
                ref.tell(Put(number))

        telling = asyncio.create_task(asyncio.to_thread(tell))
        holder = ref
        while not telling.done():
            await system.stop(holder)
            holder = await system.spawn(lambda: Keeper(handled), mailbox=boxes.mailbox("a"))
            for _ in range(10):  # for some of it to be handled
                await asyncio.sleep(0)
        await telling
        await until(lambda: boxes.pending_counts() == {})

    incarnation(MemoryDisk(), story)
    assert handled == list(range(told))
