"""The types of events, in one table: names, data, and which users see them.

The description of the API for tools and the table in docs/management.md are generated from it. The fields of
the structs are the JSON data of the events.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, Literal

import msgspec

from recado.broker.observer import Change


class Audience(Enum):
    """Which users an event is sent to: those that a list of the API would show the object to."""

    EVERYBODY = auto()  # all users that may open the stream
    VHOST = auto()  # as the lists of queues, exchanges, bindings and policies
    VISIBLE_VHOST = auto()  # as the list of vhosts
    OWNER = auto()  # as the lists of connections and channels
    CONSUMER_OWNER = auto()  # as the list of consumers
    PARAMETERS = auto()  # as the list of parameters
    GLOBAL_PARAMETERS = auto()
    MONITORING = auto()
    ADMINISTRATOR = auto()


# ── data ────────────────────────────────────────────────────────────────────────────────────────────


class EventData(msgspec.Struct, frozen=True):
    """The fields that all events have."""

    at: int
    """Milliseconds since 1970."""


class VhostEvent(EventData, frozen=True):
    """A vhost."""

    name: str


class QueueEvent(EventData, frozen=True):
    """A queue, as it was declared."""

    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    exclusive: bool


class ExchangeEvent(EventData, frozen=True):
    """An exchange, as it was declared."""

    vhost: str
    name: str
    type: str
    durable: bool
    auto_delete: bool
    internal: bool


class BindingEvent(EventData, frozen=True):
    """A binding."""

    vhost: str
    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    routing_key: str
    properties_key: str


class PolicyEvent(EventData, frozen=True):
    """A policy or operator policy."""

    vhost: str
    name: str


class ParameterEvent(EventData, frozen=True):
    """A parameter of a vhost."""

    component: str
    vhost: str
    name: str


class GlobalParameterEvent(EventData, frozen=True):
    """A global parameter."""

    name: str


class UserEvent(EventData, frozen=True):
    """A user."""

    name: str


class PermissionEvent(EventData, frozen=True):
    """The permission of a user in a vhost."""

    user: str
    vhost: str


class TopicPermissionEvent(EventData, frozen=True):
    """The permission of a user on a topic exchange."""

    user: str
    vhost: str
    exchange: str


class ConnectionEvent(EventData, frozen=True):
    """A connection of a client."""

    name: str
    vhost: str
    user: str
    peer_host: str
    peer_port: int


class ChannelEvent(EventData, frozen=True):
    """A channel of a connection."""

    name: str
    number: int
    connection: str
    vhost: str
    user: str


class ConsumerEvent(EventData, frozen=True):
    """A consumer of a queue."""

    vhost: str
    queue: str
    consumer_tag: str
    channel: str
    user: str


class AlarmEvent(EventData, frozen=True):
    """An alarm, during which publishers are blocked."""

    resource: Literal["memory", "disk"]
    reason: str


class MessageRates(msgspec.Struct, frozen=True):
    """Messages per second."""

    publish: float
    deliver_get: float
    ack: float
    redeliver: float


class OverviewFigures(EventData, frozen=True):
    """Totals of the vhosts that the user sees, or of those that the stream is limited to."""

    interval: float
    """Seconds since the figures before, over which the rates are averages."""
    messages: int
    messages_ready: int
    messages_unacknowledged: int
    rates: MessageRates | None
    """Null in the first figures that are taken."""
    queues: int
    exchanges: int
    connections: int
    """Those that the user sees: its own, or for a monitor all. Not limited to a vhost."""
    channels: int
    consumers: int | None
    """Null unless the user is a monitor."""


class Durations(msgspec.Struct, frozen=True):
    """Durations of the interval, in seconds."""

    count: int
    mean: float
    max: float | None
    """The limit of the histogram's bucket that has the longest one; null if it is above all limits."""


class NodeFigures(EventData, frozen=True):
    """Figures of the node."""

    interval: float
    uptime: float
    """Seconds."""
    mem_used: int
    mem_limit: int
    disk_free: int
    disk_free_limit: int
    event_loop_lag: Durations
    """How late timers of the event loop ran; about ten are measured each second."""
    fsync: Durations | None
    """Syncs of the journal; null without a data folder."""


