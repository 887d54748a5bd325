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
from recado.amqp.errors import CommandInvalid, ProtocolError
from recado.amqp.frames import (
    HEARTBEAT_FRAME,
    PROTOCOL_HEADER,
    body_of,
    method_frame,
    properties_of,
)
from recado.amqp.handshake import ClientHandshake, Step
from recado.amqp.reader import Reader, Unheard
from recado.amqp.values import Table

from . import errors
from .address import Address
from .confirms import Confirms
from .messages import Returned
from .occurrences import (
    Answered,
    BlockChanged,
    CameBack,
    ChannelEnded,
    Confirmed,
    ConsumerGone,
    Ended,
    FlowChanged,
    Occurrence,
    Opened,
    Token,
)

BODY_MAX = 512 << 20  # as much as any broker allows
CAPABILITIES: Final[Table] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "exchange_exchange_bindings": True,
    "publisher_confirms": True,
}

ANSWERS: Final[dict[type[m.Method], tuple[type[m.Method], ...]]] = {
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


class State(Enum):
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()  # we asked to close and await the answer
    ENDED = auto()


class _Line:
    """A channel, as far as the protocol goes."""

    __slots__ = ("awaiting", "confirms")

    def __init__(self) -> None:
        self.awaiting: deque[tuple[type[m.Method], Token]] = deque()
        self.confirms: Confirms | None = None


class Session:
    def __init__(
        self,
        address: Address,
        properties: Table,
        wake: Callable[[], None],
        body_max: int = BODY_MAX,
    ) -> None:
        """`wake` is told when there is something to take, once until all is taken."""
        self.state = State.OPENING
        self.output: list[bytes] = []
        self.backlog = 0  # bytes in it
        self.channel_max = address.channel_max
        self.frame_max = address.frame_max
        self.heartbeat = 0
        self._address = address
        self._wake = wake
        self._lines: dict[int, _Line] = {0: _Line()}
        self._free: list[int] = []
        self._highest = 0
        self._reader = Reader(body_max=body_max, runs_of_deliveries=True)
        self._handshake = ClientHandshake(
            address.username,
            address.password.encode(),
            address.vhost,
            {"capabilities": CAPABILITIES, **properties},
            address.frame_max,
            address.channel_max,
            address.heartbeat,
        )
        self.write(PROTOCOL_HEADER)

    # ── what goes out ─────────────────────────────────────────────────────────────────────────────────────

    def write(self, *pieces: bytes) -> None:
        if not self.output:
            self._wake()
        self.output += pieces
        self.backlog += sum(map(len, pieces))

    def take(self) -> bytes:
        """All that is to be sent."""
        output, self.output, self.backlog = self.output, [], 0
        return output[0] if len(output) == 1 else b"".join(output)

    def send(self, number: int, method: m.Method) -> None:
        self.write(method_frame(number, method))

    def call(self, number: int, method: m.Method, token: Token) -> None:
        self.send(number, method)  # first: a method that cannot be written awaits nothing
        self._lines[number].awaiting.append((type(method), token))

    def beat(self) -> None:
        self.write(HEARTBEAT_FRAME)

    def open_channel(self, token: Token) -> int:
        """Its number. `ValueError` if the broker allows no more."""
        if self._free:
            number = self._free.pop()
        elif self._highest < self.channel_max:
            self._highest = number = self._highest + 1
        else:
            raise ValueError(f"all {self.channel_max} channels of this connection are open")
        self._lines[number] = _Line()
        self.call(number, m.ChannelOpen(), token)
        return number

    def close_channel(self, number: int, token: Token) -> None:
        self.call(number, m.ChannelClose(200, "bye"), token)
        self._reader.discarding.add(number)

    def start_confirms(self, number: int) -> Confirms:
        """Numbers begin with the next message; the call for it is the caller's."""
        line = self._lines[number]
        line.confirms = line.confirms or Confirms()
        return line.confirms

    def close(self) -> None:
        """Say good-bye; `Ended` comes with the answer."""
        if self.state is State.OPEN:
            self.state = State.CLOSING
            self.send(0, m.ConnectionClose(200, "bye"))
            self._reader.unheard = Unheard.IGNORED

    # ── what comes in ─────────────────────────────────────────────────────────────────────────────────────

    def receive(self, data: bytes) -> Iterator[Occurrence]:
        """Handle each occurrence before asking for the next."""
        if self.has_ended():
            return
        try:
            for event in self._reader.feed(data):
                match event:
                    case Delivered() if self.state is State.OPEN:
                        yield event
                    case _ if self.has_ended():
                        return
                    case _ if self.state is State.OPENING:
                        yield from self._open(event)
                    case _:
                        yield from self._handle(event)
        except ProtocolError as fault:
            yield self._broken(fault)

    def has_ended(self) -> bool:
        return self.state is State.ENDED

    def lose(self, error: Exception) -> Ended | None:
        """The connection is gone, for this reason; nothing if it has ended already."""
        return None if self.has_ended() else self._end(error)

    def _end(self, error: Exception) -> Ended:
        self.state = State.ENDED
        tokens = [token for line in self._lines.values() for _, token in line.awaiting]
        self._lines.clear()
        return Ended(error, tokens)

    def _broken(self, fault: ProtocolError) -> Ended:
        if self.state is State.OPENING:
            return self._end(
                errors.CannotConnect(
                    f"what listens at {self._address.host}:{self._address.port} does not speak "
                    f"AMQP 0-9-1 ({fault})",
                    "A broker's TLS port wants amqps:// and another number than its plain one.",
                )
            )
        self.send(0, m.ConnectionClose(fault.code, fault.reply_text[:120]))
        return self._end(errors.ConnectionLost(f"the broker broke the protocol: {fault}"))

    def _open(self, event: e.Event) -> Iterator[Occurrence]:
        match event:
            case e.MethodReceived(0, m.ConnectionClose(code, text)):
                self.send(0, m.ConnectionCloseOk())
                yield self._end(self._refusal(code, text))
            case e.MethodReceived(0, method):
                for answer in self._handshake.receive(method):
                    self.send(0, answer)
                if self._handshake.step is Step.OPEN:
                    self._agreed()
                    yield Opened(self._handshake.server_properties)
            case e.HeartbeatReceived():
                pass
            case _:
                raise CommandInvalid("something of a channel before the connection is open")

    def _agreed(self) -> None:
        limits = self._handshake.limits
        self.state = State.OPEN
        self.frame_max = self._reader.frame_max = limits.frame_max
        self.channel_max = limits.channel_max
        self.heartbeat = limits.heartbeat

    def cut_off(self) -> Exception:
        """What it means that the broker hangs up now, without a word."""
        address = self._address
        if self.state is not State.OPENING:
            return errors.ConnectionLost(f"the broker at {address.host}:{address.port} hung up")
        if (
            self._closes_refused_logins()
        ):  # so it has refused nothing: it was stopped, or the network failed
            return errors.CannotConnect(
                f"the broker at {address.host}:{address.port} hung up during the handshake"
            )
        if self._handshake.step is Step.AWAIT_TUNE:  # so do brokers that do not tell of it
            return self._refusal(403, "the broker hung up during login")
        if self._handshake.step is Step.AWAIT_OPEN_OK:
            return self._refusal(530, "the broker hung up when asked for the vhost")
        return errors.CannotConnect(
            f"what listens at {address.host}:{address.port} hung up at once",
            "A broker's TLS port wants amqps:// and another number than its plain one.",
        )

    def _closes_refused_logins(self) -> bool:
        """Whether the broker says that it answers a refused login with connection.close."""
        capabilities = self._handshake.server_properties.get("capabilities")
        if not isinstance(capabilities, dict):
            return False
        return capabilities.get("authentication_failure_close") is True

    def _refusal(self, code: int, text: str) -> Exception:
        address = self._address
        if code == 403 and self._handshake.step is Step.AWAIT_TUNE:
            return errors.LoginFailed(
                f"the broker at {address.host}:{address.port} refused the login of "
                f"'{address.username}': {text}",
                "Name and password are percent-encoded in a URL; guest is let in via localhost only.",
            )
        if self._handshake.step is Step.AWAIT_OPEN_OK and code in (402, 403, 404, 530):
            return errors.VhostRefused(
                f"'{address.username}' cannot open the vhost '{address.vhost}': {text}",
                "It must exist and the user needs permissions in it; in a URL the vhost / is %2F.",
            )
        return errors.CannotConnect(f"the broker refused the connection: {code} {text}")

    def _handle(self, event: e.Event) -> Iterator[Occurrence]:
        match event:
            case e.Acked(number, first, count):
                yield from self._confirmed(number, first, count)
            case e.MethodReceived(number, m.BasicAck(tag, multiple)):
                yield from self._settled(number, tag, multiple, ok=True)
            case e.MethodReceived(number, m.BasicNack(tag, multiple)):
                yield from self._settled(number, tag, multiple, ok=False)
            case e.MethodReceived(0, method):
                yield from self._connection_method(method)
            case e.MethodReceived(number, method):
                yield from self._channel_method(number, method)
            case e.ContentReceived(number, m.BasicReturn() as r, content):
                header, body = properties_of(content), body_of(content)
                back = Returned(r.reply_code, r.reply_text, r.exchange, r.routing_key, header, body)
                yield CameBack(number, back)
            case e.ContentReceived(number, method, content):
                yield self._answer(number, method, properties_of(content), body_of(content))
            case e.TooLarge(_, size):
                raise CommandInvalid(f"a message of {size} bytes is more than this client takes")
            case e.HeartbeatReceived() | e.Discarded():
                pass
            case _:
                raise CommandInvalid("a client's message from a broker")

    def _connection_method(self, method: m.Method) -> Iterator[Occurrence]:
        match method:
            case m.ConnectionClose(code, text):
                self.send(0, m.ConnectionCloseOk())
                yield self._end(errors.ClosedByBroker(code, text))
            case m.ConnectionCloseOk() if self.state is State.CLOSING:
                yield self._end(errors.ConnectionClosed())
            case m.ConnectionBlocked(reason):
                yield BlockChanged(reason)
            case m.ConnectionUnblocked():
                yield BlockChanged(None)
            case _:
                yield self._answer(0, method)

    def _channel_method(self, number: int, method: m.Method) -> Iterator[Occurrence]:
        match method:
            case m.ChannelClose(code, text):
                self.send(number, m.ChannelCloseOk())
                if number not in self._reader.discarding:  # else our own close awaits its answer
                    yield self._end_channel(number, errors.ChannelRefused(code, text))
            case m.ChannelCloseOk():
                self._reader.discarding.discard(number)
                line = self._line(number)
                if not line.awaiting or line.awaiting[-1][0] is not m.ChannelClose:
                    raise CommandInvalid("an answer to a close that was not asked for")
                token = line.awaiting.pop()[1]
                yield self._end_channel(number, errors.ChannelClosed())
                yield Answered(token, method)
            case m.BasicCancel(tag):
                yield ConsumerGone(number, tag)
            case m.ChannelFlow(active):
                self.send(number, m.ChannelFlowOk(active))
                yield FlowChanged(number, active)
            case _:
                yield self._answer(number, method)

    def _line(self, number: int) -> _Line:
        line = self._lines.get(number)
        if line is None:
            raise CommandInvalid(f"something on channel {number}, which is not open")
        return line

    def _end_channel(self, number: int, error: Exception) -> ChannelEnded:
        line = self._line(number)
        del self._lines[number]
        self._free.append(number)
        return ChannelEnded(number, error, [token for _, token in line.awaiting])

    def _answer(
        self, number: int, method: m.Method, header: bytes = b"", body: bytes = b""
    ) -> Answered:
        awaiting = self._line(number).awaiting
        if not awaiting or type(method) not in ANSWERS[awaiting[0][0]]:
            raise CommandInvalid(
                f"{method.name} answers nothing that was asked on channel {number}"
            )
        return Answered(awaiting.popleft()[1], method, header, body)

    def _confirmed(self, number: int, first: int, count: int) -> Iterator[Confirmed]:
        confirms = self._line(number).confirms
        if confirms is not None:
            for numbers in confirms.settle_each(first, count):
                yield Confirmed(number, numbers, True)

    def _settled(self, number: int, tag: int, multiple: bool, *, ok: bool) -> Iterator[Confirmed]:
        confirms = self._line(number).confirms
        if confirms is not None:
            for numbers in confirms.settle(tag, multiple=multiple):
                yield Confirmed(number, numbers, ok)
