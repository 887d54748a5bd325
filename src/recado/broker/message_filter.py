"""Filters of stream consumers: `x-selector` and `x-stream-filter`, applied to runs.

A publisher sets the filter value of a message in the header `x-stream-filter-value`. RabbitMQ has a Bloom
filter of these values for each chunk of a stream and delivers whole chunks that may match, so that its
clients have to filter again. Here the header of each message is compared, and only matching messages are
delivered. A consumer with both arguments gets the messages that satisfy both.

Messages with a common header frame differ only in body and offset. A selector that uses neither is
evaluated once for all of them: 16-byte messages that do not match cost 0.01 µs each instead of 2.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from recado.amqp.frames import extract_body, extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import STORED_MAX_ENTRY_COUNT, FieldTable
from recado.selector import compile_predicate, parse

from .checks import FilterValue
from .consumer import DISPATCH_BYTES
from .run import Origin, Run

FILTER_VALUE_HEADER: Final = "x-stream-filter-value"
# Costs are in bytes of deliveries, as for a dispatch: one evaluation takes as long as encoding this many of them.
EVALUATION_COST_BYTES: Final = 1024
_CACHED_PROPERTIES_BYTES_MAX: Final = 512  # longer properties are not cached, to bound the memory

_STRING_PROPERTIES: Final = frozenset(
    (
        "content_type",
        "content_encoding",
        "correlation_id",
        "reply_to",
        "expiration",
        "message_id",
        "type",
        "user_id",
        "app_id",
        "cluster_id",
    )
)
_PROPERTIES: Final = _STRING_PROPERTIES | {"headers", "delivery_mode", "priority", "timestamp"}
# Different among messages with a common header.
_PER_MESSAGE_FIELDS: Final = frozenset(("offset", "body", "json"))
FIELDS: Final = _PROPERTIES | _PER_MESSAGE_FIELDS | {"exchange", "routing_key"}
_PATHS: Final = {name: f"properties.{name}" for name in _PROPERTIES}


class FilterResult(NamedTuple):
    indexes: Sequence[int]
    """Those of a run that match."""
    end: int
    """Index after the last evaluated message."""
    cost: int
    """In bytes of deliveries that could have been encoded in the same time."""


class StreamFilter(NamedTuple):
    """The arguments `x-stream-filter` and `x-stream-match-unfiltered`."""

    values: frozenset[FilterValue]
    match_unfiltered: bool = False

    def accepts(self, headers: FieldTable | None) -> bool:
        """Whether a message with these headers matches; only a string is a filter value."""
        value = None if headers is None else headers.get(FILTER_VALUE_HEADER)
        if isinstance(value, FilterValue):
            return value in self.values
        return self.match_unfiltered


class MessageFilter:
    __slots__ = ("_is_header_only", "_matches")

    def __init__(self, text: str | None = None, stream_filter: StreamFilter | None = None) -> None:
        """Combine a selector and a filter, either of them optional.

        Raises `SelectorError` if the selector is invalid.
        """
        selects: Callable[[_MessageView], bool] = _match_all
        self._is_header_only = True
        if text is not None:
            selector = parse(text, FIELDS)
            selects = compile_predicate(selector, _PATHS)
            self._is_header_only = selector.fields().isdisjoint(_PER_MESSAGE_FIELDS)
        self._matches = selects if stream_filter is None else _match_both(stream_filter, selects)

    def select(self, run: Run, low: int, high: int, count_max: int) -> FilterResult:
        """Evaluate messages low..high-1 of a run, or the first of them, until `count_max` match."""
        prefix, payloads = run.prefix, run.payloads
        # Decoding a header takes about as long as encoding it.
        evaluation_bytes = EVALUATION_COST_BYTES + len(prefix)
        if prefix and self._is_header_only:
            if not self._matches(_MessageView(run.origin, prefix, b"", run.first_position)):
                return FilterResult((), high, evaluation_bytes)
            end = min(high, low + count_max)
            return FilterResult(range(low, end), end, evaluation_bytes)
        indexes: list[int] = []
        index, cost = low, 0
        while index < high and len(indexes) < count_max and cost < DISPATCH_BYTES:
            cost += evaluation_bytes + len(payloads[index])
            if self._matches(
                _MessageView(run.origin, prefix, payloads[index], run.first_position + index)
            ):
                indexes.append(index)
            index += 1
        return FilterResult(indexes, index, cost)


def _match_all(message: "_MessageView") -> bool:
    return True


def _match_both(
    stream_filter: StreamFilter, selects: "Callable[[_MessageView], bool]"
) -> "Callable[[_MessageView], bool]":
    def matches(message: "_MessageView") -> bool:
        return stream_filter.accepts(message.properties.headers) and selects(message)

    return matches


class _MessageView:
    """A message as a selector sees it."""

    __slots__ = ("_origin", "_payload", "_prefix", "offset")

    def __init__(self, origin: Origin, prefix: bytes, payload: bytes, offset: int) -> None:
        self._origin = origin
        self._prefix = prefix
        self._payload = payload
        self.offset = offset

    @property
    def exchange(self) -> str:
        return self._origin.exchange

    @property
    def routing_key(self) -> str:
        return self._origin.routing_key

    @property
    def properties(self) -> Properties:
        octets = extract_properties(self._prefix or self._payload)
        return (
            _decode_cached(octets)
            if len(octets) <= _CACHED_PROPERTIES_BYTES_MAX
            else _decode(octets)
        )

    @property
    def body(self) -> bytes:
        # After a common prefix the body is a single frame, and the payload ends with its end byte.
        return self._payload[:-1] if self._prefix else extract_body(self._payload)


def _decode(octets: bytes) -> Properties:
    """Decode properties; strings that are not UTF-8 are treated as missing."""
    properties = decode_properties(octets, max_entries=STORED_MAX_ENTRY_COUNT)
    for name in _STRING_PROPERTIES:
        value = getattr(properties, name)
        if value is not None and not value.isascii() and not _is_unicode(value):
            setattr(properties, name, None)
    return properties


_decode_cached = lru_cache(1024)(_decode)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
