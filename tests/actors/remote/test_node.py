"""Actors of other nodes: tell, ask, answers, errors, references in messages, and how asks end."""

from __future__ import annotations

import asyncio
import gc
import threading
from decimal import Decimal
from typing import Any

import pytest

from recado.actors import (
    Actor,
    ActorRef,
    ActorStoppedError,
    ActorSystem,
    AskTimeoutError,
    DeadLetter,
    Message,
    UnhandledMessageError,
    WrongContextError,
)
from recado.actors.address import Address
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.inspection import INSPECTOR_NAME, Inspect
from recado.actors.remote.errors import (
    InvalidEnvelopeError,
    LinkClosedError,
    LinkLostError,
    MessageRefusedError,
    NoRouteError,
    NotDeliveredError,
    RemoteError,
    SerializationError,
)
from recado.actors.remote.events import MessageRefused
from recado.actors.remote.inbound import backpressure
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.node import Node
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.tcp.transport import TcpTransport
from recado.simulator.disk import SimulatedDisk
from tests.actors.values import EXAMPLES, Ask, BestBid, Bid, Carry, Echoing, Rank, alike
from workshop.peers import free_ports

from .running import in_a_loop
from .shop import KINDS, Ack, Book, Fail, Log, Pass, Place, Reach, Silence, Who, pair, until

each_kind = pytest.mark.parametrize("kind", KINDS)


class Deal(Message[object]):
    quote: Bid | Ask


class Price(Message[Decimal]):
    pass


class Prices(Message[list[Decimal]]):
    pass


class Held(Actor[Any]):
    """Its handlers do not end before the gate is open."""

    def __init__(self, gate: asyncio.Event) -> None:
        self.gate = gate

    async def receive(self, message: Any) -> None:
        await self.gate.wait()


class Quotes(Message[dict[str, Bid | Ask]]):
    pass


class Pricing(Actor[Price | Prices | Quotes]):
    def receive(self, message: Price | Prices | Quotes) -> None:
        match message:
            case Price():
                self.reply(Decimal("1.50"))
            case Prices():
                self.reply([Decimal("1.50")])
            case Quotes():
                self.reply({"a": Bid(1), "b": Ask(2)})


@each_kind
@in_a_loop
async def test_an_ask_is_answered(kind: str) -> None:
    async with pair(kind) as it:
        assert await it.book().ask(Place(3)) == Ack(3)
        assert await it.book().ask(Log()) == [3]


@each_kind
@in_a_loop
async def test_messages_of_one_sender_arrive_in_order(kind: str) -> None:
    async with pair(kind) as it:
        book = it.book()
        for order in range(500):
            book.tell(Place(order))
        assert await book.ask(Log()) == list(range(500))


@each_kind
@in_a_loop
async def test_exceptions_travel_back_and_the_actor_is_restarted(kind: str) -> None:
    async with pair(kind) as it:
        with pytest.raises(ValueError, match="no such thing"):
            await it.book().ask(Fail("no such thing"))
        with pytest.raises(UnhandledMessageError):
            await it.book().ask(Ack(1))
        assert await it.book().ask(Place(4)) == Ack(4)


@in_a_loop
async def test_a_class_is_sent_in_the_format_that_was_chosen_for_it() -> None:
    async with pair() as it:
        assert it.hub is not None
        sent: list[bytes] = []

        def carried(sender: str, to: str, frame: bytes) -> bool:
            sent.append(frame)
            return True

        it.hub.frame_filter = carried
        it.at_client.serializers.set_serializer(Place, "json")
        assert await it.book().ask(Place(3)) == Ack(3)
        asked, answered = sent
        assert b'{"order":3}' in asked
        assert b'{"order":3}' not in answered  # each node chooses the format of its own messages
        assert await it.book().ask(Log()) == [3]


@each_kind
@in_a_loop
async def test_many_asks_at_once_get_their_own_answers(kind: str) -> None:
    async with pair(kind) as it:
        book = it.book()
        answers = await asyncio.gather(*(book.ask(Place(order)) for order in range(300)))
        assert answers == [Ack(order) for order in range(300)]


