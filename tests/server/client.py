"""A client on the other end of a session, with no socket between them: our client codec and our server's."""

from collections.abc import Iterable, Sequence
from itertools import count, cycle

from recado.amqp.events import Event, MethodReceived
from recado.amqp.frames import (
    FRAME_MAX_DEFAULT_BYTES,
    PROTOCOL_HEADER,
    encode_content,
    encode_method_frame,
)
from recado.amqp.handshake import ClientHandshake, Credentials, HandshakeStep
from recado.amqp.methods import BasicPublish, ChannelOpen, ConnectionClose, Method
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.reader import FrameReader
from recado.amqp.values import FieldTable
from recado.broker.access import Permission, User
from recado.broker.broker import Broker
from recado.broker.store import MessageStore
from recado.server.options import ConnectionOptions
from recado.server.session import Session

ALL_CAPABILITIES: FieldTable = {
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}
EVERYTHING = Permission(".*", ".*", ".*")


def new_broker(*users: User, store: MessageStore | None = None) -> Broker:
    """Return a broker with predictable generated names and a user guest with all permissions."""
    broker = Broker(map(str, count(1)).__next__, store=store)
    for user in users or (User("guest", permissions={"/": EVERYTHING}),):
        broker.add_user(user)
    return broker


def admit(session: Session, credentials: Credentials) -> None:
    """Accept every known user without checking the password."""
    session.accept_login(session.broker.users[credentials.username])


def publishing(
    channel: int,
    routing_key: str,
    body: bytes,
    properties: Properties | None = None,
    *,
    exchange: str = "",
    mandatory: bool = False,
    frame_max: int = FRAME_MAX_DEFAULT_BYTES,
) -> bytes:
    """The frames of a publish."""
    method = encode_method_frame(channel, BasicPublish(exchange, routing_key, mandatory))
    encoded = encode_properties(properties or Properties())
    return method + encode_content(channel, encoded, body, frame_max)


def cut(data: bytes, sizes: Sequence[int]) -> Iterable[bytes]:
    """The bytes in chunks of these sizes, over and over; whole if there are none."""
    if not sizes:
        yield data
        return
    at = 0
    for size in cycle(sizes):
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size


class Client:
    def __init__(
        self,
        broker: Broker,
        offer: ConnectionOptions | None = None,
        *,
        user: str = "guest",
        vhost: str = "/",
        frame_max: int = FRAME_MAX_DEFAULT_BYTES,
        channels: Iterable[int] = (1,),
        capabilities: FieldTable = ALL_CAPABILITIES,
        now: int = 0,
    ) -> None:
        self.session = Session(broker, offer or ConnectionOptions(), admit, lambda: None)
        self.reader = FrameReader(frame_max=FRAME_MAX_DEFAULT_BYTES)
        self.handshake = ClientHandshake(
            user, b"secret", vhost, {"capabilities": capabilities}, frame_max, 0, 0
        )
        self.refusal: ConnectionClose | None = None
        self._taken: list[bytes] = []
        self._open(now)
        if self.refusal is None:
            self.send(*((number, ChannelOpen()) for number in channels), now=now)
            self.received()

    def _open(self, now: int) -> None:
        self.session.receive(PROTOCOL_HEADER, now)
        while self.handshake.step is not HandshakeStep.OPEN and self.refusal is None:
            for event in self.received():
                assert isinstance(event, MethodReceived)
                if isinstance(event.method, ConnectionClose):
                    self.refusal = event.method
                else:
                    for method in self.handshake.receive(event.method):
                        self.session.receive(encode_method_frame(0, method), now)
                    self.reader.frame_max = self.handshake.limits.frame_max

    def send(self, *methods: tuple[int, Method], now: int = 0) -> None:
        """Methods on their channels, in one read."""
        self.feed(b"".join(encode_method_frame(*each) for each in methods), now)

    def feed(self, data: bytes, now: int = 0, sizes: Sequence[int] = ()) -> None:
        session = self.session
        for chunk in cut(data, sizes):
            session.receive(chunk, now)
            while session.has_input and not session.is_stalled:
                self._taken += session.take_output()
                session.on_drained(now)
                session.process_input(now)

    def received(self) -> list[Event]:
        """Return the events that the session sent since the last call."""
        taken, self._taken = self._taken, []
        return list(self.reader.feed(b"".join((*taken, *self.session.take_output()))))

    def call(self, *methods: Method, channel: int = 1, now: int = 0) -> list[Event]:
        """Send methods on a channel and return the received events."""
        self.send(*((channel, method) for method in methods), now=now)
        return self.received()
