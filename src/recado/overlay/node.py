"""A node of the overlay: it takes commands for any topic, owns and stores ranges, and delivers notifications.

A command goes from its origin to the owner of its topic:

    origin   `OutstandingCommands` gives it a number, keeps it until it is answered, and sends it again if need be
    any node `_route`: to the owner that is known for the key, else to the node that is nearest to the key; if
    neither is
             known to be alive, or this node is about to become the owner, it waits in the `CommandBuffer`
    owner    `Owner`: append, replicate, execute; the answer goes straight to the origin

The node is a state machine without I/O: `handle(event, now)` returns effects. The membership tells it which nodes are
alive (`PeerAdded`, `PeerRemoved`), and verifies each packet: it must be for this start of the node, from a peer in the
view. The code that runs a node sends the messages, and hands in a `TimerExpired` when a timer is due.

ND1  A command is executed, refused, or waits in a bounded buffer with a deadline; it never disappears.
ND2  A node leaves only when it stores nothing that others need, and no command waits at it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from .command import (
    Answer,
    CommandId,
    CommandRefusal,
    Operation,
    Refused,
    Subscribe,
    SubscriptionId,
    TopicCommand,
    TopicMessage,
    Unsubscribe,
)
from .command_buffer import CommandBuffer
from .configuration import Configuration
from .delivery import NotificationInbox
from .effects import SendTo, SetTimer, TimerExpired
from .identifier import TopicKey
from .messages import (
    Answers,
    CommandAnswer,
    Commands,
    Leaving,
    LookUp,
    Messages,
    Notification,
    Notified,
    Notify,
    RangeMessage,
    RangesKnown,
    SubscriptionsLost,
)
from .outstanding_commands import OutstandingCommand, OutstandingCommands
from .owner import Function
from .peer_address import PeerAddress
from .peer_view import Departure, PeerAdded, PeerRemoved, PeerView
from .range_state import SubscriptionsEnded
from .replication import Replication, ReplicationSettings

TICK_S: Final = 0.1
LOOK_UP_S: Final = 0.3
LEAVING_S: Final = 1.0
HOPS_MAX: Final = 8
"""A command that was passed on so often waits where it is: nodes disagree about the owner."""
RENEWED_SUBSCRIPTION_ID: Final = 0
"""The request number of commands that no caller waits for."""


class OverlaySettings(Struct, frozen=True):
    replication: ReplicationSettings = ReplicationSettings()
    subscriber_expiry_s: float = 30.0
    """The subscriptions of a failed node are kept for so long, in case it is only out of reach."""


# ── events and effects ────────────────────────────────────────────────────────────────────────────


class StartNetwork(Struct, frozen=True):
    """This node is the first of a network."""


class Submit(Struct, frozen=True):
    """Execute an operation on a topic; an `Answered` with this request number follows."""

    request: int
    topic: str
    operation: Operation
    roles: tuple[str, ...] = ()
    timeout: float = 10.0


class MessagesReceived(Struct, frozen=True):
    """From a peer in this network, for this start of the node: `Membership.admits` verifies it."""

    sender: PeerAddress
    messages: tuple[RangeMessage, ...]


class LeaveOverlay(Struct, frozen=True):
    """Hand everything over to the other nodes; a `LeaveCompleted` follows."""


class CancelLeave(Struct, frozen=True):
    pass


NodeEvent = (
    StartNetwork
    | Submit
    | MessagesReceived
    | LeaveOverlay
    | CancelLeave
    | PeerAdded
    | PeerRemoved
    | TimerExpired
)


class Answered(Struct, frozen=True):
    request: int
    answer: Answer


class Deliver(Struct, frozen=True):
    """A notification for a subscription of this node, or for a delivery that is registered here."""

    subscription: SubscriptionId
    notification: Notification

    @property
    def message(self) -> TopicMessage:
        return self.notification.message


class SubscriptionEnded(Struct, frozen=True):
    """A subscription has ended: this node was too slow, or out of reach for long and may not subscribe any more."""

    subscription: SubscriptionId
    topic: str


class LeaveCompleted(Struct, frozen=True):
    """The node stores nothing any more and can be stopped."""


NodeEffect = SendTo[Messages] | SetTimer | Answered | Deliver | SubscriptionEnded | LeaveCompleted


class LocalSubscription(Struct, frozen=True):
    topic: str
    operation: Subscribe
    roles: tuple[str, ...]


class OverlayNode:
    def __init__(
        self,
        own: PeerAddress,
        settings: OverlaySettings | None = None,
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        self.own = own
        self.settings = settings or OverlaySettings()
        self.view = PeerView(own)
        self.replication = Replication(own, self.settings.replication, functions or {}, self._send)
        self.buffer = CommandBuffer()
        self._outstanding = OutstandingCommands(own)
        self._inbox = NotificationInbox()
        self._subscriptions: dict[SubscriptionId, LocalSubscription] = {}
        self._leaving: dict[PeerAddress, None] = {}
        self._departed: dict[PeerAddress, tuple[float, Departure]] = {}
        self._local: deque[RangeMessage] = deque()
        self._outbox: dict[PeerAddress, list[RangeMessage]] = {}
        self._forwards: dict[tuple[PeerAddress, int], list[TopicCommand]] = {}
        self._hints: dict[PeerAddress, dict[Configuration, None]] = {}
        self._answers: dict[PeerAddress, list[tuple[CommandId, Answer, Configuration | None]]] = {}
        self._effects: list[NodeEffect] = []
        self._buffer_checked: tuple[int, int] = (-1, 0)
        self._looked_up_at = self._leaving_sent_at = self._checked_subscribers_at = 0.0
        self._renew_at: float | None = None
        self._has_timer = False

    @property
    def is_leaving(self) -> bool:
        return self.own in self._leaving

    # ── events ────────────────────────────────────────────────────────────────────────────────────

    def handle(self, event: NodeEvent, now: float) -> list[NodeEffect]:
        """Handle an event; return what to do."""
        if not self._has_timer:
            self._has_timer = True
            self._effects.append(SetTimer("tick", TICK_S))
        match event:
            case StartNetwork():
                self.replication.start_network(now)
            case Submit():
                self._submit(event, now)
            case MessagesReceived(sender, messages):
                for message in messages:
                    self._dispatch(sender, message, now)
            case PeerAdded() | PeerRemoved():
                self._change_view(event, now)
            case TimerExpired("tick"):
                self._effects.append(SetTimer("tick", TICK_S))
                self._tick(now)
            case TimerExpired():
                pass  # "step": there is more to execute
            case LeaveOverlay():
                self._leave(now)
            case CancelLeave():
                self._cancel_leave(now)
        self._settle(now)
        effects, self._effects = self._effects, []
        return effects

    def _settle(self, now: float) -> None:
        """Handle what this node sends to itself, and pack the rest."""
        while True:
            self._send_commands(now)
            self.replication.step(now)
            self._collect_answers()
            self._check_buffer(now)
            if not self._local:
                break
            while self._local:
                self._dispatch(self.own, self._local.popleft(), now)
        if self.replication.needs_step:
            self._effects.append(SetTimer("step", 0.0))
        for peer, messages in self._outbox.items():
            self._effects.append(SendTo(peer, Messages(tuple(messages))))
        self._outbox.clear()

    def _send(self, peer: PeerAddress, message: RangeMessage) -> None:
        if peer == self.own:
            self._local.append(message)
        else:
            self._outbox.setdefault(peer, []).append(message)

    def _dispatch(self, sender: PeerAddress, message: RangeMessage, now: float) -> None:
        match message:
            case Commands(commands, hops):
                for command in commands:
                    self._route(command, hops, now)
            case Answers(answers, configuration):
                if configuration is not None:
                    self.replication.known.learn(configuration)
                for each in answers:
                    self._answered(each.number, each.answer)
            case Notify():
                self._notify(sender, message)
            case Notified():
                self.replication.notified(sender, message)
            case SubscriptionsLost(topic, numbers):
                for number in numbers:
                    self._lose(SubscriptionId(self.own, number), topic)
            case Leaving(peer, is_leaving):
                self._set_leaving(peer, is_leaving, now)
            case _:
                self.replication.receive(sender, message, now)

    # ── the view ──────────────────────────────────────────────────────────────────────────────────

    def _change_view(self, event: PeerAdded | PeerRemoved, now: float) -> None:
        match event:
            case PeerAdded(peer):
                self.view.add(peer)
                departure = self._departed.pop(peer, None)
                if departure is not None and departure[1] is Departure.FAILED:
                    # It was out of reach, or this node was: others may have ended this node's subscriptions.
                    self._renew_at = now + self.settings.replication.settle_s
            case PeerRemoved(peer, departure_kind):
                if self.view.get(peer.node_id) == peer:
                    self.view.remove(peer.node_id, departure_kind)
                self._departed[peer] = (now, departure_kind)
                self._leaving.pop(peer, None)
        self._update_replication(now)

    def _update_replication(self, now: float) -> None:
        self.replication.update_view(self.view.peers(), self._leaving, now)
        self._outstanding.retry_soon()

    def _set_leaving(self, peer: PeerAddress, is_leaving: bool, now: float) -> None:
        if is_leaving == (peer in self._leaving):
            return
        if is_leaving:
            self._leaving[peer] = None
        else:
            del self._leaving[peer]
        self._update_replication(now)

    # ── commands ──────────────────────────────────────────────────────────────────────────────────

    def _submit(self, event: Submit, now: float) -> None:
        match event.operation:
            case Subscribe(subscription):
                self._subscriptions[subscription] = LocalSubscription(
                    event.topic, event.operation, event.roles
                )
                self._inbox.open(subscription)
            case Unsubscribe(subscription):
                local = self._subscriptions.get(subscription)
                if local is not None and local.topic == event.topic:
                    del self._subscriptions[subscription]
                    self._inbox.close(subscription)
            case _:
                pass
        self._outstanding.submit(
            OutstandingCommand(
                event.request, event.topic, event.operation, event.roles, now + event.timeout
            )
        )

    def _send_commands(self, now: float) -> None:
        for command in self._outstanding.batches(now):
            self._route(command, 0, now)
        forwards, self._forwards = self._forwards, {}
        hints, self._hints = self._hints, {}
        for peer, configurations in hints.items():
            self._send(peer, RangesKnown(tuple(configurations)))
        for (peer, hops), commands in forwards.items():
            self._send(peer, Commands(tuple(commands), hops))

    def _route(self, command: TopicCommand, hops: int, now: float) -> None:
        """Bring a command nearer to the owner of its topic, or let it wait."""
        if self.replication.submit(command, now):
            return
        target = self._find_target(command.key) if hops < HOPS_MAX else None
        if target is not None:
            self._forwards.setdefault((target, hops + 1), []).append(command)
            known = self.replication.known.find(command.key)
            if hops and known is not None:  # the target may not know yet that it is the owner
                self._hints.setdefault(target, {})[known] = None
        elif not self.buffer.add(command, now):
            text = f"the buffer of node {self.own.node_id} is full"
            self._refuse(command, Refused(CommandRefusal.OVERLOADED, text))

    def _find_target(self, key: int) -> PeerAddress | None:
        """Return the node to send a command to; None if it must wait here."""
        known = self.replication.known.find(key)
        if known is not None:
            if known.owner != self.own and self.replication.is_alive(known.owner):
                return known.owner
            return None
        nearest = self.view.get(self.view.nearest(key))
        return nearest if nearest != self.own else None

    def _can_proceed(self, command: TopicCommand) -> bool:
        return (
            self.replication.owner_of(command.key) is not None
            or self._find_target(command.key) is not None
        )

    def _check_buffer(self, now: float) -> None:
        """Send buffered commands on when something has changed."""
        returned, self.replication.returned = self.replication.returned, []
        for command in returned:
            self._route(command, 0, now)
        if len(self.buffer) and self.replication.version != self._buffer_checked:
            self._buffer_checked = self.replication.version
            for command in self.buffer.take(self._can_proceed, now):
                self._route(command, 0, now)
        if self._forwards:
            self._send_commands(now)

    def _refuse(self, command: TopicCommand, refusal: Refused) -> None:
        self._answers.setdefault(command.id.origin, []).append((command.id, refusal, None))

    def _collect_answers(self) -> None:
        for owner in self.replication.owners.values():
            for command, answer in owner.answers:
                self._answers.setdefault(command.origin, []).append(
                    (command, answer, owner.replica.configuration)
                )
            owner.answers.clear()
        answers, self._answers = self._answers, {}
        for origin, parts in answers.items():
            by_range: dict[Configuration | None, list[CommandAnswer]] = {}
            for command, answer, configuration in parts:
                by_range.setdefault(configuration, []).append(CommandAnswer(command.number, answer))
            for configuration, each in by_range.items():
                self._send(origin, Answers(tuple(each), configuration))

    def _answered(self, number: int, answer: Answer) -> None:
        command = self._outstanding.answer(number, answer)
        if command is not None:
            self._finish(command, answer)

    def _finish(self, command: OutstandingCommand, answer: Answer) -> None:
        if (
            isinstance(command.operation, Subscribe)
            and isinstance(answer, Refused)
            and answer.reason is not CommandRefusal.UNAVAILABLE
        ):
            subscription = command.operation.subscription
            if command.request == RENEWED_SUBSCRIPTION_ID:
                self._lose(subscription, command.topic)
            else:
                self._subscriptions.pop(subscription, None)
                self._inbox.close(subscription)
        if command.request != RENEWED_SUBSCRIPTION_ID:
            self._effects.append(Answered(command.request, answer))

    # ── notifications ─────────────────────────────────────────────────────────────────────────────

    def _notify(self, sender: PeerAddress, message: Notify) -> None:
        new, acknowledgement = self._inbox.receive(sender, message)
        for subscription, notification in new:
            self._effects.append(Deliver(subscription, notification))
        self._send(sender, acknowledgement)

    def _lose(self, subscription: SubscriptionId, topic: str) -> None:
        if self._subscriptions.pop(subscription, None) is not None:
            self._inbox.close(subscription)
            self._effects.append(SubscriptionEnded(subscription, topic))

    def _renew_subscriptions(self, now: float) -> None:
        for local in list(self._subscriptions.values()):
            self._outstanding.submit(
                OutstandingCommand(
                    RENEWED_SUBSCRIPTION_ID, local.topic, local.operation, local.roles, now + 30.0
                )
            )

    def _check_subscribers(self, now: float) -> None:
        """End the subscriptions of nodes that are gone for good."""
        for owner in self.replication.owners.values():
            state = owner.replica.state
            if state is None or not owner.replica.is_open:
                continue
            for peer in (*state.subscribers, *owner.dispatcher.nodes()):
                if self.replication.is_alive(peer):
                    continue
                successor = self.view.get(peer.node_id)
                since, departure = self._departed.setdefault(peer, (now, Departure.FAILED))
                if (
                    departure is not Departure.FAILED
                    or (successor is not None and successor.incarnation > peer.incarnation)
                    or now >= since + self.settings.subscriber_expiry_s
                ):
                    owner.dispatcher.end_node(peer)
                    if peer in state.subscribers:
                        owner.end_subscriptions(SubscriptionsEnded(peer, None, ()))

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────

    def _leave(self, now: float) -> None:
        self._leaving_sent_at = now - LEAVING_S
        self._set_leaving(self.own, True, now)

    def _cancel_leave(self, now: float) -> None:
        self._set_leaving(self.own, False, now)
        self._tell_leaving()

    def _tell_leaving(self) -> None:
        for peer in self.view.peers():
            if peer != self.own:
                self._send(peer, Leaving(self.own, self.is_leaving))

    def _continue_leaving(self, now: float) -> None:
        # If the others are only out of reach, they need what is stored here.
        alone = not len(self.replication.ring) and all(
            replica.configuration.members == (self.own,)
            for replica in self.replication.replicas.values()
        )
        if alone or not (self.replication.is_member or len(self.buffer) or len(self._outstanding)):
            self._effects.append(LeaveCompleted())
        elif now >= self._leaving_sent_at + LEAVING_S:
            self._leaving_sent_at = now
            self._tell_leaving()

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def _tick(self, now: float) -> None:
        self.replication.tick(now)
        for command in self._outstanding.retries(now):
            self._route(command, 0, now)
        for late in self._outstanding.expire(now):
            text = f"topic {late.topic}: no owner with a majority has answered {late.attempts} attempts in time"
            self._finish(late, Refused(CommandRefusal.UNAVAILABLE, text))
        for expired in self.buffer.expire(now):
            text = f"node {self.own.node_id} knew no owner that it could reach"
            self._refuse(expired, Refused(CommandRefusal.UNAVAILABLE, text))
        if len(self.buffer) and now >= self._looked_up_at + LOOK_UP_S:
            self._looked_up_at = now
            self._look_up()
        if now >= self._checked_subscribers_at + 1.0:
            self._checked_subscribers_at = now
            self._check_subscribers(now)
        if self._renew_at is not None and now >= self._renew_at:
            self._renew_at = None
            self._renew_subscriptions(now)
        if self.is_leaving:
            self._continue_leaving(now)

    def _look_up(self) -> None:
        """Ask the neighbours of the keys of buffered commands who owns them."""
        count = 2 * self.settings.replication.replicas + 2
        for key in self.buffer.keys()[:100]:
            if self.replication.owner_of(key) is None:
                for node in self.view.neighbours(key, count):
                    peer = self.view.get(node)
                    if peer is not None and peer != self.own:
                        self._send(peer, LookUp(TopicKey(key)))
