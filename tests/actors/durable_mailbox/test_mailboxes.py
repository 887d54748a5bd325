"""Durable mailboxes within one incarnation: failures, attempts, rejected messages, failing disks."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recado.actors.actor_events import DeadLetter
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.errors import NameTakenError
from recado.actors.ref import ActorRef
from recado.actors.remote.errors import SerializationError
from recado.actors.stash import Stash
from recado.actors.system import ActorSystem
from recado.actors.testkit import Probe
from recado.journal.disk import MemoryDisk
from recado.simulator.disk import SimulatedDisk

from .mail import ALWAYS, Keeper, Odd, Put, incarnation


def test_a_failure_gives_the_message_again_before_all_others() -> None:
    handled: list[int] = []

    async def story(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(
            lambda: Keeper(handled, failures),
            supervisor_strategy=ALWAYS,
            mailbox=boxes.mailbox("a"),
        )
        asks = [ref.ask_future(Put(number)) for number in range(4)]
        assert await asyncio.gather(*asks) == [0, 1, 2, 3]  # who asks sees nothing of it

    failures = {1: 4, 3: 1}
    incarnation(MemoryDisk(), story)
    assert handled == [0, 1, 2, 3]
    assert failures == {1: 0, 3: 0}


def test_after_so_many_attempts_it_is_a_dead_letter_and_who_asked_is_told() -> None:
    handled: list[int] = []
    failures = {1: 100}
    disk = MemoryDisk()

    async def story(system: ActorSystem, boxes: DurableMailboxes) -> None:
        probe = await Probe[Any].spawn(system)
        system.events.subscribe(probe.ref, DeadLetter)
        ref = await system.spawn(
            lambda: Keeper(handled, failures),
            name="a",
            supervisor_strategy=ALWAYS,
            mailbox=boxes.mailbox("a", attempts_max=3),
        )
        asks = [ref.ask_future(Put(number)) for number in range(3)]
        with pytest.raises(RuntimeError):
            await asks[1]
        assert await asks[2] == 2
        letter = await probe.expect(DeadLetter)
        assert (letter.message, letter.recipient) == (Put(1), ref)
        assert boxes.pending_counts() == {}

    incarnation(disk, story)
    assert handled == [0, 2]
    assert failures == {1: 97}


def test_what_cannot_be_written_down_is_refused_and_the_sender_does_not_fail() -> None:
    async def story(system: ActorSystem, boxes: DurableMailboxes) -> None:
        probe = await Probe[Any].spawn(system)
        system.events.subscribe(probe.ref, DeadLetter)
        ref: ActorRef[Any] = await system.spawn(
            lambda: Keeper([]), name="a", mailbox=boxes.mailbox("a")
        )
        ref.tell(Odd())
        assert isinstance((await probe.expect(DeadLetter)).message, Odd)
        with pytest.raises(SerializationError):
            await ref.tell_wait(Odd())
        ref.tell(Odd())
        await ref.tell_wait(Put(1))  # which is kept, whatever became of others
        with pytest.raises(SerializationError):
            await ref.ask(Odd())  # type: ignore[arg-type]
        assert await ref.ask(Put(1)) == 1

    incarnation(MemoryDisk(), story)


def test_a_mailbox_is_one_actors_and_free_when_that_is_gone() -> None:
    handled: list[int] = []

    async def story(system: ActorSystem, boxes: DurableMailboxes) -> None:
        mailbox = boxes.mailbox("a")
        ref = await system.spawn(lambda: Keeper(handled), mailbox=mailbox)
        with pytest.raises(NameTakenError):
            await system.spawn(lambda: Keeper(handled), mailbox=mailbox)
        await system.stop(ref)

        def broken() -> Keeper:
            raise KeyError("broken")

        with pytest.raises(KeyError):
            await system.spawn(broken, mailbox=mailbox)
        again = await system.spawn(lambda: Keeper(handled), mailbox=mailbox)
        ref.tell(Put(1))  # to the one that is gone: what is in its mailbox is not lost
        assert await again.ask(Put(2)) == 2

    incarnation(MemoryDisk(), story)
    assert handled == [1, 2]
    with pytest.raises(ValueError, match="at least 1"):
        incarnation(MemoryDisk(), _never)


async def _never(system: ActorSystem, boxes: DurableMailboxes) -> None:
    boxes.mailbox("a", attempts_max=0)


def test_what_is_stashed_is_not_acknowledged() -> None:
    disk = MemoryDisk()
    handled: list[int] = []

    class Stashing(Keeper):
        def pre_start(self) -> None:
            self.stash = Stash(self)

        async def receive(self, message: Any) -> None:
            if message.number == 99:
                self.become(super().receive)
                self.stash.unstash_all()
            else:
                self.stash.stash()

    async def first(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(lambda: Stashing(handled), mailbox=boxes.mailbox("a"))
        await ref.tell_wait(Put(1))
        await ref.tell_wait(Put(2))

    async def second(system: ActorSystem, boxes: DurableMailboxes) -> None:
        assert boxes.pending_counts() == {"a": 2}
        ref = await system.spawn(lambda: Stashing(handled), mailbox=boxes.mailbox("a"))
        ref.tell(Put(99))
        assert await ref.ask(Put(3)) == 3
        assert boxes.pending_counts() == {}

    incarnation(disk, first)
    incarnation(disk, second)
    assert handled == [1, 2, 3]


def test_a_disk_that_fails_is_told_to_who_waits() -> None:
    disk = SimulatedDisk()

    async def story(system: ActorSystem, boxes: DurableMailboxes) -> None:
        ref = await system.spawn(lambda: Keeper([]), mailbox=boxes.mailbox("a"))
        disk.fail_sync()
        with pytest.raises(OSError):  # noqa: PT011 - which one is the disk's matter
            await ref.tell_wait(Put(1))

    incarnation(disk, story)


def test_a_folder_is_one_systems(tmp_path: Path) -> None:
    async def story() -> None:
        async with ActorSystem("test") as system:
            DurableMailboxes(system, tmp_path)
            with pytest.raises(OSError, match="in use"):
                DurableMailboxes(system, str(tmp_path))

    asyncio.run(story())
    asyncio.run(story())
