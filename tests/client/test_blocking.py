"""The blocking client, against both brokers: the same names, called from threads."""

import threading
from collections.abc import Callable

import pytest

from recado.client import (
    AuthenticationError,
    CannotConnectError,
    ChannelClosedByBrokerError,
    ConnectionClosedByClientError,
    ConnectionEvent,
    ConnectionRecovered,
    PublishNackedError,
    ReturnedMessage,
    connect_blocking,
)
from tests.e2e.proxy import proxy_to
from workshop.peers import HOST, Server, free_ports

Name = Callable[[str], str]


def test_there_and_back(server: Server, name: Name) -> None:
    with connect_blocking(server.url, name="a test") as connection:
        assert connection.is_connected
        assert connection.blocked_reason is None
        with connection.channel() as channel:
            queue = channel.declare_queue(exclusive=True)
            assert connection.current_queue_name(queue.name) == queue.name
            channel.declare_exchange(x := name("x"), "topic", auto_delete=True)
            channel.bind_queue(queue.name, x, "#")
            assert channel.publish(x, "a", b"1") == 1
            assert channel.publish_many(x, "a", [b"2", b"3"]) == range(2, 4)
            channel.wait_for_confirm(1)
            channel.wait_for_confirms()
            assert channel.unconfirmed_count == 0
            first = channel.get(queue.name)
            assert first is not None
            assert first.body == b"1"
            assert channel.ack(first)
            with channel.consume(queue.name) as consumer:
                assert next(consumer).body == b"2"
            # The one that was handed over is still ours, the other went back.
            assert [each.body for each in channel.consume(queue.name).next_batch()] == [b"3"]
        assert not first.ack()
    connection.close()
    with pytest.raises(ConnectionClosedByClientError):
        connection.channel()


def test_many_in_a_loop(server: Server) -> None:
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        channel.qos(500)
        queue = channel.declare_queue(exclusive=True)
        for number in range(1, 3001):
            assert channel.publish("", queue.name, bytes(4000)) == number
        channel.wait_for_confirms()
        got = 0
        consumer = channel.consume(queue.name)
        for batch in consumer.batches():
            got += len(batch)
            batch[-1].ack(multiple=True)
            if got == 3000:
                break
        with pytest.raises(TimeoutError):
            consumer.next_batch(timeout=0.01)
        consumer.cancel()
        assert list(consumer) == []
        assert channel.declare_queue(queue.name, passive=True).message_count == 0


def test_threads_share_a_channel(server: Server) -> None:
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        queue = channel.declare_queue(exclusive=True)
        numbers: list[int] = []

        def publish() -> None:
            numbers.extend([channel.publish("", queue.name, b"x") for _ in range(300)])

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        channel.wait_for_confirms()
        assert sorted(numbers) == list(range(1, 1201))
        assert channel.declare_queue(queue.name, passive=True).message_count == 1200


def test_settled_by_another_thread(server: Server) -> None:
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        queue = channel.declare_queue(exclusive=True)
        channel.publish_many("", queue.name, [b"a", b"b"])
        channel.wait_for_confirms()
        one = channel.get(queue.name)
        other = channel.get(queue.name, no_ack=True)
        assert one is not None
        assert other is not None
        with pytest.raises(ValueError, match="no_ack cannot be settled"):
            other.ack()
        assert channel.nack(one)
        again = channel.get(queue.name)
        assert again is not None
        assert again.redelivered
        assert again.ack()


def test_errors_are_those_of_the_client(server: Server, name: Name) -> None:
    (port,) = free_ports(1)
    with pytest.raises(CannotConnectError, match=r"connection to .* refused"):
        connect_blocking(f"amqp://{HOST}:{port}").open()
    with pytest.raises(AuthenticationError):
        connect_blocking(server.url.replace("guest:guest", "guest:wrong")).open()
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBrokerError, match="404"):
            channel.declare_queue(name("missing"), passive=True)
        with pytest.raises(ChannelClosedByBrokerError):
            channel.publish("", "", b"")
        other = connection.channel()
        full = other.declare_queue(
            exclusive=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"}
        )
        other.publish("", full.name, b"")
        with pytest.raises(PublishNackedError):
            other.wait_for_confirms()
        with pytest.raises(ValueError, match="255"):
            other.publish("", "k" * 300, b"")
        with pytest.raises(TypeError, match="the body of a message must be bytes, not str"):
            other.publish("", "k", "text")  # type: ignore[arg-type]
        other.wait_for_confirms()


def test_hooks_are_called_and_must_not_wait(server: Server, name: Name) -> None:
    with connect_blocking(server.url) as connection:
        channel = connection.channel()
        found: list[object] = []
        done = threading.Event()

        def on_confirm(numbers: range, ok: bool) -> None:
            found.append((numbers, ok))
            with pytest.raises(RuntimeError, match="blocking call in a callback"):
                channel.wait_for_confirms()
            done.set()

        back: list[ReturnedMessage] = []
        channel.on_return = back.append
        channel.on_confirm = on_confirm
        assert channel.on_confirm is on_confirm
        assert channel.on_return is not None
        channel.publish("", name("nowhere"), b"", mandatory=True)
        assert done.wait(30)
        assert found == [(range(1, 2), True)]
        assert len(back) == 1


def test_it_comes_back(server: Server) -> None:
    restored = threading.Event()

    def on_event(notice: ConnectionEvent) -> None:
        if isinstance(notice, ConnectionRecovered):
            restored.set()

    with (
        proxy_to(server) as proxy,
        connect_blocking(
            proxy.url, on_event=on_event, retry_initial=0.01, retry_max=0.1
        ) as connection,
    ):
        channel = connection.channel()
        queue = channel.declare_queue(exclusive=True)
        consumer = channel.consume(queue.name)
        proxy.cut()
        assert restored.wait(30)
        channel.publish("", connection.current_queue_name(queue.name), b"again")
        assert next(consumer).body == b"again"
        unconfirmed = connection.channel(confirms=False)
        assert unconfirmed.publish("", "q", b"") == 0