class WatchedQueueFigures(msgspec.Struct, frozen=True):
    """Lengths and rates of one queue."""

    vhost: str
    name: str
    messages: int
    messages_ready: int
    messages_unacknowledged: int
    consumers: int
    rates: MessageRates | None
    """Null in the first figures of the queue that are taken."""


class QueuesFigures(EventData, frozen=True):
    """The watched queues that exist and are visible, in the order in which they were chosen."""

    interval: float
    queues: list[WatchedQueueFigures]


class StreamOpened(EventData, frozen=True):
    """The first event of a stream."""

    stream: str
    """The name of the stream in `PUT /api/events/{stream}/watch`."""
    resumed: bool
    """Whether the events since `Last-Event-ID` follow."""
    heartbeat: float
    """Seconds without an event after which a comment is sent."""


class StreamReset(EventData, frozen=True):
    """Events are missing: the client must load its lists again."""

    reason: Literal["too_old", "unknown_id", "restarted", "access_changed", "burst"]


class StreamSkipped(EventData, frozen=True):
    """The client has read too slowly: at least this many events for it were dropped. It must load its lists again."""

    count: int


class StreamBurst(EventData, frozen=True):
    """This many further events of one type, and of one vhost if it has one, were not sent one by one."""

    type: str
    vhost: str | None
    count: int


class StreamClosed(EventData, frozen=True):
    """The last event: the node ends the stream."""

    reason: Literal[
        "user_deleted",
        "credentials_changed",
        "access_lost",
        "token_expired",
        "session_ended",
        "node_stopping",
    ]


# ── the table ───────────────────────────────────────────────────────────────────────────────────────


class EventType(msgspec.Struct, frozen=True, eq=False):
    """A type of event. `subject` is the part of the name before the dot, which filters by type accept as well."""

    name: str
    data: type[EventData]
    audience: Audience
    description: str

    @property
    def subject(self) -> str:
        return self.name.partition(".")[0]


_LIFE: Final = {Change.CREATED: "was created", Change.DELETED: "was deleted"}
_CHANGES: Final = {**_LIFE, Change.CHANGED: "was changed"}
_BY_POLICY: Final = {**_LIFE, Change.CHANGED: "has other settings because of a policy"}

_BY_ALTERATION: Final = {
    **_LIFE,
    Change.CHANGED: "was altered, or has other settings because of a policy",
}

_OBJECTS: Final[tuple[tuple[str, str, type[EventData], Audience, dict[Change, str]], ...]] = (
    ("vhost", "A vhost", VhostEvent, Audience.VISIBLE_VHOST, _CHANGES),
    ("queue", "A queue", QueueEvent, Audience.VHOST, _BY_ALTERATION),
    ("exchange", "An exchange", ExchangeEvent, Audience.VHOST, _BY_POLICY),
    ("binding", "A binding", BindingEvent, Audience.VHOST, _LIFE),
    ("policy", "A policy", PolicyEvent, Audience.VHOST, _CHANGES),
    ("operator_policy", "An operator policy", PolicyEvent, Audience.VHOST, _CHANGES),
    ("parameter", "A parameter", ParameterEvent, Audience.PARAMETERS, _CHANGES),
    (
        "global_parameter",
        "A global parameter",
        GlobalParameterEvent,
        Audience.GLOBAL_PARAMETERS,
        _CHANGES,
    ),
    ("user", "A user", UserEvent, Audience.ADMINISTRATOR, _CHANGES),
    ("permission", "A permission", PermissionEvent, Audience.ADMINISTRATOR, _CHANGES),
    (
        "topic_permission",
        "A topic permission",
        TopicPermissionEvent,
        Audience.ADMINISTRATOR,
        _CHANGES,
    ),
    (
        "connection",
        "A connection",
        ConnectionEvent,
        Audience.OWNER,
        {
            Change.OPENED: "was opened",
            Change.CLOSED: "was closed",
            Change.BLOCKED: "publishes during an alarm and is blocked",
            Change.UNBLOCKED: "is not blocked any more",
        },
    ),
    (
        "channel",
        "A channel",
        ChannelEvent,
        Audience.OWNER,
        {Change.OPENED: "was opened", Change.CLOSED: "was closed"},
    ),
    ("consumer", "A consumer", ConsumerEvent, Audience.CONSUMER_OWNER, _LIFE),
)

