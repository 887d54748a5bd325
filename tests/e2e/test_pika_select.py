"""pika's SelectConnection: the asynchronous client, told as one script per test.

A script is a generator: it yields what it waits for as a function that takes pika's callback, and
gets back what the callback was given. So a test reads in the order in which things happen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pika
from pika import BasicProperties, SelectConnection
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByClient
from pika.spec import Basic

from workshop.peers import Server
from workshop.time_limit import scale

from .traffic import PATIENCE

Wait = Callable[[Callable[..., None]], object]
Script = Generator[Wait, Any, None]


def play(server: Server, script: Callable[[SelectConnection], Script]) -> None:
    """Connect, run the script to its end, and close; an error or the deadline fails the test."""
    failures: list[BaseException] = []

    def opened(connection: SelectConnection) -> None:
        steps = script(connection)

        def advance(*given: Any) -> None:
            try:
                wait = steps.send(given if len(given) > 1 else given[0] if given else None)
            except StopIteration:
                connection.close()
            except BaseException as error:  # noqa: BLE001  (raised again in the test's own frame)
                failures.append(error)
                connection.close()
            else:
                wait(advance)

        advance()

    def closed(connection: SelectConnection, reason: Exception) -> None:
        connection.ioloop.stop()
        if not isinstance(reason, ConnectionClosedByClient):
            failures.append(reason)

    connection = SelectConnection(
        pika.URLParameters(server.url),
        on_open_callback=opened,
        on_open_error_callback=closed,
        on_close_callback=closed,
    )

    def late() -> None:
        failures.append(AssertionError(f"the script did not end within {PATIENCE:.0f} s"))
        connection.ioloop.stop()

    connection.ioloop.call_later(scale(PATIENCE), late)
    connection.ioloop.start()
    connection.ioloop.close()
    for failure in failures:
        raise failure


class Events(list[Any]):
    """What callbacks were given, in order; a script can wait until there are enough."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = 0
        self.done: Callable[[], None] = lambda: None

    def add(self, event: Any) -> None:
        """Keep one event, and go on with the script if it was the last one wanted."""
        self.append(event)
        if len(self) == self.wanted:
            self.done()

    def until(self, count: int) -> Wait:
        """Wait for that many events in all."""

        def wait(done: Callable[[], None]) -> None:
            self.wanted, self.done = count, done
            if len(self) >= count:
                done()

        return wait


def test_a_thousand_messages_there_and_back(server: Server) -> None:
    def script(connection: SelectConnection) -> Script:
        channel = yield lambda done: connection.channel(on_open_callback=done)
        declared = yield lambda done: channel.queue_declare("", exclusive=True, callback=done)
        queue = declared.method.queue
        yield lambda done: channel.basic_qos(prefetch_count=50, callback=done)
        received = Events()

        def receive(_: object, method: Basic.Deliver, __: BasicProperties, body: bytes) -> None:
            channel.basic_ack(method.delivery_tag, multiple=method.delivery_tag % 2 == 0)
            received.add(int(body))

        yield lambda done: channel.basic_consume(queue, receive, callback=done)
        for number in range(1000):
            channel.basic_publish("", queue, b"%d" % number)
        yield received.until(1000)
        assert received == list(range(1000))
        left = yield lambda done: channel.queue_declare(queue, passive=True, callback=done)
        assert left.method.message_count == 0

    play(server, script)


def test_a_return_comes_before_its_confirm(server: Server) -> None:
    def script(connection: SelectConnection) -> Script:
        channel = yield lambda done: connection.channel(on_open_callback=done)
        events = Events()
        channel.add_on_return_callback(lambda _, method, *__: events.add(method.reply_text))
        yield lambda done: channel.confirm_delivery(
            lambda frame: events.add(type(frame.method)), callback=done
        )
        for _ in range(3):
            channel.basic_publish("", "no such queue", b"back", mandatory=True)
            yield events.until(len(events) + 2)
        assert events == ["NO_ROUTE", Basic.Ack] * 3

    play(server, script)


def test_every_publish_of_a_window_is_confirmed_once(server: Server) -> None:
    def script(connection: SelectConnection) -> Script:
        channel = yield lambda done: connection.channel(on_open_callback=done)
        declared = yield lambda done: channel.queue_declare("", exclusive=True, callback=done)
        confirmed = Events()

        def confirm(frame: Any) -> None:
            last = frame.method.delivery_tag
            settled = set(confirmed)
            tags = range(1, last + 1) if frame.method.multiple else [last]
            for tag in tags:
                if tag not in settled or not frame.method.multiple:
                    confirmed.add(tag)

        yield lambda done: channel.confirm_delivery(confirm, callback=done)
        for number in range(500):
            key = declared.method.queue if number % 3 else "no such queue"
            channel.basic_publish("", key, b"%d" % number)
        yield confirmed.until(500)
        assert sorted(confirmed) == list(range(1, 501))

    play(server, script)


def test_an_error_closes_the_channel_and_only_the_channel(server: Server) -> None:
    def script(connection: SelectConnection) -> Script:
        channel = yield lambda done: connection.channel(on_open_callback=done)
        _, reason = yield lambda done: (
            channel.add_on_close_callback(done),
            channel.basic_publish("no such exchange", "", b"lost"),
        )
        assert isinstance(reason, ChannelClosedByBroker)
        assert (reason.reply_code, reason.reply_text) == (
            404,
            "NOT_FOUND - no exchange 'no such exchange' in vhost '/'",
        )
        another = yield lambda done: connection.channel(on_open_callback=done)
        yield lambda done: another.queue_declare("", exclusive=True, callback=done)

    play(server, script)


def test_a_consumer_learns_that_its_queue_is_gone(server: Server) -> None:
    def script(connection: SelectConnection) -> Script:
        channel = yield lambda done: connection.channel(on_open_callback=done)
        declared = yield lambda done: channel.queue_declare("", exclusive=True, callback=done)
        queue = declared.method.queue
        cancelled = Events()
        channel.add_on_cancel_callback(lambda frame: cancelled.add(frame.method.consumer_tag))
        consuming = yield lambda done: channel.basic_consume(queue, print, callback=done)
        yield lambda done: channel.queue_delete(queue, callback=done)
        yield cancelled.until(1)
        assert cancelled == [consuming.method.consumer_tag]

    play(server, script)
