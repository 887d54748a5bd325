"""Publishing and subscribing through links, on each of the carriers."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from msgspec.structs import replace

from recado.amqp.properties import Properties
from recado.feeds.connection import FeedConnection
from recado.feeds.errors import (
    FeedClosedError,
    FeedError,
    JoinError,
    RecoveryError,
    TransportLostError,
)
from recado.feeds.stack import StackError
from recado.feeds.subscription import Subscription
from recado.feeds.transport.endpoint import PacketListener
from recado.feeds.transport.memory import MemoryEndpoint, MemoryFeedTransport, MemoryHub
from recado.feeds.vector import Vector
from recado.feeds.views import Certainty, MemberId, Role, View
from recado.selector import SelectorError

from .loop import in_the_loop, until, without_waiting
from .town import CARRIERS, FAST, bodies, free_group, linking, take


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_a_message_is_what_was_published(kind: str) -> None:
    async with linking(kind) as linked, linked() as one, linked() as two:
        feed = one.feed("quotes")
        async with (two.feed("quotes")).subscribe("desk-1") as messages:
            about = Properties(content_type="text/plain", priority=3)
            await feed.publish(b"first")
            await feed.publish(
                b"second", key="PETR4", headers={"n": 1}, message_id="m", properties=about
            )
            await feed.flush()
            first, second = await take(messages, 2)
        assert (first.feed, first.publisher, first.sequence) == ("quotes", feed.publisher, 1)
        assert (first.body, first.key, first.message_id) == (b"first", "", "")
        assert (dict(first.headers), first.properties) == ({}, None)
        assert (second.body, second.key, second.message_id) == (b"second", "PETR4", "m")
        assert (dict(second.headers), second.properties) == ({"n": 1}, about)
        assert second.certainty is Certainty.LIVE
        assert feed.confirmed_sequence == feed.last_sequence == 2
        assert messages.vector == {feed.publisher: 2}


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_a_stack_without_views_subscribes_to_a_quiet_feed(kind: str) -> None:
    stack = f"DISPATCH:FRAG:FIFO:NAK:{'UDP' if kind == 'udp' else 'AMQP'}"
    async with linking(kind) as linked, linked() as connection:
        feed = connection.feed("quotes", stack=stack)
        async with feed.subscribe("desk-1") as messages:
            assert messages.view is None
            await feed.publish_many([b"first", b"second"])
            assert bodies(await take(messages, 2)) == [b"first", b"second"]
        assert messages.is_live


@in_the_loop
async def test_recovery_by_a_stack_without_sync_is_refused() -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes", stack="DISPATCH:FRAG:FIFO:NAK:MEMBERSHIP:AMQP")
        for recovery in ("pessimistic", Vector()):
            with pytest.raises(StackError, match="has no SYNC, which recovery needs"):
                feed.subscribe("desk-1", recovery=recovery)


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_many_messages_come_in_order_to_all(kind: str) -> None:
    count = 5_000
    async with linking(kind) as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with feed.subscribe("a") as a, feed.subscribe("b") as b:
            sent = [b"%d" % number for number in range(count)]
            keys = [f"key-{number % 7}" for number in range(count)]
            assert await feed.publish_many(sent, keys=keys) == range(1, count + 1)
            for messages in (a, b):
                found = await take(messages, count)
                assert bodies(found) == sent
                assert [message.key for message in found] == keys
                assert [message.sequence for message in found] == list(range(1, count + 1))


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_a_message_that_is_larger_than_a_packet(kind: str) -> None:
    body = bytes(range(256)) * 6_000
    async with linking(kind) as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with feed.subscribe("a") as messages:
            await feed.publish(body)
            await feed.publish(b"small")
            assert bodies(await take(messages, 2)) == [body, b"small"]


@in_the_loop
async def test_only_what_the_selector_wants() -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        selector = "key = 'PETR4' AND json.price > 10"
        async with feed.subscribe("a", selector=selector) as messages:
            for price in (9, 11, 12):
                await feed.publish(b'{"price": %d}' % price, key="PETR4")
                await feed.publish(b'{"price": %d}' % price, key="VALE3")
            assert bodies(await take(messages, 2)) == [b'{"price": 11}', b'{"price": 12}']
            assert messages.vector == {feed.publisher: 5}


@in_the_loop
async def test_what_cannot_be_is_told_at_once() -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        with pytest.raises(SelectorError):
            feed.subscribe("a", selector="price >")
        with pytest.raises(ValueError, match="recovery must be optimistic"):
            feed.subscribe("a", recovery="hopeful")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="the name of a subscriber is empty"):
            feed.subscribe("")
        with pytest.raises(ValueError, match="unprintable characters"):
            feed.subscribe("a\n")
        with pytest.raises(ValueError, match="the limit is 120"):
            connection.feed("f" * 121)
        with pytest.raises(ValueError, match=r"cannot end with \.archive"):
            connection.feed("quotes.archive")
        with pytest.raises(StackError):
            connection.feed("quotes", stack="DISPATCH:SINC:AMQP")
        with pytest.raises(ValueError, match="1 keys for 2 bodies"):
            await feed.publish_many([b"a", b"b"], keys=["k"])
        with pytest.raises(ValueError, match="key of 256 bytes exceeds the limit of 255"):
            await feed.publish_many([b"a", b"b"], keys=["k", "k" * 256])
        with pytest.raises(ValueError, match="exceeds the limit of 15,728,640"):
            await feed.publish_many([bytes(15 << 20)], keys="k")
        assert feed.last_sequence == 0


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://localhost", "must begin with amqp://, amqps:// or udp://"),
        ("localhost", "must begin with amqp://"),
        ("amqp://localhost:1", "nobody listens|refused|cannot"),
        ("amqp://localhost/a/b", "slash"),
        ("udp://10.0.0.1:1", "not a multicast address"),
    ],
)
@in_the_loop
async def test_where_no_feed_is(url: str, told: str) -> None:
    with pytest.raises(JoinError, match=f"(?i){told}"):
        async with FeedConnection(url) as connection:
            await (connection.feed("quotes")).publish(b"")


@in_the_loop
async def test_an_interface_that_is_none() -> None:
    url = free_group().replace("interface=127.0.0.1", "interface=192.0.2.1")
    async with FeedConnection(url) as connection:
        with pytest.raises(JoinError, match="cannot join multicast group"):
            await (connection.feed("quotes")).publish(b"")


@without_waiting
async def test_without_an_archive_there_is_no_recovery() -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        async with feed.subscribe("other") as other:
            await feed.publish(b"before")
            await take(other, 1)
            with pytest.raises(RecoveryError, match="no archive of the feed"):
                async with feed.subscribe("a", recovery=Vector()):
                    pass
            later = feed.subscribe("a", recovery=Vector(), live_without_archive=True)
            async with later as messages:
                await feed.publish(b"now")
                assert bodies(await take(messages, 1)) == [b"now"]
                assert [lost.last for lost in messages.lost] == [1]


@pytest.mark.parametrize("kind", CARRIERS)
@in_the_loop
async def test_members_are_told_of_each_other(kind: str) -> None:
    views: list[View] = []

    def names() -> set[str]:
        return {member.name for member in views[-1].members()} if views else set()

    async with linking(kind) as linked, linked() as connection, linked() as other:
        feed = connection.feed("quotes")
        async with feed.subscribe("a", on_view=views.append) as messages:
            taking = asyncio.create_task(take(messages, 1))
            await until(lambda: names() == {"a"})
            async with (other.feed("quotes")).subscribe("b"):
                await until(lambda: names() == {"a", "b"})
            await until(lambda: names() == {"a"})
            assert messages.view == views[-1]
            taking.cancel()


@in_the_loop
async def test_a_carrier_that_is_gone_is_told_to_all() -> None:
    hub = MemoryHub()
    async with FeedConnection.over_transport(MemoryFeedTransport(hub), options=FAST) as connection:
        feed = connection.feed("quotes")
        async with feed.subscribe("a") as messages:
            await feed.publish(b"x")
            assert bodies(await take(messages, 1)) == [b"x"]
            for port in list(hub.endpoints):
                port.disconnect(ConnectionError("the wire is cut"))
            with pytest.raises(TransportLostError, match="the wire is cut"):
                await take(messages, 1)
            with pytest.raises(TransportLostError, match="the wire is cut"):
                await feed.publish(b"y")
            await feed.flush()  # all that was published was confirmed


@in_the_loop
async def test_what_is_closed_says_so() -> None:
    async with linking("memory") as linked:
        connection = linked()
        async with connection:
            feed = connection.feed("quotes")
            await feed.publish(b"x")
            subscription = feed.subscribe("a")
            async with subscription as messages:
                pass
            assert await messages.next_batch() is None
            with pytest.raises(RuntimeError, match="entered only once"):
                await subscription.__aenter__()
        with pytest.raises(FeedClosedError, match="is closed"):
            await feed.publish(b"y")
        with pytest.raises(FeedClosedError, match="not open"):
            connection.feed("quotes")
        assert feed.confirmed_sequence == 1


class Slow(MemoryFeedTransport):
    """Lets nobody in before it is told to."""

    def __init__(self, hub: MemoryHub) -> None:
        super().__init__(hub)
        self.asked, self.lets_in = asyncio.Event(), asyncio.Event()

    async def join(
        self, feed: str, member_id: MemberId, role: Role, listener: PacketListener
    ) -> MemoryEndpoint:
        self.asked.set()
        await self.lets_in.wait()
        return await super().join(feed, member_id, role, listener)


@in_the_loop
async def test_who_becomes_a_publisher_while_the_feed_is_closed_is_none() -> None:
    carrier = Slow(hub := MemoryHub())
    async with FeedConnection.over_transport(carrier, options=FAST) as connection:
        feed = connection.feed("quotes")
        publishing = asyncio.create_task(feed.publish(b"x"))
        await carrier.asked.wait()
        await feed.close()  # which does not wait for one who may never be let in
        carrier.lets_in.set()
        for late in (publishing, feed.publish(b"y")):
            with pytest.raises(FeedClosedError):
                await late
        assert hub.endpoints == []


@in_the_loop
async def test_all_that_has_come_is_taken_at_once_and_is_in_hand_together() -> None:
    async with linking("memory") as linked, linked() as connection:
        one, two = connection.feed("quotes"), connection.feed("quotes")
        async with one.subscribe("a", selector="key <> 'no'") as messages:
            for feed in (one, one, two, one):
                await feed.publish_many([b"x", b"y"], keys=["", "no"])
                await feed.flush()
            every = {one.publisher: 6, two.publisher: 2}
            await until(lambda: messages._listener.driver.member.vector == every)
            (first,) = await messages.next_batches(max_messages=1)
            assert messages.vector == {one.publisher: 2}
            rest = await messages.next_batches()
            assert [bodies([*batch]) for batch in (first, *rest)] == [[b"x"]] * 4
            assert messages.vector == every
            await messages.close(finished=False)
            assert messages.vector == {one.publisher: 2}, "it had not finished with the others"
            assert await messages.next_batches() == []


@in_the_loop
async def test_subscriptions_that_ended_are_forgotten() -> None:
    async with linking("memory") as linked, linked() as connection:
        feed = connection.feed("quotes")
        known = weakref.WeakSet[Subscription]()
        for _ in range(3):
            async with feed.subscribe("a") as messages:
                known.add(messages)
        del messages
        gc.collect()
        assert len(known) == 1


@in_the_loop
async def test_all_is_closed_whatever_fails() -> None:
    hub = MemoryHub()
    connection = FeedConnection.over_transport(MemoryFeedTransport(hub), options=FAST)
    one, two, three = [connection.feed(name) for name in ("one", "two", "three")]
    for feed in (one, two, three):
        await feed.publish(b"x")
    hub.endpoints[1].disconnect(ConnectionError("the wire is cut"))
    await two.publish(b"y")
    with pytest.raises(TransportLostError, match="the wire is cut"):
        await connection.close()
    assert hub.endpoints == []


@in_the_loop
async def test_a_fast_publisher_is_slowed_down() -> None:
    async with linking("amqp") as linked, linked() as connection:
        feed = connection.feed("quotes", max_in_flight=2, batch_bytes=1_000)
        ahead = 0
        for number in range(1, 201):
            await feed.publish(bytes(100))
            ahead = max(ahead, number - feed.confirmed_sequence)
        await feed.flush()
        assert feed.confirmed_sequence == 200
        assert ahead <= 4 * 8  # two batches on their way, one ready, one being gathered


@in_the_loop
async def test_too_much_that_waits_for_archives_is_no_failed_recovery() -> None:
    stack = "DISPATCH:SYNC:ARCHIVER:UNIFORM:PULL:FRAG:FIFO:NAK:MEMBERSHIP:AMQP"
    options = replace(FAST, buffer_bytes=2_000, uniform_copies=1)
    async with linking("memory", options) as linked, linked() as connection:
        feed = connection.feed("quotes", stack=stack)
        async with feed.subscribe("desk") as messages:
            await feed.publish(bytes(4_000))
            with pytest.raises(FeedError, match="wait to be durable in 1 archives") as raised:
                await messages.next_batch()
            assert type(raised.value) is FeedError
