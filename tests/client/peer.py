"""The broker's side of a session without a socket, controlled by the test."""

from recado.amqp import methods as m
from recado.amqp.events import Event, MethodReceived
from recado.amqp.frames import encode_content, encode_method_frame
from recado.amqp.methods import Method
from recado.amqp.reader import FrameReader
from recado.client.parameters import ConnectionParameters
from recado.client.session import Session
from recado.client.session_events import ConnectionOpened, SessionEvent

TUNE = m.ConnectionTune(2047, 131_072, 60)


class Peer:
    def __init__(
        self, address: ConnectionParameters | None = None, body_max: int = 1 << 20
    ) -> None:
        self.woken = 0
        self.session = Session(
            address or ConnectionParameters(), {"product": "test"}, self._wake, body_max
        )
        self._reader = FrameReader(expects_protocol_header=True)

    def _wake(self) -> None:
        self.woken += 1

    def say(self, *methods: tuple[int, Method] | bytes) -> list[SessionEvent]:
        """Send methods to the session in one read; return its events."""
        data = b"".join(
            each if isinstance(each, bytes) else encode_method_frame(*each) for each in methods
        )
        return list(self.session.receive(data))

    def heard(self) -> list[Event]:
        """Return what the session has sent since the last call."""
        return list(self._reader.feed(self.session.take_output()))

    def heard_methods(self) -> list[tuple[int, Method]]:
        return [
            (event.channel, event.method)
            for event in self.heard()
            if isinstance(event, MethodReceived)
        ]

    def open(self, tune: m.ConnectionTune = TUNE) -> "Peer":
        """Through the handshake."""
        self.say((0, m.ConnectionStart()))
        self.say((0, tune))
        (opened,) = self.say((0, m.ConnectionOpenOk()))
        assert isinstance(opened, ConnectionOpened)
        self.heard()
        return self

    def open_channel(self, token: object = None) -> int:
        number = self.session.open_channel(token)
        self.say((number, m.ChannelOpenOk()))
        self.heard()
        return number


def content(channel: int, method: Method, body: bytes, properties: bytes = b"\0\0") -> bytes:
    return encode_method_frame(channel, method) + encode_content(channel, properties, body, 131_072)
