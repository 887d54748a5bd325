"""Applications without an event loop, on recado and on RabbitMQ."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import msgspec
import pytest

from recado.client import CannotConnectError
from recado.patterns import (
    BlockingMessaging,
    ControlBus,
    Filter,
    Interceptor,
    Message,
    PublishSubscribe,
    ReplyError,
    RequestTimeoutError,
    SqliteStore,
    purge,
)
from workshop.peers import Server

Name = Callable[[str], str]

SECONDS_MAX = 60


class Order(msgspec.Struct):
    id: int


class Receipt(msgspec.Struct):
    order_id: int


@pytest.fixture
def app(server: Server, name: Name) -> Iterator[BlockingMessaging]:
    app = BlockingMessaging(server.url, dead_letter=name("dead"), invalid=name("invalid"))
    yield app
    app.stop()


def test_a_plain_handler_gets_typed_bodies_in_order(app: BlockingMessaging, name: Name) -> None:
    orders, seen = name("orders"), SimpleQueue[Order]()

    @app.subscribe(orders)
    def handle(order: Order) -> None:
        seen.put(order)

    with app:
        app.publish(orders, Order(0))
        app.publish_many(orders, (Order(number) for number in range(1, 100)))
        assert [seen.get(timeout=SECONDS_MAX).id for _ in range(100)] == list(range(100))
        assert app.unconfirmed_count == 0


def test_requests_of_many_threads_and_their_errors(app: BlockingMessaging, name: Name) -> None:
    orders, receipts = name("orders"), SimpleQueue[Receipt]()

    @app.subscribe(orders)
    def handle(order: Order) -> Receipt:
        if order.id < 0:
            raise ValueError("no such order")
        return Receipt(order.id)

    with app:
        threads = [
            threading.Thread(
                target=lambda number=number: receipts.put(
                    app.request(orders, Order(number), Receipt, timeout=SECONDS_MAX)
                )
            )
            for number in range(8)
        ]
        for each in threads:
            each.start()
        found = [receipts.get(timeout=SECONDS_MAX).order_id for _ in threads]
        assert sorted(found) == list(range(8))
        with pytest.raises(ReplyError, match="no such order"):
            app.request(orders, Order(-1), timeout=SECONDS_MAX)
        app.declare(unread := name("unread"))
        with pytest.raises(RequestTimeoutError):
            app.request(unread, Order(1), timeout=0.05)


def test_handlers_that_wait_for_other_handlers(app: BlockingMessaging, name: Name) -> None:
    """There are more of them than asyncio has threads."""
    outer, inner = name("outer"), name("inner")
    count = 2 * (os.cpu_count() or 1) + 8
    together = threading.Barrier(count)

    @app.subscribe(outer, concurrency=count)
    def double(number: int) -> int:
        together.wait(SECONDS_MAX)
        return 2 * app.request(inner, number, int, timeout=SECONDS_MAX)

    @app.subscribe(inner)
    def increment(number: int) -> int:
        return number + 1

    with app:
        asked = [
            app.messaging.request(outer, number, int, timeout=SECONDS_MAX)
            for number in range(count)
        ]
        replies = SimpleQueue[int]()
        threads = [
            threading.Thread(target=lambda each=each: replies.put(app.wait(each))) for each in asked
        ]
        for thread in threads:
            thread.start()
        found = sorted(replies.get(timeout=SECONDS_MAX) for _ in threads)
    assert found == [2 * (number + 1) for number in range(count)]


def test_consuming_acknowledges_at_the_end_of_the_block(app: BlockingMessaging, name: Name) -> None:
    orders = name("orders")
    with app:
        app.publish_many(orders, [1, 2])
        with pytest.raises(KeyboardInterrupt), app.consume(orders, int):
            raise KeyboardInterrupt
        for expected in (1, 2):
            with app.consume(orders, int) as message:
                assert message is not None
                assert message.body == expected
        with app.consume(orders) as message:
            assert message is None


def test_endpoints_of_a_started_application(app: BlockingMessaging, name: Name) -> None:
    events, numbers, seen = PublishSubscribe(name("events")), name("numbers"), SimpleQueue[str]()
    with app:

        @app.subscribe(events)  # private: it misses what is published before it consumes
        def handle(text: str) -> None:
            seen.put(text)

        app.publish(events, "first")
        assert seen.get(timeout=SECONDS_MAX) == "first"
        app.flow(numbers, Filter("json.n > 1"), to=events, tag="big")
        app.publish_many(numbers, [{"n": 1}, {"n": 2}])
        assert app.health().is_healthy
        assert {each["tag"] for each in app.health().endpoints} == {"handle", "big"}
        app.stop_endpoint("handle")
        with pytest.raises(KeyError, match="no endpoint 'handle'"):
            app.stop_endpoint("handle")


def test_bindings_taps_enrichers_and_interceptors(app: BlockingMessaging, name: Name) -> None:
    events, queue, tapped = PublishSubscribe(name("events")), name("queue"), SimpleQueue[object]()
    published = []

    class Recorder(Interceptor):
        def publish(self, message: Message[object], to: object) -> Message[object]:
            published.append(message.headers.get("user"))
            return message

    app.enrich(lambda message: message.with_headers(user="anna"))
    app.intercept(Recorder())
    with app:
        app.bind(events, queue, "orders.*")

        @app.listen(queue, bindings=[(events, "orders.*")])
        def see(message: Message[dict[str, int]]) -> None:
            tapped.put(message.headers["user"])

        app.publish(events, {"id": 1}, key="orders.new")
        assert tapped.get(timeout=SECONDS_MAX) == "anna"
        app.unbind(events, queue, "orders.*")
        assert app.wait(purge(app.messaging, queue)) == 1
        assert published == ["anna"]
        with app.open_channel() as channel:
            assert channel.get(queue) is None
        app.delete(queue)


def test_an_outbox_publishes_what_a_transaction_has_stored(
    app: BlockingMessaging, name: Name, tmp_path: Path
) -> None:
    payments, seen, file = name("payments"), SimpleQueue[int](), tmp_path / "shop.sqlite"
    outbox = app.outbox(SqliteStore(file))

    @app.subscribe(payments)
    def book(amount: int) -> None:
        seen.put(amount)

    with app:
        connection = sqlite3.connect(file)
        with connection:
            outbox.add(connection, payments, 7)
        outbox.wake()
        assert seen.get(timeout=SECONDS_MAX) == 7
        connection.close()


def test_it_starts_and_stops_several_times(app: BlockingMessaging, name: Name) -> None:
    @app.subscribe(name("echo"), tag="echo")
    def echo(text: str) -> str:
        return text

    ControlBus(app.messaging)
    assert "echo" in app.asyncapi(version="1")["operations"]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not started: use `with app`"):
            app.publish("nowhere", 1)
        assert not app.health().is_healthy
        with app:
            assert app.health().is_healthy
            with pytest.raises(RuntimeError, match="started already"):
                app.start()
        app.stop()


def test_a_coroutine_handler_cannot_block_the_loop(app: BlockingMessaging, name: Name) -> None:
    questions = name("questions")

    @app.subscribe(questions)
    async def ask(number: int) -> None:
        app.publish(questions, number)

    with app, pytest.raises(ReplyError, match="blocking call in a callback"):
        app.request(questions, 1, timeout=SECONDS_MAX)


def test_an_absent_broker_leaves_no_thread() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    app = BlockingMessaging(f"amqp://guest:guest@127.0.0.1:{port}", name="absent")
    with pytest.raises(CannotConnectError):
        app.start()
    assert [each for each in threading.enumerate() if each.name == "absent messaging"] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_ends_at_a_signal(number: signal.Signals) -> None:
    program = (
        "from recado.patterns import BlockingMessaging\n"
        "app = BlockingMessaging()\n"
        "@app.subscribe('hello')\n"
        "def hello(text: str) -> None:\n"
        "    print(text, flush=True)\n"
        "start = app.start\n"
        "def start_and_publish():\n"
        "    start()\n"
        "    app.publish('hello', 'started')\n"
        "app.start = start_and_publish\n"
        "app.run()\n"
        "print('stopped', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"started\n"
        running.send_signal(number)
        assert running.stdout.read() == b"stopped\n"
        assert running.wait(SECONDS_MAX) == 0
