"""One connection, from its first byte to its last: bytes in, bytes out, no socket.

S1  An error closes what its class says: a channel, or the connection; nobody else notices.
S2  What a connection held is let go when it ends, however it ends.
S3  Confirms go out after each read, and before the answer to any other method on their channel.
S4  A peer that does not take its answers is not asked for more: neither is its input handled.
S5  However much a peer sends at once, others get their turn.
S6  The reply to a durable operation, and all output behind it, is sent once the operation is safe. Input is
    handled meanwhile, so operations that arrive together share a sync; but only as many as the outbox may hold.

The rim (`connection`) calls `receive`, takes output when told by `wake`, verifies credentials, keeps time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import TypeAlias

import msgspec

from recado.amqp import events as e
from recado.amqp import methods as m
from recado.amqp.errors import (
    AmqpError,
    ChannelError,
    ChannelLevelError,
    CommandInvalidError,
    ConnectionForcedError,
    ConnectionLevelError,
    FramingLostError,
    NotAllowedError,
    PreconditionFailedError,
)
from recado.amqp.handshake import ConnectionLimits, Credentials
from recado.amqp.reader import ChannelFramePolicy, FrameReader
from recado.broker.access import User
from recado.broker.broker import UNITS_PER_DELETION, Broker
from recado.broker.channel import Channel
from recado.broker.queue import Queue
from recado.broker.routing import VhostAccess
from recado.broker.steps import TURN_UNITS_MAX, Steps, StepTask

from .commands import COMMANDS
from .handshake import SessionHandshake
from .names import strip_line_breaks
from .options import ConnectionOptions
from .output_buffer import STALLED_BYTES, OutputBuffer
from .preparations import PREPARATIONS

LOGIN_FRAME_MAX_BYTES = 8192
UNITS_PER_METHOD = 16  # units, see `recado.broker.steps`
_METHOD_BYTES_PER_UNIT = (
    16  # to bind a topic takes 2 µs for each word, other arguments 0.15 µs for each byte
)
_ACKS_MAX = 2048  # single ones that are handled together
_ACKS_PER_UNIT = 2
_PUBLISH_METHOD, _ACK_METHOD = (60, 40), (60, 80)
_DURABLE_CLASSES = (
    40,
    50,
    90,
)  # exchange, queue, tx: their answers say that something is done for good


class UnfinishedWork(msgspec.Struct):
    """Work for a method that is not done; nothing else of the connection is handled before it is."""

    channel: int
    method: m.Method
    work: StepTask[None]


class DeferredReply(msgspec.Struct):
    """The work is done that a method has left to `BackgroundWork`, so that the method can be answered."""

    channel: int
    reply: m.Method
    durable_ops: int
    """Of the keeper, when the method began."""


class SessionState(Enum):
    HANDSHAKE = auto()
    OPEN = auto()
    CLOSING = auto()  # we asked to close and await the answer
    REFUSED = auto()  # to be closed without a word, after a while
    CLOSED = auto()


class Session(OutputBuffer):
    __slots__ = (
        "_admission",
        "_handshake",
        "_held_lsn",
        "_input",
        "_reader",
        "_unconfirmed",
        "broker",
        "channel_max",
        "channels",
        "exclusive_queues",
        "frame_max",
        "has_ended",
        "has_published",
        "heartbeat",
        "state",
        "supports_blocked",
        "supports_cancel_notify",
    )

    def __init__(
        self,
        broker: Broker,
        options: ConnectionOptions,
        verify: Callable[["Session", Credentials], None],
        on_output: Callable[[], None],
        refusal_reason: str | None = None,
    ) -> None:
        """`verify` is to call `admit` or `refuse`, now or later; `wake` is told when there is output.

        `full` says why there is no place for this connection; it is told so when it wants to open.
        """
        super().__init__(on_output)
        self.broker = broker
        self.supports_cancel_notify = False
        self.supports_blocked = False
        self.has_published = False  # since the rim last looked
        self.frame_max = options.frame_max
        self.channel_max = options.channel_max
        self.heartbeat = 0  # seconds, once agreed; 0 is none
        self.state = SessionState.HANDSHAKE
        self.channels: dict[int, Channel] = {}
        self.exclusive_queues: dict[Queue, None] = {}
        self.has_ended = False  # the connection has ended; some of what it held may still be there
        self._input: deque[Iterator[_SessionInput]] = deque()  # received, not yet handled
        self._unconfirmed: dict[Channel, None] = {}  # channels with confirms to send
        self._admission: VhostAccess | None = None
        self._held_lsn = 0  # of the keeper, that the output held last waits for
        self._handshake: SessionHandshake | None = SessionHandshake(
            self, options, verify, refusal_reason
        )
        self._reader = FrameReader(
            frame_max=LOGIN_FRAME_MAX_BYTES,
            body_max=options.body_max_bytes,
            run_limit=options.run_messages_max,
            expects_protocol_header=True,
            open_channels=self.channels,
        )
        self._reader.channel_frame_policy = ChannelFramePolicy.REFUSE

    def on_drained(self, now: int) -> None:
        """The socket took the output: go on delivering, unless the connection has ended."""
        if self.congested and not self.has_ended and not self.is_over_held_limit:
            self.congested = False
            self.resume(now)

    def resume(self, now: int) -> None:
        """Consumers may have room again."""
        self.broker.coalescer.flush(now)
        for channel in list(self.channels.values()):
            channel.resume(now)

    # ── input ─────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, data: bytes, now: int) -> None:
        self._input.append(self._reader.feed(data))
        self.process_input(now)

    def process_input(self, now: int) -> None:
        """Handle what was received, as long as the peer takes the answers (S4), and it is its turn (S5)."""
        try:
            self._process_turn(now)
        except AmqpError as error:  # while it opens
            self.fail(error, now, error.method_ids)
        if self._unconfirmed:
            self._confirm_all()

    def _process_turn(self, now: int) -> None:
        """Handle events until there are none for us any more, or the turn ends."""
        inbox, turn = self._input, TURN_UNITS_MAX
        while inbox and turn > 0 and self.unsent_bytes <= STALLED_BYTES and not self.is_stalled:
            try:
                event = next(inbox[0], None)
            except AmqpError as error:
                self._fail_malformed(error, now)
                turn -= UNITS_PER_METHOD
                continue
            if event is None:
                inbox.popleft()
            elif self.state is SessionState.OPEN:
                if type(event) is e.Published:
                    turn -= self._publish(event, now, turn)
                else:
                    turn -= self._handle(event, now, turn)
            elif isinstance(event, UnfinishedWork | DeferredReply):
                inbox.popleft()  # of a channel that is gone
            elif self._handshake is not None and self.state is SessionState.HANDSHAKE:
                opening = self._handshake
                opening.receive(event)
                turn -= UNITS_PER_METHOD
                if opening.is_verifying:
                    self._peek_input()
            elif self.state is SessionState.CLOSING:
                self._handle_closing(event)
                turn -= UNITS_PER_METHOD
            else:
                inbox.clear()

    def _peek_input(self) -> None:
        """Keep input that waits for a verdict. Without any, reading goes on, and sees the client leave."""
        event = next(self._input[0], None)
        if event is None:
            self._input.popleft()
        else:
            self._input.appendleft(iter((event,)))

    def _fail_malformed(self, error: AmqpError, now: int) -> None:
        """Close the connection because of input that is malformed or out of order, and go on behind it."""
        self.fail(error, now, error.method_ids)
        if isinstance(error, FramingLostError):
            self.state = SessionState.CLOSED  # an answer to our close could not be found
            self._input.clear()
        else:
            self._input[0] = self._reader.feed(b"")

    @property
    def has_input(self) -> bool:
        """Whether there is input that waits for the peer to take its answers, or for its next turn."""
        return bool(self._input)

    @property
    def is_finished(self) -> bool:
        """Whether the session is closed and all of its output was taken."""
        return self.state is SessionState.CLOSED and not self.output and not self.has_held_output

    @property
    def is_publishing(self) -> bool:
        """Whether a message, or a part of one, has come since `has_published` was last cleared."""
        return self.has_published or self._reader.has_partial_messages

    def _confirm_all(self) -> None:
        for channel in self._unconfirmed:
            channel.publisher.send_confirms()
        self._unconfirmed.clear()

    def _publish(self, event: e.Published, now: int, budget: int) -> int:
        """Return the cost; a part of the work may be left for the next turn."""
        number = event.channel
        try:
            channel = self.channels.get(number) or self._raise_not_open(number)
            publisher = channel.publisher
            self.has_published = True
            if publisher.confirms_enabled:
                self._unconfirmed[channel] = None
            rest, cost = publisher.publish(event, now, budget)
        except ChannelLevelError as error:
            self._fail_channel(number, error, _PUBLISH_METHOD, now)
            return UNITS_PER_METHOD
        except ConnectionLevelError as error:
            self.fail(error, now, _PUBLISH_METHOD)
            return UNITS_PER_METHOD
        if rest is not None:
            self._input.appendleft(self._while_open(number, (rest,)))
        return cost

    def _while_open(self, number: int, events: Iterable[e.Event]) -> Iterator[e.Event]:
        """Unless the channel is closed when their turn comes."""
        for event in events:
            if number in self.channels:
                yield event

    def _handle(self, event: "_SessionInput", now: int, budget: int) -> int:
        """Any other event of an open connection; return the cost. Errors of a channel end here."""
        culprit, cost, spent = _PUBLISH_METHOD, UNITS_PER_METHOD, self.broker.background.cost
        self.broker.coalescer.flush(now)
        try:
            match event:
                case e.Acked(number, first, count):
                    culprit = _ACK_METHOD
                    channel = self.channels.get(number) or self._raise_not_open(number)
                    some = min(
                        count,
                        channel.acks_per_step(_ACKS_MAX) if channel.global_prefetch else _ACKS_MAX,
                    )
                    if some < count:
                        rest = e.Acked(number, first + some, count - some)
                        self._input.appendleft(self._while_open(number, (rest,)))
                    channel.ack_each(first, some, now)
                    cost += some // _ACKS_PER_UNIT
                case e.InterleavedPublished(number):
                    channel = self.channels.get(number) or self._raise_not_open(number)
                    self._input.appendleft(
                        self._while_open(number, channel.publisher.group_by_route(event))
                    )
                case e.MethodReceived(number, method):
                    culprit = (method.class_id, method.method_id)
                    cost += self._reader.last_method_bytes // _METHOD_BYTES_PER_UNIT
                    if isinstance(method, m.QueueBind | m.ExchangeBind):
                        cost += self._bind_cost(method)
                    entries, begun = (
                        self.broker.store.durable_ops,
                        self.broker.background.deferred_count,
                    )
                    reply = self._run_method(number, method, now)
                    self._await_cleanup(number, method, begun, reply, entries)
                case UnfinishedWork(_, method, work):
                    culprit = (method.class_id, method.method_id)
                    self.broker.background.now = now
                    cost = work.advance(budget)
                case DeferredReply(number, reply, entries):
                    mark = self.mark
                    self.send(number, reply)
                    self._hold_if_durable(reply, entries, mark)
                case e.OversizedBodyReceived(_, size):
                    raise PreconditionFailedError(
                        f"message size {size} is larger than the maximum of {self._reader.body_max} bytes"
                    )
                case e.ContentReceived(_, method):
                    culprit = (method.class_id, method.method_id)
                    raise CommandInvalidError(f"{method.name} is not for a client to send")
                case e.Discarded():  # its arguments were decoded
                    cost += self._reader.last_method_bytes // _METHOD_BYTES_PER_UNIT
                case _:
                    pass  # a heartbeat
        except ChannelLevelError as error:
            cost = TURN_UNITS_MAX  # to refuse a complex pattern takes 10 ms
            self._fail_channel(getattr(event, "channel", 0), error, culprit, now)
        except ConnectionLevelError as error:
            self.fail(error, now, culprit)
        return cost + self.broker.background.cost - spent

    def _bind_cost(self, method: m.QueueBind | m.ExchangeBind) -> int:
        """What a binding costs beyond other methods, where its exchange is known."""
        assert self._admission is not None
        name = method.exchange if isinstance(method, m.QueueBind) else method.source
        exchange = self._admission.vhost.exchanges.get(strip_line_breaks(name))
        return 0 if exchange is None else exchange.bind_cost

    def _raise_not_open(self, number: int) -> Channel:
        raise ChannelError(f"channel {number} is not open: expected 'channel.open'")

    def _run_method(self, number: int, method: m.Method, now: int) -> m.Method | None:
        """Return the reply if it is to be sent when all is done that was left to `BackgroundWork`."""
        if number == 0:
            self._run_connection_method(method, now)
            return None
        channel = self.channels.get(number)
        match method:
            case m.ChannelOpen():
                self._open_channel(number)
                return None
            case m.ChannelCloseOk() if number in self._reader.closing_channels:
                self._reader.closing_channels.discard(number)
                return None
            case m.ChannelClose():
                if number not in self._reader.closing_channels:
                    channel = channel or self._raise_not_open(number)
                    self._flush_confirms(channel)
                    self._remove_channel(channel, now)
                self.send(number, m.ChannelCloseOk())
                return None
            case _:
                pass
        if channel is None:
            channel = self._raise_not_open(number)
        self._flush_confirms(channel)
        command = COMMANDS.get(type(method))
        if command is None:
            raise CommandInvalidError(f"{method.name} is not for a client to send")
        prepare = PREPARATIONS.get(type(method))
        if prepare is not None and (steps := prepare(self, channel, method)):
            self._input.appendleft(self._retry_when_prepared(number, method, StepTask(steps)))
            return None
        entries, mark = self.broker.store.durable_ops, self.mark
        begun = self.broker.background.deferred_count
        reply = command(self, channel, method, now)
        if reply is not None:
            if self.broker.background.deferred_count != begun:
                return reply
            self.send(number, reply)
        self._hold_if_durable(method, entries, mark)
        return None

    def _hold_if_durable(self, method: m.Method, entries: int, mark: int) -> None:
        """Hold the output since `mark` if it says that something is done for good, and that is new."""
        keeper = self.broker.store
        # What is as asked for already may be so by somebody whose own answer is still held.
        new = keeper.durable_ops != entries or keeper.topology_lsn > keeper.durable_lsn
        if new and method.class_id in _DURABLE_CLASSES:
            self._hold_until_durable(mark)

    def _await_cleanup(
        self, number: int, method: m.Method, begun: int, reply: m.Method | None, entries: int
    ) -> None:
        """Handle no more input until the work is done that a method has left to `BackgroundWork`; then reply."""
        cleanup = self.broker.background
        if cleanup.deferred_count != begun:
            works = cleanup.newest(cleanup.deferred_count - begun)
            finished = None if reply is None else DeferredReply(number, reply, entries)
            self._input.appendleft(self._reply_after_cleanup(number, method, works, finished))

    def _reply_after_cleanup(
        self,
        number: int,
        method: m.Method,
        works: list[StepTask[None]],
        finished: DeferredReply | None,
    ) -> "Iterator[_SessionInput]":
        """The reply that was put off, when the work is done that a method has left."""
        for work in works:
            while not work.is_done:
                yield UnfinishedWork(number, method, work)
        if finished is not None and number in self.channels:
            yield finished

    def _retry_when_prepared(
        self, number: int, method: m.Method, work: StepTask[None]
    ) -> "Iterator[_SessionInput]":
        """The method again, when the work that it needs is done."""
        while not work.is_done:
            yield UnfinishedWork(number, method, work)
        if number in self.channels:
            yield e.MethodReceived(number, method)

    def _hold_until_durable(self, mark: int) -> None:
        """Hold the output since `mark` until all operations up to now are on disk (S6).

        An operation without a reply (no-wait) holds the output behind it: a later reply implies it is safe.
        """
        keeper = self.broker.store
        if self._held_lsn != keeper.lsn:
            self._held_lsn = keeper.lsn
            self.hold(mark)
            keeper.notify_when_durable(self)
        self.count_held_operation()

    def on_durable(self) -> None:
        """The operations that were held first are on disk."""
        self.release()

    def _flush_confirms(self, channel: Channel) -> None:
        if channel in self._unconfirmed:
            del self._unconfirmed[channel]
            channel.publisher.send_confirms()

    def _run_connection_method(self, method: m.Method, now: int) -> None:
        match method:
            case m.ConnectionClose():
                self.terminate(now)
                self.send(0, m.ConnectionCloseOk())
            case m.ConnectionUpdateSecret():
                self.send(0, m.ConnectionUpdateSecretOk())
            case _:
                raise ChannelError(f"unexpected method in connection state running: {method.name}")

    def _open_channel(self, number: int) -> None:
        assert self._admission is not None
        if number in self.channels or number in self._reader.closing_channels:
            raise ChannelError("second 'channel.open' seen")
        count = len(self.channels)
        if count >= self.channel_max > 0:
            raise NotAllowedError(
                f"number of channels opened ({count}) has reached the negotiated channel_max"
                f" ({self.channel_max})"
            )
        self.broker.usage.add_channel(self._admission.user.name)
        self.channels[number] = Channel(number, self, self._admission)
        self.send(number, m.ChannelOpenOk())

    def _remove_channel(self, channel: Channel, now: int) -> None:
        self.broker.coalescer.flush(now)
        del self.channels[channel.number]
        self.broker.usage.remove_channel(channel.access.user.name)
        self.broker.counters.add_channel(channel)
        self.broker.close_channel(channel, now)

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────

    def apply_limits(self, limits: ConnectionLimits) -> None:
        self.frame_max = self._reader.frame_max = limits.frame_max
        self.channel_max = limits.channel_max
        self.heartbeat = limits.heartbeat

    def enter_vhost(self, admission: VhostAccess) -> None:
        self._admission = admission
        self.broker.usage.add_connection(admission.user.name, admission.vhost.name)
        self._handshake = None
        self._reader.channel_frame_policy = None
        self.state = SessionState.OPEN

    def accept_login(self, user: User) -> None:
        """The credentials are good."""
        if self._handshake is not None and self.state is SessionState.HANDSHAKE:
            self.is_stalled = False
            self._handshake.accept_login(user)

    def refuse_login(self) -> None:
        """The credentials are not good."""
        if self._handshake is not None and self.state is SessionState.HANDSHAKE:
            self.is_stalled = False
            told = self._handshake.refuse_login()
            self.state = SessionState.CLOSED if told else SessionState.REFUSED

    # ── closing ───────────────────────────────────────────────────────────────────────────────────────

    def _fail_channel(
        self, number: int, error: ChannelLevelError, culprit: tuple[int, int], now: int
    ) -> None:
        channel = self.channels.get(number)
        if channel is None:  # it has ended meanwhile
            return
        self._flush_confirms(channel)
        self._remove_channel(channel, now)
        self._reader.closing_channels.add(number)
        self.send(
            number, m.ChannelClose(error.code, _truncate_short_string(error.reply_text), *culprit)
        )

    def close_channel(self, number: int, error: ChannelLevelError, now: int) -> None:
        self._fail_channel(number, error, (0, 0), now)

    def fail(self, error: AmqpError, now: int, culprit: tuple[int, int] = (0, 0)) -> None:
        """Close the connection because of an error, its own or ours."""
        if self.state not in (SessionState.HANDSHAKE, SessionState.OPEN):
            return
        opened = self.state is SessionState.OPEN
        self._confirm_all()
        self.terminate(now)
        self.send(
            0, m.ConnectionClose(error.code, _truncate_short_string(error.reply_text), *culprit)
        )
        self._reader.channel_frame_policy = ChannelFramePolicy.IGNORE
        # A client that never got in is not waited for.
        self.state = SessionState.CLOSING if opened else SessionState.CLOSED

    def shut_down(self, now: int) -> None:
        """The broker stops."""
        self.fail(
            ConnectionForcedError("broker forced connection closure with reason 'shutdown'"), now
        )

    def _handle_closing(self, event: e.Event) -> None:
        match event:
            case e.MethodReceived(0, m.ConnectionClose()):
                self.send(0, m.ConnectionCloseOk())
                self.state = SessionState.CLOSED
            case e.MethodReceived(0, m.ConnectionCloseOk()):
                self.state = SessionState.CLOSED
            case _:  # what the peer sent before it read our close is of no interest
                pass

    def terminate(self, now: int) -> None:
        """Let go of everything (S2); the rim also calls this when the socket is gone."""
        self.state = SessionState.CLOSED
        self.congested = True  # what a channel gives back, or enters now, is not for the others
        self.broker.coalescer.flush(now)
        self._unconfirmed.clear()
        if self._admission is not None and not self.has_ended:
            admission = self._admission
            self.broker.usage.remove_connection(admission.user.name, admission.vhost.name)
        self.has_ended = True
        self.broker.background.start(self._release_resources(now))

    def _release_resources(self, now: int) -> Steps[None]:
        cleanup = self.broker.background
        for channel in list(self.channels.values()):
            spent = cleanup.cost  # for queues that go with their last consumer
            if self.channels.get(channel.number) is channel:
                self._remove_channel(channel, now)
            yield UNITS_PER_METHOD + cleanup.cost - spent
        for queue in list(self.exclusive_queues):
            spent = cleanup.cost
            if not queue.deleted:
                self.broker.delete_queue(queue, now)
            yield UNITS_PER_DELETION + cleanup.cost - spent

    def detach(self) -> None:
        super().detach()
        self._handshake = None  # it refers to the connection

    # ── alarms ────────────────────────────────────────────────────────────────────────────────────────

    def send_blocked(self, reason: str) -> None:
        if self.supports_blocked:
            self.send(0, m.ConnectionBlocked(reason))

    def send_unblocked(self) -> None:
        if self.supports_blocked:
            self.send(0, m.ConnectionUnblocked())


_SessionInput: TypeAlias = e.Event | UnfinishedWork | DeferredReply


def _truncate_short_string(text: str) -> str:
    """As much of a text as a short string holds, which is measured in bytes."""
    return text.encode(errors="replace")[:255].decode(errors="ignore")
