"""One connection of a client without I/O: bytes in, events out. No socket, no clock, no waiting.

A call includes a *token*. The session returns it with the broker's reply, or with the termination of the
channel or connection if that comes first.

CSE1  Replies on a channel belong to its calls in the order in which the calls were made.
CSE2  Each token is returned exactly once: with the reply, or with the termination of its channel or connection.
CSE3  After `ConnectionTerminated` input is ignored. The last output is connection.close or its close-ok.
"""

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Final

from recado.amqp import events as e
from recado.amqp import methods as m
from recado.amqp.deliveries import Delivered
from recado.amqp.errors import AmqpError, CommandInvalidError
from recado.amqp.frames import (
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    encode_method_frame,
    extract_body,
    extract_properties,
)
from recado.amqp.handshake import ClientHandshake, HandshakeStep
from recado.amqp.reader import ChannelFramePolicy, FrameReader
from recado.amqp.values import FieldTable

from . import errors
from .confirms import ConfirmTracker
from .messages import ReturnedMessage
from .parameters import ConnectionParameters
from .session_events import (
    BlockedStateChanged,
    ChannelTerminated,
    ConnectionOpened,
    ConnectionTerminated,
    ConsumerCancelReceived,
    FlowChanged,
    MessageReturned,
    PublishesConfirmed,
    ReplyReceived,
    ReplyToken,
    SessionEvent,
)

BODY_MAX_BYTES = 512 << 20  # the largest message that RabbitMQ can be configured to allow
_TLS_PORT_HINT = (
    "The TLS port of a broker needs amqps:// and has another number than its plain port."
)

CAPABILITIES: Final[FieldTable] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "exchange_exchange_bindings": True,
    "publisher_confirms": True,
}

REPLY_TYPES: Final[dict[type[m.Method], tuple[type[m.Method], ...]]] = {
    m.ConnectionUpdateSecret: (m.ConnectionUpdateSecretOk,),
    m.ChannelOpen: (m.ChannelOpenOk,),
    m.ChannelClose: (m.ChannelCloseOk,),
    m.ChannelFlow: (m.ChannelFlowOk,),
    m.ExchangeDeclare: (m.ExchangeDeclareOk,),
    m.ExchangeDelete: (m.ExchangeDeleteOk,),
    m.ExchangeBind: (m.ExchangeBindOk,),
    m.ExchangeUnbind: (m.ExchangeUnbindOk,),
    m.QueueDeclare: (m.QueueDeclareOk,),
    m.QueueBind: (m.QueueBindOk,),
    m.QueueUnbind: (m.QueueUnbindOk,),
    m.QueuePurge: (m.QueuePurgeOk,),
    m.QueueDelete: (m.QueueDeleteOk,),
    m.BasicQos: (m.BasicQosOk,),
    m.BasicConsume: (m.BasicConsumeOk,),
    m.BasicCancel: (m.BasicCancelOk,),
    m.BasicGet: (m.BasicGetOk, m.BasicGetEmpty),
    m.BasicRecover: (m.BasicRecoverOk,),
    m.ConfirmSelect: (m.ConfirmSelectOk,),
    m.TxSelect: (m.TxSelectOk,),
    m.TxCommit: (m.TxCommitOk,),
    m.TxRollback: (m.TxRollbackOk,),
}


class SessionState(Enum):
    """The state of a client's session."""

    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()  # connection.close was sent, close-ok has not arrived
    ENDED = auto()


class _ChannelCalls:
    """The protocol state of a channel: calls that await a reply, and its confirms."""

    __slots__ = ("confirms", "pending_calls")

    def __init__(self) -> None:
        self.pending_calls: deque[tuple[type[m.Method], ReplyToken]] = deque()
        self.confirms: ConfirmTracker | None = None


