"""A blocking AMQP client for attacks: it sends bytes that were rendered before, and waits for few replies."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Self

from bench.book import NotMeasuredError
from recado.amqp.events import Event, MethodReceived
from recado.amqp.frames import (
    FRAME_MAX_DEFAULT_BYTES,
    PROTOCOL_HEADER,
    encode_content,
    encode_method_frame,
)
from recado.amqp.handshake import ClientHandshake, HandshakeStep
from recado.amqp.methods import (
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    Method,
)
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.reader import FrameReader

CHANNEL = 1
READ_BYTES = 1 << 18


def rendered(*methods: Method) -> bytes:
    return b"".join(encode_method_frame(CHANNEL, method) for method in methods)


def published(
    exchange: str, routing_key: str, body: bytes, properties: Properties | None = None
) -> bytes:
    """The frames of a message."""
    encoded = encode_properties(properties or Properties())
    method = encode_method_frame(CHANNEL, BasicPublish(exchange, routing_key))
    return method + encode_content(CHANNEL, encoded, body, FRAME_MAX_DEFAULT_BYTES)


class Client:
    """A connection with one channel, as user guest."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self._events = self._receive()
        handshake = ClientHandshake("guest", b"guest", "/", {}, FRAME_MAX_DEFAULT_BYTES, 0, 0)
        self.send(PROTOCOL_HEADER)
        while handshake.step is not HandshakeStep.OPEN:
            for reply in handshake.receive(self._next_method()):
                self.send(encode_method_frame(0, reply))
        self.call(ChannelOpen(), ChannelOpenOk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._socket.close()

    def set_timeout(self, seconds: float) -> None:
        self._socket.settimeout(seconds)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def call(self, method: Method, reply: type[Method]) -> None:
        self.send(rendered(method))
        received = self._next_method()
        if not isinstance(received, reply):
            raise NotMeasuredError(f"{received} instead of {reply.__name__}")

    def sync(self) -> None:
        """Return when the broker has processed everything that was sent."""
        self.call(BasicQos(0, 1), BasicQosOk)

    def _next_method(self) -> Method:
        event = next(self._events)
        if not isinstance(event, MethodReceived):
            raise NotMeasuredError(f"an unexpected {event}")
        if isinstance(event.method, ConnectionClose | ChannelClose):
            raise NotMeasuredError(event.method.reply_text)
        return event.method

    def _receive(self) -> Iterator[Event]:
        while data := self._socket.recv(READ_BYTES):
            yield from self._reader.feed(data)
        raise NotMeasuredError("the broker closed the connection of the attacker")
