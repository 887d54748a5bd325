"""The plain connection, against both brokers: opening it, and how its end is reported."""

import asyncio
import socket
import ssl
from collections.abc import Callable

import pytest

from recado.amqp import methods as m
from recado.client import (
    AuthenticationError,
    CannotConnectError,
    ChannelClosedByBrokerError,
    ChannelClosedByClientError,
    ClientError,
    Connection,
    ConnectionClosedByBrokerError,
    ConnectionClosedByClientError,
    ConnectionLostError,
    ConnectionParameters,
    ConsumerCancelledError,
    TlsError,
    VhostRefusedError,
)
from recado.client.connection import explain_os_error
from recado.client.session_events import PublishesConfirmed
from recado.client.waiters import WaitCounter
from workshop.peers import HOST, Certificates, Server, free_ports

from .faulty import faulty_wire
from .running import in_a_loop, soon

Name = Callable[[str], str]


@in_a_loop
async def test_it_opens_and_closes(server: Server) -> None:
    async with await Connection.open(server.url, name="a test") as connection:
        assert connection.is_open
        assert connection.server_properties["product"] in ("recado", "RabbitMQ")
        assert "guest:guest" not in repr(connection)
    assert isinstance(connection.error, ConnectionClosedByClientError)
    with pytest.raises(ConnectionClosedByClientError):
        await connection.channel()
    await connection.close()  # once more does no harm


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (("guest:guest", "guest:wrong"), AuthenticationError, "refused the login of 'guest'"),
        (("guest:guest", "nobody:x"), AuthenticationError, "refused the login of 'nobody'"),
        (("%2F", "nowhere"), VhostRefusedError, "cannot open the vhost 'nowhere'"),
    ],
)
@in_a_loop
async def test_a_refusal_says_what_is_wrong(
    server: Server, change: tuple[str, str], kind: type[ClientError], says: str
) -> None:
    with pytest.raises(kind, match=says) as caught:
        await soon(Connection.open(server.url.replace(*change)))
    assert caught.value.hint


@in_a_loop
async def test_nobody_listens() -> None:
    (port,) = free_ports(1)
    with pytest.raises(CannotConnectError, match=r"connection to .* refused") as caught:
        await Connection.open(f"amqp://{HOST}:{port}")
    assert "Is the broker running" in str(caught.value)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (socket.gaierror(-2, "unknown"), "unknown host 'h'"),
        (OSError(113, "No route to host"), "cannot connect to h:5672: No route to host"),
        (OSError("Multiple exceptions: …"), "cannot connect to h:5672: Multiple exceptions"),
    ],
)
def test_other_reasons_not_to_get_there(error: OSError, says: str) -> None:
    assert says in str(explain_os_error(ConnectionParameters(host="h"), error))