class Session:
    """The protocol state of one connection: handshake, channels, pending calls, output."""

    def __init__(
        self,
        parameters: ConnectionParameters,
        properties: FieldTable,
        on_output: Callable[[], None],
        body_max: int = BODY_MAX_BYTES,
    ) -> None:
        """Create a session; `on_output` is called whenever the output buffer becomes non-empty."""
        self.state = SessionState.OPENING
        self.output: list[bytes] = []
        self.output_bytes = 0
        self.channel_max = parameters.channel_max
        self.frame_max = parameters.frame_max
        self.heartbeat = 0
        self._parameters = parameters
        self._on_output = on_output
        self._channels: dict[int, _ChannelCalls] = {0: _ChannelCalls()}
        self._free_numbers: list[int] = []
        self._highest_number = 0
        self._reader = FrameReader(body_max=body_max, batch_deliveries=True)
        self._handshake = ClientHandshake(
            parameters.username,
            parameters.password.encode(),
            parameters.vhost,
            {"capabilities": CAPABILITIES, **properties},
            parameters.frame_max,
            parameters.channel_max,
            parameters.heartbeat,
        )
        self.write(PROTOCOL_HEADER)

    # ── output ────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, *pieces: bytes) -> None:
        """Append encoded frames to the output."""
        if not self.output:
            self._on_output()
        self.output += pieces
        self.output_bytes += sum(map(len, pieces))

    def take_output(self) -> bytes:
        """Return all pending output and clear it."""
        output, self.output, self.output_bytes = self.output, [], 0
        return output[0] if len(output) == 1 else b"".join(output)

    def send(self, number: int, method: m.Method) -> None:
        """Send a method to which the broker does not reply."""
        self.write(encode_method_frame(number, method))

    def call(self, number: int, method: m.Method, token: ReplyToken) -> None:
        """Send a method; `token` is returned with its reply (CSE2)."""
        self.send(number, method)  # first, so that an encoding error leaves no pending call
        self._channels[number].pending_calls.append((type(method), token))

    def send_heartbeat(self) -> None:
        self.write(HEARTBEAT_FRAME)

    def open_channel(self, token: ReplyToken) -> int:
        """Open a channel and return its number; raises `ValueError` if `channel_max` channels are open."""
        if self._free_numbers:
            number = self._free_numbers.pop()
        elif self._highest_number < self.channel_max:
            self._highest_number = number = self._highest_number + 1
        else:
            raise ValueError(
                f"all {self.channel_max} channels of this connection are open (setting channel_max)"
            )
        self._channels[number] = _ChannelCalls()
        self.call(number, m.ChannelOpen(), token)
        return number

    def close_channel(self, number: int, token: ReplyToken) -> None:
        """Send channel.close; until close-ok, frames of the channel are discarded."""
        self.call(number, m.ChannelClose(200, "bye"), token)
        self._reader.closing_channels.add(number)

    def start_confirms(self, number: int) -> ConfirmTracker:
        """Track confirms from the next message on; the caller sends confirm.select."""
        channel = self._channels[number]
        channel.confirms = channel.confirms or ConfirmTracker()
        return channel.confirms

    def close(self) -> None:
        """Send connection.close; `ConnectionTerminated` follows when the broker replies."""
        if self.state is SessionState.OPEN:
            self.state = SessionState.CLOSING
            self.send(0, m.ConnectionClose(200, "bye"))
            self._reader.channel_frame_policy = ChannelFramePolicy.IGNORE

    # ── input ─────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, data: bytes) -> Iterator[SessionEvent]:
        """Yield the events that the data completes; the caller handles each before it asks for the next."""
        if self.has_ended():
            return
        try:
            for event in self._reader.feed(data):
                match event:
                    case Delivered() if self.state is SessionState.OPEN:
                        yield event
                    case _ if self.has_ended():
                        return
                    case _ if self.state is SessionState.OPENING:
                        yield from self._handle_opening(event)
                    case _:
                        yield from self._handle_event(event)
        except AmqpError as error:
            yield self._handle_protocol_error(error)

    def has_ended(self) -> bool:
        return self.state is SessionState.ENDED

    def terminate(self, error: Exception) -> ConnectionTerminated | None:
        """The connection was lost or aborted; returns None if it has terminated before."""
        return None if self.has_ended() else self._terminate(error)

    def _terminate(self, error: Exception) -> ConnectionTerminated:
        self.state = SessionState.ENDED
        channels = self._channels.values()
        pending_tokens = [token for channel in channels for _, token in channel.pending_calls]
        self._channels.clear()
        return ConnectionTerminated(error, pending_tokens)

    def _handle_protocol_error(self, error: AmqpError) -> ConnectionTerminated:
        if self.state is SessionState.OPENING:
            return self._terminate(
                errors.CannotConnectError(
                    f"{self._parameters.host}:{self._parameters.port} does not respond with "
                    f"AMQP 0-9-1: {error}",
                    _TLS_PORT_HINT,
                )
            )
        self.send(0, m.ConnectionClose(error.code, error.reply_text[:120]))
        return self._terminate(errors.ConnectionLostError(f"the broker violated AMQP: {error}"))

    def _handle_opening(self, event: e.Event) -> Iterator[SessionEvent]:
        match event:
            case e.MethodReceived(0, m.ConnectionClose(code, text)):
                self.send(0, m.ConnectionCloseOk())
                yield self._terminate(self._make_refused_error(code, text))
            case e.MethodReceived(0, method):
                for reply in self._handshake.receive(method):
                    self.send(0, reply)
                if self._handshake.step is HandshakeStep.OPEN:
                    self._apply_limits()
                    yield ConnectionOpened(self._handshake.server_properties)
            case e.HeartbeatReceived():
                pass
            case _:
                raise CommandInvalidError("frame on a channel before the connection is open")

    def _apply_limits(self) -> None:
        limits = self._handshake.limits
        self.state = SessionState.OPEN
        self.frame_max = self._reader.frame_max = limits.frame_max
        self.channel_max = limits.channel_max
        self.heartbeat = limits.heartbeat

    def make_eof_error(self) -> Exception:
        """Return the error for a socket that the broker closed without connection.close."""
        parameters = self._parameters
        if self.state is not SessionState.OPENING:
            return errors.ConnectionLostError(
                f"the broker at {parameters.host}:{parameters.port} closed the socket"
            )
        if self._server_closes_on_auth_failure():
            # Such a broker refuses with connection.close; here it was stopped, or the network failed.
            return errors.CannotConnectError(
                f"the broker at {parameters.host}:{parameters.port} closed the socket during the handshake"
            )
        if self._handshake.step is HandshakeStep.AWAIT_TUNE:
            # Brokers without that capability close the socket to refuse a login.
            return self._make_refused_error(403, "the broker closed the socket during login")
        if self._handshake.step is HandshakeStep.AWAIT_OPEN_OK:
            return self._make_refused_error(530, "the broker closed the socket at connection.open")
        return errors.CannotConnectError(
            f"{parameters.host}:{parameters.port} closed the socket before the handshake",
            _TLS_PORT_HINT,
        )

    def _server_closes_on_auth_failure(self) -> bool:
        """Whether the broker announces that it answers a refused login with connection.close."""
        capabilities = self._handshake.server_properties.get("capabilities")
        if not isinstance(capabilities, dict):
            return False
        return capabilities.get("authentication_failure_close") is True

    def _make_refused_error(self, reply_code: int, reply_text: str) -> Exception:
        parameters = self._parameters
        if reply_code == 403 and self._handshake.step is HandshakeStep.AWAIT_TUNE:
            return errors.AuthenticationError(
                f"the broker at {parameters.host}:{parameters.port} refused the login of "
                f"'{parameters.username}': {reply_text}",
                "Percent-encode user name and password in a URL; guest may connect via localhost only.",
            )
        if self._handshake.step is HandshakeStep.AWAIT_OPEN_OK and reply_code in (
            402,
            403,
            404,
            530,
        ):
            return errors.VhostRefusedError(
                f"'{parameters.username}' cannot open the vhost '{parameters.vhost}': {reply_text}",
                "The vhost must exist and the user needs permissions in it; in a URL, / is written %2F.",
            )
        return errors.CannotConnectError(
            f"the broker refused the connection: {reply_code} {reply_text}"
        )

    def _handle_event(self, event: e.Event) -> Iterator[SessionEvent]:
        match event:
            case e.Acked(number, first, count):
                yield from self._confirm_range(number, first, count)
            case e.MethodReceived(number, m.BasicAck(tag, multiple)):
                yield from self._confirm(number, tag, multiple, acked=True)
            case e.MethodReceived(number, m.BasicNack(tag, multiple)):
                yield from self._confirm(number, tag, multiple, acked=False)
            case e.MethodReceived(0, method):
                yield from self._handle_connection_method(method)
            case e.MethodReceived(number, method):
                yield from self._handle_channel_method(number, method)
            case e.ContentReceived(number, m.BasicReturn() as r, content):
                properties, body = extract_properties(content), extract_body(content)
                returned = ReturnedMessage(
                    r.reply_code, r.reply_text, r.exchange, r.routing_key, properties, body
                )
                yield MessageReturned(number, returned)
            case e.ContentReceived(number, method, content):
                yield self._match_reply(
                    number, method, extract_properties(content), extract_body(content)
                )
            case e.OversizedBodyReceived(_, size):
                raise CommandInvalidError(
                    f"message of {size} bytes exceeds the limit of {self._reader.body_max} bytes"
                )
            case e.HeartbeatReceived() | e.Discarded():
                pass
            case _:
                raise CommandInvalidError("the broker sent a method that only clients send")

    def _handle_connection_method(self, method: m.Method) -> Iterator[SessionEvent]:
        match method:
            case m.ConnectionClose(code, text):
                self.send(0, m.ConnectionCloseOk())
                yield self._terminate(errors.ConnectionClosedByBrokerError(code, text))
            case m.ConnectionCloseOk() if self.state is SessionState.CLOSING:
                yield self._terminate(errors.ConnectionClosedByClientError())
            case m.ConnectionBlocked(reason):
                yield BlockedStateChanged(reason)
            case m.ConnectionUnblocked():
                yield BlockedStateChanged(None)
            case _:
                yield self._match_reply(0, method)

    def _handle_channel_method(self, number: int, method: m.Method) -> Iterator[SessionEvent]:
        match method:
            case m.ChannelClose(code, text):
                self.send(number, m.ChannelCloseOk())
                if number not in self._reader.closing_channels:  # else close-ok is still to come
                    yield self._terminate_channel(
                        number, errors.ChannelClosedByBrokerError(code, text)
                    )
            case m.ChannelCloseOk():
                self._reader.closing_channels.discard(number)
                calls = self._require_channel(number).pending_calls
                if not calls or calls[-1][0] is not m.ChannelClose:
                    raise CommandInvalidError(f"channel.close-ok without close on channel {number}")
                token = calls.pop()[1]
                yield self._terminate_channel(number, errors.ChannelClosedByClientError())
                yield ReplyReceived(token, method)
            case m.BasicCancel(tag):
                yield ConsumerCancelReceived(number, tag)
            case m.ChannelFlow(active):
                self.send(number, m.ChannelFlowOk(active))
                yield FlowChanged(number, active)
            case _:
                yield self._match_reply(number, method)

    def _require_channel(self, number: int) -> _ChannelCalls:
        channel = self._channels.get(number)
        if channel is None:
            raise CommandInvalidError(f"frame on channel {number}, which is not open")
        return channel

    def _terminate_channel(self, number: int, error: Exception) -> ChannelTerminated:
        channel = self._require_channel(number)
        del self._channels[number]
        self._free_numbers.append(number)
        return ChannelTerminated(number, error, [token for _, token in channel.pending_calls])

    def _match_reply(
        self, number: int, method: m.Method, header: bytes = b"", body: bytes = b""
    ) -> ReplyReceived:
        awaiting = self._require_channel(number).pending_calls
        if not awaiting or type(method) not in REPLY_TYPES[awaiting[0][0]]:
            raise CommandInvalidError(
                f"{method.name} on channel {number} is not a reply to a pending call"
            )
        return ReplyReceived(awaiting.popleft()[1], method, header, body)

    def _confirm_range(self, number: int, first: int, count: int) -> Iterator[PublishesConfirmed]:
        confirms = self._require_channel(number).confirms
        if confirms is not None:
            for numbers in confirms.settle_range(first, count):
                yield PublishesConfirmed(number, numbers, True)

    def _confirm(
        self, number: int, delivery_tag: int, multiple: bool, *, acked: bool
    ) -> Iterator[PublishesConfirmed]:
        confirms = self._require_channel(number).confirms
        if confirms is not None:
            for numbers in confirms.settle(delivery_tag, multiple=multiple):
                yield PublishesConfirmed(number, numbers, acked)
