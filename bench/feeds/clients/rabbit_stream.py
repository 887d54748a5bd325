"""A RabbitMQ stream by pika, with its event loop: a window of confirms, and a prefetch acknowledged by halves.

Its blocking connection would wait for each confirm by itself; a callback lets the window stay full.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika

from bench.feeds.clients.work import WINDOW, Reading, Stopwatch, Work, WrongResultError, main

STREAM = {"x-queue-type": "stream"}
FROM_THE_START = {"x-stream-offset": "first"}
PERSISTENT = pika.BasicProperties(delivery_mode=2)

Channel = Any  # pika has no types


class Client:
    """One connection and one channel, until the work is done or something fails."""

    def __init__(self, work: Work, stopwatch: Stopwatch) -> None:
        self.work = work
        self.stopwatch = stopwatch
        self.failure: BaseException | None = None
        self._connection = pika.SelectConnection(
            pika.URLParameters(work.url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self.opened),
            on_open_error_callback=self.failed,
            on_close_callback=self.closed,
        )

    def run(self) -> None:
        self._connection.ioloop.start()
        if self.failure:
            raise self.failure

    def opened(self, channel: Channel) -> None:
        channel.add_on_close_callback(self.failed)
        channel.queue_declare(
            self.work.name,
            durable=True,
            arguments=STREAM,
            callback=lambda _: self.declared(channel),
        )

    def declared(self, channel: Channel) -> None:
        raise NotImplementedError

    def done(self) -> None:
        self.stopwatch.stop()
        self._connection.close()

    def failed(self, _: object, error: BaseException) -> None:
        if self.stopwatch.seconds == 0.0:
            self.failure = self.failure or error
        if self._connection.is_open:
            self._connection.close()
        elif not self._connection.is_closing:
            self._connection.ioloop.stop()

    def closed(self, connection: object, error: BaseException) -> None:
        self.failed(connection, error)
        self._connection.ioloop.stop()


class Publisher(Client):
    def __init__(self, work: Work, stopwatch: Stopwatch) -> None:
        super().__init__(work, stopwatch)
        self._bodies: Iterator[bytes] = iter(work.bodies())
        self._sent = 0
        self._oldest = 1
        self._unconfirmed: set[int] = set()

    def declared(self, channel: Channel) -> None:
        def answered(frame: Any) -> None:
            if isinstance(frame.method, pika.spec.Basic.Nack):
                self.failed(channel, WrongResultError("a message was refused"))
                return
            self.confirmed(frame.method.delivery_tag, frame.method.multiple)
            self.publish(channel)

        channel.confirm_delivery(answered, callback=lambda _: self.begin(channel))

    def begin(self, channel: Channel) -> None:
        self.stopwatch.start()
        self.publish(channel)

    def confirmed(self, tag: int, multiple: bool) -> None:
        if multiple:
            self._unconfirmed.difference_update(range(self._oldest, tag + 1))
            self._oldest = tag + 1
        else:
            self._unconfirmed.discard(tag)

    def publish(self, channel: Channel) -> None:
        while len(self._unconfirmed) < WINDOW:
            body = next(self._bodies, None)
            if body is None:
                break
            channel.basic_publish("", self.work.name, body, PERSISTENT)
            self._sent += 1
            self._unconfirmed.add(self._sent)
        if not self._unconfirmed:
            self.done()


class Reader(Client):
    def __init__(self, work: Work, stopwatch: Stopwatch) -> None:
        super().__init__(work, stopwatch)
        self._reading = Reading(work)

    def declared(self, channel: Channel) -> None:
        channel.basic_qos(prefetch_count=WINDOW, callback=lambda _: self.begin(channel))

    def begin(self, channel: Channel) -> None:
        self.stopwatch.start()
        channel.basic_consume(self.work.name, self.take, arguments=FROM_THE_START)

    def take(self, channel: Channel, method: Any, _: object, body: bytes) -> None:
        if self._reading.take(body):
            self.done()
        elif method.delivery_tag % (WINDOW // 2) == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)


def publish(work: Work, stopwatch: Stopwatch) -> None:
    Publisher(work, stopwatch).run()


def replay(work: Work, stopwatch: Stopwatch) -> None:
    Reader(work, stopwatch).run()


if __name__ == "__main__":
    main(publish, replay)
