"""The AMQP session of one connection without I/O: bytes in, bytes out, no socket.

`Connection` passes the bytes of each read to `receive`, takes output when `on_output` is called, has
credentials verified, and provides the time.

Input is a queue of iterators of events. Each read appends one, which parses its bytes lazily. If a method
leaves work that must be done before its reply, or before later input of the connection, an iterator over that
work is inserted at the front. The session handles events until its budget of the turn is used up
(`TURN_UNITS_MAX`), and continues in the next turn.

SE1  An error closes what its class names, a channel or the connection, and affects no other client.
SE2  Everything a connection holds is released when it ends, however it ends.
SE3  Confirms are sent after each read, and before the reply to any other method on their channel.
SE4  Input of a client that does not read its replies is not handled.
SE5  However much a client sends at once, a turn handles only a bounded part, and other clients are served next.
SE6  The reply to a durable operation, and all output after it, is sent once the operation is durable. Input is
     handled meanwhile, so operations that arrive together share a sync, up to the limit of the output buffer.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import lru_cache
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
from recado.amqp.values import encode_table
from recado.broker.access import User
from recado.broker.broker import UNITS_PER_DELETION, Broker
from recado.broker.channel import Channel
from recado.broker.observer import Change
from recado.broker.queue import Queue
from recado.broker.routing import VhostAccess
from recado.broker.steps import TURN_UNITS_MAX, Steps, StepTask

from .commands import COMMANDS, PREPARATIONS
from .handshake import SessionHandshake
from .names import strip_line_breaks
from .options import PASSWORD_MECHANISMS, ConnectionOptions
from .output_buffer import STALLED_BYTES, OutputBuffer

LOGIN_FRAME_MAX_BYTES = 8192
UNITS_PER_METHOD = 16  # see `recado.broker.steps`
# Binding a topic takes 2 µs for each word, other arguments take 0.15 µs for each byte.
_METHOD_BYTES_PER_UNIT = 16
_ACKS_MAX = 2048  # handled in one call
_ACKS_PER_UNIT = 2
_PUBLISH_METHOD, _ACK_METHOD = (60, 40), (60, 80)
ConnectionEnd: TypeAlias = tuple[str, int]  # address and port
ConnectionEnds: TypeAlias = tuple[ConnectionEnd, ConnectionEnd]
LOCAL_END: ConnectionEnd = ("local", 0)  # of a socket without an address
_DURABLE_CLASSES = (40, 50, 90)  # exchange, queue, tx: their replies promise durability


class UnfinishedWork(msgspec.Struct):
    """Bounded steps of a method; later input of the connection waits until they are done."""

    channel: int
    method: m.Method
    work: StepTask[None]


class DeferredReply(msgspec.Struct):
    """The reply to a method whose background work is done."""

    channel: int
    reply: m.Method
    durable_ops: int
    """`MessageStore.durable_ops` when the method began."""


@lru_cache(maxsize=1024)
def _intern(data: bytes) -> bytes:
    """Return one shared object for equal bytes: many clients announce the same properties."""
    return data


class SessionState(Enum):
    """The life cycle of a session."""

    HANDSHAKE = auto()
    OPEN = auto()
    CLOSING = auto()  # connection.close was sent, close-ok is awaited
    REFUSED = auto()  # login failed; the socket is closed after a delay, without connection.close
    CLOSED = auto()


class Session(OutputBuffer):
    """The AMQP session of one client connection, on top of its output buffer."""

    __slots__ = (
        "_access",
        "_handshake",
        "_held_lsn",
        "_input",
        "_reader",
        "_unconfirmed",
        "_update_secret",
        "broker",
        "channel_max",
        "channels",
        "client_properties",
        "ends",
        "exclusive_queues",
        "frame_max",
        "has_ended",
        "has_published",
        "heartbeat",
        "mechanism",
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
        mechanisms: Sequence[str] = PASSWORD_MECHANISMS,
        update_secret: Callable[[bytes], None] | None = None,
        ends: ConnectionEnds | None = None,
    ) -> None:
        """Start with the handshake, offering the login `mechanisms`.

        `verify` must call `accept_login` or `refuse_login`, now or later. `on_output` is called when there is
        output to take. With a `refusal_reason` (the server is full), connection.open is refused.
        `update_secret` must call `confirm_secret` or `fail`, now or later; without it a new secret, which does
        not matter to a user with a password, is confirmed and ignored. `ends` are the addresses of the client
        and of the server, which name the connection in statistics.
        """
        super().__init__(on_output)
        self.broker = broker
        self.ends = ends or (LOCAL_END, LOCAL_END)
        self.supports_cancel_notify = False
        self.supports_blocked = False
        self.has_published = False  # reset by `Connection` before each read under an alarm
        self.frame_max = options.frame_max
        self.channel_max = options.channel_max
        self.heartbeat = 0  # seconds, once negotiated; 0 disables heartbeats
        self.state = SessionState.HANDSHAKE
        self.channels: dict[int, Channel] = {}
        self.exclusive_queues: dict[Queue, None] = {}
        self.mechanism = ""  # of the login
        # Encoded; the same object for all clients that announce the same.
        self.client_properties = b""
        self.has_ended = False  # releasing its queues and channels may take further turns
        self._input: deque[Iterator[_SessionInput]] = deque()  # received and not handled yet
        self._unconfirmed: dict[Channel, None] = {}  # channels with confirms to send
        self._access: VhostAccess | None = None
        self._held_lsn = 0  # the LSN that the newest held output waits for
        self._update_secret = update_secret
        self._handshake: SessionHandshake | None = SessionHandshake(
            self, options, verify, refusal_reason, mechanisms
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
        """Resume deliveries: the socket has taken the output."""
        if self.congested and not self.has_ended and not self.is_over_held_limit:
            self.congested = False
            self.resume(now)

    def resume(self, now: int) -> None:
        """Deliver to consumers that may have capacity again."""
        self.broker.coalescer.flush(now)
        for channel in list(self.channels.values()):
            channel.resume(now)

    # ── input ─────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, data: bytes, now: int) -> None:
        self._input.append(self._reader.feed(data))
        self.process_input(now)

    def process_input(self, now: int) -> None:
        """Handle received input until the client stops reading replies (SE4) or its turn ends (SE5)."""
        try:
            self._process_turn(now)
        except AmqpError as error:  # during the handshake
            self.fail(error, now, error.method_ids)
        if self._unconfirmed:
            self._confirm_all()

    def _process_turn(self, now: int) -> None:
        """Handle events until there are no more, the output stalls, or the budget of the turn is used up."""
        pending, budget = self._input, TURN_UNITS_MAX
        while pending and budget > 0 and self.unsent_bytes <= STALLED_BYTES and not self.is_stalled:
            try:
                event = next(pending[0], None)
            except AmqpError as error:
                self._fail_malformed(error, now)
                budget -= UNITS_PER_METHOD
                continue
            if event is None:
                pending.popleft()
            elif self.state is SessionState.OPEN:
                if type(event) is e.Published:
                    budget -= self._publish(event, now, budget)
                else:
                    budget -= self._handle(event, now, budget)
            elif isinstance(event, UnfinishedWork | DeferredReply):
                pending.popleft()  # its channel was closed
            elif self._handshake is not None and self.state is SessionState.HANDSHAKE:
                handshake = self._handshake
                handshake.receive(event)
                budget -= UNITS_PER_METHOD
                if handshake.is_verifying:
                    self._peek_input()
            elif self.state is SessionState.CLOSING:
                self._handle_closing(event)
                budget -= UNITS_PER_METHOD
            else:
                pending.clear()

    def _peek_input(self) -> None:
        """Find out whether input follows that must wait for the login verdict.

        Without any, reading is not paused, so that a client that disconnects is noticed.
        """
        event = next(self._input[0], None)
        if event is None:
            self._input.popleft()
        else:
            self._input.appendleft(iter((event,)))

    def _fail_malformed(self, error: AmqpError, now: int) -> None:
        """Close the connection because of malformed or unexpected input, and continue after it."""
        self.fail(error, now, error.method_ids)
        if isinstance(error, FramingLostError):
            self.state = SessionState.CLOSED  # close-ok could not be recognised
            self._input.clear()
        else:
            self._input[0] = self._reader.feed(b"")

    @property
    def has_input(self) -> bool:
        """Whether input waits for the client to read its replies, for a sync, or for the next turn."""
        return bool(self._input)

    @property
    def is_finished(self) -> bool:
        """Whether the session is closed and all output was taken."""
        return self.state is SessionState.CLOSED and not self.output and not self.has_held_output

    @property
    def is_publishing(self) -> bool:
        """Whether a message or a part of one was received since `has_published` was last reset."""
        return self.has_published or self._reader.has_partial_messages

    def _confirm_all(self) -> None:
        for channel in self._unconfirmed:
            channel.publisher.send_confirms()
        self._unconfirmed.clear()

    def _publish(self, event: e.Published, now: int, budget: int) -> int:
        """Publish, as far as the budget allows; return the cost. The rest continues in the next turn."""
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
        """Yield the events, but none after the channel was closed."""
        for event in events:
            if number in self.channels:
                yield event

    def _handle(self, event: "_SessionInput", now: int, budget: int) -> int:
        """Handle any event but a publish on an open connection; return the cost. Close channels on errors."""
        background, store = self.broker.background, self.broker.store
        failed_method, cost, cost_before = _PUBLISH_METHOD, UNITS_PER_METHOD, background.cost
        self.broker.coalescer.flush(now)
        try:
            match event:
                case e.Acked(number, first, count):
                    failed_method = _ACK_METHOD
                    channel = self.channels.get(number) or self._raise_not_open(number)
                    limit = (
                        channel.acks_per_step(_ACKS_MAX) if channel.global_prefetch else _ACKS_MAX
                    )
                    handled = min(count, limit)
                    if handled < count:
                        rest = e.Acked(number, first + handled, count - handled)
                        self._input.appendleft(self._while_open(number, (rest,)))
                    channel.ack_each(first, handled, now)
                    cost += handled // _ACKS_PER_UNIT
                case e.InterleavedPublished(number):
                    channel = self.channels.get(number) or self._raise_not_open(number)
                    events = channel.publisher.group_by_route(event)
                    self._input.appendleft(self._while_open(number, events))
                case e.MethodReceived(number, method):
                    failed_method = (method.class_id, method.method_id)
                    cost += self._reader.last_method_bytes // _METHOD_BYTES_PER_UNIT
                    if isinstance(method, m.QueueBind | m.ExchangeBind):
                        cost += self._bind_cost(method)
                    ops_before, deferred_before = store.durable_ops, background.deferred_count
                    reply = self._run_method(number, method, now)
                    self._await_background(number, method, deferred_before, reply, ops_before)
                case UnfinishedWork(_, method, work):
                    failed_method = (method.class_id, method.method_id)
                    background.begin_turn(now)
                    cost = work.advance(budget)
                case DeferredReply(number, reply, ops_before):
                    mark = self.mark
                    self.send(number, reply)
                    self._hold_if_durable(reply, ops_before, mark)
                case e.OversizedBodyReceived(_, size):
                    raise PreconditionFailedError(
                        f"message size {size} is larger than the maximum of {self._reader.body_max} bytes"
                    )
                case e.ContentReceived(_, method):
                    failed_method = (method.class_id, method.method_id)
                    raise CommandInvalidError(f"{method.name} must not be sent by a client")
                case e.Discarded():  # decoding its arguments was work
                    cost += self._reader.last_method_bytes // _METHOD_BYTES_PER_UNIT
                case _:
                    pass  # a heartbeat
        except ChannelLevelError as error:
            cost = TURN_UNITS_MAX  # refusing a complex pattern takes up to 10 ms
            self._fail_channel(getattr(event, "channel", 0), error, failed_method, now)
        except ConnectionLevelError as error:
            self.fail(error, now, failed_method)
        return cost + background.cost - cost_before

    def _bind_cost(self, method: m.QueueBind | m.ExchangeBind) -> int:
        """Return what a binding costs beyond other methods; 0 if its exchange does not exist."""
        assert self._access is not None
        name = method.exchange if isinstance(method, m.QueueBind) else method.source
        exchange = self._access.vhost.exchanges.get(strip_line_breaks(name))
        return 0 if exchange is None else exchange.bind_cost

    def _raise_not_open(self, number: int) -> Channel:
        raise ChannelError(f"channel {number} is not open: expected 'channel.open'")

    def _run_method(self, number: int, method: m.Method, now: int) -> m.Method | None:
        """Carry out a method. Return its reply if that must wait for background work of the method."""
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
            raise CommandInvalidError(f"{method.name} must not be sent by a client")
        prepare = PREPARATIONS.get(type(method))
        if prepare is not None and (steps := prepare(self, channel, method)):
            self._input.appendleft(self._retry_when_prepared(number, method, StepTask(steps)))
            return None
        ops_before, mark = self.broker.store.durable_ops, self.mark
        deferred_before = self.broker.background.deferred_count
        reply = command(self, channel, method, now)
        if reply is not None:
            if self.broker.background.deferred_count != deferred_before:
                return reply
            self.send(number, reply)
        self._hold_if_durable(method, ops_before, mark)
        return None

    def _hold_if_durable(self, method: m.Method, ops_before: int, mark: int) -> None:
        """Hold the output since `mark` if it promises something that is not durable yet (SE6)."""
        store = self.broker.store
        # A declaration may change nothing only because another client has just made the same one. The reply
        # must wait for that one to be durable.
        is_new = store.durable_ops != ops_before or store.topology_lsn > store.durable_lsn
        if is_new and method.class_id in _DURABLE_CLASSES:
            self._hold_until_durable(mark)

    def _await_background(
        self,
        number: int,
        method: m.Method,
        deferred_before: int,
        reply: m.Method | None,
        ops_before: int,
    ) -> None:
        """If the method has left work to `BackgroundWork`, handle no input before it is done; then reply."""
        background = self.broker.background
        if background.deferred_count != deferred_before:
            tasks = background.newest(background.deferred_count - deferred_before)
            deferred = None if reply is None else DeferredReply(number, reply, ops_before)
            self._input.appendleft(self._reply_after(number, method, tasks, deferred))

    def _reply_after(
        self,
        number: int,
        method: m.Method,
        tasks: list[StepTask[None]],
        deferred: DeferredReply | None,
    ) -> "Iterator[_SessionInput]":
        """Yield the work that a method has left, then its reply."""
        for task in tasks:
            while not task.is_done:
                yield UnfinishedWork(number, method, task)
        if deferred is not None and number in self.channels:
            yield deferred

    def _retry_when_prepared(
        self, number: int, method: m.Method, task: StepTask[None]
    ) -> "Iterator[_SessionInput]":
        """Yield the work that a method needs to be done first, then the method again."""
        while not task.is_done:
            yield UnfinishedWork(number, method, task)
        if number in self.channels:
            yield e.MethodReceived(number, method)

    def _hold_until_durable(self, mark: int) -> None:
        """Hold the output since `mark` until all operations so far are on disk (SE6).

        An operation without a reply (no-wait) holds later output: a later reply implies that it is durable.
        """
        store = self.broker.store
        if self._held_lsn != store.lsn:
            self._held_lsn = store.lsn
            self.hold(mark)
            store.notify_when_durable(self)
        self.count_held_operation()

    def on_durable(self) -> None:
        """Release the output that was held first: its operations are on disk."""
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
            case m.ConnectionUpdateSecret(new_secret):
                if self._update_secret is None:
                    self.confirm_secret()
                else:
                    self._update_secret(new_secret)
            case _:
                raise ChannelError(f"unexpected method in connection state running: {method.name}")

    def _open_channel(self, number: int) -> None:
        assert self._access is not None
        if number in self.channels or number in self._reader.closing_channels:
            raise ChannelError("second 'channel.open' seen")
        count = len(self.channels)
        if count >= self.channel_max > 0:
            raise NotAllowedError(
                f"number of channels opened ({count}) has reached the negotiated channel_max"
                f" ({self.channel_max})"
            )
        self.broker.usage.add_channel(self._access.user.name)
        channel = self.channels[number] = Channel(number, self, self._access)
        self.broker.observer.channel_changed(Change.OPENED, channel)
        self.send(number, m.ChannelOpenOk())

    def _remove_channel(self, channel: Channel, now: int) -> None:
        self.broker.coalescer.flush(now)
        del self.channels[channel.number]
        self.broker.usage.remove_channel(channel.access.user.name)
        self.broker.counters.add_channel(channel)
        self.broker.observer.channel_changed(Change.CLOSED, channel)
        self.broker.close_channel(channel, now)

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────

    def apply_limits(self, limits: ConnectionLimits) -> None:
        self.frame_max = self._reader.frame_max = limits.frame_max
        self.channel_max = limits.channel_max
        self.heartbeat = limits.heartbeat

    def enter_vhost(self, access: VhostAccess) -> None:
        self._access = access
        self.broker.usage.add_connection(access.user.name, access.vhost.name)
        self._handshake = None
        self._reader.channel_frame_policy = None
        self.state = SessionState.OPEN
        self.broker.observer.connection_changed(Change.OPENED, self)

    def await_verdict(self, credentials: Credentials) -> None:
        """Handle no input after start-ok until the login is accepted or refused, as RabbitMQ does."""
        self.supports_cancel_notify = credentials.supports("consumer_cancel_notify")
        self.supports_blocked = credentials.supports("connection.blocked")
        self.mechanism = credentials.mechanism
        self.client_properties = _intern(encode_table(credentials.client_properties))
        self.is_stalled = True

    def accept_login(self, user: User) -> None:
        """Continue the handshake: the credentials are right."""
        if self._handshake is not None and self.state is SessionState.HANDSHAKE:
            self.is_stalled = False
            self._handshake.accept_login(user)

    def refuse_login(self) -> None:
        """End the handshake: the credentials are wrong."""
        if self._handshake is not None and self.state is SessionState.HANDSHAKE:
            self.is_stalled = False
            is_answered = self._handshake.refuse_login()
            self.state = SessionState.CLOSED if is_answered else SessionState.REFUSED

    def confirm_secret(self) -> None:
        """Tell the client that its new secret is in effect."""
        if self.state is SessionState.OPEN:
            self.send(0, m.ConnectionUpdateSecretOk())

    # ── closing ───────────────────────────────────────────────────────────────────────────────────────

    def _fail_channel(
        self, number: int, error: ChannelLevelError, failed_method: tuple[int, int], now: int
    ) -> None:
        channel = self.channels.get(number)
        if channel is None:  # closed meanwhile
            return
        self._flush_confirms(channel)
        self._remove_channel(channel, now)
        self._reader.closing_channels.add(number)
        self.send(
            number,
            m.ChannelClose(error.code, _truncate_short_string(error.reply_text), *failed_method),
        )

    def close_channel(self, number: int, error: ChannelLevelError, now: int) -> None:
        """Close a channel because of an error that no method caused, such as a consumer timeout."""
        self._fail_channel(number, error, (0, 0), now)

    def fail(self, error: AmqpError, now: int, failed_method: tuple[int, int] = (0, 0)) -> None:
        """Close the connection because of an error of the client or of the broker."""
        if self.state not in (SessionState.HANDSHAKE, SessionState.OPEN):
            return
        was_open = self.state is SessionState.OPEN
        self._confirm_all()
        self.terminate(now)
        self.send(
            0,
            m.ConnectionClose(error.code, _truncate_short_string(error.reply_text), *failed_method),
        )
        self._reader.channel_frame_policy = ChannelFramePolicy.IGNORE
        # A client that never finished its handshake is not waited for.
        self.state = SessionState.CLOSING if was_open else SessionState.CLOSED

    def shut_down(self, now: int) -> None:
        """Close the connection because the broker stops."""
        self.fail(
            ConnectionForcedError("broker forced connection closure with reason 'shutdown'"), now
        )

    def close_forced(self, reason: str, now: int) -> None:
        """Close the connection at the request of an operator."""
        self.fail(ConnectionForcedError(reason), now)

    @property
    def access(self) -> VhostAccess | None:
        """The user and the vhost of an open connection; None during the handshake."""
        return self._access

    def _handle_closing(self, event: e.Event) -> None:
        match event:
            case e.MethodReceived(0, m.ConnectionClose()):
                self.send(0, m.ConnectionCloseOk())
                self.state = SessionState.CLOSED
            case e.MethodReceived(0, m.ConnectionCloseOk()):
                self.state = SessionState.CLOSED
            case _:  # sent before the client read connection.close
                pass

    def terminate(self, now: int) -> None:
        """End the session and release everything it holds (SE2), in steps; also when the socket is lost."""
        self.state = SessionState.CLOSED
        self.congested = True  # requeued messages must not be delivered to its other channels
        self.broker.coalescer.flush(now)
        self._unconfirmed.clear()
        if self._access is not None and not self.has_ended:
            access = self._access
            self.broker.usage.remove_connection(access.user.name, access.vhost.name)
            self.broker.observer.connection_changed(Change.CLOSED, self)
        self.has_ended = True
        self.broker.background.start(self._release_resources(now))

    def _release_resources(self, now: int) -> Steps[None]:
        background = self.broker.background
        for channel in list(self.channels.values()):
            cost_before = background.cost  # an auto-delete queue goes with its last consumer
            if self.channels.get(channel.number) is channel:
                self._remove_channel(channel, now)
            yield UNITS_PER_METHOD + background.cost - cost_before
        for queue in list(self.exclusive_queues):
            cost_before = background.cost
            if not queue.deleted:
                self.broker.delete_queue(queue, now)
            yield UNITS_PER_DELETION + background.cost - cost_before

    def detach(self) -> None:
        super().detach()
        self._handshake = self._update_secret = None  # they refer to the session

    # ── alarms ────────────────────────────────────────────────────────────────────────────────────────

    def send_blocked(self, reason: str) -> None:
        if self.supports_blocked:
            self.send(0, m.ConnectionBlocked(reason))

    def send_unblocked(self) -> None:
        if self.supports_blocked:
            self.send(0, m.ConnectionUnblocked())


_SessionInput: TypeAlias = e.Event | UnfinishedWork | DeferredReply


def _truncate_short_string(text: str) -> str:
    """Truncate a text to 255 bytes, the limit of a short string."""
    return text.encode(errors="replace")[:255].decode(errors="ignore")
