"""Message counters, rates and lengths in the JSON objects of queues, exchanges, channels and vhosts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Protocol

import msgspec

from recado.broker.broker import DeletedQueueCounters
from recado.broker.channel import Channel
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.broker.stream import Stream

from ..history import SeriesRequest, read_series_request
from ..query import QueryParameter
from ..request import ApiRequest

QUEUE_COUNTERS: Final = (
    "publish",
    "deliver",
    "deliver_no_ack",
    "deliver_get",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
)
PUBLISH_COUNTERS: Final = ("publish", "confirm")
"""A group of counters in `message_stats`; the other counters are a second one. A group whose counters are all 0 is
absent."""
QUEUE_LENGTHS: Final = ("messages", "messages_ready", "messages_unacknowledged")
QUEUE_FIELDS: Final = (*QUEUE_COUNTERS, *QUEUE_LENGTHS)
CHANNEL_FIELDS: Final = (
    "publish",
    "confirm",
    "deliver",
    "deliver_no_ack",
    "deliver_get",
    "get",
    "get_no_ack",
    "get_empty",
    "redeliver",
    "ack",
)
EXCHANGE_FIELDS: Final = ("publish_in", "publish_out")
CONNECTION_FIELDS: Final = ("recv_oct", "send_oct")

_Seconds = Annotated[int, msgspec.Meta(ge=1)]


def read_queue(queue: Queue | DeletedQueueCounters) -> tuple[int, ...]:
    """Return the values of `QUEUE_FIELDS`."""
    delivered, no_ack = queue.delivered_count, queue.delivered_no_ack_count
    got, got_no_ack = queue.get_count, queue.get_no_ack_count
    unacked = count_unacked(queue)
    return (
        queue.published_count,
        delivered,
        no_ack,
        delivered + no_ack + got + got_no_ack,
        got,
        got_no_ack,
        queue.get_empty_count,
        queue.redelivered_count,
        queue.acknowledged_count,
        queue.ready + unacked,
        queue.ready,
        unacked,
    )


def count_unacked(queue: Queue | DeletedQueueCounters) -> int:
    """Return the unacknowledged messages that `ready` does not include.

    Messages stay in a stream when they are acknowledged, so its `ready` includes the unacknowledged ones.
    """
    return 0 if isinstance(queue, Stream) else queue.unacked


def read_channel(channel: Channel) -> tuple[int, ...]:
    """Return the values of `CHANNEL_FIELDS`."""
    total, no_ack = channel.next_tag - 1, channel.delivered_no_ack_count
    got, got_no_ack = channel.get_count, channel.get_no_ack_count
    return (
        channel.publisher.published,
        channel.publisher.confirmed,
        total - no_ack - got - got_no_ack,
        no_ack,
        total,
        got,
        got_no_ack,
        channel.get_empty_count,
        channel.redelivered_count,
        channel.acknowledged_count,
    )


_SERIES: Final = {
    "lengths": "queue lengths",
    "msg_rates": "message counters",
    "data_rates": "bytes of connections",
}
SERIES_PARAMETERS: Final = tuple(
    QueryParameter(f"{prefix}_{suffix}", f"Samples of {noun}: {meaning}, in seconds.", _Seconds)
    for prefix, noun in _SERIES.items()
    for suffix, meaning in (("age", "how far they reach back"), ("incr", "their distance"))
)


class RequestedSeries:
    """Which time series the query of a request asks for."""

    def __init__(self, query: Mapping[str, str]) -> None:
        self.lengths = _read(query, "lengths")
        self.rates = _read(query, "msg_rates")
        self.data_rates = _read(query, "data_rates")


def _read(query: Mapping[str, str], prefix: str) -> SeriesRequest | None:
    return read_series_request(query.get(f"{prefix}_age"), query.get(f"{prefix}_incr"))


class History(Protocol):
    """The samples that rates are computed from."""

    def details(self, key: Any, field: str, request: SeriesRequest | None, /) -> dict[str, Any]:
        """Return the `…_details` of a counter."""


def counter_object(
    history: History,
    key: Hashable,
    values: Mapping[str, int],
    request: SeriesRequest | None,
) -> dict[str, Any]:
    """Return counters and their `…_details`."""
    described: dict[str, Any] = {}
    for name, value in values.items():
        described[name] = value
        described[f"{name}_details"] = history.details(key, name, request)
    return described


def message_statistics(
    history: History,
    key: Hashable,
    values: Mapping[str, int],
    request: SeriesRequest | None,
) -> dict[str, Any]:
    """Return `message_stats`, with the groups of counters of which any has counted, or nothing."""
    published = {name: value for name, value in values.items() if name in PUBLISH_COUNTERS}
    delivered = {name: value for name, value in values.items() if name not in PUBLISH_COUNTERS}
    counted = {
        name: value
        for group in (published, delivered)
        if any(group.values())
        for name, value in group.items()
    }
    return {"message_stats": counter_object(history, key, counted, request)} if counted else {}


def queue_statistics(request: ApiRequest, queue: Queue) -> dict[str, Any]:
    """Return lengths, counters and rates of a queue."""
    values = dict(zip(QUEUE_FIELDS, read_queue(queue), strict=True))
    series, history = RequestedSeries(request.query), request.console.sampler.queues
    lengths = {name: values[name] for name in QUEUE_LENGTHS}
    counters = {name: values[name] for name in QUEUE_COUNTERS}
    described = counter_object(history, queue, lengths, series.lengths)
    described.update(message_statistics(history, queue, counters, series.rates))
    if not queue.consumers:
        described["idle_since"] = format_time(queue.last_used_ms)
    return described


def exchange_statistics(request: ApiRequest, exchange: Exchange[Queue]) -> dict[str, Any]:
    """Return the counters of an exchange, if any message has passed it."""
    counts = exchange.published_in, exchange.published_out
    values = {name: value for name, value in zip(EXCHANGE_FIELDS, counts, strict=True) if value}
    if not values:
        return {}
    series, history = RequestedSeries(request.query), request.console.sampler.exchanges
    return {"message_stats": counter_object(history, exchange, values, series.rates)}


def format_time(at_ms: int) -> str:
    """Return a time as RabbitMQ writes it: ISO 8601 with milliseconds and offset."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
