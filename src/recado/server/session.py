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
    ChannelFault,
    ClosesChannel,
    ClosesConnection,
    CommandInvalid,
    ConnectionForced,
    FramingLost,
    NotAllowed,
    PreconditionFailed,
    ProtocolError,
)
from recado.amqp.handshake import Credentials, Limits
from recado.amqp.reader import Reader, Unheard
from recado.broker.access import User
from recado.broker.broker import UNITS_PER_DELETION, Broker
from recado.broker.channel import Channel
from recado.broker.queue import Queue
from recado.broker.routing import Admission
from recado.broker.steps import TURN_UNITS, Steps, Work

from .commands import COMMANDS
from .names import strip_line_breaks
from .offer import Offer
from .opening import Opening
from .outbox import CHOKED_FROM, Outbox
from .preparations import PREPARATIONS

FRAME_BEFORE_LOGIN = 8192
METHOD_COST = 16  # units, see `recado.broker.steps`
_METHOD_BYTES_PER_UNIT = (
    16  # to bind a topic takes 2 µs for each word, other arguments 0.15 µs for each byte
)
_ACKS_MAX = 2048  # single ones that are handled together
_ACKS_PER_UNIT = 2
_PUBLISH, _ACK = (60, 40), (60, 80)
_LASTING = (40, 50, 90)  # exchange, queue, tx: their answers say that something is done for good


class Unfinished(msgspec.Struct):
    """Work for a method that is not done; nothing else of the connection is handled before it is."""

    channel: int
    method: m.Method
    work: Work[None]


class Finished(msgspec.Struct):
    """The work is done that a method has left to `Cleanup`, so that the method can be answered."""

    channel: int
    reply: m.Method
    entries: int
    """Of the keeper, when the method began."""


class State(Enum):
    HANDSHAKE = auto()
    OPEN = auto()
    CLOSING = auto()  # we asked to close and await the answer
    REFUSED = auto()  # to be closed without a word, after a while
    CLOSED = auto()


