"""How two peers agree to talk: the negotiation that opens a connection, for either side.

    client                       server
    protocol header      →
                         ←       connection.start        mechanisms, server properties
    connection.start-ok  →                               credentials, client properties
                         ←       connection.tune         the most that the server allows
    connection.tune-ok   →                               what holds for both
    connection.open      →                               virtual host
                         ←       connection.open-ok

Sans-IO: methods in, methods and decisions out. `NEXT` is the whole of the order, with what a side
receives and, on the server, what it sends. The rim sends and receives frames, verifies credentials,
and knows virtual hosts. `connection.close` may come at any step and is the rim's affair too.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import msgspec

from .errors import (
    ChannelFault,
    CommandInvalid,
    LoginRefused,
    NotAllowed,
    NotImplementedHere,
    SyntaxFault,
)
from .frames import FRAME_MIN
from .methods import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
)
from .values import LongString, Table, decode_table, encode_table


class Step(Enum):
    """The server's steps have the names that RabbitMQ gives them in its error texts."""

    AWAIT_HEADER = "greeting"
    AWAIT_START_OK = "starting"
    AWAIT_VERDICT = "securing"
    AWAIT_TUNE_OK = "tuning"
    AWAIT_OPEN = "opening"

    AWAIT_START = "awaiting connection.start"
    AWAIT_TUNE = "awaiting connection.tune"
    AWAIT_OPEN_OK = "awaiting connection.open-ok"

    OPEN = "running"


NEXT: Final[dict[tuple[Step, type[Method]], Step]] = {
    # the server
    (Step.AWAIT_HEADER, ConnectionStart): Step.AWAIT_START_OK,
    (Step.AWAIT_START_OK, ConnectionStartOk): Step.AWAIT_VERDICT,
    (Step.AWAIT_VERDICT, ConnectionTune): Step.AWAIT_TUNE_OK,
    (Step.AWAIT_TUNE_OK, ConnectionTuneOk): Step.AWAIT_OPEN,
    (Step.AWAIT_OPEN, ConnectionOpen): Step.OPEN,
    # the client
    (Step.AWAIT_START, ConnectionStart): Step.AWAIT_TUNE,
    (Step.AWAIT_TUNE, ConnectionTune): Step.AWAIT_OPEN_OK,
    (Step.AWAIT_OPEN_OK, ConnectionOpenOk): Step.OPEN,
}


