"""What cannot be restored as it was, or need not be; against both brokers."""

import asyncio
from collections.abc import Callable

import pytest

from recado.client import ChannelRefused, Connection, Lost, NotRestored, Restored
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
        await soon(channel.flush())
        wire.cut()
        restored = await notebook.wait_for(Restored)
        assert restored.renamed == {}
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
        restored = await notebook.wait_for(Restored)
        assert list(restored.renamed) == [queue.name]
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
        missing = await notebook.wait_for(NotRestored)
        assert missing.what == f"queue '{ours}'"
        assert "406" in str(missing.error)
        await notebook.wait_for(Restored)
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
            await notebook.wait_for(Lost)
            await outside.delete_exchange(theirs)
        waiting = asyncio.ensure_future(channel.confirmed(number))
        wire.go_on()
        with pytest.raises(ChannelRefused, match="404 NOT_FOUND - no exchange"):
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
        await notebook.wait_for(Lost)
        await soon(channel.close())
        await notebook.wait_for(Restored)
        await soon(other.qos(1))
        assert not channel.is_open


@in_a_loop
async def test_what_ends_the_connection_is_not_asked_again(server: Server) -> None:
    async with robust(server) as (connection, _, notebook):
        channel = await connection.channel()
        with pytest.raises(Exception, match="the broker closed the"):
            await soon(channel.declare_exchange("x", "no-such-type"))
        if (
            not connection.is_connected
        ):  # a channel's error on some brokers, a connection's on others
            await notebook.wait_for(Restored)
        assert (await connection.channel()).is_open
