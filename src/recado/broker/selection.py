"""Which messages of a stream a consumer wants: `x-selector` and `x-stream-filter`, applied to runs.

A publisher gives a message a filter value in the header `x-stream-filter-value`. RabbitMQ keeps a Bloom filter
of these values for each chunk of a stream and delivers whole chunks that may match, so its clients have to
filter again. Here the header of each message is compared, and no other message is delivered. A consumer
with both arguments gets the messages that satisfy both.

Messages that share a header frame differ in body and offset only. So a selector that looks at neither is
asked once for all of them, and 16-byte messages that nobody wants cost 0.01 µs each instead of 2.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from recado.amqp.frames import body_of, properties_of
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import MAX_ENTRIES_GROWN, Table
from recado.selector import parse, predicate

from .checks import FilterValue
from .consumer import DEAL_BYTES
from .run import Origin, Run

FILTER_VALUE_HEADER: Final = "x-stream-filter-value"
LOOK_BYTES: Final = 1024  # of small messages are rendered in the time that it takes to look at one
_SHORT: Final = 512  # bytes; what is longer is not remembered, or strangers would fill the memory

_TEXTS: Final = frozenset(
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
_PROPERTIES: Final = _TEXTS | {"headers", "delivery_mode", "priority", "timestamp"}
_OWN: Final = frozenset(("offset", "body", "json"))  # what messages with one header do not share
FIELDS: Final = _PROPERTIES | _OWN | {"exchange", "routing_key"}
_PATHS: Final = {name: f"properties.{name}" for name in _PROPERTIES}


class Choice(NamedTuple):
    places: Sequence[int]
    """Those of a run that are wanted."""
    end: int
    """What is behind those that were looked at."""
    cost: int
    """The bytes that could have been rendered meanwhile."""


class StreamFilter(NamedTuple):
    """What `x-stream-filter` and `x-stream-match-unfiltered` ask for."""

    values: frozenset[FilterValue]
    match_unfiltered: bool = False

    def accepts(self, headers: Table | None) -> bool:
        """Whether a message with these headers is to be delivered; only a string is a filter value."""
        value = None if headers is None else headers.get(FILTER_VALUE_HEADER)
        if isinstance(value, FilterValue):
            return value in self.values
        return self.match_unfiltered


class Selection:
    __slots__ = ("_by_header", "_wants")

    def __init__(self, text: str | None = None, stream_filter: StreamFilter | None = None) -> None:
        """Of a selector, a filter or both. Raises `SelectorError` if the text is not a selector."""
        selects: Callable[[_Seen], bool] = _everything
        self._by_header = True
        if text is not None:
            selector = parse(text, FIELDS)
            selects = predicate(selector, _PATHS)
            self._by_header = selector.fields().isdisjoint(_OWN)
        self._wants = selects if stream_filter is None else _both(stream_filter, selects)

    def choose(self, run: Run, low: int, high: int, most: int) -> Choice:
        """Of the messages low..high-1 of a run, or the first of them, those that are wanted, up to so many."""
        head, tails = run.head, run.tails
        look_bytes = LOOK_BYTES + len(head)  # decoding takes about as long as rendering
        if head and self._by_header:
            if not self._wants(_Seen(run.origin, head, b"", run.first)):
                return Choice((), high, look_bytes)
            end = min(high, low + most)
            return Choice(range(low, end), end, look_bytes)
        places: list[int] = []
        at, cost = low, 0
        while at < high and len(places) < most and cost < DEAL_BYTES:
            cost += look_bytes + len(tails[at])
            if self._wants(_Seen(run.origin, head, tails[at], run.first + at)):
                places.append(at)
            at += 1
        return Choice(places, at, cost)


def _everything(message: "_Seen") -> bool:
    return True


def _both(
    stream_filter: StreamFilter, selects: "Callable[[_Seen], bool]"
) -> "Callable[[_Seen], bool]":
    def wants(message: "_Seen") -> bool:
        return stream_filter.accepts(message.properties.headers) and selects(message)

    return wants


class _Seen:
    """A message as a selector sees it."""

    __slots__ = ("_head", "_origin", "_tail", "offset")

    def __init__(self, origin: Origin, head: bytes, tail: bytes, offset: int) -> None:
        self._origin = origin
        self._head = head
        self._tail = tail
        self.offset = offset

    @property
    def exchange(self) -> str:
        return self._origin.exchange

    @property
    def routing_key(self) -> str:
        return self._origin.routing_key

    @property
    def properties(self) -> Properties:
        octets = properties_of(self._head or self._tail)
        return _remembered(octets) if len(octets) <= _SHORT else _read(octets)

    @property
    def body(self) -> bytes:
        # Behind a head that messages share, the body is one frame, of which the tail has the end byte too.
        return self._tail[:-1] if self._head else body_of(self._tail)


def _read(octets: bytes) -> Properties:
    """The properties; a text that is not UTF-8 is none."""
    properties = decode_properties(octets, max_entries=MAX_ENTRIES_GROWN)
    for name in _TEXTS:
        value = getattr(properties, name)
        if value is not None and not value.isascii() and not _is_unicode(value):
            setattr(properties, name, None)
    return properties


_remembered = lru_cache(1024)(_read)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
