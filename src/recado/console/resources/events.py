"""The stream of events, and which queues it measures."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote

import msgspec

from ..access import Access, visible_vhosts
from ..body import read_body
from ..events.reader import EventFilter, QueueName, StreamRequest
from ..events.types import EVENT_TYPES, SUBJECTS
from ..query import VHOST, QueryParameter
from ..request import Answer, ApiError, ApiRequest, bad_request, not_found
from ..routes import API, Content

WATCHED_MAX_COUNT: Final = 100

TYPES: Final = QueryParameter(
    "types", "Names of events, or the part before the dot, separated by commas.", repeatable=True
)
WATCH: Final = QueryParameter(
    "watch",
    "Queues to measure every second: `VHOST/NAME`, both percent-encoded, separated by commas.",
    repeatable=True,
)
LAST_EVENT_ID: Final = QueryParameter(
    "last_event_id", "As the header `Last-Event-ID`: continue after this event."
)


class WatchedQueue(msgspec.Struct):
    """The name of a queue."""

    vhost: str
    name: str


class WatchBody(msgspec.Struct):
    """The queues to measure every second, instead of those before."""

    queues: list[WatchedQueue]


@API.add(
    "GET",
    "/api/events",
    Access.MANAGEMENT,
    content=Content.EVENTS,
    query=(TYPES, VHOST, WATCH, LAST_EVENT_ID),
)
def stream_events(request: ApiRequest) -> Answer:
    """Send changes and figures as server-sent events, until the client disconnects.

    The schemas of the data of all events are in `x-event-types`.
    """
    chosen = EventFilter(_read_types(request), _read_vhosts(request))
    last_event_id = request.last_event_id or request.query.get(LAST_EVENT_ID.name, "")
    session_id = request.session_id if request.session is not None else ""
    watched = _read_watched(request)
    return Answer(events=StreamRequest(request.user, chosen, watched, last_event_id, session_id))


def _read_types(request: ApiRequest) -> frozenset[str]:
    names = {name for value in request.repeated(TYPES.name) for name in value.split(",") if name}
    for name in sorted(names):
        if name not in EVENT_TYPES and name not in SUBJECTS:
            raise bad_request(f"types: there are no events '{name}': see /api/openapi.json")
    return frozenset(names)


def _read_vhosts(request: ApiRequest) -> frozenset[str]:
    """Return the chosen vhosts. One that the user may not see is answered as one that does not exist."""
    names = frozenset(request.repeated(VHOST.name))
    if names:
        visible = visible_vhosts(request.user, request.broker)
        for name in sorted(names.difference(visible)):
            raise ApiError(404, "not_found", f"vhost: '{name}' not found")
    return names


def _read_watched(request: ApiRequest) -> tuple[QueueName, ...]:
    names = []
    for value in request.repeated(WATCH.name):
        for entry in value.split(","):
            vhost, separator, name = entry.partition("/")
            if entry and not (vhost and separator and name):
                raise bad_request(f"watch: '{entry}' is not VHOST/NAME, both percent-encoded")
            if entry:
                names.append((unquote(vhost), unquote(name)))
    return _check_watched(WATCH.name, names)


def _check_watched(field: str, names: list[QueueName]) -> tuple[QueueName, ...]:
    unique = tuple(dict.fromkeys(names))
    if len(unique) > WATCHED_MAX_COUNT:
        raise bad_request(f"{field}: {len(unique)} queues, at most {WATCHED_MAX_COUNT}")
    return unique


@API.add("PUT", "/api/events/{stream}/watch", Access.MANAGEMENT, answers=(204,), body=WatchBody)
def watch_queues(request: ApiRequest) -> Answer:
    """Choose the queues that an open stream of the same user measures; its first event has its name."""
    body = read_body(request, WatchBody)
    queues = _check_watched("queues", [(each.vhost, each.name) for each in body.queues])
    if not request.console.events.watch(request.parameters["stream"], request.user.name, queues):
        raise not_found()
    return Answer(204, is_change=False)
