"""Commands on topics, and their answers.

A command has an id: the node where it was submitted (its origin) and a number that the origin has counted. The origin
sends it again with the same id until it has an answer, so it may arrive at the owner any number of times; the answer
table executes it once (`answer_table`).
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from .identifier import TopicKey
from .peer_address import PeerAddress


class CommandId(Struct, frozen=True, array_like=True):
    origin: PeerAddress
    number: int
    """Counts the commands of one start of a node, from 1."""


class SubscriptionId(Struct, frozen=True, array_like=True):
    subscriber: PeerAddress
    """The node that the notifications go to."""
    number: int
    """Counts the subscriptions of one start of that node."""


class TopicMessage(Struct, frozen=True, kw_only=True):
    """A published message. The fields are those that a selector can name."""

    body: bytes = b""
    headers: dict[str, str | int | float | bool | None] | None = None
    content_type: str | None = None
    correlation_id: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    routing_key: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None

    @property
    def size_bytes(self) -> int:
        """The size for bounds: the body and an estimate of the rest."""
        return len(self.body) + 64 * len(self.headers or ()) + 128


class Action(Enum):
    """What a role may be allowed on a restricted topic."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    READ = "read"
    """Read fields."""
    WRITE = "write"
    """Write fields, and run commands of upper layers."""
    ADMINISTER = "administer"
    """Grant, revoke and delete the topic."""


class Overflow(Enum):
    """What happens to notifications that a subscriber is too slow for."""

    DROP_OLDEST = "drop_oldest"
    BLOCK = "block"
    """Publishes on the topic wait."""
    DISCONNECT = "disconnect"
    """The subscription ends, and its node is told."""


class DeliveryMethod(Struct, frozen=True, array_like=True):
    """Where matching notifications go. Names refer to functions registered at the nodes; code is never transferred."""

    kind: str = "subscriber"
    """`subscriber`: to the node of the subscription. Any other name: to that registered delivery, at the owner."""
    arguments: tuple[tuple[str, str], ...] = ()
    queue_notifications_max: int = 10_000
    overflow: Overflow = Overflow.DROP_OLDEST


TO_SUBSCRIBER = DeliveryMethod()


# ── operations ────────────────────────────────────────────────────────────────────────────────────


class CreateTopic(Struct, frozen=True, tag=True):
    retained_messages_max: int = 0
    """The newest messages that are kept for later subscribers."""
    restricted: bool = False
    """Only roles with a grant may act on the topic. The roles of the creator get all grants."""


class DeleteTopic(Struct, frozen=True, tag=True):
    pass


class Subscribe(Struct, frozen=True, tag=True):
    subscription: SubscriptionId
    selector: str | None = None
    delivery: DeliveryMethod = TO_SUBSCRIBER


class Unsubscribe(Struct, frozen=True, tag=True):
    subscription: SubscriptionId


class Publish(Struct, frozen=True, tag=True):
    message: TopicMessage


class SetField(Struct, frozen=True, tag=True):
    field: str
    value: bytes | None
    """None removes the field."""


class GetField(Struct, frozen=True, tag=True):
    field: str


class Grant(Struct, frozen=True, tag=True):
    role: str
    actions: tuple[Action, ...]


class Revoke(Struct, frozen=True, tag=True):
    role: str
    actions: tuple[Action, ...]


class Handle(Struct, frozen=True, tag=True):
    """A command of an upper layer: a function that is registered under this name at every node."""

    function: str
    arguments: bytes


class WriteFields(Struct, frozen=True, tag=True):
    """What the owner appends for a `Handle` once it has called the function: the fields to change, and the result.

    Only the owner calls the function, so it need not be deterministic, and replicas need not know it.
    """

    fields: tuple[tuple[str, bytes | None], ...]
    result: bytes


Operation = (
    CreateTopic
    | DeleteTopic
    | Subscribe
    | Unsubscribe
    | Publish
    | SetField
    | GetField
    | Grant
    | Revoke
    | Handle
    | WriteFields
)


class TopicCommand(Struct, frozen=True):
    """One command on its way to the owner of its topic."""

    id: CommandId
    topic: str
    key: TopicKey
    """The key of the topic."""
    operation: Operation
    roles: tuple[str, ...] = ()
    """The roles of the user, which the origin has authenticated."""
    answered_below: int = 0
    """The origin has the answers of all its commands with smaller numbers, or has given them up."""
    wait_s: float = 10.0
    """How long the origin still waits for the answer. A node that buffers the command for longer drops it."""

    @property
    def size_bytes(self) -> int:
        """The size for bounds: an estimate."""
        match self.operation:
            case Publish(message):
                return message.size_bytes + 256
            case SetField(_, value):
                return len(value or b"") + 256
            case WriteFields(fields, result):
                return sum(len(value or b"") + 64 for _, value in fields) + len(result) + 256
            case Handle(_, arguments):
                return len(arguments) + 256
            case _:
                return 512


# ── answers ───────────────────────────────────────────────────────────────────────────────────────


class CommandRefusal(Enum):
    NO_SUCH_TOPIC = "no_such_topic"
    TOPIC_EXISTS = "topic_exists"
    NOT_PERMITTED = "not_permitted"
    INVALID = "invalid"
    """The command itself is wrong: a selector, a size, an unknown function."""
    FULL = "full"
    """A bound of the topic: subscriptions, fields."""
    OUT_OF_ORDER = "out_of_order"
    """A later command of the same origin on this topic has been executed; this one never will be."""
    OVERLOADED = "overloaded"
    """A buffer on the way was full. The command was not executed at this attempt."""
    UNAVAILABLE = "unavailable"
    """No owner with a majority was reached in time. Unless this was the only attempt, the command may be executed."""


class Done(Struct, frozen=True, tag=True):
    pass


class PublishReport(Struct, frozen=True, tag=True):
    matched: int
    """Subscriptions whose selector is true for the message."""
    stored: int
    """1 if the message is retained for later subscribers."""
    dropped: int
    """Notifications that slow subscribers lost because of it."""


class FieldValue(Struct, frozen=True, tag=True):
    value: bytes | None


class Handled(Struct, frozen=True, tag=True):
    result: bytes


class Refused(Struct, frozen=True, tag=True):
    reason: CommandRefusal
    text: str


class InDelivery(Struct, frozen=True, tag=True):
    """Stands in the answer table for the report of a publish until the notifications are acknowledged."""


Answer = Done | PublishReport | FieldValue | Handled | Refused | InDelivery

DONE = Done()
IN_DELIVERY = InDelivery()
OUT_OF_ORDER = Refused(
    CommandRefusal.OUT_OF_ORDER,
    "a later command of the same node on this topic was executed before; this one was not",
)