@each_kind
@in_a_loop
async def test_nobody_lives_there(kind: str) -> None:
    async with pair(kind) as it:
        with pytest.raises(ActorStoppedError, match="has stopped, or does not exist"):
            await it.book("nobody").ask(Place(1))
        assert it.server.dead_letter_count == 1


@in_a_loop
async def test_who_never_answers_is_not_waited_for_and_a_late_answer_is_dropped() -> None:
    async with pair(client=RemoteOptions()) as it:
        with pytest.raises(AskTimeoutError):
            await it.book().ask(Silence(), timeout=0.01)
        it.at_client.outbound._sweep()
        assert len(it.at_client.outbound.pending_asks) == 0


@each_kind
@in_a_loop
async def test_references_travel_and_work_from_where_they_arrive(kind: str) -> None:
    async with pair(kind) as it:
        mine = await it.client.spawn(Book, name="mine")
        assert await it.book().ask(Reach(mine)) == 7  # the server asks the actor of the client
        assert await mine.ask(Log()) == [7]
        assert await mine.ask(Reach(it.book())) == 7  # and the other way round
        theirs = it.server.actor("book")
        assert it.client.ref(str(theirs.address)) == theirs
        assert it.server.ref(str(theirs.address)) is theirs  # one of the own node is local


@each_kind
@in_a_loop
async def test_the_sender_arrives_with_the_message(kind: str) -> None:
    async with pair(kind) as it:
        mine = await it.client.spawn(Book, name="mine")

        class AskWho(Book):
            async def receive(self, message: object) -> None:
                self.reply(await it.book().ask(Who()))

        asker = await it.client.spawn(AskWho)
        assert await asker.ask(Who()) == str(asker.address)
        assert mine.address.node == "client"


@each_kind
@in_a_loop
async def test_a_forwarded_ask_is_answered_to_who_asked(kind: str) -> None:
    async with pair(kind) as it:
        mine = await it.client.spawn(Book, name="mine")
        assert await it.book().ask(Pass(mine, Place(5))) == Ack(5)  # there and back again
        assert await mine.ask(Log()) == [5]


@in_a_loop
async def test_what_cannot_be_sent_fails_who_asked_and_is_a_dead_letter() -> None:
    class Odd(Message[None]):
        content: object

    async with pair() as it:
        letters: list[object] = []
        it.client._listeners.append(letters.append)
        with pytest.raises(SerializationError):
            await it.book().ask(Odd(object()))
        it.book().tell(Odd(object()))
        with pytest.raises(NoRouteError):
            await it.client.actor("book", node="nowhere").ask(Place(1))
        it.client.actor("book", node="nowhere").tell(Place(1))
        assert [type(letter) for letter in letters] == [DeadLetter] * 4
        with pytest.raises(SerializationError, match="max_frame_bytes"):
            await it.book().ask(Fail("x" * (1 << 20)))


@in_a_loop
async def test_an_answer_that_cannot_be_sent_is_an_error_of_who_asked() -> None:
    class Give(Message[object]):
        pass

    class Giver(Book):
        async def receive(self, message: object) -> None:
            self.reply(threading.Lock)

    async with pair() as it:
        await it.server.spawn(Giver, name="giver")
        with pytest.raises(SerializationError):
            await it.book("giver").ask(Give())


@in_a_loop
async def test_an_answer_of_the_wrong_type_is_an_error_of_who_asked() -> None:
    class Count(Message[int]):
        pass

    class Liar(Book):
        async def receive(self, message: object) -> None:
            self.reply("many")

    async with pair() as it:
        await it.server.spawn(Liar, name="liar")
        with pytest.raises(InvalidEnvelopeError):
            await it.book("liar").ask(Count())


@each_kind
@in_a_loop
async def test_any_thread_may_tell(kind: str) -> None:
    async with pair(kind) as it:
        book = it.book()

        def work() -> None:
            for order in range(50):
                book.tell(Place(order))

        await asyncio.to_thread(work)
        await until(lambda: it.server.mailbox_size(it.server.actor("book")) == 0)
        async with asyncio.timeout(10):
            while await book.ask(Log()) != list(range(50)):
                pass


