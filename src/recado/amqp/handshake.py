"""The handshake that opens a connection, for clients and servers.

    client                       server
    protocol header      →
                         ←       connection.start        mechanisms, server properties
    connection.start-ok  →                               credentials, client properties
                         ←       connection.tune         the limits of the server
    connection.tune-ok   →                               the agreed limits
    connection.open      →                               virtual host
                         ←       connection.open-ok

Without I/O: methods in, methods and decisions out. `NEXT_STEP` defines the order of the methods that each side
receives and of those that the server sends. The I/O layer sends and receives frames, verifies credentials and
looks up virtual hosts. It also handles `connection.close`, which may arrive at any step.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

import msgspec

from .errors import (
    AmqpNotImplementedError,
    AmqpSyntaxError,
    ChannelError,
    CommandInvalidError,
    LoginRefusedError,
    NotAllowedError,
)
from .frames import FRAME_MIN_BYTES
from .methods import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
)
from .values import FieldTable, LongString, decode_table, encode_table

EXTERNAL: Final = "EXTERNAL"
"""The mechanism of a client that has authenticated itself outside of AMQP, by a certificate for instance."""


class HandshakeStep(Enum):
    """The step of a handshake. The values of the server's steps are RabbitMQ's, for the same error texts."""

    AWAIT_HEADER = "greeting"
    AWAIT_START_OK = "starting"
    AWAIT_AUTHENTICATION = "securing"
    AWAIT_TUNE_OK = "tuning"
    AWAIT_OPEN = "opening"

    AWAIT_START = "awaiting connection.start"
    AWAIT_TUNE = "awaiting connection.tune"
    AWAIT_OPEN_OK = "awaiting connection.open-ok"

    OPEN = "running"


NEXT_STEP: Final[dict[tuple[HandshakeStep, type[Method]], HandshakeStep]] = {
    # the server
    (HandshakeStep.AWAIT_HEADER, ConnectionStart): HandshakeStep.AWAIT_START_OK,
    (HandshakeStep.AWAIT_START_OK, ConnectionStartOk): HandshakeStep.AWAIT_AUTHENTICATION,
    (HandshakeStep.AWAIT_AUTHENTICATION, ConnectionTune): HandshakeStep.AWAIT_TUNE_OK,
    (HandshakeStep.AWAIT_TUNE_OK, ConnectionTuneOk): HandshakeStep.AWAIT_OPEN,
    (HandshakeStep.AWAIT_OPEN, ConnectionOpen): HandshakeStep.OPEN,
    # the client
    (HandshakeStep.AWAIT_START, ConnectionStart): HandshakeStep.AWAIT_TUNE,
    (HandshakeStep.AWAIT_TUNE, ConnectionTune): HandshakeStep.AWAIT_OPEN_OK,
    (HandshakeStep.AWAIT_OPEN_OK, ConnectionOpenOk): HandshakeStep.OPEN,
}


class Credentials(msgspec.Struct, frozen=True):
    """The user name and password that a client sent, and the properties it announced.

    With EXTERNAL they are empty: the client has authenticated itself by other means, such as a certificate.
    """

    mechanism: str
    username: str
    password: bytes
    client_properties: FieldTable

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism} for {self.username!r})"

    def supports(self, capability: str) -> bool:
        """Whether the client announced a capability, such as `authentication_failure_close`."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True


class ConnectionLimits(msgspec.Struct, frozen=True):
    """The agreed limits of a connection. Zero means no limit, or no heartbeats."""

    frame_max: int
    channel_max: int
    heartbeat: int


class OpenRequested(msgspec.Struct, frozen=True):
    """The client asks to open a virtual host; the server may still refuse it."""

    virtual_host: str


class ServerHandshake:
    """The server's side: pass it the client's methods; it returns the credentials, limits or vhost in them."""

    def __init__(
        self,
        properties: FieldTable,
        mechanisms: Sequence[str],
        frame_max: int,
        channel_max: int,
        heartbeat: int,
    ) -> None:
        if unknown := set(mechanisms) - _MECHANISMS.keys() - {EXTERNAL}:
            raise ValueError(f"unknown authentication mechanisms: {', '.join(sorted(unknown))}")
        self.step = HandshakeStep.AWAIT_HEADER
        self.properties = properties
        self.mechanisms = mechanisms
        self.offered_limits = ConnectionLimits(frame_max, channel_max, heartbeat)

    def start(self) -> ConnectionStart:
        """Return the reply to the protocol header."""
        start = ConnectionStart(
            server_properties=self.properties, mechanisms=" ".join(self.mechanisms).encode()
        )
        self.step = _next_step(self.step, start)
        return start

    def receive(self, method: Method) -> Credentials | ConnectionLimits | OpenRequested:
        """Handle a method of the client; raises an `AmqpError` if it is unexpected or invalid."""
        match method:
            case ConnectionStartOk():
                self.step = _next_step(self.step, method)
                return self._read_credentials(method)
            case ConnectionTuneOk():
                self.step = _next_step(self.step, method)
                return self._negotiate(method)
            case ConnectionOpen():
                self.step = _next_step(self.step, method)
                return OpenRequested(method.virtual_host)
            case _:
                raise make_unexpected_method_error(self.step, method)

    def accept_credentials(self) -> ConnectionTune:
        """Return the reply to valid credentials."""
        ours = self.offered_limits
        tune = ConnectionTune(ours.channel_max, ours.frame_max, ours.heartbeat)
        self.step = _next_step(self.step, tune)
        return tune

    def _read_credentials(self, start_ok: ConnectionStartOk) -> Credentials:
        if start_ok.mechanism not in self.mechanisms:
            raise CommandInvalidError(f"unknown authentication mechanism '{start_ok.mechanism}'")
        if start_ok.mechanism == EXTERNAL:  # the response, an authorization identity, is not used
            username, password = "", b""
        else:
            username, password = _MECHANISMS[start_ok.mechanism].decode(start_ok.response)
        return Credentials(start_ok.mechanism, username, password, start_ok.client_properties)

    def _negotiate(self, asked: ConnectionTuneOk) -> ConnectionLimits:
        ours = self.offered_limits
        return ConnectionLimits(
            _check_limit("frame_max", asked.frame_max, FRAME_MIN_BYTES, ours.frame_max),
            _check_limit("channel_max", asked.channel_max, 1, ours.channel_max),
            # The client decides about heartbeats; its zero turns them off.
            asked.heartbeat,
        )