@in_a_loop
async def test_somebody_listens_and_says_nothing() -> None:
    async def listen(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(listen, HOST, 0)
    port = silent.sockets[0].getsockname()[1]
    with pytest.raises(CannotConnectError, match=r"no connection to .* within 0.2 s"):
        await Connection.open(f"amqp://{HOST}:{port}?connection_timeout=0.2")
    silent.close()
    for writer in writers:
        writer.transport.abort()
    await silent.wait_closed()


# ── TLS ───────────────────────────────────────────────────────────────────────────────────────────────────


@in_a_loop
async def test_over_tls(server: Server, certificates: Certificates) -> None:
    url = f"{server.tls_url}?cafile={certificates.ca}"
    async with await Connection.open(url) as connection:
        channel = await connection.channel(confirms=True)
        queue = await channel.declare_queue(exclusive=True)
        channel.publish_many("", queue.name, [b"x" * 100_000] * 30)
        await soon(channel.wait_for_confirms())
        consumer = await channel.consume(queue.name, no_ack=True)
        got = 0
        while got < 30:
            got += len(await soon(consumer.next_batch()))


@in_a_loop
async def test_a_certificate_of_an_unknown_authority(server: Server) -> None:
    with pytest.raises(TlsError, match="is not trusted") as caught:
        await Connection.open(server.tls_url)
    assert "cafile" in caught.value.hint
    async with await Connection.open(f"{server.tls_url}?verify=no"):
        pass


@in_a_loop
async def test_the_wrong_port_for_tls(server: Server) -> None:
    with pytest.raises(TlsError, match=r"TLS handshake with .* failed"):
        await soon(Connection.open(server.url.replace("amqp:", "amqps:")))
    with pytest.raises(CannotConnectError):
        await soon(Connection.open(server.tls_url.replace("amqps:", "amqp:")))


@in_a_loop
async def test_tls_settings_that_make_no_sense(server: Server) -> None:
    with pytest.raises(ValueError, match="use amqps://"):
        await Connection.open(server.url, tls=ssl.create_default_context())
    with pytest.raises(TlsError, match=r"cannot load the certificates in /no\.pem"):
        await Connection.open(f"amqps://{HOST}?cafile=/no.pem")


# ── the end is told to all ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["cut", "silence", "closed"])
@in_a_loop
async def test_its_death_is_raised_in_all_that_waits(server: Server, name: Name, how: str) -> None:
    async with faulty_wire(server.port) as wire:
        connection = await Connection.open(wire.address)
        channel = await connection.channel(confirms=True)
        other = await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        consumer = await other.consume(queue.name)
        wire.stall()
        number = channel.publish("", queue.name, b"never arrives")
        channel.publish_many("", queue.name, [bytes(100_000)] * 200)
        waiting = [
            asyncio.ensure_future(each)
            for each in (
                channel.declare_queue(name("q"), exclusive=True),
                channel.get(queue.name),
                channel.wait_for_confirms(),
                channel.wait_for_confirm(number),
                channel.drain(),
                connection.channel(),
                anext(consumer),
                anext(consumer.batches()),
                channel.close(),
            )
        ]
        await asyncio.sleep(0)
        if how == "cut":
            wire.cut()
        elif how == "closed":
            closing = asyncio.ensure_future(connection.close())
            await asyncio.sleep(0)
            wire.cut()
            await soon(closing)
        kind = ConnectionLostError
        found = await soon(asyncio.gather(*waiting, return_exceptions=True))
        assert [type(each) for each in found] == [kind] * len(waiting), found
        assert type(connection.error) is kind
        with pytest.raises(kind):
            channel.publish("", queue.name, b"too late")
        with pytest.raises(kind):
            await anext(consumer)
        await connection.close()


@in_a_loop
async def test_what_the_broker_refuses_ends_one_channel(server: Server, name: Name) -> None:
    async with await Connection.open(server.url) as connection:
        channel, other = await connection.channel(), await connection.channel()
        queue = await channel.declare_queue(exclusive=True)
        consumer = await channel.consume(queue.name)
        waits = asyncio.ensure_future(anext(consumer))
        with pytest.raises(ChannelClosedByBrokerError, match="404 NOT_FOUND") as caught:
            await channel.declare_queue(name("missing"), passive=True)
        assert caught.value.reply_code == 404
        with pytest.raises(ChannelClosedByBrokerError):
            await soon(waits)
        with pytest.raises(ChannelClosedByBrokerError):
            channel.publish("", queue.name, b"")
        assert not channel.is_open
        await channel.close()
        assert (await other.declare_queue(queue.name, passive=True)).message_count == 0


@in_a_loop
async def test_what_the_broker_cannot_bear_ends_the_connection(server: Server) -> None:
    connection = await Connection.open(server.url)
    channel = await connection.channel()
    ended: list[Exception] = []
    connection.on_end = ended.append
    with pytest.raises(ConnectionClosedByBrokerError) as caught:
        await soon(channel.declare_exchange("x", "no-such-type"))
    assert caught.value.reply_code in (503, 406)
    assert ended == [connection.error]
    await connection.close()


@in_a_loop
async def test_a_channel_closes(server: Server) -> None:
    async with await Connection.open(server.url) as connection:
        async with await connection.channel() as channel:
            queue = await channel.declare_queue(exclusive=True)
            consumer = await channel.consume(queue.name)
        assert [delivery async for delivery in consumer] == []
        with pytest.raises(ChannelClosedByClientError):
            await channel.qos(1)
        assert (await connection.channel()).number == channel.number


@in_a_loop
async def test_a_channel_that_nobody_waits_for_any_more_is_closed(server: Server) -> None:
    async with await Connection.open(server.url) as connection:
        opening = asyncio.ensure_future(connection.channel())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        channel = await connection.channel()
        await channel.declare_queue(exclusive=True)
        assert len(connection.channels) <= 2


# ── a consumer that the broker cancels ────────────────────────────────────────────────────────────────────


@in_a_loop
async def test_deliveries_before_a_cancel_by_the_broker_are_returned(server: Server) -> None:
    """CCO2: their channel is open, so the broker does not redeliver them."""
    async with await Connection.open(server.url) as connection:
        channel = await connection.channel(confirms=True)
        queue = await channel.declare_queue()
        channel.publish_many("", queue.name, [b"1", b"2", b"3"])
        await soon(channel.wait_for_confirms())
        consumer = await channel.consume(queue.name)
        await soon(channel.delete_queue(queue.name))
        for body in (b"1", b"2"):
            delivery = await soon(anext(consumer))
            assert delivery.body == body
            assert delivery.ack()
        await soon(channel.declare_queue(exclusive=True))  # the broker has accepted the acks
        await soon(channel.close())
        with pytest.raises(ConsumerCancelledError):  # the third is stale now
            await soon(anext(consumer))


@in_a_loop
async def test_leaving_a_cancelled_consumer_requeues_its_deliveries(server: Server) -> None:
    async with await Connection.open(server.url) as connection:
        channel = await connection.channel(confirms=True)
        queue = await channel.declare_queue(exclusive=True)
        channel.publish_many("", queue.name, [b"1", b"2"])
        await soon(channel.wait_for_confirms())
        async with await channel.consume(queue.name) as consumer:
            first = await soon(anext(consumer))
            assert first.ack()
            await soon(channel.call(m.BasicCancel(consumer.tag), m.BasicCancelOk))
            channel.handle_consumer_cancel(consumer.tag)  # as if the broker had cancelled it
        again = await soon(channel.get(queue.name))
        assert again is not None
        assert (again.body, again.redelivered) == (b"2", True)


@in_a_loop
async def test_a_confirm_after_the_end_is_ignored() -> None:
    """A confirm of several ranges is several events, and `on_confirm` of the first may end the connection."""
    connection = Connection(ConnectionParameters(), WaitCounter())
    connection.abort(ConnectionLostError("ended by on_confirm"))
    connection._handle_event(PublishesConfirmed(1, range(3, 4), True))
    assert not connection.is_open