class Session(Outbox):
    __slots__ = (
        "_admission",
        "_held_ticket",
        "_inbox",
        "_opening",
        "_owing",
        "_reader",
        "broker",
        "channel_max",
        "channels",
        "exclusive",
        "frame_max",
        "heartbeat",
        "leaving",
        "publishes",
        "state",
        "told_of_block",
        "told_of_cancel",
    )

    def __init__(
        self,
        broker: Broker,
        offer: Offer,
        verify: Callable[["Session", Credentials], None],
        wake: Callable[[], None],
        full: str | None = None,
    ) -> None:
        """`verify` is to call `admit` or `refuse`, now or later; `wake` is told when there is output.

        `full` says why there is no place for this connection; it is told so when it wants to open.
        """
        super().__init__(wake)
        self.broker = broker
        self.told_of_cancel = False
        self.told_of_block = False
        self.publishes = False  # since the rim last looked
        self.frame_max = offer.frame_max
        self.channel_max = offer.channel_max
        self.heartbeat = 0  # seconds, once agreed; 0 is none
        self.state = State.HANDSHAKE
        self.channels: dict[int, Channel] = {}
        self.exclusive: dict[Queue, None] = {}
        self.leaving = False  # the connection has ended; some of what it held may still be there
        self._inbox: deque[Iterator[_Input]] = deque()  # received, not yet handled
        self._owing: dict[Channel, None] = {}  # channels with confirms to send
        self._admission: Admission | None = None
        self._held_ticket = 0  # of the keeper, that the output held last waits for
        self._opening: Opening | None = Opening(self, offer, verify, full)
        self._reader = Reader(
            frame_max=FRAME_BEFORE_LOGIN,
            body_max=offer.body_max,
            run_limit=offer.run_limit,
            expects_header=True,
            channels=self.channels,
        )
        self._reader.unheard = Unheard.REFUSED

    def keeps_up(self, now: int) -> None:
        """The socket took the output: go on delivering, unless the connection has ended."""
        if self.congested and not self.leaving and not self.is_holding_much:
            self.congested = False
            self.resume(now)

    def resume(self, now: int) -> None:
        """Consumers may have room again."""
        self.broker.gathering.let_in(now)
        for channel in list(self.channels.values()):
            channel.resume(now)

    # ── input ─────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, data: bytes, now: int) -> None:
        self._inbox.append(self._reader.feed(data))
        self.go_on(now)

    def go_on(self, now: int) -> None:
        """Handle what was received, as long as the peer takes the answers (S4), and it is its turn (S5)."""
        try:
            self._handle_some(now)
        except ProtocolError as error:  # while it opens
            self.fail(error, now, error.failed)
        if self._owing:
            self._confirm_all()

    def _handle_some(self, now: int) -> None:
        """Handle events until there are none for us any more, or the turn ends."""
        inbox, turn = self._inbox, TURN_UNITS
        while inbox and turn > 0 and self.backlog <= CHOKED_FROM and not self.is_stalled:
            try:
                event = next(inbox[0], None)
            except ProtocolError as error:
                self._fail_reading(error, now)
                turn -= METHOD_COST
                continue
            if event is None:
                inbox.popleft()
            elif self.state is State.OPEN:
                if type(event) is e.Published:
                    turn -= self._publish(event, now, turn)
                else:
                    turn -= self._handle(event, now, turn)
            elif isinstance(event, Unfinished | Finished):
                inbox.popleft()  # of a channel that is gone
            elif self._opening is not None and self.state is State.HANDSHAKE:
                opening = self._opening
                opening.receive(event)
                turn -= METHOD_COST
                if opening.is_verifying:
                    self._look_ahead()
            elif self.state is State.CLOSING:
                self._await_close_ok(event)
                turn -= METHOD_COST
            else:
                inbox.clear()

    def _look_ahead(self) -> None:
        """Keep input that waits for a verdict. Without any, reading goes on, and sees the client leave."""
        event = next(self._inbox[0], None)
        if event is None:
            self._inbox.popleft()
        else:
            self._inbox.appendleft(iter((event,)))

    def _fail_reading(self, error: ProtocolError, now: int) -> None:
        """Close the connection because of input that is malformed or out of order, and go on behind it."""
        self.fail(error, now, error.failed)
        if isinstance(error, FramingLost):
            self.state = State.CLOSED  # an answer to our close could not be found
            self._inbox.clear()
        else:
            self._inbox[0] = self._reader.feed(b"")

    @property
    def has_more(self) -> bool:
        """Whether there is input that waits for the peer to take its answers, or for its next turn."""
        return bool(self._inbox)

    @property
    def is_done(self) -> bool:
        """Whether the session is closed and all of its output was taken."""
        return self.state is State.CLOSED and not self.output and not self.is_held

    @property
    def is_publishing(self) -> bool:
        """Whether a message, or a part of one, has come since `publishes` was last cleared."""
        return self.publishes or self._reader.has_unfinished

    def _confirm_all(self) -> None:
        for channel in self._owing:
            channel.publisher.confirm()
        self._owing.clear()

    def _publish(self, event: e.Published, now: int, budget: int) -> int:
        """Return the cost; a part of the work may be left for the next turn."""
        number = event.channel
        try:
            channel = self.channels.get(number) or self._no_channel(number)
            publisher = channel.publisher
            self.publishes = True
            if publisher.confirming:
                self._owing[channel] = None
            rest, cost = publisher.publish(event, now, budget)
        except ClosesChannel as error:
            self._fail_channel(number, error, _PUBLISH, now)
            return METHOD_COST
        except ClosesConnection as error:
            self.fail(error, now, _PUBLISH)
            return METHOD_COST
        if rest is not None:
            self._inbox.appendleft(self._remaining(number, (rest,)))
        return cost

    def _remaining(self, number: int, events: Iterable[e.Event]) -> Iterator[e.Event]:
        """Unless the channel is closed when their turn comes."""
        for event in events:
            if number in self.channels:
                yield event

    def _handle(self, event: "_Input", now: int, budget: int) -> int:
        """Any other event of an open connection; return the cost. Errors of a channel end here."""
        culprit, cost, spent = _PUBLISH, METHOD_COST, self.broker.cleanup.spent
        self.broker.gathering.let_in(now)
        try:
            match event:
                case e.Acked(number, first, count):
                    culprit = _ACK
                    channel = self.channels.get(number) or self._no_channel(number)
                    some = min(
                        count, channel.acks_per_step(_ACKS_MAX) if channel.limit else _ACKS_MAX
                    )
                    if some < count:
                        rest = e.Acked(number, first + some, count - some)
                        self._inbox.appendleft(self._remaining(number, (rest,)))
                    channel.ack_each(first, some, now)
                    cost += some // _ACKS_PER_UNIT
                case e.Interleaved(number):
                    channel = self.channels.get(number) or self._no_channel(number)
                    self._inbox.appendleft(self._remaining(number, channel.publisher.sorted(event)))
                case e.MethodReceived(number, method):
                    culprit = (method.class_id, method.method_id)
                    cost += self._reader.method_bytes // _METHOD_BYTES_PER_UNIT
                    if isinstance(method, m.QueueBind | m.ExchangeBind):
                        cost += self._bind_units(method)
                    entries, begun = self.broker.keeper.entries, self.broker.cleanup.begun
                    reply = self._command(number, method, now)
                    self._await_cleanup(number, method, begun, reply, entries)
                case Unfinished(_, method, work):
                    culprit = (method.class_id, method.method_id)
                    self.broker.cleanup.now = now
                    cost = work.advance(budget)
                case Finished(number, reply, entries):
                    mark = self.mark
                    self.send(number, reply)
                    self._hold_if_durable(reply, entries, mark)
                case e.TooLarge(_, size):
                    raise PreconditionFailed(
                        f"message size {size} is larger than the maximum of {self._reader.body_max} bytes"
                    )
                case e.ContentReceived(_, method):
                    culprit = (method.class_id, method.method_id)
                    raise CommandInvalid(f"{method.name} is not for a client to send")
                case e.Discarded():  # its arguments were decoded
                    cost += self._reader.method_bytes // _METHOD_BYTES_PER_UNIT
                case _:
                    pass  # a heartbeat
        except ClosesChannel as error:
            cost = TURN_UNITS  # to refuse a complex pattern takes 10 ms
            self._fail_channel(getattr(event, "channel", 0), error, culprit, now)
        except ClosesConnection as error:
            self.fail(error, now, culprit)
        return cost + self.broker.cleanup.spent - spent

    def _bind_units(self, method: m.QueueBind | m.ExchangeBind) -> int:
        """What a binding costs beyond other methods, where its exchange is known."""
        assert self._admission is not None
        name = method.exchange if isinstance(method, m.QueueBind) else method.source
        exchange = self._admission.vhost.exchanges.get(strip_line_breaks(name))
        return 0 if exchange is None else exchange.bind_units

    def _no_channel(self, number: int) -> Channel:
        raise ChannelFault(f"channel {number} is not open: expected 'channel.open'")

    def _command(self, number: int, method: m.Method, now: int) -> m.Method | None:
        """Return the reply if it is to be sent when all is done that was left to `Cleanup`."""
        if number == 0:
            self._connection_command(method, now)
            return None
        channel = self.channels.get(number)
        match method:
            case m.ChannelOpen():
                self._open_channel(number)
                return None
            case m.ChannelCloseOk() if number in self._reader.discarding:
                self._reader.discarding.discard(number)
                return None
            case m.ChannelClose():
                if number not in self._reader.discarding:
                    channel = channel or self._no_channel(number)
                    self._settle_confirms(channel)
                    self._end_channel(channel, now)
                self.send(number, m.ChannelCloseOk())
                return None
            case _:
                pass
        if channel is None:
            channel = self._no_channel(number)
        self._settle_confirms(channel)
        command = COMMANDS.get(type(method))
        if command is None:
            raise CommandInvalid(f"{method.name} is not for a client to send")
        prepare = PREPARATIONS.get(type(method))
        if prepare is not None and (steps := prepare(self, channel, method)):
            self._inbox.appendleft(self._prepared(number, method, Work(steps)))
            return None
        entries, mark = self.broker.keeper.entries, self.mark
        begun = self.broker.cleanup.begun
        reply = command(self, channel, method, now)
        if reply is not None:
            if self.broker.cleanup.begun != begun:
                return reply
            self.send(number, reply)
        self._hold_if_durable(method, entries, mark)
        return None

    def _hold_if_durable(self, method: m.Method, entries: int, mark: int) -> None:
        """Hold the output since `mark` if it says that something is done for good, and that is new."""
        keeper = self.broker.keeper
        # What is as asked for already may be so by somebody whose own answer is still held.
        new = keeper.entries != entries or keeper.changed > keeper.safe
        if new and method.class_id in _LASTING:
            self._hold_until_safe(mark)

    def _await_cleanup(
        self, number: int, method: m.Method, begun: int, reply: m.Method | None, entries: int
    ) -> None:
        """Handle no more input until the work is done that a method has left to `Cleanup`; then reply."""
        cleanup = self.broker.cleanup
        if cleanup.begun != begun:
            works = cleanup.newest(cleanup.begun - begun)
            finished = None if reply is None else Finished(number, reply, entries)
            self._inbox.appendleft(self._finished(number, method, works, finished))

    def _finished(
        self, number: int, method: m.Method, works: list[Work[None]], finished: Finished | None
    ) -> "Iterator[_Input]":
        """The reply that was put off, when the work is done that a method has left."""
        for work in works:
            while not work.is_done:
                yield Unfinished(number, method, work)
        if finished is not None and number in self.channels:
            yield finished

    def _prepared(self, number: int, method: m.Method, work: Work[None]) -> "Iterator[_Input]":
        """The method again, when the work that it needs is done."""
        while not work.is_done:
            yield Unfinished(number, method, work)
        if number in self.channels:
            yield e.MethodReceived(number, method)

    def _hold_until_safe(self, mark: int) -> None:
        """Hold the output since `mark` until all operations up to now are on disk (S6).

        An operation without a reply (no-wait) holds the output behind it: a later reply implies it is safe.
        """
        keeper = self.broker.keeper
        if self._held_ticket != keeper.ticket:
            self._held_ticket = keeper.ticket
            self.hold(mark)
            keeper.tell(self)
        self.count_held()

    def kept(self) -> None:
        """The operations that were held first are on disk."""
        self.release()

    def _settle_confirms(self, channel: Channel) -> None:
        if channel in self._owing:
            del self._owing[channel]
            channel.publisher.confirm()

    def _connection_command(self, method: m.Method, now: int) -> None:
        match method:
            case m.ConnectionClose():
                self.end(now)
                self.send(0, m.ConnectionCloseOk())
            case m.ConnectionUpdateSecret():
                self.send(0, m.ConnectionUpdateSecretOk())
            case _:
                raise ChannelFault(f"unexpected method in connection state running: {method.name}")

    def _open_channel(self, number: int) -> None:
        assert self._admission is not None
        if number in self.channels or number in self._reader.discarding:
            raise ChannelFault("second 'channel.open' seen")
        count = len(self.channels)
        if count >= self.channel_max > 0:
            raise NotAllowed(
                f"number of channels opened ({count}) has reached the negotiated channel_max"
                f" ({self.channel_max})"
            )
        self.broker.usage.add_channel(self._admission.user.name)
        self.channels[number] = Channel(number, self, self._admission)
        self.send(number, m.ChannelOpenOk())

    def _end_channel(self, channel: Channel, now: int) -> None:
        self.broker.gathering.let_in(now)
        del self.channels[channel.number]
        self.broker.usage.remove_channel(channel.admission.user.name)
        self.broker.tally.add(channel)
        self.broker.close_channel(channel, now)

    # ── opening ───────────────────────────────────────────────────────────────────────────────────────

    def agreed(self, limits: Limits) -> None:
        self.frame_max = self._reader.frame_max = limits.frame_max
        self.channel_max = limits.channel_max
        self.heartbeat = limits.heartbeat

    def opened(self, admission: Admission) -> None:
        self._admission = admission
        self.broker.usage.add_connection(admission.user.name, admission.vhost.name)
        self._opening = None
        self._reader.unheard = None
        self.state = State.OPEN

    def admit(self, user: User) -> None:
        """The credentials are good."""
        if self._opening is not None and self.state is State.HANDSHAKE:
            self.is_stalled = False
            self._opening.admit(user)

    def refuse(self) -> None:
        """The credentials are not good."""
        if self._opening is not None and self.state is State.HANDSHAKE:
            self.is_stalled = False
            told = self._opening.refuse()
            self.state = State.CLOSED if told else State.REFUSED

    # ── closing ───────────────────────────────────────────────────────────────────────────────────────

    def _fail_channel(
        self, number: int, error: ClosesChannel, culprit: tuple[int, int], now: int
    ) -> None:
        channel = self.channels.get(number)
        if channel is None:  # it has ended meanwhile
            return
        self._settle_confirms(channel)
        self._end_channel(channel, now)
        self._reader.discarding.add(number)
        self.send(number, m.ChannelClose(error.code, _short(error.reply_text), *culprit))

    def close_channel(self, number: int, error: ClosesChannel, now: int) -> None:
        self._fail_channel(number, error, (0, 0), now)

    def fail(self, error: ProtocolError, now: int, culprit: tuple[int, int] = (0, 0)) -> None:
        """Close the connection because of an error, its own or ours."""
        if self.state not in (State.HANDSHAKE, State.OPEN):
            return
        opened = self.state is State.OPEN
        self._confirm_all()
        self.end(now)
        self.send(0, m.ConnectionClose(error.code, _short(error.reply_text), *culprit))
        self._reader.unheard = Unheard.IGNORED
        # A client that never got in is not waited for.
        self.state = State.CLOSING if opened else State.CLOSED

    def shut_down(self, now: int) -> None:
        """The broker stops."""
        self.fail(ConnectionForced("broker forced connection closure with reason 'shutdown'"), now)

    def _await_close_ok(self, event: e.Event) -> None:
        match event:
            case e.MethodReceived(0, m.ConnectionClose()):
                self.send(0, m.ConnectionCloseOk())
                self.state = State.CLOSED
            case e.MethodReceived(0, m.ConnectionCloseOk()):
                self.state = State.CLOSED
            case _:  # what the peer sent before it read our close is of no interest
                pass

    def end(self, now: int) -> None:
        """Let go of everything (S2); the rim also calls this when the socket is gone."""
        self.state = State.CLOSED
        self.congested = True  # what a channel gives back, or enters now, is not for the others
        self.broker.gathering.let_in(now)
        self._owing.clear()
        if self._admission is not None and not self.leaving:
            admission = self._admission
            self.broker.usage.remove_connection(admission.user.name, admission.vhost.name)
        self.leaving = True
        self.broker.cleanup.begin(self._let_go(now))

    def _let_go(self, now: int) -> Steps[None]:
        cleanup = self.broker.cleanup
        for channel in list(self.channels.values()):
            spent = cleanup.spent  # for queues that go with their last consumer
            if self.channels.get(channel.number) is channel:
                self._end_channel(channel, now)
            yield METHOD_COST + cleanup.spent - spent
        for queue in list(self.exclusive):
            spent = cleanup.spent
            if not queue.deleted:
                self.broker.delete_queue(queue, now)
            yield UNITS_PER_DELETION + cleanup.spent - spent

    def detach(self) -> None:
        super().detach()
        self._opening = None  # it refers to the connection

    # ── alarms ────────────────────────────────────────────────────────────────────────────────────────

    def block(self, reason: str) -> None:
        if self.told_of_block:
            self.send(0, m.ConnectionBlocked(reason))

    def unblock(self) -> None:
        if self.told_of_block:
            self.send(0, m.ConnectionUnblocked())


_Input: TypeAlias = e.Event | Unfinished | Finished


def _short(text: str) -> str:
    """As much of a text as a short string holds, which is measured in bytes."""
    return text.encode(errors="replace")[:255].decode(errors="ignore")
