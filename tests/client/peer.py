"""The broker's end of a session that has no socket: it says what a test wants said."""

from recado.amqp import methods as m
from recado.amqp.events import Event, MethodReceived
from recado.amqp.frames import content_frames, method_frame
from recado.amqp.methods import Method
from recado.amqp.reader import Reader
from recado.client.address import Address
from recado.client.occurrences import Occurrence, Opened
from recado.client.session import Session

TUNE = m.ConnectionTune(2047, 131_072, 60)


class Peer:
    def __init__(self, address: Address | None = None, body_max: int = 1 << 20) -> None:
        self.woken = 0
        self.session = Session(address or Address(), {"product": "test"}, self._wake, body_max)
        self._reader = Reader(expects_header=True)

    def _wake(self) -> None:
        self.woken += 1

    def say(self, *methods: tuple[int, Method] | bytes) -> list[Occurrence]:
        """In one read; what the session makes of it."""
        data = b"".join(
            each if isinstance(each, bytes) else method_frame(*each) for each in methods
        )
        return list(self.session.receive(data))

    def heard(self) -> list[Event]:
        """What the session sent since the last time."""
        return list(self._reader.feed(self.session.take()))

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
        assert isinstance(opened, Opened)
        self.heard()
        return self

    def open_channel(self, token: object = None) -> int:
        number = self.session.open_channel(token)
        self.say((number, m.ChannelOpenOk()))
        self.heard()
        return number


def content(channel: int, method: Method, body: bytes, properties: bytes = b"\0\0") -> bytes:
    return method_frame(channel, method) + content_frames(channel, properties, body, 131_072)
