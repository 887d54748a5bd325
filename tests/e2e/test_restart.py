"""What a client finds again after the broker was killed, or stopped, and started on the same folder."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from workshop import peers

from .durable_broker import durable_broker

StartBroker = Callable[[], AbstractContextManager[BlockingChannel]]

PERSISTENT = BasicProperties(delivery_mode=2)


@pytest.fixture(params=[signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def start_broker(request: pytest.FixtureRequest, tmp_path: Path) -> StartBroker:
    """Starts the broker, and returns a channel; see `durable_broker`."""
    return partial(durable_broker, tmp_path / "data", request.param)


def send(channel: BlockingChannel, key: str, *bodies: str, **properties: object) -> None:
    wanted = BasicProperties(delivery_mode=2, **properties)
    for body in bodies:
        channel.basic_publish("", key, body.encode(), wanted)


def take(channel: BlockingChannel, queue: str, *, ack: bool = True) -> list[tuple[str, bool]]:
    """All that is ready: bodies, and whether each was delivered before."""
    found: list[tuple[str, bool]] = []
    while True:
        method, _, body = channel.basic_get(queue)
        if method is None or body is None:
            return found
        found.append((body.decode(), method.redelivered))
        if ack:
            channel.basic_ack(method.delivery_tag)


def exists(channel: BlockingChannel, queue: str) -> bool:
    try:
        channel.connection.channel().queue_declare(queue, passive=True)
    except ChannelClosedByBroker:
        return False
    return True


def test_topology(start_broker: StartBroker) -> None:
    with start_broker() as channel:
        channel.exchange_declare("lasting", "topic", durable=True, arguments={"x": "y"})
        channel.exchange_declare("further", "fanout", durable=True)
        channel.exchange_declare("passing", "topic")
        channel.queue_declare("orders", durable=True, arguments={"x-max-priority": 3})
        channel.queue_declare("fleeting")
        channel.queue_declare("mine", durable=True, exclusive=True)
        channel.queue_declare("gone", durable=True)
        channel.exchange_bind("further", "lasting", "a.*")
        channel.queue_bind("orders", "further")
        channel.queue_bind("orders", "lasting", "b.#", {"n": 1})
        channel.queue_bind("orders", "lasting", "c")
        channel.queue_unbind("orders", "lasting", "c")
        channel.queue_delete("gone")
    with start_broker() as channel:
        channel.exchange_declare("lasting", "topic", durable=True, arguments={"x": "y"})
        channel.queue_declare("orders", durable=True, arguments={"x-max-priority": 3})
        for key in ("a.1", "b.1.2", "c"):
            channel.basic_publish("lasting", key, key.encode())
        assert take(channel, "orders") == [("a.1", False), ("b.1.2", False)]
        assert [exists(channel, name) for name in ("fleeting", "mine", "gone")] == [False] * 3
        with pytest.raises(ChannelClosedByBroker):
            channel.exchange_declare("passing", passive=True)


def test_messages(start_broker: StartBroker) -> None:
    with start_broker() as channel:
        channel.queue_declare("q", durable=True)
        send(channel, "q", *(f"{number}" for number in range(10)))
        channel.basic_publish("", "q", b"transient")
        channel.basic_get("q", auto_ack=True)
        assert take(channel, "q", ack=True)[-1] == ("transient", False)
        send(channel, "q", "a", "b", "c", "d")
        channel.basic_get("q")
        method, _, _ = channel.basic_get("q")
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        channel.queue_declare("r", durable=True)  # answered when all before it is safe, the ack too
    with start_broker() as channel:
        assert take(channel, "q", ack=False) == [("a", True), ("c", False), ("d", False)]
    with start_broker() as channel:
        assert take(channel, "q") == [("a", True), ("c", True), ("d", True)]
        send(channel, "q", "e")
    with start_broker() as channel:
        assert take(channel, "q") == [("e", False)]


def test_properties_and_bodies_to_the_byte(start_broker: StartBroker) -> None:
    properties = BasicProperties(
        content_type="text/plain",
        headers={"n": 1, "nested": {"list": [1, "two", None]}},
        delivery_mode=2,
        priority=1,
        correlation_id="c",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        app_id="a",
    )
    large = bytes(range(256)) * 2000
    with start_broker() as channel:
        channel.queue_declare("q", durable=True)
        for body in (b"", b"small", large):
            channel.basic_publish("", "q", body, properties)
    with start_broker() as channel:
        for body in (b"", b"small", large):
            _, found, content = channel.basic_get("q", auto_ack=True)
            assert content == body
            assert found == properties


def test_time_to_live_goes_on(start_broker: StartBroker) -> None:
    with start_broker() as channel:
        channel.queue_declare("brief", durable=True, arguments={"x-message-ttl": 1})
        channel.queue_declare("q", durable=True)
        send(channel, "brief", "gone")
        send(channel, "q", "gone", expiration="1")
        send(channel, "q", "here", expiration="3600000")
    with start_broker() as channel:
        assert take(channel, "brief") == []
        assert take(channel, "q") == [("here", False)]


def test_priorities_stay(start_broker: StartBroker) -> None:
    with start_broker() as channel:
        channel.queue_declare("q", durable=True, arguments={"x-max-priority": 5})
        for priority in (0, 5, 2, 5):
            send(channel, "q", str(priority), priority=priority)
    with start_broker() as channel:
        assert [body for body, _ in take(channel, "q")] == ["5", "5", "2", "0"]


def test_dead_letters_stay(start_broker: StartBroker) -> None:
    with start_broker() as channel:
        channel.queue_declare("letters", durable=True)
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
        channel.queue_declare("q", durable=True, arguments=arguments)
        send(channel, "q", "1", "2")
        method, _, _ = channel.basic_get("q")
        assert method is not None
        channel.basic_reject(method.delivery_tag, requeue=False)
        channel.queue_declare("later", durable=True)  # D3: the next commit covers the rejection
    with start_broker() as channel:
        method, properties, body = channel.basic_get("letters")
        assert (method is not None, body) == (True, b"1")
        assert properties is not None
        assert properties.headers["x-death"][0]["reason"] == "rejected"
        assert take(channel, "q") == [("2", False)]


def test_transactions_are_whole(start_broker: StartBroker) -> None:
    with start_broker() as confirming:
        channel = confirming.connection.channel()
        channel.tx_select()
        channel.queue_declare("q", durable=True)
        send(channel, "q", "1", "2")
        channel.tx_commit()
        send(channel, "q", "3")
        channel.tx_rollback()
        send(channel, "q", "4")
    with start_broker() as channel:
        assert [body for body, _ in take(channel, "q")] == ["1", "2"]


def test_a_purge_lasts(start_broker: StartBroker) -> None:
    with start_broker() as channel:
        channel.queue_declare("q", durable=True)
        send(channel, "q", "1", "2")
        channel.queue_purge("q")
        send(channel, "q", "3")
    with start_broker() as channel:
        assert take(channel, "q") == [("3", False)]


def test_two_nodes_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        peers.recado(data=tmp_path / "data"),
        pytest.raises(peers.PeerStartError, match="in use"),
        peers.recado(data=tmp_path / "data"),
    ):
        pass
