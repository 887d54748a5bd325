"""Records changes for the event log: one by one if they are few, counted if they are many.

The recorder is the broker's observer while a stream is open. A notification only makes a small object; some
milliseconds later `flush` renders what was collected. In one such period, `NOTED_MAX_COUNT` changes are kept as they
are. Further ones are counted by key, which takes 1 µs each, and become one `stream.burst` per key; if even the
keys are too many, all readers are told to load their lists again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from recado.broker.access import User
from recado.broker.binding import Binding
from recado.broker.channel import Channel
from recado.broker.consumer import Consumer
from recado.broker.exchange import Exchange
from recado.broker.observer import Change, ChangeObserver
from recado.broker.policy import Policy
from recado.broker.queue import Queue
from recado.server.session import Session

from ..resources.connections import session_name
from ..resources.topology import destination_type, properties_key
from . import types
from .log import EventKey, EventLog, render

NOTED_MAX_COUNT: Final = 200  # between two flushes
COUNTED_KEYS_MAX_COUNT: Final = 200


class ChangeRecorder(ChangeObserver):
    """Collects changes until `flush`; calls `on_change` for the first of them."""

    def __init__(
        self,
        log: EventLog,
        clock_ms: Callable[[], int],
        on_change: Callable[[], None],
        on_queue_deleted: Callable[[Queue], None],
        on_exchange_deleted: Callable[[str, Exchange[Any]], None],
    ) -> None:
        self._log = log
        self._clock_ms = clock_ms
        self._on_change = on_change
        self._on_queue_deleted = on_queue_deleted
        self._on_exchange_deleted = on_exchange_deleted
        self._noted: list[tuple[EventKey, types.EventData]] = []
        self._counted: Counter[EventKey] = Counter()
        self._is_overflowing = False
        self.users_changed = False
        """Whether a user was changed or deleted since the last flush."""

    # ── notifications ───────────────────────────────────────────────────────────────────────────────

    def vhost_changed(self, change: Change, vhost: str) -> None:
        key = EventKey(types.CHANGE_TYPES["vhost", change], vhost)
        if self._has_room(key):
            self._note(key, types.VhostEvent(self._clock_ms(), vhost))

    def user_changed(self, before: User | None, after: User | None) -> None:
        self.users_changed = True
        old, new = before or User(""), after or User("")
        name = new.name or old.name
        attributes = (old.password_hash, old.tags, old.limits, old.loopback_only)
        is_changed = attributes != (new.password_hash, new.tags, new.limits, new.loopback_only)
        if before is None or after is None or is_changed:
            key = EventKey(types.CHANGE_TYPES["user", _compare(before, after)])
            if self._has_room(key):
                self._note(key, types.UserEvent(self._clock_ms(), name))
        if old.permissions != new.permissions:
            for vhost in {**old.permissions, **new.permissions}:
                self._compare_permission(name, vhost, old, new)
        if old.topic_permissions != new.topic_permissions:
            for topic in {**old.topic_permissions, **new.topic_permissions}:
                self._compare_topic_permission(name, topic, old, new)

    def _compare_permission(self, name: str, vhost: str, old: User, new: User) -> None:
        before, after = old.permissions.get(vhost), new.permissions.get(vhost)
        key = EventKey(types.CHANGE_TYPES["permission", _compare(before, after)], vhost)
        if before != after and self._has_room(key):
            self._note(key, types.PermissionEvent(self._clock_ms(), name, vhost))

    def _compare_topic_permission(
        self, name: str, topic: tuple[str, str], old: User, new: User
    ) -> None:
        before, after = old.topic_permissions.get(topic), new.topic_permissions.get(topic)
        key = EventKey(types.CHANGE_TYPES["topic_permission", _compare(before, after)], topic[0])
        if before != after and self._has_room(key):
            self._note(key, types.TopicPermissionEvent(self._clock_ms(), name, *topic))

    def policy_changed(self, change: Change, vhost: str, policy: Policy) -> None:
        key = EventKey(types.CHANGE_TYPES[policy.kind, change], vhost)
        if self._has_room(key):
            self._note(key, types.PolicyEvent(self._clock_ms(), vhost, policy.name))

    def parameter_changed(self, change: Change, component: str, vhost: str, name: str) -> None:
        if component:
            key = EventKey(types.CHANGE_TYPES["parameter", change], vhost)
            if self._has_room(key):
                self._note(key, types.ParameterEvent(self._clock_ms(), component, vhost, name))
        else:
            key = EventKey(types.CHANGE_TYPES["global_parameter", change])
            if self._has_room(key):
                self._note(key, types.GlobalParameterEvent(self._clock_ms(), name))

    def exchange_changed(self, change: Change, vhost: str, exchange: Exchange[Any]) -> None:
        if change is Change.DELETED:
            self._on_exchange_deleted(vhost, exchange)
        key = EventKey(types.CHANGE_TYPES["exchange", change], vhost)
        if self._has_room(key):
            declared = exchange.declared_settings
            self._note(
                key,
                types.ExchangeEvent(
                    self._clock_ms(),
                    vhost,
                    exchange.name,
                    declared.exchange_type,
                    declared.durable,
                    declared.auto_delete,
                    declared.internal,
                ),
            )

    def queue_changed(self, change: Change, queue: Queue) -> None:
        if change is Change.DELETED:
            self._on_queue_deleted(queue)
        vhost, declared = queue.vhost.name, queue.declared_settings
        key = EventKey(types.CHANGE_TYPES["queue", change], vhost)
        if self._has_room(key):
            self._note(
                key,
                types.QueueEvent(
                    self._clock_ms(),
                    vhost,
                    queue.name,
                    declared.queue_type,
                    declared.durable,
                    declared.auto_delete,
                    declared.exclusive,
                ),
            )

    def binding_changed(self, change: Change, vhost: str, binding: Binding[Any]) -> None:
        key = EventKey(types.CHANGE_TYPES["binding", change], vhost)
        if self._has_room(key):
            kind: Literal["queue", "exchange"] = (
                "queue" if destination_type(binding.destination) == "queue" else "exchange"
            )
            self._note(
                key,
                types.BindingEvent(
                    self._clock_ms(),
                    vhost,
                    binding.source,
                    binding.destination.name,
                    kind,
                    binding.routing_key,
                    properties_key(binding.routing_key, binding.arguments),
                ),
            )

    def consumer_changed(self, change: Change, consumer: Consumer) -> None:
        vhost, user = consumer.queue.vhost.name, consumer.channel.access.user.name
        key = EventKey(types.CHANGE_TYPES["consumer", change], vhost, user)
        if self._has_room(key):
            self._note(
                key,
                types.ConsumerEvent(
                    self._clock_ms(),
                    vhost,
                    consumer.queue.name,
                    consumer.tag,
                    _name_of_channel(consumer.channel),
                    user,
                ),
            )

    def channel_changed(self, change: Change, channel: Channel) -> None:
        vhost, user = channel.access.vhost.name, channel.access.user.name
        key = EventKey(types.CHANGE_TYPES["channel", change], vhost, user)
        if self._has_room(key):
            self._note(
                key,
                types.ChannelEvent(
                    self._clock_ms(),
                    _name_of_channel(channel),
                    channel.number,
                    _name_of_connection(channel.opened_by),
                    vhost,
                    user,
                ),
            )

    def connection_changed(self, change: Change, connection: object) -> None:
        access = connection.access if isinstance(connection, Session) else None
        if not isinstance(connection, Session) or access is None:
            return  # of no client, or in no vhost
        vhost, user = access.vhost.name, access.user.name
        key = EventKey(types.CHANGE_TYPES["connection", change], vhost, user)
        if self._has_room(key):
            name, (host, port) = session_name(connection), connection.ends[0]
            self._note(key, types.ConnectionEvent(self._clock_ms(), name, vhost, user, host, port))

    def alarm_changed(self, before: str | None, after: str | None) -> None:
        for event_type, alarm in ((types.ALARM_CLEARED, before), (types.ALARM_SET, after)):
            key = EventKey(event_type)
            if alarm is not None and self._has_room(key):
                resource: Literal["memory", "disk"] = "memory" if "memory" in alarm else "disk"
                self._note(key, types.AlarmEvent(self._clock_ms(), resource, alarm))

    # ── notes ───────────────────────────────────────────────────────────────────────────────────────

    def _has_room(self, key: EventKey) -> bool:
        """Whether a change is to be noted; otherwise it is counted."""
        if len(self._noted) < NOTED_MAX_COUNT:
            return True
        if key in self._counted or len(self._counted) < COUNTED_KEYS_MAX_COUNT:
            self._counted[key] += 1
        else:
            self._is_overflowing = True
        return False

    def _note(self, key: EventKey, data: types.EventData) -> None:
        self._noted.append((key, data))
        if len(self._noted) == 1:
            self._on_change()

    def flush(self) -> None:
        """Add everything that was collected to the log: a bounded number of events, 2 µs each."""
        append, encode = self._log.append, msgspec.json.encode
        for key, data in self._noted:
            append(key, render(key.type, encode(data)))
        at = self._clock_ms()
        for key, count in self._counted.items():
            burst = types.StreamBurst(at, key.type.name, key.vhost, count)
            append(key, render(types.BURST, encode(burst)))
        if self._is_overflowing:
            data = types.StreamReset(at, "burst")
            append(EventKey(types.RESET), render(types.RESET, encode(data)))
        self.clear()

    def clear(self) -> None:
        self._noted, self._counted = [], Counter()
        self._is_overflowing = self.users_changed = False


def _compare(before: object, after: object) -> Change:
    if after is None:
        return Change.DELETED
    return Change.CREATED if before is None else Change.CHANGED


def _name_of_connection(connection: object) -> str:
    """Return the name of a connection; an empty one for a channel of the node itself."""
    return session_name(connection) if isinstance(connection, Session) else ""


def _name_of_channel(channel: Channel) -> str:
    name = _name_of_connection(channel.opened_by)
    return f"{name} ({channel.number})" if name else ""
