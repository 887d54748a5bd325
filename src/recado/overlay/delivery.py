"""Notifications, from the owner of a topic to the nodes of its subscribers, until they are acknowledged.

The owner evaluates the selectors of a committed publish and adds a notification to a *stream* for each node with a
matching subscription. A stream has numbers from 1; it is sent in order, acknowledged cumulatively, and sent again
from the first unacknowledged number. When all nodes have acknowledged a publish, the owner appends
`DeliveriesFinished` to the log. A new owner delivers again what is not finished, in a stream of its own. The
subscriber's node (`NotificationInbox`) recognizes what it has had: positions of a topic only grow, also from owner to
owner, so one position for each subscription suffices.

DL1  A stream delivers the matching publishes in the order of the log, without gaps from its start.
DL2  Its start is at or before the first publish that some subscriber may not have had. So a subscriber that ignores
     positions up to its last one has every matching publish once, and in order.
DL3  Memory is bounded: for each subscription by `queue_notifications_max`. Beyond it, `DROP_OLDEST` removes the oldest
     unsent notification, `BLOCK` stops publishes on the topic before they are appended, and `DISCONNECT` ends the
     subscription.

The evaluation is one predicate per distinct selector of a topic, not per subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from msgspec import Struct, structs

from recado.selector import compile_predicate, parse

from .command import (
    CommandId,
    DeliveryMethod,
    Overflow,
    PublishReport,
    SubscriptionId,
    TopicMessage,
)
from .configuration import RangeId
from .messages import Notification, Notified, Notify
from .peer_address import PeerAddress
from .range_state import (
    DeliveryRecord,
    PendingPublish,
    PendingReplay,
    RangeState,
    SubscriptionsEnded,
)
from .topic import SELECTOR_FIELDS, RetainedMessage, Topic, TopicSubscription

WINDOW_NOTIFICATIONS_MAX: Final = 256
"""Sent and not acknowledged, per stream."""
WINDOW_BYTES: Final = 1 << 20
RESEND_S: Final = 0.3
STREAMS_MAX: Final = 10_000
"""Of an inbox: streams of earlier owners are forgotten beyond this number."""

Predicate = Callable[[TopicMessage], bool]


class MatcherGroup(Struct, frozen=True):
    """Subscriptions with one selector that one notification serves."""

    node: PeerAddress
    subscriptions: tuple[TopicSubscription, ...]
    ids: tuple[SubscriptionId, ...]
    delivery: DeliveryMethod | None
    """None: to the subscriber."""
    queue_min: int
    """The smallest `queue_notifications_max`."""
    newest: int
    """The highest `since`."""


def _group(
    node: PeerAddress, subscriptions: list[TopicSubscription], delivery: DeliveryMethod | None
) -> MatcherGroup:
    return MatcherGroup(
        node,
        tuple(subscriptions),
        tuple(each.id for each in subscriptions),
        delivery,
        min(each.delivery.queue_notifications_max for each in subscriptions),
        max(each.since for each in subscriptions),
    )


class SubscriptionMatcher:
    """The subscriptions of a topic, by selector and node."""

    def __init__(self, topic: Topic, own: PeerAddress) -> None:
        self.version = topic.version
        nodes: dict[str | None, dict[PeerAddress, list[TopicSubscription]]] = {}
        groups: dict[str | None, list[MatcherGroup]] = {}
        for each in topic.subscriptions.values():
            if each.delivery.kind == "subscriber":
                by_node = nodes.setdefault(each.selector, {})
                by_node.setdefault(each.id.subscriber, []).append(each)
            else:
                groups.setdefault(each.selector, []).append(_group(own, [each], each.delivery))
        for selector, by_node in nodes.items():
            groups.setdefault(selector, []).extend(
                _group(node, subscriptions, None) for node, subscriptions in by_node.items()
            )
        self._groups = [
            (None if selector is None else _compile(selector), parts)
            for selector, parts in groups.items()
        ]
        self.blocking = [
            (own if each.delivery.kind != "subscriber" else each.id.subscriber, each)
            for each in topic.subscriptions.values()
            if each.delivery.overflow is Overflow.BLOCK
        ]

    def select(self, message: TopicMessage) -> list[MatcherGroup]:
        """Return the groups of subscriptions whose selector is true for a message."""
        selected: list[MatcherGroup] = []
        for predicate, groups in self._groups:
            if predicate is None or predicate(message):
                selected += groups
        return selected


def _compile(selector: str) -> Predicate:
    return compile_predicate(parse(selector, SELECTOR_FIELDS))


class Item(Struct):
    """A notification in a stream."""

    publish: CommandId
    """The command that is finished when this is acknowledged: a publish, or a subscribe with retained messages."""
    notification: Notification
    size_bytes: int


class NotificationStream:
    """The notifications of one range to one node."""

    def __init__(self) -> None:
        self.queue: deque[Item] = deque()
        """Not sent yet."""
        self.in_flight: deque[Item] = deque()
        self.acknowledged = 0
        """The number of acknowledged notifications; the first in flight has the next number."""
        self.in_flight_bytes = 0
        self.sent_at = 0.0
        self.counts: dict[SubscriptionId, int] | None = None
        """Items of each subscription, kept only while the stream is long."""
        self.excess: dict[SubscriptionId, int] = {}
        """The number of unsent items that each subscription loses (DROP_OLDEST)."""

    def __len__(self) -> int:
        return len(self.queue) + len(self.in_flight)

    def count(self, subscription: SubscriptionId) -> int:
        """Return the number of items for a subscription."""
        if self.counts is None:
            self.counts = {}
            for item in (*self.in_flight, *self.queue):
                self._change_counts(item.notification.subscriptions, 1)
        return self.counts.get(subscription, 0) - self.excess.get(subscription, 0)

    def add(self, item: Item) -> None:
        self.queue.append(item)
        if self.counts is not None:
            self._change_counts(item.notification.subscriptions, 1)

    def removed(self, item: Item) -> None:
        if not self:
            self.counts = None
            self.excess.clear()
        elif self.counts is not None:
            self._change_counts(item.notification.subscriptions, -1)

    def _change_counts(self, subscriptions: tuple[SubscriptionId, ...], change: int) -> None:
        assert self.counts is not None
        for each in subscriptions:
            self.counts[each] = self.counts.get(each, 0) + change

    def drop_excess(self, item: Item) -> Item | None:
        """Remove from an item the subscriptions that lose it; return None if none is left."""
        if not self.excess:
            return item
        kept = []
        for each in item.notification.subscriptions:
            lost = self.excess.get(each, 0)
            if not lost:
                kept.append(each)
                continue
            if lost == 1:
                del self.excess[each]
            else:
                self.excess[each] = lost - 1
            if self.counts is not None:
                self.counts[each] = self.counts.get(each, 0) - 1
        if not kept:
            return None
        notification = structs.replace(item.notification, subscriptions=tuple(kept))
        return Item(item.publish, notification, item.size_bytes)


class NotificationDispatcher:
    """The deliveries of one range, at its owner."""

    def __init__(self, range_id: RangeId, own: PeerAddress) -> None:
        self._range_id = range_id
        self._own = own
        self._streams: dict[PeerAddress, NotificationStream] = {}
        self._matchers: dict[str, SubscriptionMatcher] = {}
        self._outstanding: dict[CommandId, int] = {}
        self._reports: dict[CommandId, PublishReport] = {}
        self._finished: dict[CommandId, DeliveryRecord] = {}
        self._unsent: dict[PeerAddress, None] = {}
        """The nodes whose streams have something to send."""
        self._ending: set[SubscriptionId] = set()
        self.ended: list[SubscriptionsEnded] = []
        """Subscriptions that their overflow has ended (DISCONNECT); the owner appends them to the log."""

    # ── publishes ─────────────────────────────────────────────────────────────────────────────────

    def publish(self, state: RangeState, pending: PendingPublish) -> PublishReport:
        """Add the notifications of an executed publish to the streams; return the answer."""
        topic = state.topics.get(pending.topic)
        matched = dropped = items = 0
        if topic is not None:
            message = pending.message
            for selected in self._matcher(topic).select(message):
                group = self._older(selected, pending.position)
                if group is not None:
                    matched += len(group.ids)
                    dropped += self._add(pending, group, message)
                    items += 1
        stored = int(topic is not None and topic.retained_messages_max > 0)
        report = PublishReport(matched, stored, dropped)
        if items:
            self._outstanding[pending.id] = items
            self._reports[pending.id] = report
        else:
            self._finished[pending.id] = DeliveryRecord(pending.id, report)
        return report

    def replay(self, state: RangeState, pending: PendingReplay) -> None:
        """Add the retained messages for a new subscription to the stream of its node."""
        topic = state.topics.get(pending.topic)
        subscription = topic.subscriptions.get(pending.subscription) if topic is not None else None
        items = 0
        if topic is not None and subscription is not None:
            wanted = None if subscription.selector is None else _compile(subscription.selector)
            is_registered = subscription.delivery.kind != "subscriber"
            delivery = subscription.delivery if is_registered else None
            node = self._own if is_registered else subscription.id.subscriber
            group = _group(node, [subscription], delivery)
            for retained in pending.retained:
                if wanted is None or wanted(retained.message):
                    self._enqueue(pending.id, topic.name, retained, group)
                    items += 1
        if items:
            self._outstanding[pending.id] = items
        else:
            self._finished[pending.id] = DeliveryRecord(pending.id, None)

    @staticmethod
    def _older(group: MatcherGroup, position: int) -> MatcherGroup | None:
        """Return the subscriptions of a group from before a position."""
        if group.newest < position:
            return group
        older = [each for each in group.subscriptions if each.since < position]
        return _group(group.node, older, group.delivery) if older else None

    def report(self, command: CommandId) -> PublishReport | None:
        """Return the answer of a publish whose notifications are not all acknowledged."""
        finished = self._finished.get(command)
        return finished.report if finished is not None else self._reports.get(command)

    def _matcher(self, topic: Topic) -> SubscriptionMatcher:
        matcher = self._matchers.get(topic.name)
        if matcher is None or matcher.version != topic.version:
            matcher = self._matchers[topic.name] = SubscriptionMatcher(topic, self._own)
        return matcher

    def _add(self, pending: PendingPublish, group: MatcherGroup, message: TopicMessage) -> int:
        """Add a notification for a group; return how many notifications were dropped because of it."""
        stream = self._streams.get(group.node)
        dropped = 0
        if stream is not None and len(stream) >= group.queue_min:
            for each in group.subscriptions:
                if stream.count(each.id) < each.delivery.queue_notifications_max:
                    continue
                if each.delivery.overflow is Overflow.DROP_OLDEST:
                    stream.excess[each.id] = stream.excess.get(each.id, 0) + 1
                    dropped += 1
                elif each.delivery.overflow is Overflow.DISCONNECT and each.id not in self._ending:
                    self._ending.add(each.id)
                    self.ended.append(
                        SubscriptionsEnded(each.id.subscriber, pending.topic, (each.id.number,))
                    )
        retained = RetainedMessage(pending.position, pending.id, message)
        self._enqueue(pending.id, pending.topic, retained, group)
        return dropped

    def _enqueue(
        self, command: CommandId, topic: str, publish: RetainedMessage, group: MatcherGroup
    ) -> None:
        stream = self._streams.setdefault(group.node, NotificationStream())
        notification = Notification(
            topic, publish.position, publish.publish, publish.message, group.ids, group.delivery
        )
        stream.add(Item(command, notification, publish.message.size_bytes))
        self._unsent[group.node] = None

    def is_blocked(self, topic: Topic | None) -> bool:
        """Whether publishes on a topic must wait for a slow subscriber."""
        if topic is None or not topic.subscriptions:
            return False
        for node, subscription in self._matcher(topic).blocking:
            stream = self._streams.get(node)
            limit = subscription.delivery.queue_notifications_max
            if (
                stream is not None
                and len(stream) >= limit
                and stream.count(subscription.id) >= limit
            ):
                return True
        return False

    # ── acknowledgement ───────────────────────────────────────────────────────────────────────────

    def acknowledge(self, peer: PeerAddress, message: Notified) -> None:
        stream = self._streams.get(peer)
        if stream is None:
            return
        while stream.in_flight and stream.acknowledged + 1 < message.next:
            item = stream.in_flight.popleft()
            stream.acknowledged += 1
            stream.in_flight_bytes -= item.size_bytes
            stream.removed(item)
            self._finish(item)
        self._unsent[peer] = None

    def _finish(self, item: Item) -> None:
        left = self._outstanding[item.publish] - 1
        if left:
            self._outstanding[item.publish] = left
        else:
            del self._outstanding[item.publish]
            report = self._reports.pop(item.publish, None)
            self._finished[item.publish] = DeliveryRecord(item.publish, report)

    def end_node(self, peer: PeerAddress) -> None:
        """Give up what is not acknowledged by a node that is gone."""
        stream = self._streams.pop(peer, None)
        self._unsent.pop(peer, None)
        if stream is not None:
            for item in (*stream.in_flight, *stream.queue):
                self._finish(item)

    def take_finished(self) -> tuple[DeliveryRecord, ...]:
        finished = tuple(self._finished.values())
        self._finished.clear()
        return finished

    @property
    def has_finished(self) -> bool:
        return bool(self._finished)

    def nodes(self) -> list[PeerAddress]:
        """Return the nodes with unacknowledged notifications."""
        return [peer for peer, stream in self._streams.items() if stream]

    # ── sending ───────────────────────────────────────────────────────────────────────────────────

    def flush(self, now: float) -> list[tuple[PeerAddress, Notify]]:
        """Return what can be sent now."""
        messages = []
        for peer in self._unsent:
            message = self._send_next(self._streams[peer], now) if peer in self._streams else None
            if message is not None:
                messages.append((peer, message))
        self._unsent.clear()
        return messages

    def _send_next(self, stream: NotificationStream, now: float) -> Notify | None:
        first = stream.acknowledged + len(stream.in_flight) + 1
        sent = []
        while (
            stream.queue
            and len(stream.in_flight) < WINDOW_NOTIFICATIONS_MAX
            and stream.in_flight_bytes < WINDOW_BYTES
        ):
            item = stream.queue.popleft()
            kept = stream.drop_excess(item)
            if kept is None:
                if not stream:
                    stream.counts = None
                self._finish(item)
                continue
            if not stream.in_flight:
                stream.sent_at = now
            stream.in_flight.append(kept)
            stream.in_flight_bytes += kept.size_bytes
            sent.append(kept.notification)
        return Notify(self._range_id, first, tuple(sent)) if sent else None

    def resend(
        self, now: float, is_alive: Callable[[PeerAddress], bool]
    ) -> list[tuple[PeerAddress, Notify]]:
        """Return what was sent and not acknowledged for a while, for nodes that are alive."""
        messages = []
        for peer, stream in self._streams.items():
            if stream.in_flight and now >= stream.sent_at + RESEND_S and is_alive(peer):
                stream.sent_at = now
                notifications = tuple(item.notification for item in stream.in_flight)
                messages.append(
                    (peer, Notify(self._range_id, stream.acknowledged + 1, notifications))
                )
        return messages


class NotificationInbox:
    """The notifications that a node gets for its subscriptions, and for deliveries that are registered at it."""

    def __init__(self) -> None:
        self._next: dict[tuple[PeerAddress, RangeId], int] = {}
        self._last: dict[SubscriptionId, int] = {}
        """The position of the newest delivered notification of each subscription of this node."""

    def open(self, subscription: SubscriptionId) -> None:
        self._last.setdefault(subscription, -1)

    def close(self, subscription: SubscriptionId) -> None:
        self._last.pop(subscription, None)

    def subscriptions(self) -> list[SubscriptionId]:
        return list(self._last)

    def receive(
        self, sender: PeerAddress, message: Notify
    ) -> tuple[list[tuple[SubscriptionId, Notification]], Notified]:
        """Return what is new, for each subscription, and the acknowledgement."""
        stream = (sender, message.range_id)
        expected = self._next.pop(stream, 1)
        new: list[tuple[SubscriptionId, Notification]] = []
        if message.first <= expected:
            for notification in message.notifications[expected - message.first :]:
                expected += 1
                new += self._unseen(notification)
        self._next[stream] = expected  # the most recently used is the last
        if len(self._next) > STREAMS_MAX:
            del self._next[next(iter(self._next))]
        return new, Notified(message.range_id, expected)

    def _unseen(self, notification: Notification) -> list[tuple[SubscriptionId, Notification]]:
        if notification.delivery is not None:
            return [(each, notification) for each in notification.subscriptions]
        position, last = notification.position, self._last
        unseen = []
        for each in notification.subscriptions:
            if last.get(each, position) < position:
                last[each] = position
                unseen.append((each, notification))
        return unseen