CHANGE_TYPES: Final = {
    (subject, change): EventType(f"{subject}.{change.value}", data, audience, f"{noun} {verb}.")
    for subject, noun, data, audience, verbs in _OBJECTS
    for change, verb in verbs.items()
}
ALARM_SET: Final = EventType(
    "alarm.set", AlarmEvent, Audience.EVERYBODY, "Memory or disk is short: publishers are blocked."
)
ALARM_CLEARED: Final = EventType(
    "alarm.cleared", AlarmEvent, Audience.EVERYBODY, "The alarm has ended."
)
OVERVIEW: Final = EventType(
    "rates.overview", OverviewFigures, Audience.EVERYBODY, "Every second: totals and rates."
)
NODE: Final = EventType(
    "rates.node",
    NodeFigures,
    Audience.MONITORING,
    "Every second: memory, disk, event loop and fsync.",
)
QUEUES: Final = EventType(
    "rates.queues", QueuesFigures, Audience.VHOST, "Every second: the queues of `watch`."
)
OPENED: Final = EventType(
    "stream.opened", StreamOpened, Audience.EVERYBODY, "The first event of a stream."
)
RESET: Final = EventType(
    "stream.reset", StreamReset, Audience.EVERYBODY, "Events are missing; load all lists again."
)
SKIPPED: Final = EventType(
    "stream.skipped",
    StreamSkipped,
    Audience.EVERYBODY,
    "The client reads too slowly, and events were dropped; load all lists again.",
)
BURST: Final = EventType(
    "stream.burst",
    StreamBurst,
    Audience.EVERYBODY,
    "Many changes at once: further events of one type were only counted; load that list again.",
)
CLOSED: Final = EventType(
    "stream.closed", StreamClosed, Audience.EVERYBODY, "The last event, with the reason."
)

EVENT_TYPES: Final = {
    each.name: each
    for each in (
        *CHANGE_TYPES.values(),
        ALARM_SET,
        ALARM_CLEARED,
        OVERVIEW,
        NODE,
        QUEUES,
        OPENED,
        RESET,
        SKIPPED,
        BURST,
        CLOSED,
    )
}
"""All types by name, in the order of the documentation."""

SUBJECTS: Final = tuple(dict.fromkeys(each.subject for each in EVENT_TYPES.values()))

_SEEN_BY: Final = {
    Audience.EVERYBODY: "all users that may open the stream",
    Audience.VHOST: "users with permissions in the vhost",
    Audience.VISIBLE_VHOST: "users with permissions in the vhost; `monitoring`",
    Audience.OWNER: "the user of the connection; `monitoring`",
    Audience.CONSUMER_OWNER: "the user of the consumer; `monitoring`",
    Audience.PARAMETERS: "`policymaker` with permissions in the vhost",
    Audience.GLOBAL_PARAMETERS: "`policymaker`",
    Audience.MONITORING: "`monitoring`",
    Audience.ADMINISTRATOR: "",
}


def render_table() -> list[str]:
    """Return the lines of the table in docs/management.md: types, fields, and who sees them."""
    rows: dict[tuple[str, type[EventData], Audience], list[str]] = {}
    for each in EVENT_TYPES.values():
        rows.setdefault((each.subject, each.data, each.audience), []).append(each.name)
    lines = ["| events | data, besides `at` | sent to |", "|---|---|---|"]
    for (subject, data, audience), names in rows.items():
        shown = ", ".join(
            f"`{name}`" if number == 0 else f"`.{name.removeprefix(subject + '.')}`"
            for number, name in enumerate(names)
        )
        fields = ", ".join(f"`{name}`" for name in data.__struct_fields__ if name != "at")
        seen_by = _SEEN_BY[audience]
        if audience is not Audience.EVERYBODY:
            seen_by = "; ".join(filter(None, (seen_by, "`administrator`")))
        lines.append(f"| {shown} | {fields} | {seen_by} |")
    return lines