@each_kind
@in_a_loop
async def test_tell_wait_returns_when_the_other_node_has_the_message(kind: str) -> None:
    async with pair(kind) as it:
        book = it.server.actor("book")
        for order in range(10):
            await it.book().tell_wait(Place(order))
            assert await book.ask(Log()) == list(range(order + 1))


@each_kind
@in_a_loop
async def test_tell_wait_raises_where_there_is_no_such_actor_or_node(kind: str) -> None:
    async with pair(kind, server=RemoteOptions(warm_up=0)) as it:
        with pytest.raises(ActorStoppedError, match="nobody"):
            await it.book("nobody").tell_wait(Place(1))
        with pytest.raises(RemoteError):
            await it.client.actor("book", node="nowhere").tell_wait(Place(1))


@each_kind
@in_a_loop
async def test_tell_wait_keeps_the_sender_and_takes_no_answer_of_the_actor(kind: str) -> None:
    class Telling(Actor[Pass]):
        async def receive(self, message: Pass) -> None:
            await message.book.tell_wait(message.place)  # the Ack is sent to this actor
            self.become(self.acked)

        def acked(self, message: object) -> None:
            acks.append(message)

    acks: list[object] = []
    async with pair(kind) as it:
        telling = await it.client.spawn(Telling, name="telling")
        telling.tell(Pass(it.book(), Place(3)))
        await until(lambda: bool(acks))
        assert acks == [Ack(3)]


@each_kind
@in_a_loop
async def test_tell_wait_returns_when_a_durable_mailbox_has_the_message_on_disk(kind: str) -> None:
    disk, gate = SimulatedDisk(), asyncio.Event()
    async with pair(kind) as it:
        boxes = DurableMailboxes(it.server, disk, segment_bytes=4096)
        await it.server.spawn(lambda: Held(gate), name="kept", mailbox=boxes.mailbox("kept"))
        kept = it.book("kept")
        for order in range(1, 6):
            await kept.tell_wait(Place(order))
            async with ActorSystem() as later:  # after a loss of power
                left = DurableMailboxes(
                    later, disk.crash(order, survival_ratio=0.0)
                ).pending_counts()
            assert left == {"kept": order}
        gate.set()


@each_kind
@in_a_loop
async def test_tell_wait_waits_for_room_on_the_disk_of_a_durable_mailbox(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backpressure, "STORE_RETRY_INTERVAL_S", 0.01)
    disk = SimulatedDisk()
    async with pair(kind) as it:
        boxes = DurableMailboxes(it.server, disk)
        await it.server.spawn(Book, name="kept", mailbox=boxes.mailbox("kept"))
        disk.fill()
        waiting = asyncio.create_task(it.book("kept").tell_wait(Place(1), timeout=60))
        with pytest.raises(TimeoutError):
            await it.book("kept").tell_wait(Place(2), timeout=0.3)
        assert not waiting.done()
        disk.fill(None)
        await waiting
        assert sorted(await it.book("kept").ask(Log())) == [1, 2]


@each_kind
@in_a_loop
async def test_tell_wait_learns_why_a_durable_mailbox_cannot_store_a_message(kind: str) -> None:
    async with pair(kind) as it:
        boxes = DurableMailboxes(it.server, SimulatedDisk())
        boxes._serializers.set_serializer(Place, "protobuf")  # which it is not
        await it.server.spawn(Book, name="kept", mailbox=boxes.mailbox("kept"))
        with pytest.raises(SerializationError, match="protobuf"):
            await it.book("kept").tell_wait(Place(1))


@each_kind
@in_a_loop
async def test_tell_wait_waits_for_room_in_a_bounded_mailbox(kind: str) -> None:
    async with pair(kind) as it:
        gate = asyncio.Event()
        await it.server.spawn(lambda: Held(gate), name="slow", capacity=1)
        slow = it.book("slow")
        await slow.tell_wait(Place(1))
        telling = asyncio.gather(*(slow.tell_wait(Place(order), timeout=60) for order in (2, 3, 4)))
        with pytest.raises(TimeoutError):
            await slow.tell_wait(Place(5), timeout=0.1)
        assert not telling.done()
        gate.set()
        await telling


