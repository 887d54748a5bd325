"""A client connected to a session without a socket.

Its methods are processed before `feed` returns, up to one whose answer has to wait for an fsync: then it is not
`free` to send more. Its input is passed to `hear` when it is read; that only records it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from recado.amqp import methods as m
from recado.amqp.events import Acked, ContentReceived, Event, MethodReceived
from recado.amqp.frames import FRAME_MAX_DEFAULT_BYTES as FRAME_MAX
from recado.amqp.frames import (
    PROTOCOL_HEADER,
    encode_ack_frame,
    encode_content,
    encode_method_frame,
    extract_body,
)
from recado.amqp.handshake import ConnectionLimits, Credentials
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.reader import FrameReader
from recado.server.options import ConnectionOptions
from recado.server.session import Session

if TYPE_CHECKING:
    from .node import Node

CHANNEL: Final = 1
_OPEN_CHANNEL: Final = encode_method_frame(CHANNEL, m.ChannelOpen())
_OFFER: Final = ConnectionOptions()


class BrokerObjectedError(RuntimeError):
    """The broker closed the channel or the connection."""


class Client:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.session = Session(node.broker, _OFFER, _nobody_asks, lambda: None)
        self.on_delivery: Callable[[m.BasicDeliver, ContentReceived], None] = _unexpected
        self.on_confirm: Callable[[int, bool, bool], None] = _unexpected
        self.on_return: Callable[[bytes], None] = _unexpected
        self.on_leave: Callable[[], None] = lambda: None
        self._reader = FrameReader(frame_max=FRAME_MAX)
        self._answers: deque[Callable[[m.Method, bytes], None]] = deque()
        self._open()
        node.clients[self] = None

    def _open(self) -> None:
        """By a short cut: the handshake would be a quarter of all work."""
        session, broker, now = self.session, self.node.broker, self.node.now
        session.receive(PROTOCOL_HEADER, now)
        session.apply_limits(ConnectionLimits(FRAME_MAX, CHANNEL, 0))
        session.enter_vhost(broker.grant_access(broker.users["guest"], "/"))
        session.receive(_OPEN_CHANNEL, now)
        session.take_output()

    @property
    def is_free(self) -> bool:
        """Whether everything that it sent is processed and answered."""
        return not self._answers and not self.session.has_held_output and not self.session.has_input

    # ── saying ────────────────────────────────────────────────────────────────────────────────────

    def ask(self, method: m.Method, answered: Callable[[m.Method, bytes], None]) -> None:
        """Send a method; `answered` is called with the answer, and the body of a message that comes with it."""
        self._answers.append(answered)
        self.feed(encode_method_frame(CHANNEL, method))

    def tell(self, method: m.Method) -> None:
        """Send a method whose answer is ignored."""
        self.ask(method, _ignore)

    def feed(self, data: bytes) -> None:
        session, now = self.session, self.node.now
        session.receive(data, now)
        while session.has_input and not session.is_stalled:
            session.process_input(now)

    def ack(self, *tags: int, multiple: bool = False) -> None:
        self.feed(b"".join([encode_ack_frame(CHANNEL, tag, multiple=multiple) for tag in tags]))

    def leave(self) -> None:
        """Disconnect without closing, after reading all input."""
        self.read()
        self.overhear()
        self.on_leave()
        self.session.terminate(self.node.now)
        del self.node.clients[self]

    # ── hearing ───────────────────────────────────────────────────────────────────────────────────

    def read(self) -> None:
        """Read the input, and let the session continue with input that was blocked."""
        session, now = self.session, self.node.now
        while True:
            self.hear()
            session.on_drained(now)
            if session.has_input and not session.is_stalled:
                session.process_input(now)
            if not session.output:
                return

    def hear(self) -> None:
        if self.session.output:
            for event in self._reader.feed(b"".join(self.session.take_output())):
                self._heard(event)

    def overhear(self) -> None:
        """At the end: record deliveries that wait behind an answer that must not be sent."""
        while self.session.has_held_output:
            self.session.release()
        for event in self._reader.feed(b"".join(self.session.take_output())):
            if isinstance(event, ContentReceived) and isinstance(event.method, m.BasicDeliver):
                self.on_delivery(event.method, event)

    def _heard(self, event: Event) -> None:
        match event:
            case Acked(_, first, count):
                for tag in range(first, first + count):
                    self.on_confirm(tag, False, True)
            case MethodReceived(_, m.BasicAck(tag, multiple)):
                self.on_confirm(tag, multiple, True)
            case MethodReceived(_, m.BasicNack(tag, multiple, _)):
                self.on_confirm(tag, multiple, False)
            case MethodReceived(_, m.ChannelClose(code, text) | m.ConnectionClose(code, text)):
                raise BrokerObjectedError(f"{code} {text}")
            case MethodReceived(_, m.BasicCancel()):
                pass
            case MethodReceived(_, method):
                self._answers.popleft()(method, b"")
            case ContentReceived(_, m.BasicDeliver() as method, _):
                self.on_delivery(method, event)
            case ContentReceived(_, m.BasicReturn(), content):
                self.on_return(extract_body(content))
            case ContentReceived(_, method, content):
                self._answers.popleft()(method, extract_body(content))
            case _:
                raise BrokerObjectedError(f"unexpected method: {event}")


def publishing(
    exchange: str, key: str, body: bytes, properties: Properties, *, mandatory: bool = False
) -> bytes:
    """The frames of one message."""
    method = encode_method_frame(CHANNEL, m.BasicPublish(exchange, key, mandatory))
    return method + encode_content(CHANNEL, encode_properties(properties), body, FRAME_MAX)


def _nobody_asks(_session: Session, _credentials: Credentials) -> None:
    raise BrokerObjectedError("no credentials")


def _ignore(_method: m.Method, _body: bytes) -> None:
    pass


def _unexpected(*what: object) -> None:
    raise BrokerObjectedError(f"unexpected method: {what}")
