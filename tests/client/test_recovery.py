"""Recovery of entities that changed or disappeared, against both brokers."""

import asyncio
from collections.abc import Callable

import pytest

from recado.amqp.methods import BasicConsume
from recado.client import (
    Channel,
    ChannelClosedByBrokerError,
    Connection,
    ConnectionLost,
    ConnectionRecovered,
    Consumer,
    ReconnectScheduled,
    RecoverySkipped,
)
from workshop.peers import Server

from .running import in_a_loop, soon
from .test_robust import robust

Name = Callable[[str], str]


@in_a_loop
async def test_a_queue_that_outlives_the_connection_keeps_the_name_that_the_broker_gave(
    server: Server,
) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        queue = await channel.declare_queue()
        channel.publish("", queue.name, b"still here")
        await soon(channel.wait_for_confirms())
        wire.cut()
        restored = await notebook.wait_for(ConnectionRecovered)
        assert restored.renamed_queues == {}
        got = await channel.get(queue.name)
        assert got is not None
        assert got.body == b"still here"
        await channel.delete_queue(queue.name)


@in_a_loop
async def test_one_that_is_gone_gets_a_new_one(server: Server) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        queue = await channel.declare_queue()
        async with await Connection.open(server.url) as elsewhere:
            await (await elsewhere.channel()).delete_queue(queue.name)
        wire.cut()
        restored = await notebook.wait_for(ConnectionRecovered)
        assert list(restored.renamed_queues) == [queue.name]
        await channel.delete_queue(queue.name)  # by the name that it had first


@in_a_loop
async def test_what_others_declared_otherwise_is_reported_and_left_out(
    server: Server, name: Name
) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        ours, other = name("ours"), name("other")
        await channel.declare_queue(ours)
        await channel.declare_queue(other, exclusive=True)
        async with await Connection.open(server.url) as elsewhere:
            outside = await elsewhere.channel()
            await outside.delete_queue(ours)
            await outside.declare_queue(ours, arguments={"x-max-length": 5})
        wire.cut()
        missing = await notebook.wait_for(RecoverySkipped)
        assert missing.entity == f"queue '{ours}'"
        assert "406" in str(missing.error)
        await notebook.wait_for(ConnectionRecovered)
        assert channel.is_open
        assert (await channel.declare_queue(other, passive=True)).name == other
        await channel.delete_queue(ours)


@in_a_loop
async def test_what_is_refused_when_it_is_sent_again_ends_its_channel(
    server: Server, name: Name
) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel, other = await connection.channel(), await connection.channel()
        theirs = name("theirs")
        async with await Connection.open(server.url) as elsewhere:
            outside = await elsewhere.channel()
            await outside.declare_exchange(theirs)
            wire.stall()
            number = channel.publish(theirs, "", b"too late")
            wire.cut()
            await notebook.wait_for(ConnectionLost)
            await outside.delete_exchange(theirs)
        waiting = asyncio.ensure_future(channel.wait_for_confirm(number))
        wire.go_on()
        with pytest.raises(ChannelClosedByBrokerError, match="404 NOT_FOUND - no exchange"):
            await soon(waiting)
        await soon(other.qos(1))
        assert other.is_open
        assert connection.is_connected


@in_a_loop
async def test_a_channel_closed_while_it_is_restored_stays_closed(server: Server) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel, other = await connection.channel(), await connection.channel()
        channel.publish("", "nowhere", b"")
        wire.cut()
        await notebook.wait_for(ConnectionLost)
        await soon(channel.close())
        await notebook.wait_for(ConnectionRecovered)
        await soon(other.qos(1))
        assert not channel.is_open


async def held(elsewhere: Connection, queue: str) -> Consumer:
    """The consumer is started again once the broker has noticed the loss of the old connection."""
    while True:
        try:
            return await (await elsewhere.channel()).consume(queue, exclusive=True)
        except ChannelClosedByBrokerError:
            await asyncio.sleep(0.01)


@in_a_loop
async def test_an_attempt_that_fails_halfway_ends_nobody(server: Server, name: Name) -> None:
    """One channel is back already when the consumer of another still has to wait for its queue."""
    async with robust(server) as (connection, wire, notebook):
        one, other = await connection.channel(), await connection.channel()
        queue = name("held")
        await one.declare_queue(queue)
        own = await one.declare_queue(exclusive=True)
        consumers = await one.consume(own.name), await other.consume(queue, exclusive=True)
        async with await Connection.open(server.url) as elsewhere:
            wire.stall()
            wire.cut()
            holder = await soon(held(elsewhere, queue))
            wire.go_on()
            await notebook.wait_for(ReconnectScheduled, 3)
            assert not [each for each in notebook.notices if isinstance(each, ConnectionRecovered)]
            await holder.cancel()
        await notebook.wait_for(ConnectionRecovered)
        one.publish("", connection.current_queue_name(own.name), b"one")
        other.publish("", queue, b"other")
        assert [(await soon(anext(each))).body for each in consumers] == [b"one", b"other"]
        await other.delete_queue(queue)


@in_a_loop
async def test_a_consumer_cancelled_while_another_is_restored_is_left_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        stays, goes = await channel.consume(queue.name), await channel.consume(queue.name)
        start = Channel.start_consumer

        async def start_and_cancel(bare: Channel, consumer: Consumer, method: BasicConsume) -> None:
            await start(bare, consumer, method)
            assert consumer is stays
            await goes.cancel()

        monkeypatch.setattr(Channel, "start_consumer", start_and_cancel)
        wire.cut()
        await notebook.wait_for(ConnectionRecovered)
        assert (await channel.declare_queue(queue.name, passive=True)).consumer_count == 1
        assert await soon(goes.next_batch()) == []


@in_a_loop
async def test_what_ends_the_connection_is_not_asked_again(server: Server) -> None:
    async with robust(server) as (connection, _, notebook):
        channel = await connection.channel()
        with pytest.raises(Exception, match="the broker closed the"):
            await soon(channel.declare_exchange("x", "no-such-type"))
        if (
            not connection.is_connected
        ):  # closes the channel or the connection, depending on the broker
            await notebook.wait_for(ConnectionRecovered)
        assert (await connection.channel()).is_open
