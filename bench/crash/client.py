"""A small AMQP client: one connection with one channel, in the event loop of all clients.

It passes on input as soon as it is read, and distinguishes whether a wait ended because the broker is gone
(`ConnectionLostError`, the subject of this benchmark) or because it reported an error (`BrokerObjectedError`, a
fault).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from recado.amqp import methods as m
from recado.amqp.codec import decode_method
from recado.amqp.frames import (
    BODY_FRAME_TYPE,
    CONTENT_HEADER_START,
    FRAME_MAX_DEFAULT_BYTES,
    FRAME_OVERHEAD_BYTES,
    FRAME_START,
    HEADER_FRAME_TYPE,
    METHOD_FRAME_TYPE,
    PROTOCOL_HEADER,
    encode_content,
    encode_method_frame,
)
from recado.amqp.properties import Properties, encode_properties
from workshop.peers import HOST

CHANNEL: Final = 1

Answer: TypeAlias = tuple[m.Method, bytes]
"""A method, and the body of the message that came with it."""


class ConnectionLostError(ConnectionError):
    """The broker is not there any more."""


class BrokerObjectedError(RuntimeError):
    """The broker closed the channel or the connection, with this code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code


@dataclass
class Incarnation:
    """Of a broker, from its clients' side."""

    number: int
    port: int
    large: bool = False
    """Whether large messages are published in it."""
    over: bool = False
    """It was killed: nothing more is sent, and remaining input was sent before."""
    clients: list[Client] = field(default_factory=list)

    async def end(self) -> None:
        """Close all sockets."""
        for client in self.clients:
            client.leave()
        await asyncio.gather(*(client.closed for client in self.clients))


class Client(asyncio.Protocol):
    def __init__(self, incarnation: Incarnation) -> None:
        self.incarnation = incarnation
        self.on_delivery: Callable[[m.BasicDeliver, bytes], None] = lambda method, body: None
        self.on_confirm: Callable[[int, bool, bool], None] = lambda tag, multiple, kept: None
        """The tag, the flag `multiple`, and whether they are confirmed or refused."""
        self.on_return: Callable[[bytes], None] = lambda body: None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked: deque[asyncio.Future[Answer]] = deque()
        self._stirred: asyncio.Future[None] | None = None
        self._buffer = b""
        self._content: tuple[m.Method, int, list[bytes]] | None = None

    # ── for those who use it ──────────────────────────────────────────────────────────────────────

    def say(self, *methods: m.Method) -> None:
        self.write(b"".join(encode_method_frame(CHANNEL, method) for method in methods))

    def write(self, data: bytes) -> None:
        """Write whole frames; they are lost if the broker is gone."""
        if not (self.incarnation.over or self.ended.done()):
            self._transport.write(data)

    async def call(self, method: m.Method) -> m.Method:
        """Send a method and return its answer; other calls may be pending."""
        return (await self.ask(method))[0]

    def ask(self, method: m.Method, channel: int = CHANNEL) -> asyncio.Future[Answer]:
        answer = self.expect()
        self.write(encode_method_frame(channel, method))
        return answer

    def expect(self) -> asyncio.Future[Answer]:
        """Return the next answer for which no other call waits."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if self.ended.done():
            answer.set_exception(ConnectionLostError())
        else:
            self._asked.append(answer)
        return answer

    async def until(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until a condition holds, with an optional timeout; return whether it holds."""
        while True:
            if self.ended.done():
                self.ended.result()
            if self.incarnation.over:
                raise ConnectionLostError
            if holds():
                return True
            self._stirred = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._stirred,), timeout=seconds)
            if not self._stirred.done():
                return False

    def leave(self) -> None:
        """Disconnect without closing."""
        self._transport.abort()

    # ── asyncio's side ────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(None)
        if not self.ended.done():
            self.ended.set_exception(ConnectionLostError())
            self.ended.exception()  # retrieved: not every connection is awaited
        self._fail(ConnectionLostError())
        self._stir()

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        at, end = 0, len(data)
        while end - at >= FRAME_OVERHEAD_BYTES:
            kind, _, size = FRAME_START.unpack_from(data, at)
            after = at + size + FRAME_OVERHEAD_BYTES
            if after > end:
                break
            self._frame(kind, data[at:after])
            at = after
        self._buffer = data[at:]
        self._stir()

    def _stir(self) -> None:
        if self._stirred is not None and not self._stirred.done():
            self._stirred.set_result(None)

    def _frame(self, kind: int, frame: bytes) -> None:
        if kind == METHOD_FRAME_TYPE:
            method = decode_method(frame[7:-1])
            if type(method).has_content:
                self._content = (method, -1, [])
            else:
                self._heard(method, b"")
        elif self._content is not None:
            method, left, pieces = self._content
            if kind == HEADER_FRAME_TYPE:
                left = CONTENT_HEADER_START.unpack_from(frame)[5]
            elif kind == BODY_FRAME_TYPE:
                pieces.append(frame[7:-1])
                left -= len(pieces[-1])
            self._content = (method, left, pieces)
            if left == 0:
                self._content = None
                self._heard(method, b"".join(pieces))

    def _heard(self, method: m.Method, body: bytes) -> None:
        match method:
            case m.BasicDeliver():
                self.on_delivery(method, body)
            case m.BasicAck(tag, multiple):
                self.on_confirm(tag, multiple, True)
            case m.BasicNack(tag, multiple):
                self.on_confirm(tag, multiple, False)
            case m.BasicReturn():
                self.on_return(body)
            case m.ChannelClose(code, text):
                self.say(m.ChannelCloseOk())
                self._object(BrokerObjectedError(code, text))
            case m.ConnectionClose(code, text):
                self._object(BrokerObjectedError(code, text))
            case m.ConnectionBlocked() | m.ConnectionUnblocked():
                pass
            case _:
                answer = self._asked.popleft()
                if not answer.done():
                    answer.set_result((method, body))

    def _object(self, objection: BrokerObjectedError) -> None:
        """Report an error to the waiting call; without one the connection ends with it."""
        if self._asked:
            self._fail(objection)
        elif not self.ended.done():
            self.ended.set_exception(objection)
            self.ended.exception()
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        while self._asked:
            answer = self._asked.popleft()
            if not answer.done():
                answer.set_exception(error)
                answer.exception()


async def connect(incarnation: Incarnation) -> Client:
    """Logged in, with an open channel."""
    loop = asyncio.get_running_loop()
    try:
        _, client = await loop.create_connection(
            lambda: Client(incarnation), HOST, incarnation.port
        )
    except OSError as error:
        raise ConnectionLostError from error
    incarnation.clients.append(client)
    client.write(PROTOCOL_HEADER)
    await client.expect()
    await client.ask(m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest"), 0)
    client.write(encode_method_frame(0, m.ConnectionTuneOk(CHANNEL, FRAME_MAX_DEFAULT_BYTES, 0)))
    await client.ask(m.ConnectionOpen(), 0)
    await client.call(m.ChannelOpen())
    return client


def publish(exchange: str, key: str, body: bytes, properties: bytes, *, mandatory: bool) -> bytes:
    """The frames of one message."""
    method = encode_method_frame(CHANNEL, m.BasicPublish(exchange, key, mandatory))
    return method + encode_content(CHANNEL, properties, body, FRAME_MAX_DEFAULT_BYTES)


def properties(*, persistent: bool, priority: int) -> bytes:
    mode = 2 if persistent else 1
    return encode_properties(Properties(delivery_mode=mode, priority=priority or None))
