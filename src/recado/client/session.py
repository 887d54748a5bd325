"""One connection of a client as computation: bytes in, occurrences out. No socket, no clock, no waiting.

Whoever calls gives a *token* along, which comes back with the answer, or with the end that came instead.

N1  The answers on a channel belong to its calls in the order in which they were made.
N2  A token comes back exactly once: answered, or in the end of its channel or of the connection.
N3  After `Ended` nothing is heard, and nothing is sent but the answer to the broker's last word.
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

BODY_MAX_BYTES = 512 << 20  # as much as any broker allows
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
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()  # we asked to close and await the answer
    ENDED = auto()


class _ChannelCalls:
    """A channel, as far as the protocol goes."""

    __slots__ = ("confirms", "pending_calls")

    def __init__(self) -> None:
        self.pending_calls: deque[tuple[type[m.Method], ReplyToken]] = deque()
        self.confirms: ConfirmTracker | None = None


class Session:
    def __init__(
        self,
        parameters: ConnectionParameters,
        properties: FieldTable,
        on_output: Callable[[], None],
        body_max: int = BODY_MAX_BYTES,
    ) -> None:
        """`wake` is told when there is something to take, once until all is taken."""
        self.state = SessionState.OPENING
        self.output: list[bytes] = []
        self.output_bytes = 0  # bytes in it
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

    # ── what goes out ─────────────────────────────────────────────────────────────────────────────────────

    def write(self, *pieces: bytes) -> None:
        if not self.output:
            self._on_output()
        self.output += pieces
        self.output_bytes += sum(map(len, pieces))

    def take_output(self) -> bytes:
        """All that is to be sent."""
        output, self.output, self.output_bytes = self.output, [], 0
        return output[0] if len(output) == 1 else b"".join(output)

    def send(self, number: int, method: m.Method) -> None:
        self.write(encode_method_frame(number, method))

    def call(self, number: int, method: m.Method, token: ReplyToken) -> None:
        self.send(number, method)  # first: a method that cannot be written awaits nothing
        self._channels[number].pending_calls.append((type(method), token))

    def send_heartbeat(self) -> None:
        self.write(HEARTBEAT_FRAME)

    def open_channel(self, token: ReplyToken) -> int:
        """Its number. `ValueError` if the broker allows no more."""
        if self._free_numbers:
            number = self._free_numbers.pop()
        elif self._highest_number < self.channel_max:
            self._highest_number = number = self._highest_number + 1
        else:
            raise ValueError(f"all {self.channel_max} channels of this connection are open")
        self._channels[number] = _ChannelCalls()
        self.call(number, m.ChannelOpen(), token)
        return number

    def close_channel(self, number: int, token: ReplyToken) -> None:
        self.call(number, m.ChannelClose(200, "bye"), token)
        self._reader.closing_channels.add(number)

    def start_confirms(self, number: int) -> ConfirmTracker:
        """Numbers begin with the next message; the call for it is the caller's."""
        line = self._channels[number]
        line.confirms = line.confirms or ConfirmTracker()
        return line.confirms

    def close(self) -> None:
        """Say good-bye; `Ended` comes with the answer."""
        if self.state is SessionState.OPEN:
            self.state = SessionState.CLOSING
            self.send(0, m.ConnectionClose(200, "bye"))
            self._reader.channel_frame_policy = ChannelFramePolicy.IGNORE

    # ── what comes in ─────────────────────────────────────────────────────────────────────────────────────

    def receive(self, data: bytes) -> Iterator[SessionEvent]:
        """Handle each occurrence before asking for the next."""
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
        except AmqpError as fault:
            yield self._handle_protocol_error(fault)

    def has_ended(self) -> bool:
        return self.state is SessionState.ENDED

    def terminate(self, error: Exception) -> ConnectionTerminated | None:
        """The connection is gone, for this reason; nothing if it has ended already."""
        return None if self.has_ended() else self._terminate(error)

    def _terminate(self, error: Exception) -> ConnectionTerminated:
        self.state = SessionState.ENDED
        tokens = [token for line in self._channels.values() for _, token in line.pending_calls]
        self._channels.clear()
        return ConnectionTerminated(error, tokens)

    def _handle_protocol_error(self, fault: AmqpError) -> ConnectionTerminated:
        if self.state is SessionState.OPENING:
            return self._terminate(
                errors.CannotConnectError(
                    f"what listens at {self._parameters.host}:{self._parameters.port} does not speak "
                    f"AMQP 0-9-1 ({fault})",
                    "A broker's TLS port wants amqps:// and another number than its plain one.",
                )
            )
        self.send(0, m.ConnectionClose(fault.code, fault.reply_text[:120]))
        return self._terminate(
            errors.ConnectionLostError(f"the broker broke the protocol: {fault}")
        )

    def _handle_opening(self, event: e.Event) -> Iterator[SessionEvent]:
        match event:
            case e.MethodReceived(0, m.ConnectionClose(code, text)):
                self.send(0, m.ConnectionCloseOk())
                yield self._terminate(self._make_refused_error(code, text))
            case e.MethodReceived(0, method):
                for answer in self._handshake.receive(method):
                    self.send(0, answer)
                if self._handshake.step is HandshakeStep.OPEN:
                    self._apply_limits()
                    yield ConnectionOpened(self._handshake.server_properties)
            case e.HeartbeatReceived():
                pass
            case _:
                raise CommandInvalidError("something of a channel before the connection is open")

    def _apply_limits(self) -> None:
        limits = self._handshake.limits
        self.state = SessionState.OPEN
        self.frame_max = self._reader.frame_max = limits.frame_max
        self.channel_max = limits.channel_max
        self.heartbeat = limits.heartbeat

    def make_eof_error(self) -> Exception:
        """What it means that the broker hangs up now, without a word."""
        parameters = self._parameters
        if self.state is not SessionState.OPENING:
            return errors.ConnectionLostError(
                f"the broker at {parameters.host}:{parameters.port} hung up"
            )
        if (
            self._server_closes_on_auth_failure()
        ):  # so it has refused nothing: it was stopped, or the network failed
            return errors.CannotConnectError(
                f"the broker at {parameters.host}:{parameters.port} hung up during the handshake"
            )
        if self._handshake.step is HandshakeStep.AWAIT_TUNE:  # so do brokers that do not tell of it
            return self._make_refused_error(403, "the broker hung up during login")
        if self._handshake.step is HandshakeStep.AWAIT_OPEN_OK:
            return self._make_refused_error(530, "the broker hung up when asked for the vhost")
        return errors.CannotConnectError(
            f"what listens at {parameters.host}:{parameters.port} hung up at once",
            "A broker's TLS port wants amqps:// and another number than its plain one.",
        )

    def _server_closes_on_auth_failure(self) -> bool:
        """Whether the broker says that it answers a refused login with connection.close."""
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
                "Name and password are percent-encoded in a URL; guest is let in via localhost only.",
            )
        if self._handshake.step is HandshakeStep.AWAIT_OPEN_OK and reply_code in (
            402,
            403,
            404,
            530,
        ):
            return errors.VhostRefusedError(
                f"'{parameters.username}' cannot open the vhost '{parameters.vhost}': {reply_text}",
                "It must exist and the user needs permissions in it; in a URL the vhost / is %2F.",
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
                header, body = extract_properties(content), extract_body(content)
                back = ReturnedMessage(
                    r.reply_code, r.reply_text, r.exchange, r.routing_key, header, body
                )
                yield MessageReturned(number, back)
            case e.ContentReceived(number, method, content):
                yield self._match_reply(
                    number, method, extract_properties(content), extract_body(content)
                )
            case e.OversizedBodyReceived(_, size):
                raise CommandInvalidError(
                    f"a message of {size} bytes is more than this client takes"
                )
            case e.HeartbeatReceived() | e.Discarded():
                pass
            case _:
                raise CommandInvalidError("a client's message from a broker")

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
                if (
                    number not in self._reader.closing_channels
                ):  # else our own close awaits its answer
                    yield self._terminate_channel(
                        number, errors.ChannelClosedByBrokerError(code, text)
                    )
            case m.ChannelCloseOk():
                self._reader.closing_channels.discard(number)
                line = self._require_channel(number)
                if not line.pending_calls or line.pending_calls[-1][0] is not m.ChannelClose:
                    raise CommandInvalidError("an answer to a close that was not asked for")
                token = line.pending_calls.pop()[1]
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
        line = self._channels.get(number)
        if line is None:
            raise CommandInvalidError(f"something on channel {number}, which is not open")
        return line

    def _terminate_channel(self, number: int, error: Exception) -> ChannelTerminated:
        line = self._require_channel(number)
        del self._channels[number]
        self._free_numbers.append(number)
        return ChannelTerminated(number, error, [token for _, token in line.pending_calls])

    def _match_reply(
        self, number: int, method: m.Method, header: bytes = b"", body: bytes = b""
    ) -> ReplyReceived:
        awaiting = self._require_channel(number).pending_calls
        if not awaiting or type(method) not in REPLY_TYPES[awaiting[0][0]]:
            raise CommandInvalidError(
                f"{method.name} answers nothing that was asked on channel {number}"
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