@each_kind
@in_a_loop
async def test_tell_wait_raises_when_the_outcome_is_not_known_in_time(kind: str) -> None:
    async with pair(kind) as it:
        await it.book().tell_wait(Place(1))
        await it.silence_server()
        with pytest.raises((TimeoutError, RemoteError)):
            await it.book().tell_wait(Place(2), timeout=0.3)


@each_kind
@in_a_loop
async def test_the_returned_value_answers_an_ask_of_another_node(kind: str) -> None:
    class Stall(Actor[Place]):
        def receive(self, message: Place) -> Ack:
            return Ack(message.order)

    async with pair(kind) as it:
        await it.server.spawn(Stall, name="stall")
        assert await it.book("stall").ask(Place(7)) == Ack(7)


@each_kind
@in_a_loop
async def test_tell_wait_of_a_message_above_the_frame_limit_raises(kind: str) -> None:
    async with pair(kind) as it:
        letters: list[object] = []
        it.client._listeners.append(letters.append)
        with pytest.raises(SerializationError, match="max_frame_bytes"):
            await it.book().tell_wait(Fail("x" * (1 << 20)))
        (letter,) = (each for each in letters if isinstance(each, DeadLetter))
        assert "max_frame_bytes" in letter.reason
        assert await it.book().ask(Place(1)) == Ack(1)


@in_a_loop
async def test_a_message_that_the_other_node_would_not_expand_is_refused_when_it_is_sent() -> None:
    options = RemoteOptions(compression="zlib", max_decompressed_bytes=50_000)
    async with pair(client=options, server=options) as it:
        with pytest.raises(SerializationError, match="max_decompressed_bytes"):
            await it.book().ask(Fail("x" * 60_000))
        with pytest.raises(ValueError, match="xxx"):
            await it.book().ask(Fail("x" * 40_000))


@each_kind
@pytest.mark.parametrize("compression", ["zlib", "zstd"])
@in_a_loop
async def test_compressed_messages_travel(kind: str, compression: str) -> None:
    options = RemoteOptions(compression=compression)  # type: ignore[arg-type]
    async with pair(kind, client=options, server=options) as it:
        with pytest.raises(ValueError, match="x" * 100):
            await it.book().ask(Fail("x" * 50_000))


@in_a_loop
async def test_json_is_for_those_who_want_it() -> None:
    async with pair(
        server=RemoteOptions(serializer="json"), client=RemoteOptions(serializer="json")
    ) as it:
        assert await it.book().ask(Place(3)) == Ack(3)
        assert await it.book().ask(Log()) == [3]


@pytest.mark.parametrize("serialiser", ["msgpack", "json"])
@each_kind
@in_a_loop
async def test_values_of_every_type_arrive_as_they_were(kind: str, serialiser: str) -> None:
    """In a field of the type Any, as a reply, in a union of messages, and as a message by themselves."""
    options = RemoteOptions(serializer=serialiser)  # type: ignore[arg-type]
    seen: list[Any] = []
    async with pair(kind, client=options, server=options) as it:
        local = await it.server.spawn(lambda: Echoing(seen), name="echo")
        remote: ActorRef[Any] = it.book("echo")
        messages = [*map(Carry, EXAMPLES.values()), Deal(Bid(1)), Deal(BestBid(2, rank=Rank.LOW))]
        for ref in (local, remote):
            seen.clear()
            answers = await asyncio.gather(*map(ref.ask, messages))
            for message, came, answer in zip(messages, seen, answers, strict=True):
                assert alike(came, message)
                assert alike(answer, message.value if isinstance(message, Carry) else message)
            seen.clear()
            for value in EXAMPLES.values():
                ref.tell(value)
            await ref.ask(Carry(None))
            assert [*map(alike, seen, EXAMPLES.values())] == [True] * len(EXAMPLES)
        me = await it.client.spawn(Echoing, name="me")
        answer = await remote.ask(Carry([me]))
        assert answer == [me]
        assert isinstance(answer[0], ActorRef)


