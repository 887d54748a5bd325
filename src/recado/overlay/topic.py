"""The state of a topic, and the execution of commands on it.

Execution is deterministic: every replica executes the same commands in the same order and arrives at the same state.
Selectors are not part of it. Only the owner evaluates them, when it delivers (`delivery`).

TP1  Permission is checked when a command is executed, in the order of the log. So once a revocation has been answered,
     no later command succeeds by the revoked permission.
TP2  A subscription gets the publishes after its position in the log, and the retained messages before it.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from recado.selector import SelectorError, parse

from .command import (
    DONE,
    Action,
    Answer,
    CommandId,
    CommandRefusal,
    CreateTopic,
    DeliveryMethod,
    Grant,
    Handle,
    Handled,
    Refused,
    Revoke,
    SetField,
    Subscribe,
    SubscriptionId,
    TopicMessage,
    Unsubscribe,
    WriteFields,
)
from .identifier import TopicKey

NAME_BYTES_MAX: Final = 255
MESSAGE_BYTES_MAX: Final = 1 << 20
FIELDS_MAX: Final = 64
FIELD_BYTES_MAX: Final = 64 << 10
SUBSCRIPTIONS_MAX: Final = 200_000
ROLES_MAX: Final = 256
RETAINED_MESSAGES_MAX: Final = 1_000

SELECTOR_FIELDS: Final = frozenset(
    (
        *("body", "json", "headers", "content_type", "correlation_id", "message_id", "reply_to"),
        *("routing_key", "timestamp", "type", "user_id", "app_id"),
    )
)
"""The fields of a `TopicMessage`."""


class TopicSubscription(Struct, frozen=True, array_like=True):
    id: SubscriptionId
    selector: str | None
    delivery: DeliveryMethod
    since: int
    """The position of the command in the log."""


class RetainedMessage(Struct, frozen=True, array_like=True):
    position: int
    publish: CommandId
    message: TopicMessage


class TopicRecord(Struct, frozen=True, array_like=True):
    """A topic on its way to another node."""

    name: str
    key: TopicKey
    retained_messages_max: int
    restricted: bool
    subscriptions: tuple[TopicSubscription, ...]
    fields: tuple[tuple[str, bytes], ...]
    grants: tuple[tuple[str, tuple[Action, ...]], ...]
    retained: tuple[RetainedMessage, ...]


class Topic:
    """The state of one topic. It is shared between copies of a range until one of them changes it (`holder`)."""

    __slots__ = (
        *("fields", "grants", "holder", "key", "name", "restricted"),
        *("retained", "retained_messages_max", "subscriptions", "version"),
    )

    def __init__(
        self, name: str, key: TopicKey, retained_messages_max: int, restricted: bool
    ) -> None:
        self.name = name
        self.key = key
        self.retained_messages_max = retained_messages_max
        self.restricted = restricted
        self.subscriptions: dict[SubscriptionId, TopicSubscription] = {}
        self.fields: dict[str, bytes] = {}
        self.grants: dict[str, tuple[Action, ...]] = {}
        self.retained: tuple[RetainedMessage, ...] = ()
        self.holder: object = None
        """The copy of the range that may change this object; all others share it."""
        self.version = 0
        """Set to a new position when subscriptions change: matchers are compiled once for each version."""

    def copy(self) -> Topic:
        copy = Topic(self.name, self.key, self.retained_messages_max, self.restricted)
        copy.subscriptions = dict(self.subscriptions)
        copy.fields = dict(self.fields)
        copy.grants = dict(self.grants)
        copy.retained = self.retained
        copy.version = self.version
        return copy

    def record(self) -> TopicRecord:
        return TopicRecord(
            self.name,
            self.key,
            self.retained_messages_max,
            self.restricted,
            tuple(self.subscriptions.values()),
            tuple(self.fields.items()),
            tuple(self.grants.items()),
            self.retained,
        )

    @classmethod
    def restore(cls, record: TopicRecord) -> Topic:
        topic = cls(record.name, record.key, record.retained_messages_max, record.restricted)
        topic.subscriptions = {each.id: each for each in record.subscriptions}
        topic.fields = dict(record.fields)
        topic.grants = dict(record.grants)
        topic.retained = record.retained
        return topic

    # ── permissions ───────────────────────────────────────────────────────────────────────────────

    def refusal(self, roles: tuple[str, ...], action: Action) -> Refused | None:
        """Return a refusal unless one of the roles may do this."""
        if not self.restricted:
            return None
        for role in roles:
            if action in self.grants.get(role, ()):
                return None
        return Refused(
            CommandRefusal.NOT_PERMITTED,
            f"topic {self.name}: {action.value} needs a grant, and none of the roles {list(roles)} has it",
        )

    def grant(self, operation: Grant) -> Answer:
        if operation.role not in self.grants and len(self.grants) >= ROLES_MAX:
            return Refused(
                CommandRefusal.FULL,
                f"topic {self.name} has grants for {ROLES_MAX} roles, the maximum",
            )
        known = self.grants.get(operation.role, ())
        self.grants[operation.role] = tuple(
            action for action in Action if action in known or action in operation.actions
        )
        return DONE

    def revoke(self, operation: Revoke) -> Answer:
        kept = tuple(
            action
            for action in self.grants.get(operation.role, ())
            if action not in operation.actions
        )
        if kept:
            self.grants[operation.role] = kept
        else:
            self.grants.pop(operation.role, None)
        return DONE

    # ── subscriptions ─────────────────────────────────────────────────────────────────────────────

    def has_subscription(self, operation: Subscribe) -> bool:
        """Whether a node only renews a subscription, after it was out of reach."""
        known = self.subscriptions.get(operation.subscription)
        return (
            known is not None
            and known.selector == operation.selector
            and known.delivery == operation.delivery
        )

    def subscribe(self, operation: Subscribe, position: int) -> Answer:
        subscription = operation.subscription
        if len(self.subscriptions) >= SUBSCRIPTIONS_MAX:
            return Refused(
                CommandRefusal.FULL,
                f"topic {self.name} has {SUBSCRIPTIONS_MAX} subscriptions, the maximum",
            )
        if operation.selector is not None:
            try:
                parse(operation.selector, SELECTOR_FIELDS)
            except SelectorError as error:
                return Refused(CommandRefusal.INVALID, f"invalid selector: {error.summary}")
        self.subscriptions[subscription] = TopicSubscription(
            subscription, operation.selector, operation.delivery, position
        )
        return DONE

    def unsubscribe(self, operation: Unsubscribe) -> Answer:
        self.remove_subscription(operation.subscription)
        return DONE

    def remove_subscription(self, subscription: SubscriptionId) -> bool:
        return self.subscriptions.pop(subscription, None) is not None

    # ── fields and messages ───────────────────────────────────────────────────────────────────────

    def set_fields(self, fields: tuple[tuple[str, bytes | None], ...]) -> Refused | None:
        """Change several fields, or none if a bound would be exceeded."""
        changed = dict(self.fields)
        for name, value in fields:
            if value is None:
                changed.pop(name, None)
                continue
            if len(name.encode()) > NAME_BYTES_MAX or len(value) > FIELD_BYTES_MAX:
                return Refused(
                    CommandRefusal.INVALID,
                    f"topic {self.name}: field {name[:40]!r} of {len(value)} bytes; "
                    f"the maximum is {FIELD_BYTES_MAX}, and {NAME_BYTES_MAX} for the name",
                )
            changed[name] = value
        if len(changed) > max(FIELDS_MAX, len(self.fields)):
            return Refused(
                CommandRefusal.FULL, f"topic {self.name} has {FIELDS_MAX} fields, the maximum"
            )
        self.fields = changed
        return None

    def retain(self, publish: CommandId, message: TopicMessage, position: int) -> None:
        if self.retained_messages_max:
            retained = (*self.retained, RetainedMessage(position, publish, message))
            self.retained = retained[-self.retained_messages_max :]

    # ── execution ─────────────────────────────────────────────────────────────────────────────────

    def execute_set_field(self, operation: SetField) -> Answer:
        return self.set_fields(((operation.field, operation.value),)) or DONE

    def execute_write_fields(self, operation: WriteFields) -> Answer:
        return self.set_fields(operation.fields) or Handled(operation.result)


REQUIRED_ACTION: Final[dict[type, Action]] = {
    Subscribe: Action.SUBSCRIBE,
    SetField: Action.WRITE,
    WriteFields: Action.WRITE,
    Handle: Action.WRITE,
    Grant: Action.ADMINISTER,
    Revoke: Action.ADMINISTER,
}
"""The other operations are checked where they are executed."""


def create_topic(
    name: str, key: TopicKey, operation: CreateTopic, roles: tuple[str, ...]
) -> Topic | Refused:
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        return Refused(
            CommandRefusal.INVALID,
            f"the name of a topic has 1 to {NAME_BYTES_MAX} bytes, not {len(name.encode())}",
        )
    if not 0 <= operation.retained_messages_max <= RETAINED_MESSAGES_MAX:
        return Refused(
            CommandRefusal.INVALID, f"retained_messages_max is at most {RETAINED_MESSAGES_MAX}"
        )
    topic = Topic(name, key, operation.retained_messages_max, operation.restricted)
    if operation.restricted:
        topic.grants = {role: tuple(Action) for role in roles}
    return topic
