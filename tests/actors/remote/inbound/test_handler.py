"""Frames from another node: where their messages are put, and when they are settled."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from recado.actors import ActorRef, ActorSystem
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.remote.inbound import backpressure
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire.envelope_pb2 import Envelope
from recado.actors.remote.wire.frame import OVERHEAD_BYTES
from recado.simulator.disk import SimulatedDisk
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.sender import Sender
from tests.actors.remote.shop import Ack, Book, Log, Place, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "STORE_RETRY_INTERVAL_S", 0.01)


def node(options: RemoteOptions | None = None) -> ActorSystem:
    return ActorSystem("here", transport=MemoryTransport(MemoryNetwork()), options=options)


@in_a_loop
async def test_it_is_in_a_mailbox_when_it_is_settled() -> None:
    async with node() as system:
        book, settled = await system.spawn(Book, name="book"), list[bool]()
        Sender().give(system, "book", Place(1), 1, settled.append)
        assert settled == [True]
        assert await book.ask(Log()) == [1]


@in_a_loop
async def test_an_ask_is_answered_on_its_link() -> None:
    async with node() as system:
        await system.spawn(Book, name="book")
        sender = Sender()
        sender.give(system, "book", Place(1), 1, asks=True)
        await until(lambda: bool(sender.answered))
        answer = Envelope.FromString(sender.answered[0][OVERHEAD_BYTES:])
        assert (answer.answers, answer.message.manifest) == (1, f"{Ack.__module__}.Ack")


@in_a_loop
async def test_what_is_for_nobody_is_a_dead_letter_and_does_not_come_again() -> None:
    async with node(RemoteOptions(warm_up=0)) as system:
        settled = list[bool]()
        Sender().give(system, "nobody", Place(1), 1, settled.append)
        assert (settled, system.dead_letter_count) == ([True], 1)


@in_a_loop
async def test_what_a_full_disk_did_not_take_is_settled_when_there_is_room() -> None:  # BP2
    disk = SimulatedDisk()
    async with node() as system:
        boxes = DurableMailboxes(system, disk)
        book = await system.spawn(Book, name="book", mailbox=boxes.mailbox("book"))
        sender, settled = Sender(), list[bool]()
        disk.fill()
        for number in (1, 2, 3):
            sender.give(system, "book", Place(number), number, settled.append)
        await fails(book)
        again = list[bool]()
        sender.give(system, "book", Place(2), 2, again.append)  # on another channel, or from it
        await fails(book)
        assert settled == again == []
        disk.fill(None)
        await until(lambda: len(settled) == 3)
        assert (settled, again) == ([True] * 3, [True])
        assert await book.ask(Log()) == [1, 2, 3, 4, 4]


@in_a_loop
async def test_what_was_held_and_repeated_meanwhile_is_settled_as_often_as_it_came() -> None:
    async with node() as system:
        sender, settled = Sender(), list[str]()
        sender.give(system, "book", Place(1), 1, lambda _: settled.append("first"))
        sender.give(system, "book", Place(1), 1, lambda _: settled.append("second"))
        assert settled == []
        book = await system.spawn(Book, name="book")
        await until(lambda: len(settled) == 2)
        assert settled == ["first", "second"]
        assert await book.ask(Log()) == [1]


@in_a_loop
async def test_what_is_not_safe_at_the_end_is_left_to_the_next_life() -> None:  # BP4
    disk, settled = SimulatedDisk(), list[bool]()
    async with node() as system:
        boxes = DurableMailboxes(system, disk)
        book = await system.spawn(Book, name="book", mailbox=boxes.mailbox("book"))
        disk.fill()
        Sender().give(system, "book", Place(1), 1, settled.append)
        await fails(book)
        system.on_close(lambda: disk.fill(None))  # before the mailboxes are closed
    assert settled == []


async def fails(book: ActorRef[Any]) -> None:
    """All earlier messages were refused because the disk is full."""
    with pytest.raises(OSError) as failed:  # noqa: PT011  its number says which
        await book.tell_wait(Place(4))
    assert failed.value.errno == errno.ENOSPC


@in_a_loop
async def test_what_cannot_be_written_down_is_settled_as_unwanted() -> None:  # BP3
    async with node() as system:
        boxes = DurableMailboxes(system, SimulatedDisk())
        await system.spawn(Book, name="book", mailbox=boxes.mailbox("book"))
        boxes._serializers.set_serializer(Place, "protobuf")  # which it is none of
        settled = list[bool]()
        Sender().give(system, "book", Place(1), 1, settled.append)
        await until(lambda: settled == [False])
        assert system.dead_letter_count == 1
