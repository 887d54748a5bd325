"""pika: what belongs to a connection: limits agreed on, large messages, many channels, secrets."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from pika import BlockingConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.credentials import PlainCredentials
from pika.exceptions import (
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from .traffic import Inbox, await_that, bodies, depth, put, take


def test_the_server_announces_every_capability_that_clients_look_for(
    connection: BlockingConnection,
) -> None:
    properties = connection._impl.server_properties
    assert properties["product"] == "RabbitMQ"
    wanted = {
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
        "direct_reply_to",
    }
    assert {name for name, can in properties["capabilities"].items() if can} >= wanted


def test_the_smaller_limits_of_both_sides_hold(connect: Callable[..., BlockingConnection]) -> None:
    parameters = connect()._impl.params
    assert (parameters.channel_max, parameters.frame_max, parameters.heartbeat) == (
        2047,
        131072,
        60,
    )
    modest = connect(channel_max=7, frame_max=4096, heartbeat=11)._impl.params
    assert (modest.channel_max, modest.frame_max, modest.heartbeat) == (7, 4096, 11)


@pytest.mark.parametrize("frame_max", [4096, 131072])
@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 131064, 131065, 3_000_000])
def test_bodies_of_any_size_arrive_whole(
    connect: Callable[..., BlockingConnection],
    name: Callable[[str], str],
    size: int,
    frame_max: int,
) -> None:
    channel = connect(frame_max=frame_max).channel()
    queue = name("large")
    channel.queue_declare(queue, exclusive=True)
    body = hashlib.shake_128(b"recado").digest(size)
    inbox = Inbox(channel, queue, auto_ack=True)
    put(channel, queue, body, b"after")
    inbox.wait(2)
    assert inbox.bodies == [body, b"after"]


def test_a_message_from_large_frames_reaches_a_client_with_small_ones(
    connect: Callable[..., BlockingConnection], channel: BlockingChannel, name: Callable[[str], str]
) -> None:
    small = connect(frame_max=4096).channel()
    queue = name("resplit")
    small.queue_declare(queue, exclusive=True)
    inbox = Inbox(small, queue, auto_ack=True)
    body = hashlib.shake_128(b"recado").digest(500_000)
    put(channel, queue, body, b"after")
    inbox.wait(2)
    assert inbox.bodies == [body, b"after"]


@pytest.mark.parametrize("server", ["recado"], indirect=True)
def test_a_message_above_the_limit_closes_its_channel_only(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    """recado takes 16 MiB by default, RabbitMQ 3.10 takes 128."""
    sending = connection.channel()
    sending.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker) as refused:
        put(sending, queue, bytes(17 * 1024 * 1024))
    assert refused.value.reply_code == 406
    assert "message size" in refused.value.reply_text
    put(channel, queue, bytes(16 * 1024 * 1024))
    (found,) = take(channel, queue)
    assert len(found.body) == 16 * 1024 * 1024


def test_many_channels_work_at_once(connection: BlockingConnection, queue: str) -> None:
    channels = [connection.channel() for _ in range(300)]
    for number, channel in enumerate(channels):
        put(channel, queue, b"%d" % number)
    found = bodies(take(channels[0], queue, 300))
    assert sorted(map(int, found)) == list(range(300))
    for channel in channels:
        channel.close()


def test_a_channel_number_can_be_used_again_after_an_error(
    connection: BlockingConnection, name: Callable[[str], str]
) -> None:
    for _ in range(20):
        channel = connection.channel(channel_number=9)
        with pytest.raises(ChannelClosedByBroker) as closed:
            channel.queue_declare(name("missing"), passive=True)
        assert closed.value.reply_code == 404


def test_an_error_of_one_channel_leaves_the_others_at_work(
    connection: BlockingConnection, channel: BlockingChannel, queue: str, name: Callable[[str], str]
) -> None:
    inbox = Inbox(channel, queue, auto_ack=True)
    with pytest.raises(ChannelClosedByBroker):
        connection.channel().basic_get(name("missing"))
    put(channel, queue, b"still here")
    inbox.wait(1)
    assert inbox.bodies == [b"still here"]


def test_an_error_of_one_connection_leaves_the_others_at_work(
    connect: Callable[..., BlockingConnection], channel: BlockingChannel, queue: str
) -> None:
    failing = connect().channel()
    with pytest.raises(ConnectionClosedByBroker) as closed:
        failing.basic_qos(prefetch_size=10)
    assert closed.value.reply_code == 540
    put(channel, queue, b"still here")
    assert depth(channel, queue) == 1


def test_a_wrong_password_is_refused_with_403(connect: Callable[..., BlockingConnection]) -> None:
    with pytest.raises(ProbableAuthenticationError) as refused:
        connect(credentials=PlainCredentials("guest", "wrong"))
    assert "ACCESS_REFUSED" in str(refused.value)


def test_an_unknown_vhost_is_refused_with_530(connect: Callable[..., BlockingConnection]) -> None:
    with pytest.raises(ProbableAccessDeniedError) as refused:
        connect(virtual_host="nowhere")
    assert "vhost nowhere not found" in str(refused.value)


def test_the_secret_can_be_renewed_while_connected(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    connection.update_secret("guest", "rotation")
    put(channel, queue, b"still here")
    assert depth(channel, queue) == 1


def test_flow_is_answered(channel: BlockingChannel) -> None:
    assert channel.flow(True) is True


def test_heartbeats_keep_an_idle_connection_alive(
    connect: Callable[..., BlockingConnection],
) -> None:
    connection = connect(heartbeat=1)
    checker = connection._impl._heartbeat_checker
    await_that(connection, lambda: checker._heartbeat_frames_received >= 4)
    assert checker._heartbeat_frames_sent >= 2
    assert connection.channel().is_open