class ClientHandshake:
    """The client's side: pass it the server's methods; it returns the replies.

    When `step` is OPEN, `limits` are the agreed ones.
    """

    def __init__(
        self,
        username: str,
        password: bytes,
        virtual_host: str,
        properties: FieldTable,
        frame_max: int,
        channel_max: int,
        heartbeat: int,
    ) -> None:
        self.step = HandshakeStep.AWAIT_START
        self.username = username
        self.password = password
        self.virtual_host = virtual_host
        self.properties = properties
        self.limits = ConnectionLimits(frame_max, channel_max, heartbeat)
        self.server_properties: FieldTable = {}

    def receive(self, method: Method) -> list[Method]:
        """Handle a method of the server and return the replies; raises an `AmqpError` if it is unexpected."""
        self.step = _next_step(self.step, method)
        match method:
            case ConnectionStart():
                return [self._answer_start(method)]
            case ConnectionTune():
                self.limits = ours = self._negotiate(method)
                return [
                    ConnectionTuneOk(ours.channel_max, ours.frame_max, ours.heartbeat),
                    ConnectionOpen(self.virtual_host),
                ]
            case _:
                return []

    def _answer_start(self, start: ConnectionStart) -> ConnectionStartOk:
        if (start.version_major, start.version_minor) != (0, 9):
            version = f"{start.version_major}-{start.version_minor}"
            raise AmqpNotImplementedError(f"the server uses AMQP {version}, this client 0-9-1")
        self.server_properties = start.server_properties
        offered = start.mechanisms.split()
        for name, mechanism in _MECHANISMS.items():
            if name.encode() in offered:
                response = mechanism.encode(self.username, self.password)
                return ConnectionStartOk(self.properties, name, response)
        raise LoginRefusedError(f"the server supports none of {', '.join(_MECHANISMS)}")

    def _negotiate(self, offered: ConnectionTune) -> ConnectionLimits:
        ours = self.limits
        return ConnectionLimits(
            _min_nonzero(ours.frame_max, offered.frame_max),
            _min_nonzero(ours.channel_max, offered.channel_max),
            ours.heartbeat and _min_nonzero(ours.heartbeat, offered.heartbeat),
        )


# ── order ─────────────────────────────────────────────────────────────────────────────────────────


def _next_step(step: HandshakeStep, method: Method) -> HandshakeStep:
    following = NEXT_STEP.get((step, type(method)))
    if following is None:
        raise make_unexpected_method_error(step, method)
    return following


def make_unexpected_method_error(
    step: HandshakeStep, method: Method | type[Method]
) -> ChannelError:
    return ChannelError(
        f"unexpected method in connection state {step.value}: {method.name}",
        (method.class_id, method.method_id),
    )


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


def _check_limit(field: str, requested: int, minimum: int, maximum: int) -> int:
    """Return the value that the client requests if it is allowed; for 0 (no limit), the server's maximum."""
    if 0 < requested < minimum:
        raise NotAllowedError(
            f"negotiated {field} = {requested} is lower than the minimum allowed value ({minimum})"
        )
    if 0 < maximum < requested:
        raise NotAllowedError(
            f"negotiated {field} = {requested} is higher than the maximum allowed value ({maximum})"
        )
    return requested or maximum


def _min_nonzero(one: int, other: int) -> int:
    return min(one, other) or max(one, other)


# ── mechanisms ────────────────────────────────────────────────────────────────────────────────────


class _AuthMechanism(msgspec.Struct, frozen=True):
    """How a mechanism encodes user name and password as a response, and decodes them."""

    encode: Callable[[str, bytes], bytes]
    decode: Callable[[bytes], tuple[str, bytes]]


def _encode_plain(username: str, password: bytes) -> bytes:
    return b"\0" + username.encode() + b"\0" + password


def _decode_plain(response: bytes) -> tuple[str, bytes]:
    match response.split(b"\0"):
        case [b"", username, password]:
            return _decode_username(username), password
        case _:
            raise AmqpSyntaxError("invalid PLAIN response: expected NUL, user name, NUL, password")


def _encode_amqplain(username: str, password: bytes) -> bytes:
    # The response is a field table without its size.
    return encode_table({"LOGIN": username, "PASSWORD": LongString(password)})[4:]


def _decode_amqplain(response: bytes) -> tuple[str, bytes]:
    table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
    match table.get("LOGIN"), table.get("PASSWORD"):
        case str(username), str(password):
            return username, password.encode()
        case str(username), LongString() as password:
            return username, bytes(password)
        case _:
            raise AmqpSyntaxError(
                "invalid AMQPLAIN response: expected the strings LOGIN and PASSWORD"
            )


def _decode_username(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise AmqpSyntaxError("the user name is not UTF-8") from None


# Those with a password, in the client's order of preference.
_MECHANISMS: Final[dict[str, _AuthMechanism]] = {
    "PLAIN": _AuthMechanism(_encode_plain, _decode_plain),
    "AMQPLAIN": _AuthMechanism(_encode_amqplain, _decode_amqplain),
}
