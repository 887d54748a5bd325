"""Samples for charts and long tables, as columns or rows without names, because the web console loads them often."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from recado.broker.queue import Queue

from ..access import Access, listed_vhosts
from ..history import Values
from ..node_history import render_ring
from ..query import QueryParameter
from ..request import Answer, ApiRequest, bad_request
from ..routes import API
from .statistics import QUEUE_FIELDS

Milliseconds = Annotated[int, msgspec.Meta(ge=0)]
SINCE: Final = QueryParameter(
    "since", "Only samples after this time, in milliseconds since 1970.", Milliseconds
)
RESOLUTION: Final = QueryParameter(
    "resolution", "A sample per second, or per minute.", Literal["second", "minute"]
)
LENGTHS: Final = ("messages_ready", "messages_unacknowledged")
RATES: Final = ("publish", "deliver_get", "ack")
QUEUE_COLUMNS: Final = (
    "vhost",
    "name",
    "type",
    "features",
    "policy",
    "consumers",
    *LENGTHS,
    *(f"{name}_rate" for name in RATES),
)
"""The columns of a row; `features` has a letter for each of durable, auto-delete, exclusive and with arguments."""
_POSITIONS: Final = tuple(QUEUE_FIELDS.index(name) for name in LENGTHS)


def read_since(request: ApiRequest) -> int:
    """Return the query parameter `since`, 0 without one. Raises `ApiError`."""
    text = request.query.get("since", "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise bad_request("since: expected milliseconds since 1970")
    return int(text)


@API.add("GET", "/api/samples/node", Access.MONITORING, answers=(200,), query=(SINCE, RESOLUTION))
def sample_node(request: ApiRequest) -> Answer:
    """Return the totals of the node: an hour with a sample per second, or a day with one per minute.

    The answer has an array for each column; counters are totals since the start of the node.
    """
    since = read_since(request)
    resolution = request.query.get("resolution", "second")
    if resolution not in ("second", "minute"):
        raise bad_request("resolution: expected one of second, minute")
    history = request.console.history
    ring = history.seconds if resolution == "second" else history.minutes
    return Answer(stream=render_ring(ring, since), headers={"content-type": "application/json"})


@API.add("GET", "/api/samples/queues", Access.MANAGEMENT, answers=(200,), query=(SINCE,))
def sample_queues(request: ApiRequest) -> Answer:
    """Return a row for each queue that has changed between the newest sample and the one at `since`.

    The rates of the others are 0. `at` is the time of the newest sample, for the next request. `since` is null
    if the answer has all queues, because there was no sample at that time, or it is too old. A sample is taken
    every five seconds.
    """
    return Answer(
        stream=_render_queues(request, read_since(request)),
        headers={"content-type": "application/json"},
    )


def _render_queues(request: ApiRequest, since: int) -> Iterator[bytes]:
    history = request.console.sampler.queues
    newest, visible = history.newest, set(listed_vhosts(request.user, request.broker))
    shown: Iterable[Hashable] = newest.values
    removed: Iterable[Hashable] = ()
    is_partial = True
    if since and since == newest.at_ms:
        shown = ()
    elif since and since == history.previous_at_ms:
        shown, removed = newest.changed, newest.removed
    else:
        is_partial = False
    head = {
        "at": newest.at_ms,
        "since": since if is_partial else None,
        "columns": QUEUE_COLUMNS,
    }
    yield msgspec.json.encode(head)[:-1] + b',"rows":['
    separator = b""
    for queue in shown:
        assert isinstance(queue, Queue)
        if queue.vhost.name in visible:
            rates = [round(history.rate(queue, name), 1) for name in RATES]
            row = _describe_row(queue, newest.values[queue]) + rates
            yield separator + msgspec.json.encode(row)
            separator = b","
    gone = [(queue.vhost.name, queue.name) for queue in removed if isinstance(queue, Queue)]
    names = [each for each in gone if each[0] in visible]
    yield b'],"removed":' + msgspec.json.encode(names) + b"}"


def _describe_row(queue: Queue, values: Values) -> list[Any]:
    declared = queue.declared_settings
    policy = queue.vhost.policies.find_policy(queue.name, "queues", declared.queue_type)
    features = "".join(
        letter
        for letter, is_set in (
            ("D", declared.durable),
            ("A", declared.auto_delete),
            ("E", declared.exclusive),
            ("+", bool(declared.arguments)),
        )
        if is_set
    )
    return [
        queue.vhost.name,
        queue.name,
        declared.queue_type,
        features,
        policy.name if policy is not None else None,
        len(queue.consumers),
        *(values[position] for position in _POSITIONS),
    ]
