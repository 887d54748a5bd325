"""Actors that a client starts on another node."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from recado.actors import (
    TEMPORARY,
    ActorError,
    ActorRef,
    ActorStoppedError,
    AllForOne,
    AskTimeoutError,
    NameTakenError,
    OneForOne,
    Restarted,
)
from recado.actors.remote.errors import (
    ClassNotOfferedError,
    InvalidEnvelopeError,
    LimitExceededError,
    MessageRefusedError,
    RefusalReason,
)
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.wire.controls import CreateActor
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import KINDS, Ack, Book, Fail, Log, Place, Watcher, pair, until


class Picky(Book):
    def __init__(self, number: int) -> None:
        if number < 0:
            raise ValueError("not below nought")
        super().__init__(number)


class Boss(Watcher):
    supervisor_strategy: ClassVar = OneForOne(1)


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_a_client_starts_an_actor_of_an_offered_class(kind: str) -> None:
    async with pair(kind) as it:
        it.at_server.creation.offer(Book)
        ref = await it.at_client.creation.create("server", Book, 41, name="new")
        assert ref.address.node == "server"
        assert await ref.ask(Place(1)) == Ack(1)
        assert await it.server.actor("new").ask(Log()) == [41, 1]


@in_a_loop
async def test_only_what_is_offered_can_be_started() -> None:
    async with pair() as it:
        with pytest.raises(ClassNotOfferedError, match="does not offer"):
            await it.at_client.creation.create("server", Book)
        it.at_server.creation.offer(Book, "book")
        it.at_server.creation.offer(Book, "book")
        with pytest.raises(ValueError, match="another class"):
            it.at_server.creation.offer(Picky, "book")
        ref = await it.at_client.creation.create("server", "book")
        assert await ref.ask(Place(1)) == Ack(1)


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_what_its_constructor_raises_is_raised_here_and_nothing_is_left(kind: str) -> None:
    async with pair(kind) as it:
        it.at_server.creation.offer(Picky)
        with pytest.raises(ValueError, match="not below nought"):
            await it.at_client.creation.create("server", Picky, -1, name="picky")
        with pytest.raises(TypeError):
            await it.at_client.creation.create("server", Picky, name="picky")
        await it.at_client.creation.create("server", Picky, 1, name="picky")
        with pytest.raises(NameTakenError):
            await it.at_client.creation.create("server", Picky, 1, name="picky")


class Late(Book):
    """Its `pre_start` ends when the test lets it."""

    go_on: asyncio.Event
    starts = 0

    async def pre_start(self) -> None:
        Late.starts += 1
        await Late.go_on.wait()


@in_a_loop
async def test_what_nobody_waits_for_any_more_is_stopped_when_it_is_there() -> None:
    async with pair(client=RemoteOptions(create_timeout=0.05)) as it:
        it.at_server.creation.offer(Late)
        Late.go_on, Late.starts = asyncio.Event(), 0
        with pytest.raises(AskTimeoutError):
            await it.at_client.creation.create("server", Late, name="late")
        assert Late.starts == 1
        await it.book().ask(Log())  # earlier messages have arrived
        Late.go_on.set()
        await until(lambda: it.server.registry.by_name("late") is None)


@in_a_loop
async def test_one_that_was_started_after_all_is_stopped_if_its_creation_is_cancelled() -> None:
    async with pair() as it:
        assert it.hub is not None
        it.at_server.creation.offer(Book)
        it.hub.frame_filter = lambda sender, to, frame: to == "server"  # its answer is lost
        wanted = it.at_client.creation.create("server", Book, name="late")
        creating = asyncio.create_task(wanted)
        await until(lambda: it.server.registry.by_name("late") is not None)
        creating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await creating
        await until(lambda: it.server.registry.by_name("late") is None)


@in_a_loop
async def test_nothing_is_left_of_one_whose_supervisor_stops_meanwhile() -> None:
    async with pair() as it:
        it.at_server.creation.offer(Late)
        Late.go_on, Late.starts = asyncio.Event(), 0
        boss: ActorRef[Any] = await it.client.spawn(Boss)
        wanted = it.at_client.creation.create("server", Late, name="late", supervisor=boss)
        creating = asyncio.create_task(wanted)
        await until(lambda: Late.starts == 1)
        await it.client.stop(boss)
        Late.go_on.set()
        with pytest.raises(ActorStoppedError):
            await creating
        await until(lambda: it.server.registry.by_name("late") is None)


@in_a_loop
async def test_one_that_cannot_be_supervised_from_there_is_not_left() -> None:
    async with pair(server=RemoteOptions(max_remote_watches=0)) as it:
        it.at_server.creation.offer(Book)
        boss: ActorRef[Any] = await it.client.spawn(Boss)
        with pytest.raises(LimitExceededError):
            await it.at_client.creation.create("server", Book, name="book2", supervisor=boss)
        assert it.server.registry.by_name("book2") is None


@in_a_loop
async def test_an_untrusted_node_starts_nothing() -> None:
    async with pair(server=RemoteOptions(untrusted=True)) as it:
        it.at_server.creation.offer(Book)
        with pytest.raises(MessageRefusedError) as refused:
            await it.at_client.creation.create("server", Book)
        assert refused.value.reason is RefusalReason.UNTRUSTED
        assert await it.book().ask(Place(1)) == Ack(1)  # messages are accepted


@in_a_loop
async def test_an_untrusted_node_lets_nobody_rule_its_actors() -> None:
    async with pair(server=RemoteOptions(untrusted=True)) as it:
        it.book().stop()
        assert await it.book().ask(Place(1)) == Ack(1)


@in_a_loop
async def test_actors_of_others_are_bounded_and_those_that_stopped_do_not_count() -> None:
    async with pair(server=RemoteOptions(max_remote_actors=2)) as it:
        it.at_server.creation.offer(Book)
        refs = [await it.at_client.creation.create("server", Book) for _ in range(2)]
        with pytest.raises(LimitExceededError):
            await it.at_client.creation.create("server", Book)
        await it.server.stop(it.server.ref(refs[0].address))
        await it.at_client.creation.create("server", Book)


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_its_supervisor_is_the_client_s_actor(kind: str) -> None:
    async with pair(kind) as it:
        it.at_server.creation.offer(Book)
        boss: ActorRef[Any] = await it.client.spawn(Boss)
        ref = await it.at_client.creation.create("server", Book, 1, supervisor=boss)
        restarts: list[object] = []
        it.server._listeners.append(
            lambda event: restarts.append(event) if isinstance(event, Restarted) else None
        )
        ref.tell(Fail("once"))
        assert await ref.ask(Log()) == [1]
        assert len(restarts) == 1
        ref.tell(Fail("twice"))
        above = it.client._find_cell(boss.address)
        assert above is not None
        assert isinstance(above.actor, Boss)
        await above.actor.until(1)


class Hasty(Book):
    """It fails before its creator knows that it exists."""

    def pre_start(self) -> None:
        if not Hasty.has_failed:
            Hasty.has_failed = True
            self.ref.tell(Fail("at once"))

    has_failed = False


@in_a_loop
async def test_one_that_fails_at_once_is_restarted_by_its_supervisor_there() -> None:  # CN3
    async with pair() as it:
        assert it.hub is not None
        it.at_server.creation.offer(Hasty)
        Hasty.has_failed = False
        boss: ActorRef[Any] = await it.client.spawn(Boss)
        held: list[bytes] = []

        def carried(sender: str, to: str, frame: bytes) -> bool:
            if to == "client":
                held.append(frame)
            return to == "server"

        it.hub.frame_filter = carried
        wanted = it.at_client.creation.create("server", Hasty, 1, supervisor=boss)
        creating = asyncio.create_task(wanted)
        await until(lambda: len(held) >= 2)
        it.hub.frame_filter = lambda *_: True
        link = it.at_client.peer_table.link_to(it.at_client.peer_table.peer("server"))
        it.at_client.frames_received(link, held)  # the answer, and that it has failed
        assert await (await creating).ask(Log()) == [1]


@in_a_loop
async def test_a_temporary_one_is_not_restarted() -> None:
    async with pair() as it:
        it.at_server.creation.offer(Book)
        ref = await it.at_client.creation.create("server", Book, restart_type=TEMPORARY)
        ref.tell(Fail("the end"))
        await until(lambda: it.server._find_cell(ref.address) is None)


@pytest.mark.parametrize("kind", KINDS)
@in_a_loop
async def test_a_temporary_one_is_stopped_when_its_group_is_restarted(kind: str) -> None:
    async with pair(kind) as it:
        it.at_server.creation.offer(Book)
        boss: ActorRef[Any] = await it.client.spawn(Boss)
        group, create = AllForOne(), it.at_client.creation.create
        above: dict[str, Any] = {"supervisor": boss, "supervisor_strategy": group}
        lasting = await create("server", Book, 1, **above)
        passing = await create("server", Book, restart_type=TEMPORARY, **above)
        lasting.tell(Fail("for both"))
        await until(lambda: it.server._find_cell(passing.address) is None)
        assert await lasting.ask(Log()) == [1]


@in_a_loop
async def test_a_supervisor_has_to_be_here() -> None:
    async with pair() as it:
        with pytest.raises(ActorError, match="not on this node"):
            await it.at_client.creation.create("server", Book, supervisor=it.book())


@pytest.mark.parametrize(
    "wanted",
    [
        CreateActor("book", "", 0, b"\x01", "", False),  # arguments that are no list
        CreateActor("book", "", 0, b"\xc1", "", False),
        CreateActor("book", "", 3, b"\x90", "", False),  # a pickle
        CreateActor("book", "", 0, b"\x90", "nonsense", False),
        CreateActor("book", "", 0, b"\x90", "recado-actor://third/boss", False),
        CreateActor("book", "x" * 300, 0, b"\x90", "", False),
    ],
)
@in_a_loop
async def test_nonsense_is_refused(wanted: CreateActor) -> None:
    async with pair() as it:
        it.at_server.creation.offer(Book, "book")
        with pytest.raises((InvalidEnvelopeError, ValueError)):
            await it.at_client.outbound.request("server", wanted, 5.0)
        assert len(it.server.registry) == 1


@in_a_loop
async def test_a_node_that_lies_about_what_it_started_is_not_believed() -> None:
    async with pair() as it:
        for said in ("nonsense", 7, "recado-actor://third/book#1"):
            with pytest.raises(InvalidEnvelopeError):
                it.at_client.resolve_created_ref("server", said)
