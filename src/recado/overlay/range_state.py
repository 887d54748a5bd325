"""The replicated state of a range: its topics, the answers of commands, and the publishes that are being delivered.

The state is the result of executing the log up to `position`. Positions continue from a configuration to its
successors, so for each topic they only grow; subscriber nodes use that to recognize notifications that they have
had already.

Copies are cheap. A copy shares the topics; each side copies a topic before it changes it for the first time
(`Topic.holder`). So a range can be sent to another node, or split, while commands are being executed.

ORS1  Two replicas that have executed the same entries have the same state.
ORS2  The parts of a split hold each topic once, and both hold all answers.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from .answer_table import AnswerTable, OriginRecord
from .command import (
    DONE,
    IN_DELIVERY,
    Action,
    Answer,
    CommandId,
    CommandRefusal,
    CreateTopic,
    DeleteTopic,
    FieldValue,
    GetField,
    Grant,
    Handle,
    Publish,
    PublishReport,
    Refused,
    Revoke,
    SetField,
    Subscribe,
    SubscriptionId,
    TopicCommand,
    TopicMessage,
    Unsubscribe,
    WriteFields,
)
from .configuration import Arc
from .identifier import TopicKey
from .peer_address import PeerAddress
from .topic import (
    MESSAGE_BYTES_MAX,
    REQUIRED_ACTION,
    RetainedMessage,
    Topic,
    TopicRecord,
    create_topic,
)


class PendingPublish(Struct, frozen=True, array_like=True, tag="publish"):
    """A publish whose notifications are not all acknowledged."""

    id: CommandId
    topic: str
    key: TopicKey
    position: int
    message: TopicMessage


class PendingReplay(Struct, frozen=True, array_like=True, tag="replay"):
    """A new subscription that has not acknowledged all retained messages."""

    id: CommandId
    topic: str
    key: TopicKey
    position: int
    subscription: SubscriptionId
    retained: tuple[RetainedMessage, ...]


Pending = PendingPublish | PendingReplay


class DeliveryRecord(Struct, frozen=True, array_like=True):
    id: CommandId
    report: PublishReport | None
    """None for a replay."""


class DeliveriesFinished(Struct, frozen=True, tag=True):
    """An entry of the log: these publishes need not be delivered again, whoever the owner is."""

    delivered: tuple[DeliveryRecord, ...]


class SubscriptionsEnded(Struct, frozen=True, tag=True):
    """An entry of the log: subscriptions of a node that is gone (all), or of a slow subscriber."""

    subscriber: PeerAddress
    topic: str | None
    numbers: tuple[int, ...]


class CommandEntry(Struct, frozen=True, tag=True):
    command: TopicCommand


Entry = CommandEntry | DeliveriesFinished | SubscriptionsEnded


class RangeState:
    def __init__(self, position: int = 0) -> None:
        self.position = position
        """The number of entries that were executed in this lineage of ranges."""
        self.topics: dict[str, Topic] = {}
        self.answers = AnswerTable()
        self.pending: dict[CommandId, Pending] = {}
        self._holder = object()
        self.subscribers: dict[PeerAddress, dict[str, int]] = {}
        """For each node with subscriptions, their number by topic."""

    # ── copies ────────────────────────────────────────────────────────────────────────────────────

    def copy(self, arc: Arc | None = None) -> RangeState:
        """Return a copy, of the topics in an arc only if one is given."""
        copy = RangeState(self.position)
        self._holder = object()  # from now on all topics are shared
        copy.answers = self.answers.copy()
        if arc is None:
            copy.topics = dict(self.topics)
            copy.pending = dict(self.pending)
            copy.subscribers = {peer: dict(topics) for peer, topics in self.subscribers.items()}
            return copy
        first, last = arc.first, arc.last
        copy.topics = {
            name: topic for name, topic in self.topics.items() if first <= topic.key <= last
        }
        copy.pending = {
            command: pending for command, pending in self.pending.items() if pending.key in arc
        }
        for peer, topics in self.subscribers.items():
            part = {name: count for name, count in topics.items() if name in copy.topics}
            if part:
                copy.subscribers[peer] = part
        return copy

    def join(self, other: RangeState) -> None:
        """Add the state of another range with other topics. The position becomes the larger one."""
        self.position = max(self.position, other.position)
        self.topics |= other.topics
        other._holder = object()
        self.answers.join(other.answers)
        pending = [*self.pending.values(), *other.pending.values()]
        self.pending = {each.id: each for each in sorted(pending, key=lambda each: each.position)}
        for peer, topics in other.subscribers.items():
            self.subscribers.setdefault(peer, {}).update(topics)

    def restore_topic(self, record: TopicRecord) -> None:
        """Add a topic from another node."""
        self.topics[record.name] = Topic.restore(record)
        for subscription in record.subscriptions:
            self._count_subscription(subscription.id.subscriber, record.name, 1)

    def restore_answers(self, records: Iterable[OriginRecord]) -> None:
        for record in records:
            self.answers.restore(record)

    # ── execution ─────────────────────────────────────────────────────────────────────────────────

    def apply(self, entry: Entry) -> Answer | None:
        """Execute the next entry of the log; return the answer if it is a command."""
        position = self.position
        self.position += 1
        match entry:
            case CommandEntry(command):
                answer = self.answers.find(command)
                if answer is None:
                    answer = self._execute(command, position)
                    self.answers.record(command, answer)
                return answer
            case DeliveriesFinished(delivered):
                for each in delivered:
                    if self.pending.pop(each.id, None) is not None and each.report is not None:
                        origin = each.id.origin
                        self.answers.replace(
                            origin.node_id, origin.incarnation, each.id.number, each.report
                        )
                return None
            case SubscriptionsEnded(subscriber, topic, numbers):
                self._end_subscriptions(subscriber, topic, numbers)
                return None

    def read(self, command: TopicCommand, operation: GetField) -> Answer:
        """Return the answer of a command that changes nothing."""
        topic = self.topics.get(command.topic)
        if topic is None:
            return _no_such_topic(command)
        return topic.refusal(command.roles, Action.READ) or FieldValue(
            topic.fields.get(operation.field)
        )

    def _execute(self, command: TopicCommand, position: int) -> Answer:
        name, operation = command.topic, command.operation
        if isinstance(operation, CreateTopic):
            return self._create_topic(command, operation, position)
        if name not in self.topics:
            return _no_such_topic(command)
        if isinstance(operation, Subscribe) and self.topics[name].has_subscription(operation):
            return DONE
        topic = self._own(name)
        if isinstance(operation, Subscribe | Unsubscribe):
            topic.version = position + 1
        required = REQUIRED_ACTION.get(type(operation))
        if required is not None:
            refusal = topic.refusal(command.roles, required)
            if refusal is not None:
                return refusal
        match operation:
            case Publish(message):
                return self._publish(topic, command, message, position)
            case Subscribe():
                return self._subscribe(topic, command, operation, position)
            case Unsubscribe(subscription):
                if subscription in topic.subscriptions:
                    self._count_subscription(subscription.subscriber, name, -1)
                return topic.unsubscribe(operation)
            case SetField():
                return topic.execute_set_field(operation)
            case WriteFields():
                return topic.execute_write_fields(operation)
            case Grant():
                return topic.grant(operation)
            case Revoke():
                return topic.revoke(operation)
            case DeleteTopic():
                return self._delete_topic(topic, command.roles)
            case GetField():
                return self.read(command, operation)
            case Handle(function, _):  # the owner appends `WriteFields` instead
                return Refused(
                    CommandRefusal.INVALID, f"function {function} was not called by the owner"
                )

    def _own(self, name: str) -> Topic:
        """Return a topic that may be changed."""
        topic = self.topics[name]
        if topic.holder is not self._holder:
            topic = topic.copy()
            topic.holder = self._holder
            self.topics[name] = topic
        return topic

    def _create_topic(self, command: TopicCommand, operation: CreateTopic, position: int) -> Answer:
        if command.topic in self.topics:
            return Refused(CommandRefusal.TOPIC_EXISTS, f"topic {command.topic} exists")
        topic = create_topic(command.topic, command.key, operation, command.roles)
        if isinstance(topic, Refused):
            return topic
        topic.holder = self._holder
        topic.version = position + 1
        self.topics[command.topic] = topic
        return DONE

    def _delete_topic(self, topic: Topic, roles: tuple[str, ...]) -> Answer:
        refusal = topic.refusal(roles, Action.ADMINISTER)
        if refusal is not None:
            return refusal
        del self.topics[topic.name]
        for subscription in topic.subscriptions:
            self._count_subscription(subscription.subscriber, topic.name, -1)
        return DONE

    def _publish(
        self, topic: Topic, command: TopicCommand, message: TopicMessage, position: int
    ) -> Answer:
        refusal = topic.refusal(command.roles, Action.PUBLISH)
        if refusal is not None:
            return refusal
        if message.size_bytes > MESSAGE_BYTES_MAX:
            return Refused(
                CommandRefusal.INVALID,
                f"a message of {message.size_bytes} bytes; the maximum is {MESSAGE_BYTES_MAX}",
            )
        topic.retain(command.id, message, position)
        self.pending[command.id] = PendingPublish(
            command.id, topic.name, topic.key, position, message
        )
        return IN_DELIVERY

    def _subscribe(
        self, topic: Topic, command: TopicCommand, operation: Subscribe, position: int
    ) -> Answer:
        new = operation.subscription not in topic.subscriptions
        answer = topic.subscribe(operation, position)
        if answer is DONE and new:
            self._count_subscription(operation.subscription.subscriber, topic.name, 1)
            if topic.retained:
                self.pending[command.id] = PendingReplay(
                    command.id,
                    topic.name,
                    topic.key,
                    position,
                    operation.subscription,
                    topic.retained,
                )
        return answer

    def _end_subscriptions(
        self, subscriber: PeerAddress, name: str | None, numbers: tuple[int, ...]
    ) -> None:
        if name is None:
            for topic_name in self.subscribers.pop(subscriber, {}):
                topic = self._own(topic_name)
                topic.version = self.position
                for subscription in list(topic.subscriptions):
                    if subscription.subscriber == subscriber:
                        topic.remove_subscription(subscription)
        elif name in self.topics:
            topic = self._own(name)
            topic.version = self.position
            for number in numbers:
                if topic.remove_subscription(SubscriptionId(subscriber, number)):
                    self._count_subscription(subscriber, name, -1)

    def _count_subscription(self, subscriber: PeerAddress, topic: str, change: int) -> None:
        topics = self.subscribers.setdefault(subscriber, {})
        topics[topic] = topics.get(topic, 0) + change
        if not topics[topic]:
            del topics[topic]
            if not topics:
                del self.subscribers[subscriber]


def _no_such_topic(command: TopicCommand) -> Refused:
    return Refused(CommandRefusal.NO_SUCH_TOPIC, f"there is no topic {command.topic}")