class Credentials(msgspec.Struct, frozen=True):
    """Who the client says it is, and what it says it can do."""

    mechanism: str
    username: str
    password: bytes
    client_properties: Table

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism} for {self.username!r})"

    def supports(self, capability: str) -> bool:
        """Whether the client announced a capability, such as `authentication_failure_close`."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True


class Limits(msgspec.Struct, frozen=True):
    """What both sides keep to. Zero is no limit, or no heartbeat."""

    frame_max: int
    channel_max: int
    heartbeat: int


class Opened(msgspec.Struct, frozen=True):
    """The client chose its virtual host; the server may still refuse it."""

    virtual_host: str


class ServerHandshake:
    """Give it what the client sends; it answers with what the client decided by that."""

    def __init__(
        self,
        properties: Table,
        mechanisms: Sequence[str],
        frame_max: int,
        channel_max: int,
        heartbeat: int,
    ) -> None:
        if unknown := set(mechanisms) - _MECHANISMS.keys():
            raise ValueError(f"unknown authentication mechanisms: {', '.join(sorted(unknown))}")
        self.step = Step.AWAIT_HEADER
        self.properties = properties
        self.mechanisms = mechanisms
        self.offered = Limits(frame_max, channel_max, heartbeat)

    def start(self) -> ConnectionStart:
        """The answer to the protocol header."""
        start = ConnectionStart(
            server_properties=self.properties, mechanisms=" ".join(self.mechanisms).encode()
        )
        self.step = _after(self.step, start)
        return start

    def receive(self, method: Method) -> Credentials | Limits | Opened:
        match method:
            case ConnectionStartOk():
                self.step = _after(self.step, method)
                return self._credentials(method)
            case ConnectionTuneOk():
                self.step = _after(self.step, method)
                return self._agree(method)
            case ConnectionOpen():
                self.step = _after(self.step, method)
                return Opened(method.virtual_host)
            case _:
                raise unexpected_method(self.step, method)

    def accept(self) -> ConnectionTune:
        """The answer to credentials that turned out to be good."""
        ours = self.offered
        tune = ConnectionTune(ours.channel_max, ours.frame_max, ours.heartbeat)
        self.step = _after(self.step, tune)
        return tune

    def _credentials(self, answer: ConnectionStartOk) -> Credentials:
        if answer.mechanism not in self.mechanisms:
            raise CommandInvalid(f"unknown authentication mechanism '{answer.mechanism}'")
        username, password = _MECHANISMS[answer.mechanism].read(answer.response)
        return Credentials(answer.mechanism, username, password, answer.client_properties)

    def _agree(self, asked: ConnectionTuneOk) -> Limits:
        ours = self.offered
        return Limits(
            _within("frame_max", asked.frame_max, FRAME_MIN, ours.frame_max),
            _within("channel_max", asked.channel_max, 1, ours.channel_max),
            # The client has the last word here, and its zero is not a limit but a wish for silence.
            asked.heartbeat,
        )


class ClientHandshake:
    """Give it what the server sends; it answers with what to send. Once open, `limits` hold."""

    def __init__(
        self,
        username: str,
        password: bytes,
        virtual_host: str,
        properties: Table,
        frame_max: int,
        channel_max: int,
        heartbeat: int,
    ) -> None:
        self.step = Step.AWAIT_START
        self.username = username
        self.password = password
        self.virtual_host = virtual_host
        self.properties = properties
        self.limits = Limits(frame_max, channel_max, heartbeat)
        self.server_properties: Table = {}

    def receive(self, method: Method) -> list[Method]:
        self.step = _after(self.step, method)
        match method:
            case ConnectionStart():
                return [self._introduce(method)]
            case ConnectionTune():
                self.limits = ours = self._agree(method)
                return [
                    ConnectionTuneOk(ours.channel_max, ours.frame_max, ours.heartbeat),
                    ConnectionOpen(self.virtual_host),
                ]
            case _:
                return []

    def _introduce(self, start: ConnectionStart) -> ConnectionStartOk:
        if (start.version_major, start.version_minor) != (0, 9):
            version = f"{start.version_major}-{start.version_minor}"
            raise NotImplementedHere(f"the server speaks AMQP {version}, this client 0-9-1")
        self.server_properties = start.server_properties
        offered = start.mechanisms.split()
        for name, mechanism in _MECHANISMS.items():
            if name.encode() in offered:
                response = mechanism.write(self.username, self.password)
                return ConnectionStartOk(self.properties, name, response)
        raise LoginRefused(f"the server accepts none of {', '.join(_MECHANISMS)}")

    def _agree(self, offered: ConnectionTune) -> Limits:
        ours = self.limits
        return Limits(
            _smaller(ours.frame_max, offered.frame_max),
            _smaller(ours.channel_max, offered.channel_max),
            ours.heartbeat and _smaller(ours.heartbeat, offered.heartbeat),
        )


# ── order ─────────────────────────────────────────────────────────────────────────────────────────


def _after(step: Step, method: Method) -> Step:
    following = NEXT.get((step, type(method)))
    if following is None:
        raise unexpected_method(step, method)
    return following


def unexpected_method(step: Step, method: Method | type[Method]) -> ChannelFault:
    return ChannelFault(
        f"unexpected method in connection state {step.value}: {method.name}",
        (method.class_id, method.method_id),
    )


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


def _within(field: str, asked: int, least: int, most: int) -> int:
    """What the client asked for, if it may have it. Asking for no limit, it gets ours."""
    if 0 < asked < least:
        raise NotAllowed(
            f"negotiated {field} = {asked} is lower than the minimum allowed value ({least})"
        )
    if 0 < most < asked:
        raise NotAllowed(
            f"negotiated {field} = {asked} is higher than the maximum allowed value ({most})"
        )
    return asked or most


def _smaller(one: int, other: int) -> int:
    return min(one, other) or max(one, other)


# ── mechanisms ────────────────────────────────────────────────────────────────────────────────────


class _Mechanism(msgspec.Struct, frozen=True):
    """How username and password become a response, and a response becomes them."""

    write: Callable[[str, bytes], bytes]
    read: Callable[[bytes], tuple[str, bytes]]


def _write_plain(username: str, password: bytes) -> bytes:
    return b"\0" + username.encode() + b"\0" + password


def _read_plain(response: bytes) -> tuple[str, bytes]:
    match response.split(b"\0"):
        case [b"", username, password]:
            return _username(username), password
        case _:
            raise SyntaxFault("a PLAIN response is a zero, the user, a zero, the password")


def _write_amqplain(username: str, password: bytes) -> bytes:
    # The response is a field table without its size.
    return encode_table({"LOGIN": username, "PASSWORD": LongString(password)})[4:]


def _read_amqplain(response: bytes) -> tuple[str, bytes]:
    table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
    match table.get("LOGIN"), table.get("PASSWORD"):
        case str(username), str(password):
            return username, password.encode()
        case str(username), LongString() as password:
            return username, bytes(password)
        case _:
            raise SyntaxFault("an AMQPLAIN response has LOGIN and PASSWORD, both of them strings")


def _username(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise SyntaxFault("a user name is not UTF-8") from None


# The client takes the first that the server offers too.
_MECHANISMS: Final[dict[str, _Mechanism]] = {
    "PLAIN": _Mechanism(_write_plain, _read_plain),
    "AMQPLAIN": _Mechanism(_write_amqplain, _read_amqplain),
}
