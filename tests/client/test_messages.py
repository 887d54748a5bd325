"""Messages on a plain connection, against both brokers: publish, confirm, consume, settle."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from recado.amqp.values import FieldTable
from recado.client import (
    Channel,
    ChannelClosedByBrokerError,
    Connection,
    ConsumerCancelledError,
    Delivery,
    Properties,
    PublishNackedError,
    ReturnedMessage,
    encode_properties,
)
from recado.client import protocol as wire_module
from workshop.peers import Server

from .running import in_a_loop, soon

Name = Callable[[str], str]


@asynccontextmanager
async def channel_to(
    server: Server, *, confirms: bool = True
) -> AsyncIterator[tuple[Channel, str]]:
    """A channel, and an exclusive queue."""
    async with await Connection.open(server.url) as connection:
        channel = await connection.channel(confirms=confirms)
        queue = await channel.declare_queue(exclusive=True)
        yield channel, queue.name


async def take(consumer: AsyncIterator[Delivery], count: int) -> list[Delivery]:
    return [await soon(anext(consumer)) for _ in range(count)]


@in_a_loop
async def test_a_message_there_and_back(server: Server) -> None:
    async with channel_to(server) as (channel, queue):
        sent = Properties(message_id="7", headers={"n": 1, "t": "x"}, delivery_mode=2)
        assert channel.publish("", queue, b"hello", sent) == 1
        await soon(channel.wait_for_confirm(1))
        assert channel.unconfirmed_count == 0
        got = await channel.get(queue)
        assert got is not None
        assert (got.body, got.properties, got.exchange) == (b"hello", sent, "")
        assert (got.routing_key, got.redelivered, got.consumer_tag) == (queue, False, "")
        assert not got.is_stale
        assert got.ack()
        assert await channel.get(queue) is None


@in_a_loop
async def test_many_of_all_sizes_arrive_in_order(server: Server) -> None:
    async with channel_to(server) as (channel, queue):
        bodies = [b"%d" % i * (i % 50) for i in range(3000)]
        bodies[1000:1000] = [bytes(300_000), b"", bytes(131_072), bytes(131_064), bytes(131_065)]
        properties = encode_properties(Properties(content_type="x"))
        assert channel.publish_many("", queue, bodies, properties) == range(1, 3006)
        await soon(channel.wait_for_confirms())
        consumer = await channel.consume(queue)
        got: list[Delivery] = []
        async for batch in consumer.batches():
            got += batch
            batch[-1].ack(multiple=True)
            if len(got) == len(bodies):
                break
        assert [each.body for each in got] == bodies
        assert [each.delivery_tag for each in got] == list(range(1, 3006))
        assert {each.properties.content_type for each in got} == {"x"}


@in_a_loop
async def test_confirms_are_told_as_they_come(server: Server) -> None:
    async with channel_to(server) as (channel, queue):
        told: list[int] = []
        channel.on_confirm = lambda numbers, ok: told.extend(numbers) if ok else None
        for i in range(500):
            channel.publish("", queue, b"%d" % i)
            if i % 100 == 0:
                await channel.drain()
        await soon(channel.wait_for_confirms())
        assert sorted(told) == list(range(1, 501))


@in_a_loop
async def test_what_a_full_queue_rejects_is_not_confirmed(server: Server, name: Name) -> None:
    async with channel_to(server) as (channel, _):
        full = name("full")
        arguments: FieldTable = {"x-max-length": 1, "x-overflow": "reject-publish"}
        await channel.declare_queue(full, exclusive=True, arguments=arguments)
        first = channel.publish("", full, b"taken")
        await soon(channel.wait_for_confirms())
        await channel.wait_for_confirm(first)
        second = channel.publish("", full, b"refused")
        with pytest.raises(PublishNackedError) as caught:
            await soon(channel.wait_for_confirm(second))
        assert caught.value.sequence_numbers == [range(second, second + 1)]
        with pytest.raises(PublishNackedError):
            await soon(channel.wait_for_confirms())
        await channel.wait_for_confirms()  # reported once
        with pytest.raises(ValueError, match="no message with the sequence number 99"):
            await channel.wait_for_confirm(99)


@in_a_loop
async def test_a_mandatory_message_without_a_queue_comes_back(server: Server, name: Name) -> None:
    async with channel_to(server) as (channel, _):
        back: list[ReturnedMessage] = []
        channel.on_return = back.append
        key = name("nowhere")
        channel.publish("", key, b"x" * 10, Properties(message_id="m"), mandatory=True)
        await soon(channel.wait_for_confirms())
        (returned,) = back
        assert (returned.reply_code, returned.reply_text, returned.routing_key) == (
            312,
            "NO_ROUTE",
            key,
        )
        assert (returned.body, returned.properties.message_id) == (b"x" * 10, "m")
        channel.on_return = None
        channel.publish("", key, b"", mandatory=True)
        await soon(channel.wait_for_confirms())


@in_a_loop
async def test_without_confirms_there_are_no_numbers(server: Server) -> None:
    async with channel_to(server, confirms=False) as (channel, queue):
        assert channel.publish("", queue, b"a") == 0
        assert channel.publish_many("", queue, [b"b", b"c"]) == range(0)
        assert channel.unconfirmed_count == 0
        with pytest.raises(ValueError, match="confirms=True"):
            await channel.wait_for_confirms()
        consumer = await channel.consume(queue, no_ack=True)
        assert [each.body for each in await take(consumer, 3)] == [b"a", b"b", b"c"]


@in_a_loop
async def test_publishing_where_nothing_is_ends_the_channel(server: Server, name: Name) -> None:
    async with channel_to(server) as (channel, _):
        channel.publish(name("missing"), "key", b"")
        with pytest.raises(ChannelClosedByBrokerError, match="404 NOT_FOUND - no exchange"):
            await soon(channel.wait_for_confirms())


@in_a_loop
async def test_settling(server: Server) -> None:
    async with channel_to(server) as (channel, queue):
        channel.publish_many("", queue, [b"%d" % i for i in range(6)])
        await soon(channel.wait_for_confirms())
        await channel.qos(6)
        async with await channel.consume(queue) as consumer:
            got = await take(consumer, 6)
            assert channel.ack(got[1], multiple=True)
            assert got[2].nack(requeue=False)
            assert got[3].nack()
            again = await soon(anext(consumer))
            assert (again.body, again.redelivered) == (b"3", True)
            await channel.recover()
            rest = await take(consumer, 3)
            assert sorted(each.body for each in rest) == [b"3", b"4", b"5"]
            assert rest[-1].ack(multiple=True)
        assert (await channel.declare_queue(queue, passive=True)).message_count == 0


@in_a_loop
async def test_what_may_not_be_settled(server: Server) -> None:
    async with channel_to(server) as (channel, queue):
        channel.publish_many("", queue, [b"a", b"b", b"c"])
        await soon(channel.wait_for_confirms())
        settled = await channel.get(queue, no_ack=True)
        delivery = await channel.get(queue)
        assert settled is not None
        assert delivery is not None
        with pytest.raises(ValueError, match="no_ack cannot be settled"):
            settled.ack()
        other = await channel.connection.channel()
        with pytest.raises(ValueError, match="must be settled on its own channel"):
            other.ack(delivery)
        await channel.close()
        assert delivery.is_stale
        assert not delivery.ack()
        assert not delivery.nack()
        assert not other.ack(delivery)


@in_a_loop
async def test_a_cancelled_consumer_gives_back_what_it_did_not_hand_over(server: Server) -> None:
    async with channel_to(server) as (channel, queue):
        channel.publish_many("", queue, [b"%d" % i for i in range(50)])
        await soon(channel.wait_for_confirms())
        consumer = await channel.consume(queue)
        first = await soon(anext(consumer))
        await consumer.cancel()
        assert [each async for each in consumer] == []
        assert await consumer.next_batch() == []
        first.ack()
        other = await channel.consume(queue)
        got = await take(other, 49)
        assert [each.body for each in got] == [b"%d" % i for i in range(1, 50)]


@in_a_loop
async def test_a_consumer_learns_that_its_queue_is_gone(server: Server) -> None:
    async with channel_to(server) as (channel, queue):
        consumer = await channel.consume(queue)
        waiting = asyncio.ensure_future(anext(consumer))
        other = await channel.connection.channel()
        assert await other.delete_queue(queue) == 0
        with pytest.raises(ConsumerCancelledError, match=f"of queue '{queue}'"):
            await soon(waiting)
        assert channel.is_open


@in_a_loop
async def test_two_consumers_of_one_tag_are_refused(server: Server) -> None:
    async with channel_to(server) as (channel, queue):
        await channel.consume(queue, consumer_tag="me")
        with pytest.raises(ValueError, match="consumer tag 'me' is already used"):
            await channel.consume(queue, consumer_tag="me")


@in_a_loop
async def test_who_was_cancelled_while_it_asked_keeps_nothing(server: Server) -> None:
    async with channel_to(server) as (channel, queue):
        channel.publish("", queue, b"back again")
        await soon(channel.wait_for_confirms())
        for asking in (channel.get(queue), channel.consume(queue)):
            task = asyncio.ensure_future(asking)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        consumer = await channel.consume(queue)
        assert (await soon(anext(consumer))).body == b"back again"


@in_a_loop
async def test_bindings_and_deletions(server: Server, name: Name) -> None:
    async with channel_to(server) as (channel, queue):
        x, y = name("x"), name("y")
        await channel.declare_exchange(x, "topic", auto_delete=True)
        await channel.declare_exchange(y, "fanout")
        await channel.bind_exchange(x, y)
        await channel.bind_queue(queue, x, "a.#")
        channel.publish(y, "a.b", b"1")
        await soon(channel.wait_for_confirms())
        assert await channel.purge_queue(queue) == 1
        await channel.unbind_exchange(x, y)
        channel.publish(y, "a.b", b"2")
        await channel.unbind_queue(queue, x, "a.#")
        await soon(channel.wait_for_confirms())
        assert await channel.delete_queue(queue, if_empty=True, if_unused=True) == 0
        await channel.delete_exchange(y, if_unused=True)


@in_a_loop
async def test_transactions(server: Server) -> None:
    async with channel_to(server, confirms=False) as (channel, queue):
        await channel.select_tx()
        channel.publish("", queue, b"never")
        await channel.rollback()
        channel.publish("", queue, b"once")
        await channel.commit()
        got = await channel.get(queue, no_ack=True)
        assert got is not None
        assert got.body == b"once"
        assert await channel.get(queue) is None
        await channel.flow(True)


@in_a_loop
async def test_a_consumer_that_takes_nothing_stops_reading_but_not_calls(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_module, "DELIVERY_BUFFER_MAX_BYTES", 100_000)
    async with channel_to(server) as (channel, queue):
        sender = await (await Connection.open(server.url)).channel(confirms=True)
        consumer = await channel.consume(queue, no_ack=True)
        # The exclusive queue is another connection's, which may still publish to it.
        for _ in range(30):
            sender.publish_many("", queue, [bytes(10_000)] * 100)
            await soon(sender.wait_for_confirms())
        first = await soon(anext(consumer))
        assert len(first.body) == 10_000
        assert channel.protocol.is_reading_paused
        # Its own connection answers although deliveries are in the way.
        assert (await soon(channel.declare_queue(queue, passive=True))).consumer_count == 1
        channel.publish("", queue, b"last")
        await soon(channel.wait_for_confirms())
        got = 1
        while got < 3001:
            got += len(await soon(consumer.next_batch()))
        assert channel.protocol.buffered_bytes == 0
        await sender.connection.close()
