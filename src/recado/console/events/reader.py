"""One reader of the event stream: which events its user may see, and its position in the log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from recado.broker.access import User
from recado.broker.scopes import TokenUser

from ..access import MANAGEMENT_TAGS, is_administrator, is_monitor, is_policymaker
from . import types
from .log import KEYS_MAX_COUNT, EventKey, EventLog, render
from .types import Audience, EventType

if TYPE_CHECKING:
    from recado.broker.broker import Broker

CHUNK_BYTES: Final = 16 * 1024  # collected at once, unless a single event is longer
SCANNED_MAX_COUNT: Final = 1_000  # events, in one step: 0.1 ms
CACHED_KEYS_MAX_COUNT: Final = 10_000

QueueName: TypeAlias = tuple[str, str]
"""Vhost and name."""
EndReason: TypeAlias = Literal[
    "user_deleted",
    "credentials_changed",
    "access_lost",
    "token_expired",
    "session_ended",
    "node_stopping",
]


class EventFilter(msgspec.Struct, frozen=True):
    """What a client has asked for; empty: everything."""

    types: frozenset[str] = frozenset()
    """Names of types, and subjects."""
    vhosts: frozenset[str] = frozenset()

    def accepts_type(self, event_type: EventType) -> bool:
        return (
            not self.types
            or event_type.name in self.types
            or event_type.subject in self.types
            or event_type.subject == "stream"
        )


class StreamRequest(msgspec.Struct, frozen=True):
    """A valid request for the stream."""

    user: User
    filter: EventFilter
    watched: tuple[QueueName, ...]
    last_event_id: str
    session_id: str = ""
    """Of the web console; empty with other credentials."""


_SEES: Final[dict[Audience, Callable[[User, EventKey], bool]]] = {
    Audience.EVERYBODY: lambda user, key: True,
    Audience.VHOST: lambda user, key: is_administrator(user) or user.may_enter(key.vhost or ""),
    Audience.VISIBLE_VHOST: lambda user, key: is_monitor(user) or user.may_enter(key.vhost or ""),
    Audience.OWNER: lambda user, key: is_monitor(user) or key.user == user.name,
    Audience.CONSUMER_OWNER: lambda user, key: (
        is_monitor(user) or (key.user == user.name and user.may_enter(key.vhost or ""))
    ),
    Audience.PARAMETERS: lambda user, key: (
        is_administrator(user) or (is_policymaker(user) and user.may_enter(key.vhost or ""))
    ),
    Audience.GLOBAL_PARAMETERS: lambda user, key: is_policymaker(user),
    Audience.MONITORING: lambda user, key: is_monitor(user),
    Audience.ADMINISTRATOR: lambda user, key: is_administrator(user),
}
assert _SEES.keys() == set(Audience)


def may_see(user: User, key: EventKey) -> bool:
    """Whether the lists of the API would show the object of an event to a user."""
    return _SEES[key.type.audience](user, key)


class EventReader:
    """The state of one stream. Its caller writes what `collect` returns, and decides when."""

    def __init__(self, name: str, wanted: StreamRequest, log: EventLog) -> None:
        self.name = name
        self.user = wanted.user
        self.filter = wanted.filter
        self.watched = wanted.watched
        self.session_id = wanted.session_id
        self.figures_seen = 0
        """The generation of the figures that were sent last."""
        self.totals_seen = 0
        self.written_at = 0.0
        self.is_blocked = False
        """Whether a write waits for the client to read."""
        self._log = log
        self._visible: dict[EventKey, bool] = {}
        self._resets: list[str] = []
        self._position, self._is_resumed = self._find_position(wanted.last_event_id)
        self._skipped_count: int | None = None  # while the position is before the log's first event

    def _find_position(self, last_event_id: str) -> tuple[int, bool]:
        log = self._log
        if not last_event_id:
            return log.end, False
        position = log.position_of(last_event_id)
        if position is not None and log.first <= position <= log.end:
            return position, True
        if position is None:
            known = last_event_id.startswith(f"{log.epoch}-") or "-" not in last_event_id
            self._resets.append("unknown_id" if known else "restarted")
        else:
            self._resets.append("too_old" if position < log.first else "unknown_id")
        return log.end, False

    @property
    def event_id(self) -> bytes:
        """The id with which the client can continue after what was collected."""
        return self._log.id_at(self._position)

    @property
    def has_backlog(self) -> bool:
        return self._position < self._log.end or bool(self._resets)

    def sees(self, key: EventKey) -> bool:
        """Whether an event passes the filter and the user may see it."""
        visible = self._visible.get(key)
        if visible is None:
            if len(self._visible) >= CACHED_KEYS_MAX_COUNT:
                self._visible.clear()
            chosen = self.filter.vhosts
            visible = self._visible[key] = (
                self.filter.accepts_type(key.type)
                and (not chosen or key.vhost is None or key.vhost in chosen)
                and may_see(self.user, key)
            )
        return visible

    def sees_queue(self, name: QueueName) -> bool:
        """Whether the user may see the figures of a queue."""
        return self.sees(EventKey(types.QUEUES, name[0]))

    # ── the user ────────────────────────────────────────────────────────────────────────────────────

    def refresh_user(self, broker: Broker, now_ms: int) -> EndReason | None:
        """Take over the current state of the user; return why the stream must end, None if it goes on."""
        if isinstance(self.user, TokenUser):
            return "token_expired" if self.user.expires_at * 1000 <= now_ms else None
        current = broker.users.get(self.user.name)
        if current is self.user:
            return None
        if current is None:
            return "user_deleted"
        if current.password_hash != self.user.password_hash:
            return "credentials_changed"
        if MANAGEMENT_TAGS.isdisjoint(current.tags):
            return "access_lost"
        before, self.user = self.user, current
        self._visible.clear()
        if set(before.tags) != set(current.tags) or set(before.permissions) != set(
            current.permissions
        ):
            self._resets.append("access_changed")
        return None

    # ── output ──────────────────────────────────────────────────────────────────────────────────────

    def render_opened(self, now_ms: int, heartbeat_s: float, retry_ms: int) -> bytes:
        """Return the first event."""
        data = types.StreamOpened(now_ms, self.name, self._is_resumed, heartbeat_s)
        event = render(types.OPENED, msgspec.json.encode(data), self.event_id)
        return event.replace(b"\ndata: ", f"\nretry: {retry_ms}\ndata: ".encode(), 1)

    def render_closed(self, now_ms: int, reason: EndReason) -> bytes:
        """Return the last event."""
        return self.render_own(types.CLOSED, types.StreamClosed(now_ms, reason))

    def render_own(self, event_type: types.EventType, data: types.EventData) -> bytes:
        """Return an event for this reader only."""
        return render(event_type, msgspec.json.encode(data), self.event_id)

    def collect(self, now_ms: int) -> bytes:
        """Return the next events: a bounded part, after which `has_backlog` tells whether there are more."""
        log, parts = self._log, []
        if self._position < log.first:
            self._count_skipped()
            if self._position < log.first:
                return b""
        if self._skipped_count is not None:
            if self._skipped_count:
                skipped = types.StreamSkipped(now_ms, self._skipped_count)
                parts.append(self.render_own(types.SKIPPED, skipped))
            self._skipped_count = None
        for reason in dict.fromkeys(self._resets):
            reset = msgspec.convert({"at": now_ms, "reason": reason}, types.StreamReset)
            parts.append(self.render_own(types.RESET, reset))
        self._resets.clear()
        size, position = sum(map(len, parts)), self._position
        last = min(log.end, position + SCANNED_MAX_COUNT)
        while position < last and size < CHUNK_BYTES:
            key = log.key_at(position)
            if key is not None and self.sees(key):
                payload = log.payload_at(position)
                parts.append(payload)
                size += len(payload)
            position += 1
        self._position = position
        return b"".join(parts)

    def _count_skipped(self) -> None:
        """Move towards the log's first event, and count the events for this reader on the way."""
        log = self._log
        count = self._skipped_count or 0
        position = max(self._position, log.end - KEYS_MAX_COUNT)
        last = min(log.first, position + SCANNED_MAX_COUNT)
        while position < last:
            key = log.key_at(position)
            count += key is not None and self.sees(key)
            position += 1
        self._position, self._skipped_count = position, count