@in_a_loop
async def test_replies_are_of_the_type_that_was_declared() -> None:
    async with pair() as it:
        await it.server.spawn(Pricing, name="pricing")
        price = it.book("pricing")
        assert alike(await price.ask(Price()), Decimal("1.50"))
        assert alike(await price.ask(Prices()), [Decimal("1.50")])
        assert alike(await price.ask(Quotes()), {"a": Bid(1), "b": Ask(2)})


@in_a_loop
async def test_the_asker_of_a_refused_message_learns_the_reason() -> None:
    """A message whose class is defined differently on the other node."""
    async with pair() as it:
        heard: list[object] = []
        it.client._listeners.append(heard.append)
        write = it.at_client.serializers.serialize
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                it.at_client.serializers, "serialize", lambda value: (*write(value)[:2], b"\x80")
            )
            with pytest.raises(
                MessageRefusedError, match=r"envelope: .*Place .*missing required field `order`"
            ):
                await it.book().ask(Place(1))
            it.book().tell(Place(1))
            await until(lambda: bool(heard))
        (told,) = heard
        assert isinstance(told, MessageRefused)
        assert "missing required field" in told.detail
        with pytest.raises(
            SerializationError, match=r"Place\.order: the str 'x' does not match int"
        ):
            await it.book().ask(Place("x"))  # type: ignore[arg-type]
        assert await it.book().ask(Place(1)) == Ack(1)


# ── links that are lost ───────────────────────────────────────────────────────────────────────────────────


@in_a_loop
async def test_asks_end_when_the_server_goes() -> None:
    async with pair("tcp") as it:
        asking = asyncio.create_task(it.book().ask(Silence(), timeout=30))
        assert await it.book().ask(Place(1)) == Ack(1)
        await it.server.close()
        with pytest.raises(LinkLostError):
            await asking
        with pytest.raises((NotDeliveredError, LinkLostError)):
            await it.book().ask(Place(1), timeout=30)


@in_a_loop
async def test_an_ask_to_a_node_that_was_never_there_is_not_delivered() -> None:
    """Not LinkLostError, which leaves open whether the message was handled."""
    nodes = {"server": f"127.0.0.1:{free_ports(1)[0]}"}
    async with ActorSystem("client", transport=TcpTransport(nodes=nodes)) as client:
        for _ in range(2):  # in the first attempt to connect, and in a later one
            with pytest.raises(NotDeliveredError):
                await client.actor("book", node="server").ask(Log(), timeout=30)


@in_a_loop
async def test_messages_for_a_node_that_is_away_are_dead_letters() -> None:
    async with pair("memory") as it:
        await it.book().ask(Place(1))
        await it.server.close()
        letters: list[object] = []
        it.client._listeners.append(letters.append)
        it.book().tell(Place(2))
        await until(lambda: bool(letters))
        assert letters == [DeadLetter(Place(2), None, it.book())]


@in_a_loop
async def test_with_a_lasting_transport_a_stopped_node_finds_its_messages() -> None:
    hub = MemoryNetwork(durable=True)
    async with ActorSystem("client", transport=MemoryTransport(hub)) as client:
        hub.known_nodes.add("server")
        book = client.actor("book", node="server")
        for order in range(5):
            book.tell(Place(order))
        asking = asyncio.create_task(book.ask(Log(), timeout=30))
        await asyncio.sleep(0)
        server = ActorSystem("server", transport=MemoryTransport(hub))
        async with server:
            here = await server.spawn(Book, name="book")
            assert await asking == [0, 1, 2, 3, 4]
            assert await here.ask(Log()) == [0, 1, 2, 3, 4]
            assert not any(hub.unsettled.values())


@in_a_loop
async def test_what_a_link_repeats_is_processed_once() -> None:
    async with pair("lasting") as it:
        assert it.hub is not None
        repeated: list[bytes] = []

        def twice(sender: str, to: str, frame: bytes) -> bool:
            if to == "server":
                repeated.append(frame)
            return True

        it.hub.frame_filter = twice
        await it.book().ask(Place(1))
        link = it.at_client.peer_table.link_to(it.at_client.peer_table.peer("server"))
        for frame in repeated[:]:
            link.post(frame)
        assert await it.book().ask(Log()) == [1]


