"""Actors that move to another node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recado.actors import (
    ActorRef,
    ActorStoppedError,
    AskTimeoutError,
    Down,
    Message,
    NodeUnreachableError,
    Signal,
)
from recado.actors.remote.errors import (
    ClassNotOfferedError,
    MessageRefusedError,
    RemoteError,
    SerializationError,
)
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.placement.migration import NotMovableError
from recado.actors.remote.wire.controls import AbandonActor, MoveActor
from recado.actors.supervision.links import monitor
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import KINDS, Ack, Book, Log, Place, Watcher, pair, until, watcher


class Wait(Message[None]):
    pass


class Slow(Book):
    """Its handler of Wait ends when the test lets it."""

    go_on: asyncio.Event

    async def receive(self, message: Any) -> None:
        if isinstance(message, Wait):
            await Slow.go_on.wait()
        else:
            await super().receive(message)


class Heavy(Book):
    def snapshot(self) -> Any:
        return object()


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_an_actor_moves_with_its_state_and_the_old_reference_reaches_it(kind: str) -> None:
    async with pair(kind) as it:
        it.at_server.creation.offer(Book)
        old: ActorRef[Any] = await it.client.spawn(Book, name="mover")
        await old.ask(Place(1))
        new = await it.at_client.migration.move(old, "server")
        assert new.address.node == "server"
        assert new.address.name == "mover"
        assert await old.ask(Place(2)) == Ack(2)
        assert await new.ask(Log()) == [1, 2]
        assert await it.client.actor("mover").ask(Log()) == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_what_is_told_meanwhile_arrives_in_order(kind: str) -> None:
    async with pair(kind) as it:
        it.at_server.creation.offer(Slow)
        Slow.go_on = asyncio.Event()
        old: ActorRef[Any] = await it.client.spawn(Slow)
        old.tell(Wait())
        old.tell(Place(1))
        moving = asyncio.create_task(it.at_client.migration.move(old, "server"))
        for order in range(2, 50):
            old.tell(Place(order))
            await asyncio.sleep(0)
        assert not moving.done()  # not in the middle of a handler
        Slow.go_on.set()
        await moving
        for order in range(50, 60):
            old.tell(Place(order))
        assert await old.ask(Log()) == list(range(1, 60))


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_who_watches_the_old_reference_hears_of_its_death(kind: str) -> None:
    async with pair(kind) as it:
        it.at_server.creation.offer(Book)
        old: ActorRef[Any] = await it.client.spawn(Book)
        seer = await watcher(it.client)
        monitor(seer._cell, old)
        new = await it.at_client.migration.move(old, "server")
        await new.ask(Place(1))
        assert seer.heard == []
        new.stop()
        assert await seer.until(1) == [Down(old, None)]


@in_a_loop
async def test_a_move_that_fails_leaves_it_where_it_was() -> None:
    async with pair() as it:
        old: ActorRef[Any] = await it.client.spawn(Book, name="mover")
        await old.ask(Place(1))
        with pytest.raises(ClassNotOfferedError):
            await it.at_client.migration.move(old, "server")
        with pytest.raises(RemoteError):
            await it.at_client.migration.move(old, "nowhere")
        assert await old.ask(Log()) == [1]
        assert len(it.server.registry) == 1


@in_a_loop
async def test_what_was_made_of_a_move_that_nobody_heard_of_is_taken_back() -> None:
    async with pair(client=RemoteOptions(create_timeout=0.05)) as it:
        assert it.hub is not None
        it.at_server.creation.offer(Book)
        old: ActorRef[Any] = await it.client.spawn(Book, name="mover")
        it.hub.frame_filter = lambda sender, to, frame: to == "server"  # its answer is lost
        with pytest.raises(AskTimeoutError):
            await it.at_client.migration.move(old, "server")
        await until(lambda: it.server.registry.by_name("mover") is None)
        assert await old.ask(Place(1)) == Ack(1)


class Late(Book):
    """On its new node its `pre_start` ends when the test lets it."""

    go_on: asyncio.Event
    starts = 0

    async def pre_start(self) -> None:
        if self.system.name == "server":
            Late.starts += 1
            await Late.go_on.wait()


@in_a_loop
async def test_one_whose_start_takes_too_long_is_not_there_twice() -> None:
    async with pair(client=RemoteOptions(create_timeout=0.05)) as it:
        it.at_server.creation.offer(Late)
        Late.go_on, Late.starts = asyncio.Event(), 0
        old: ActorRef[Any] = await it.client.spawn(Late, name="mover")
        with pytest.raises(AskTimeoutError):
            await it.at_client.migration.move(old, "server")
        assert Late.starts == 1
        await it.book().ask(Log())  # earlier messages have arrived
        Late.go_on.set()
        await until(lambda: it.server.registry.by_name("mover") is None)
        assert await old.ask(Place(1)) == Ack(1)


@pytest.mark.parametrize("turns", range(4))
@in_a_loop
async def test_a_move_that_is_cancelled_leaves_it_where_it_was(turns: int) -> None:
    """While it waits for the handler, or just when that has ended."""
    async with pair() as it:
        it.at_server.creation.offer(Slow)
        Slow.go_on = asyncio.Event()
        old: ActorRef[Any] = await it.client.spawn(Slow, name="mover")
        old.tell(Wait())
        await asyncio.sleep(0)
        moving = asyncio.create_task(it.at_client.migration.move(old, "server"))
        await asyncio.sleep(0)
        if turns:
            Slow.go_on.set()
            for _ in range(turns - 1):
                await asyncio.sleep(0)
        moving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await moving
        Slow.go_on.set()
        assert await old.ask(Place(1)) == Ack(1)
        await until(lambda: it.server.registry.by_name("mover") is None)


@in_a_loop
async def test_one_that_is_stopped_while_it_is_handed_over_is_nowhere() -> None:
    async with pair() as it:
        it.at_server.creation.offer(Late)
        Late.go_on, Late.starts = asyncio.Event(), 0
        old: ActorRef[Any] = await it.client.spawn(Late, name="mover")
        moving = asyncio.create_task(it.at_client.migration.move(old, "server"))
        await until(lambda: Late.starts == 1)
        old.stop()
        Late.go_on.set()
        with pytest.raises(ActorStoppedError):
            await moving
        await until(lambda: it.server.registry.by_name("mover") is None)
        await until(lambda: it.client.registry.by_name("mover") is None)


class Nosy(Book):
    """It monitors another actor, and records its own end."""

    other: ActorRef[Any] | None = None
    ends: list[str]

    def pre_start(self) -> None:
        if Nosy.other is not None:
            self.monitor(Nosy.other)

    def on_signal(self, signal: Signal) -> None:
        raise AssertionError(f"it has moved, and hears {signal}")

    async def post_stop(self) -> None:
        await asyncio.sleep(0)
        Nosy.ends.append(self.system.name)


@in_a_loop
async def test_the_old_reference_outlives_those_whom_the_old_instance_watched() -> None:
    async with pair() as it:
        it.at_server.creation.offer(Nosy)
        other: ActorRef[Any] = await it.client.spawn(Book)
        Nosy.other, Nosy.ends = other, []
        old: ActorRef[Any] = await it.client.spawn(Nosy, name="mover")
        Nosy.other = None
        new = await it.at_client.migration.move(old, "server")
        assert Nosy.ends == ["client"]  # its `post_stop` was called
        forwarder = it.client._find_cell(old.address)
        assert forwarder is not None
        assert list(forwarder.ensure_links().watched) == [new]
        await it.client.stop(other)
        assert forwarder.actor is not None
        forwarder.actor.on_signal(Down(other, None))  # one that was in flight
        assert await old.ask(Place(1)) == Ack(1)
        await it.server.stop(it.server.actor("mover"))
        await until(lambda: it.client._find_cell(old.address) is None)
        assert Nosy.ends == ["client", "server"]


class Grumpy(Book):
    def post_stop(self) -> None:
        raise ValueError("it does not want to")


@in_a_loop
async def test_one_that_does_not_end_well_has_moved_even_so() -> None:
    async with pair() as it:
        it.at_server.creation.offer(Grumpy)
        old: ActorRef[Any] = await it.client.spawn(Grumpy)
        new = await it.at_client.migration.move(old, "server")
        assert await old.ask(Place(1)) == Ack(1)
        assert await new.ask(Log()) == [1]


@in_a_loop
async def test_the_old_reference_outlives_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recado.actors.remote.placement.migration.REMONITOR_DELAY_S", 0.01)
    quick = RemoteOptions(heartbeat_interval=0.02, failure_timeout=0.1)
    async with pair(client=quick) as it:
        assert it.hub is not None
        it.at_server.creation.offer(Book)
        old: ActorRef[Any] = await it.client.spawn(Book, name="mover")
        new = await it.at_client.migration.move(old, "server")
        seer = await watcher(it.client)
        monitor(seer._cell, new)
        it.hub.frame_filter = lambda sender, to, frame: False
        (down,) = await seer.until(1)
        assert isinstance(down, Down)
        assert isinstance(down.reason, NodeUnreachableError)
        it.hub.frame_filter = lambda sender, to, frame: True
        assert await old.ask(Place(1)) == Ack(1)
        it.server.actor("mover").stop()  # and it is notified of the death again
        await until(lambda: it.client._find_cell(old.address) is None)


@in_a_loop
async def test_who_cannot_move_is_told_why() -> None:
    async with pair() as it:
        it.at_server.creation.offer(Book)
        it.at_server.creation.offer(Heavy)
        still: ActorRef[Any] = await it.client.spawn(Watcher)
        with pytest.raises(NotMovableError, match="snapshot"):
            await it.at_client.migration.move(still, "server")
        heavy: ActorRef[Any] = await it.client.spawn(Heavy)
        with pytest.raises(SerializationError):
            await it.at_client.migration.move(heavy, "server")
        assert await heavy.ask(Place(1)) == Ack(1)
        parent = it.client._find_cell(heavy.address)
        assert parent is not None
        await it.client.spawn(Book, supervisor=heavy)
        with pytest.raises(NotMovableError, match="supervises"):
            await it.at_client.migration.move(heavy, "server")
        await it.client.stop(heavy)
        with pytest.raises(ActorStoppedError):
            await it.at_client.migration.move(heavy, "server")


@in_a_loop
async def test_one_that_stops_while_it_waits_to_move_does_not() -> None:
    async with pair() as it:
        it.at_server.creation.offer(Slow)
        Slow.go_on = asyncio.Event()
        old: ActorRef[Any] = await it.client.spawn(Slow)
        old.tell(Wait())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        old.stop()
        moving = asyncio.create_task(it.at_client.migration.move(old, "server"))
        await asyncio.sleep(0)
        Slow.go_on.set()
        with pytest.raises((ActorStoppedError, NotMovableError)):
            await moving


@in_a_loop
async def test_an_untrusted_node_takes_nobody_in() -> None:
    async with pair(server=RemoteOptions(untrusted=True)) as it:
        it.at_server.creation.offer(Book)
        old: ActorRef[Any] = await it.client.spawn(Book)
        with pytest.raises(MessageRefusedError):
            await it.at_client.migration.move(old, "server")
        assert await old.ask(Place(1)) == Ack(1)


@in_a_loop
async def test_a_class_that_cannot_be_restored_is_not_taken_in() -> None:
    async with pair() as it:
        it.at_server.creation.offer(Watcher, "watcher")
        wanted = MoveActor("token", "watcher", "", 0, "", b"\x90", False)
        with pytest.raises(ClassNotOfferedError, match="snapshot and restore"):
            await it.at_client.outbound.request("server", wanted, 5.0)
        it.at_client.outbound.send_control(
            it.at_client.peer_table.peer("server"), AbandonActor("unknown")
        )
        assert await it.book().ask(Place(1)) == Ack(1)
