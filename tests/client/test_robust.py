"""The robust connection, against both brokers, over a proxy that cuts, stalls and drops data."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from recado.client import (
    AuthenticationError,
    CannotConnectError,
    ChannelClosedByBrokerError,
    ChannelClosedByClientError,
    Connection,
    ConnectionClosedByClientError,
    ConnectionLost,
    ConnectionLostError,
    ConnectionRecovered,
    ConsumerCancelledError,
    Delivery,
    QueueInfo,
    ReconnectAbandoned,
    ReconnectScheduled,
    ReconnectTimeoutError,
    RecoverySkipped,
    RobustConnection,
    connect,
)
from recado.client.recovery import ConnectionRecovery
from workshop.peers import HOST, Server, free_ports

from .faulty import Faulty, faulty_wire
from .notebook import Notebook
from .running import in_a_loop, soon

Name = Callable[[str], str]


@asynccontextmanager
async def robust(
    server: Server, *, give_up: float | None = 60.0
) -> AsyncIterator[tuple[RobustConnection, Faulty, Notebook]]:
    notebook = Notebook()
    async with (
        faulty_wire(server.port) as wire,
        connect(
            wire.address,
            on_event=notebook,
            retry_initial=0.01,
            retry_max=0.1,
            reconnect_timeout=give_up,
        ) as connection,
    ):
        yield connection, wire, notebook


async def take(consumer: AsyncIterator[Delivery], count: int) -> list[Delivery]:
    return [await soon(anext(consumer)) for _ in range(count)]


@in_a_loop
async def test_everything_is_restored_after_a_cut(server: Server, name: Name) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        x, y = name("x"), name("y")
        await channel.declare_exchange(x, "topic", auto_delete=True)
        await channel.declare_exchange(y, "fanout", auto_delete=True)
        await channel.bind_exchange(x, y)
        queue = await channel.declare_queue(exclusive=True)
        await channel.bind_queue("", x, "a.#")
        await channel.qos(2)
        consumer = await channel.consume(queue.name)
        channel.publish(y, "a.1", b"before")
        before = await soon(anext(consumer))
        wire.cut()
        lost = await notebook.wait_for(ConnectionLost)
        assert isinstance(lost.error, ConnectionLostError)
        restored = await notebook.wait_for(ConnectionRecovered)
        assert before.is_stale
        assert not before.ack()
        assert not channel.nack(before)
        assert restored.renamed_queues == {queue.name: connection.current_queue_name(queue.name)}
        assert connection.is_connected
        channel.publish_many(y, "a.2", [b"1", b"2", b"3"])
        await soon(channel.wait_for_confirms())
        got = await take(consumer, 2)
        assert [each.body for each in got] == [b"1", b"2"]  # the third waits: qos is restored
        assert not got[0].is_stale
        assert got[0].ack()
        assert channel.ack(got[1])
        assert (await soon(anext(consumer))).body == b"3"
        # The name that the broker gave at first still means the queue.
        assert (await channel.declare_queue(queue.name, passive=True)).consumer_count == 1
        assert await channel.purge_queue(queue.name) == 0
        assert await channel.get(queue.name) is None


@in_a_loop
async def test_what_was_not_confirmed_is_sent_again_in_order(server: Server, name: Name) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        queue = name("q")
        await channel.declare_queue(queue)
        told: list[int] = []
        channel.on_confirm = lambda numbers, ok: told.extend(numbers)
        wire.swallows = True  # the broker stores them, but its confirms are lost
        sent = 0
        for _ in range(3):
            for _ in range(10):
                sent += 1
                assert channel.publish("", queue, b"%d" % sent) == sent
            await asyncio.sleep(0)
            wire.cut()
            await notebook.wait_for(ConnectionLost)
            wire.swallows = False
            channel.publish_many("", queue, [b"%d" % n for n in range(sent + 1, sent + 6)])
            sent += 5
            await notebook.wait_for(ConnectionRecovered)
            await soon(channel.wait_for_confirms())
            assert sorted(told) == list(range(1, sent + 1))
            wire.swallows = True
            notebook.notices.clear()
        wire.swallows = False
        consumer = await channel.consume(queue, no_ack=True)
        got: list[int] = []
        while set(got) != set(range(1, sent + 1)):
            got += [int(each.body) for each in await soon(consumer.next_batch())]
        first_arrivals = list(dict.fromkeys(got))
        assert first_arrivals == list(range(1, sent + 1))
        await consumer.cancel()
        await channel.delete_queue(queue)


@in_a_loop
async def test_a_stalled_connection_is_missed_and_replaced(server: Server, name: Name) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        queue = name("q")
        await channel.declare_queue(queue, auto_delete=True)
        consumer = await channel.consume(queue)
        wire.stall()
        number = channel.publish("", queue, b"through")
        calling = asyncio.ensure_future(channel.declare_queue(queue, passive=True))
        lost = await notebook.wait_for(ConnectionLost)
        assert "sent nothing" in str(lost.error)
        wire.go_on()
        wire.cut()
        await soon(channel.wait_for_confirm(number))
        assert (await soon(calling)).name == queue
        got = await soon(anext(consumer))
        assert got.body == b"through"


@in_a_loop
async def test_calls_wait_for_the_connection_and_are_made_again(server: Server, name: Name) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        wire.stall()
        queue = name("q")
        calls = [
            asyncio.ensure_future(each)
            for each in (
                channel.declare_queue(queue, auto_delete=True),
                channel.get(queue),
                connection.channel(),
                channel.drain(),
            )
        ]
        await asyncio.sleep(0)
        wire.cut()
        await notebook.wait_for(ConnectionLost)
        late = asyncio.ensure_future(channel.consume(queue))
        wire.go_on()
        declared, got, _, _ = await soon(asyncio.gather(*calls))
        assert isinstance(declared, QueueInfo)
        assert (declared.name, got) == (queue, None)
        channel.publish("", queue, b"here")
        assert (await soon(anext(await soon(late)))).body == b"here"


@in_a_loop
async def test_without_confirms_nothing_is_kept(server: Server) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel(confirms=False)
        queue = await channel.declare_queue(exclusive=True)
        assert channel.publish("", queue.name, b"1") == 0
        assert channel.publish_many("", queue.name, [b"2"]) == range(0)
        with pytest.raises(ValueError, match="confirms=False"):
            await channel.wait_for_confirms()
        wire.cut()
        await notebook.wait_for(ConnectionLost)
        with pytest.raises(ConnectionLostError, match="not stored"):
            channel.publish("", queue.name, b"3")
        await soon(channel.drain())  # when there is a connection again
        assert channel.publish("", connection.current_queue_name(queue.name), b"4") == 0


@in_a_loop
async def test_the_window_bounds_what_is_kept(server: Server) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel(unconfirmed_max_bytes=100_000)
        queue = await channel.declare_queue(exclusive=True)
        wire.stall()
        channel.publish_many("", queue.name, [bytes(1000)] * 200)
        draining = asyncio.ensure_future(channel.drain())
        wire.cut()
        await notebook.wait_for(ConnectionLost)
        assert not draining.done()
        wire.go_on()
        await soon(draining)
        await soon(channel.wait_for_confirms())


@in_a_loop
async def test_what_the_broker_refuses_is_not_repaired(server: Server, name: Name) -> None:
    async with robust(server) as (connection, _, notebook):
        channel, other = await connection.channel(), await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        consumer = await channel.consume(queue.name)
        number = channel.publish(name("missing"), "", b"")
        with pytest.raises(ChannelClosedByBrokerError, match="404"):
            await soon(channel.wait_for_confirm(number))
        with pytest.raises(ChannelClosedByBrokerError):
            await soon(anext(consumer))
        with pytest.raises(ChannelClosedByBrokerError):
            await channel.qos(1)
        assert not channel.is_open
        assert other.is_open
        assert connection.is_connected
        assert notebook.notices == []


@in_a_loop
async def test_a_consumer_whose_queue_is_gone_ends_alone(server: Server, name: Name) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        gone, there = name("gone"), name("there")
        async with await Connection.open(server.url) as elsewhere:
            outside = await elsewhere.channel()
            await outside.declare_queue(gone)  # not ours, so it is not declared again
            await channel.declare_queue(there, auto_delete=True)
            first = await channel.consume(gone)
            second = await channel.consume(there)
            wire.stall()
            wire.cut()
            await outside.delete_queue(gone)
            wire.go_on()
        missing = await notebook.wait_for(RecoverySkipped)
        assert f"consumer of queue '{gone}'" in missing.entity
        await notebook.wait_for(ConnectionRecovered)
        with pytest.raises(ChannelClosedByBrokerError, match="404"):
            await soon(anext(first))
        channel.publish("", there, b"goes on")
        assert (await soon(anext(second))).body == b"goes on"


@in_a_loop
async def test_a_consumer_that_the_broker_cancels_is_told(server: Server) -> None:
    async with robust(server) as (connection, _, _):
        channel = await connection.channel()
        queue = await channel.declare_queue()
        consumer = await channel.consume(queue.name)
        await channel.delete_queue(queue.name)
        with pytest.raises(ConsumerCancelledError):
            await soon(anext(consumer))
        assert channel._consumers == {}


@in_a_loop
async def test_an_exclusive_queue_waits_until_the_old_connection_is_missed(
    server: Server, name: Name
) -> None:
    """The broker still has the old connection, because only our half of it is dead."""
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        queue = name("mine")
        await channel.declare_queue(queue, exclusive=True)
        consumer = await channel.consume(queue)
        wire.stall()
        await notebook.wait_for(
            ConnectionLost
        )  # by silence: the broker has said nothing for two heartbeats
        wire.go_on()
        await notebook.wait_for(ConnectionRecovered)
        channel.publish("", queue, b"again mine")
        assert (await soon(anext(consumer))).body == b"again mine"


@in_a_loop
async def test_it_gives_up_with_all_that_waits(server: Server) -> None:
    async with robust(server, give_up=0.3) as (connection, wire, notebook):
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        consumer = await channel.consume(queue.name)
        (wire.port_behind,) = free_ports(1)
        wire.stall()
        channel.publish("", queue.name, b"kept in vain")
        waiting = [
            asyncio.ensure_future(each)
            for each in (
                channel.wait_for_confirms(),
                channel.qos(1),
                anext(consumer),
                connection.channel(),
            )
        ]
        await asyncio.sleep(0)
        wire.cut()
        given_up = await notebook.wait_for(ReconnectAbandoned)
        assert len([each for each in notebook.notices if isinstance(each, ReconnectScheduled)]) > 1
        found = await soon(asyncio.gather(*waiting, return_exceptions=True))
        assert [type(each) for each in found] == [ReconnectTimeoutError] * 4, found
        assert "no reconnection within" in str(given_up.error)
        with pytest.raises(ReconnectTimeoutError):
            channel.publish("", queue.name, b"")


@in_a_loop
async def test_a_fault_while_it_is_restored_is_told_too(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def declare(_: ConnectionRecovery) -> None:
        raise ValueError("all channels are open")

    monkeypatch.setattr(ConnectionRecovery, "recover_topology", declare)
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        wire.cut()
        given_up = await notebook.wait_for(ReconnectAbandoned)
        assert "the last attempt failed: all channels are open" in str(given_up.error)
        with pytest.raises(ReconnectTimeoutError):
            await soon(channel.qos(1))
    assert "reconnecting stopped by an internal error" in caplog.text


@in_a_loop
async def test_the_first_connection_fails_at_once_unless_one_is_patient(server: Server) -> None:
    (port,) = free_ports(1)
    with pytest.raises(CannotConnectError, match=r"connection to .* refused"):
        await connect(f"amqp://{HOST}:{port}")
    with pytest.raises(ReconnectTimeoutError, match=r"connection to .* refused"):
        await soon(
            connect(
                f"amqp://{HOST}:{port}",
                wait_for_broker=True,
                reconnect_timeout=0.1,
                retry_initial=0.01,
                retry_max=0.1,
            )
        )
    async with faulty_wire(port) as wire:
        notebook = Notebook()
        opening = asyncio.ensure_future(
            _opened(
                connect(
                    wire.address,
                    wait_for_broker=True,
                    on_event=notebook,
                    retry_initial=0.01,
                    retry_max=0.1,
                )
            )
        )
        await notebook.wait_for(ReconnectScheduled, 2)
        wire.port_behind = server.port
        connection = await soon(opening)
        assert connection.is_connected
        assert isinstance(notebook.notices[0], ConnectionLost)
        assert isinstance(notebook.notices[-1], ConnectionRecovered)
        await connection.close()


@in_a_loop
async def test_who_is_not_welcome_need_not_be_patient(server: Server) -> None:
    address = f"amqp://nobody:wrong@{HOST}:{server.port}"
    with pytest.raises(AuthenticationError):
        await soon(connect(address, wait_for_broker=True, reconnect_timeout=None))


async def _opened(connection: RobustConnection) -> RobustConnection:
    return await connection


@in_a_loop
async def test_closing_ends_all_quietly(server: Server) -> None:
    async with robust(server) as (connection, _, notebook):
        channel = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        consumer = await channel.consume(queue.name)
        waiting = asyncio.ensure_future(consumer.next_batch())
        other = await connection.channel()
        await other.close()
        with pytest.raises(ChannelClosedByClientError):
            other.publish("", "", b"")
        await asyncio.sleep(0)
        await connection.close()
        assert await soon(waiting) == []
        with pytest.raises(ConnectionClosedByClientError):
            await connection.channel()
        assert notebook.notices == []


@in_a_loop
async def test_closing_while_it_is_being_restored(server: Server) -> None:
    async with robust(server, give_up=None) as (connection, wire, notebook):
        channel = await connection.channel()
        (wire.port_behind,) = free_ports(1)
        wire.cut()
        await notebook.wait_for(ReconnectScheduled, 2)
        waiting = asyncio.ensure_future(channel.qos(1))
        await asyncio.sleep(0)
        await soon(connection.close())
        with pytest.raises(ConnectionClosedByClientError):
            await soon(waiting)


@in_a_loop
async def test_a_consumer_cancelled_in_between_stays_away(server: Server, name: Name) -> None:
    async with robust(server) as (connection, wire, notebook):
        channel = await connection.channel()
        queue = name("q")
        await channel.declare_queue(queue, auto_delete=True)
        consumer = await channel.consume(queue, consumer_tag="me")
        with pytest.raises(ValueError, match="consumer tag 'me' is already used"):
            await channel.consume(queue, consumer_tag="me")
        wire.cut()
        await notebook.wait_for(ConnectionLost)
        await soon(consumer.cancel())
        assert await soon(consumer.next_batch()) == []
        await notebook.wait_for(ConnectionRecovered)
        assert queue not in connection._topology.queues  # it went with its last consumer


@in_a_loop
async def test_a_hook_that_fails_does_no_harm(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("a mistake in the hook")

    async with (
        faulty_wire(server.port) as wire,
        connect(wire.address, on_event=fail, retry_initial=0.01, retry_max=0.1) as connection,
    ):
        channel = await connection.channel()
        wire.cut()
        await soon(channel.qos(1))
        assert "exception in on_event callback" in caplog.text