@in_a_loop
async def test_asks_of_a_closed_node_end() -> None:
    hub = MemoryNetwork()
    system = ActorSystem("client", transport=MemoryTransport(hub))
    async with system, ActorSystem("server", transport=MemoryTransport(hub)) as server:
        await server.spawn(Book, name="book")
        asking = asyncio.create_task(system.actor("book", node="server").ask(Silence(), timeout=30))
        await asyncio.sleep(0)
        await system.close()
        with pytest.raises(LinkClosedError):
            await asking


@in_a_loop
async def test_asks_that_wait_are_bounded() -> None:
    async with pair(client=RemoteOptions(max_pending_asks=2)) as it:
        asks = [asyncio.create_task(it.book().ask(Silence(), timeout=0.05)) for _ in range(3)]
        results = await asyncio.gather(*asks, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == [
            "AskTimeoutError",
            "AskTimeoutError",
            "LimitExceededError",
        ]


@in_a_loop
async def test_a_system_without_transport_has_no_node() -> None:
    async with ActorSystem("alone") as system:
        with pytest.raises(WrongContextError):
            Node.of(system)
        with pytest.raises(ActorStoppedError):
            await system.actor("book", node="server").ask(Place(1))


@in_a_loop
async def test_the_systems_own_actors_are_not_for_others() -> None:
    async with pair() as it:
        own = await it.server.spawn(Book, name="own", internal=True)
        with pytest.raises(ActorStoppedError):
            await it.book("own").ask(Place(1))
        # Nor by its uid under the name of one that is.
        alias = it.client.ref(Address("server", INSPECTOR_NAME, own.address.uid))
        with pytest.raises(ActorStoppedError):
            await alias.ask(Place(1))
        it.at_server.exposed_names.add("own")
        assert await it.book("own").ask(Place(1)) == Ack(1)


@in_a_loop
async def test_the_inspector_outlives_what_is_not_for_it() -> None:
    async with pair() as it:
        inspector = it.book(INSPECTOR_NAME)
        for _ in range(12):
            inspector.tell(Place(1))
        with pytest.raises(UnhandledMessageError):
            await inspector.ask(Place(1))
        assert (await inspector.ask(Inspect())).node == "server"


def test_faults_are_errors_of_actors() -> None:
    assert all(
        issubclass(kind, RemoteError)
        for kind in (LinkLostError, LinkClosedError, NoRouteError, NotDeliveredError)
    )


@in_a_loop
async def test_a_tell_wait_that_is_cancelled_while_the_link_is_full_leaves_nothing_behind() -> None:
    unseen: list[dict[str, Any]] = []
    async with pair() as it:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        link = it.at_client.peer_table.link_to(it.at_client.peer_table.peer("server"))
        link.drain = asyncio.Event().wait  # type: ignore[method-assign, assignment]
        telling = asyncio.create_task(it.book().tell_wait(Place(1), timeout=0.05))
        await asyncio.sleep(0)
        telling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await telling
        with pytest.raises(TimeoutError):  # its timeout is later than that of the other
            await it.book().tell_wait(Place(2), timeout=0.05)
        await asyncio.sleep(0)
        del telling
        gc.collect()
        assert unseen == []


@each_kind
@in_a_loop
async def test_tell_wait_raises_if_a_bounded_actor_stops_before_it_has_room(kind: str) -> None:
    async with pair(kind) as it:
        gate = asyncio.Event()
        slow = await it.server.spawn(lambda: Held(gate), name="slow", capacity=1)
        await it.book("slow").tell_wait(Place(1))
        waiting = asyncio.gather(
            *(it.book("slow").tell_wait(Place(order), timeout=60) for order in (2, 3, 4)),
            return_exceptions=True,
        )
        cell = it.server._find_cell(slow.address)
        assert cell is not None
        await until(lambda: cell.mailbox.qsize() == 3)
        slow.stop()
        gate.set()
        assert [type(each) for each in await waiting] == [ActorStoppedError] * 3
