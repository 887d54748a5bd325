"""An exchange: its bindings, and which of them a message matches.

EX1  No two bindings of an exchange have the same destination, key and arguments.
EX2  Fallback bindings (those with `x-dead-letter-binding`) match a message only if no ordinary binding
     does.
EX3  Bindings are followed in the order of their creation.

The exchange types differ in the `Matcher` that holds the bindings. The two simple matchers are in this
module.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

from recado.amqp.errors import CommandInvalidError
from recado.amqp.values import FieldTable

from .arguments import ExchangeSettings
from .binding import (
    BINDINGS_PER_UNIT,
    Binding,
    Destination,
    Matcher,
    canonical_arguments,
    collect,
    is_fallback_binding,
)
from .deduplication import DeduplicationWindow
from .delay import DELAYED_EXCHANGE_TYPE, DELAYED_TYPE_ARGUMENT
from .headers import HeadersMatcher
from .pattern import PatternMatcher
from .steps import Steps, chunks
from .topic import TopicMatcher

T = TypeVar("T")
Q = TypeVar("Q", bound=Destination)

_BY_SERIAL = attrgetter("serial")
_SORTED_BINDINGS_PER_STEP: Final = 1024  # merging takes 1.5 µs each
_KEY_BYTES_PER_UNIT: Final = 16  # to remove a binding: a topic is removed word by word, 0.5 µs each
_ARGUMENTS_BYTES_PER_UNIT: Final = 64


class DirectMatcher(Generic[T]):
    """Matches bindings whose key is equal to the routing key."""

    __slots__ = ("_bindings_by_key",)

    uses_key = True
    add_cost = 0

    def __init__(self) -> None:
        self._bindings_by_key: dict[str, dict[Binding[T], None]] = {}

    def add(self, binding: Binding[T]) -> None:
        self._bindings_by_key.setdefault(binding.routing_key, {})[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        bindings = self._bindings_by_key[binding.routing_key]
        del bindings[binding]
        if not bindings:
            del self._bindings_by_key[binding.routing_key]

    def search(self, key: str, headers: FieldTable, found: dict[Binding[T], None]) -> Steps[None]:
        return collect(self._bindings_by_key.get(key, {}), found)


class FanoutMatcher(Generic[T]):
    """Matches all bindings."""

    __slots__ = ("_bindings",)

    uses_key = False
    add_cost = 0

    def __init__(self) -> None:
        self._bindings: dict[Binding[T], None] = {}

    def add(self, binding: Binding[T]) -> None:
        self._bindings[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        del self._bindings[binding]

    def search(self, key: str, headers: FieldTable, found: dict[Binding[T], None]) -> Steps[None]:
        return collect(self._bindings, found)


EXCHANGE_TYPES: Final[dict[str, Callable[[], Matcher[Any]]]] = {
    "direct": DirectMatcher,
    "fanout": FanoutMatcher,
    "topic": TopicMatcher,
    "headers": HeadersMatcher,
    "regex": PatternMatcher,
}


def check_exchange_type(exchange_type: str) -> None:
    """Raise `CommandInvalidError` if there is no such type of exchanges."""
    if exchange_type != DELAYED_EXCHANGE_TYPE and exchange_type not in EXCHANGE_TYPES:
        raise CommandInvalidError(f"unknown exchange type '{exchange_type}'")


class DelayedQueueFactory(Protocol[Q]):
    """Creates and deletes the queues in which delayed exchanges hold messages."""

    def create(self, exchange: Exchange[Q]) -> Q:
        """Create the queue of a new exchange."""

    def delete(self, queue: Q) -> None:
        """Delete the queue of a deleted exchange, with all its messages."""


# The exchanges that every vhost has.
PREDECLARED_EXCHANGES: Final[dict[str, ExchangeSettings]] = {
    "": ExchangeSettings(exchange_type="direct", durable=True),
    "amq.direct": ExchangeSettings(exchange_type="direct", durable=True),
    "amq.fanout": ExchangeSettings(exchange_type="fanout", durable=True),
    "amq.topic": ExchangeSettings(exchange_type="topic", durable=True),
    "amq.headers": ExchangeSettings(exchange_type="headers", durable=True),
    "amq.match": ExchangeSettings(exchange_type="headers", durable=True),
    "amq.rabbitmq.trace": ExchangeSettings(exchange_type="topic", durable=True, internal=True),
}


class Exchange(Generic[Q]):
    __slots__ = (
        "_fallback_matcher",
        "_next_serial",
        "_primary_matcher",
        "bindings",
        "bound_exchanges",
        "declared_settings",
        "deduplication_window",
        "delayed_queue",
        "deleted",
        "name",
        "published_in",
        "published_out",
        "settings",
        "uses_headers",
    )

    def __init__(self, name: str, settings: ExchangeSettings) -> None:
        self.name = name
        self.declared_settings = settings
        self.settings = settings
        """The declared settings combined with policies."""
        self.deleted = False
        # Totals for statistics: messages published to the exchange, and how often they were routed to a queue.
        self.published_in = self.published_out = 0
        self.uses_headers = settings.exchange_type in ("headers", DELAYED_EXCHANGE_TYPE)
        self.delayed_queue: Q | None = None
        """Where a delayed exchange holds messages until they are due."""
        self.deduplication_window: DeduplicationWindow | None = None
        """Set if the exchange deduplicates."""
        self.bindings: dict[tuple[Q | Exchange[Q], str, bytes], Binding[Q | Exchange[Q]]] = {}
        self.bound_exchanges: dict[Exchange[Q], int] = {}
        """The exchanges among the destinations, each with its number of bindings."""
        kind = settings.exchange_type
        new_matcher = EXCHANGE_TYPES[
            str(settings.arguments[DELAYED_TYPE_ARGUMENT])
            if kind == DELAYED_EXCHANGE_TYPE
            else kind
        ]
        self._primary_matcher: Matcher[Q | Exchange[Q]] = new_matcher()
        self._fallback_matcher: Matcher[Q | Exchange[Q]] = new_matcher()
        self._next_serial = 0

    @property
    def is_new(self) -> bool:
        """Whether the exchange never had a binding."""
        return not self._next_serial

    @property
    def bind_cost(self) -> int:
        """The cost of adding a binding, in addition to the base cost of an AMQP method."""
        return self._primary_matcher.add_cost

    def bind(
        self, destination: Q | Exchange[Q], routing_key: str, arguments: FieldTable
    ) -> Binding[Q | Exchange[Q]] | None:
        """Add a binding and return it, or return None if it exists already."""
        identity = destination, routing_key, canonical_arguments(arguments)
        if identity in self.bindings:
            return None
        binding = Binding(self.name, destination, routing_key, arguments, self._next_serial)
        self._matcher_for(arguments).add(binding)
        self._next_serial += 1
        self.bindings[identity] = binding
        if isinstance(destination, Exchange):
            self.bound_exchanges[destination] = self.bound_exchanges.get(destination, 0) + 1
        return binding

    def find_binding(
        self, destination: Q | Exchange[Q], routing_key: str, arguments: FieldTable
    ) -> Binding[Q | Exchange[Q]] | None:
        return self.bindings.get((destination, routing_key, canonical_arguments(arguments)))

    def unbind(self, binding: Binding[Q | Exchange[Q]]) -> int:
        """Remove a binding; return the additional cost of a long routing key or long arguments."""
        destination, key = binding.destination, binding.routing_key
        arguments = canonical_arguments(binding.arguments)
        del self.bindings[destination, key, arguments]
        self._matcher_for(binding.arguments).remove(binding)
        if isinstance(destination, Exchange):
            self.bound_exchanges[destination] -= 1
            if not self.bound_exchanges[destination]:
                del self.bound_exchanges[destination]
        return len(key) // _KEY_BYTES_PER_UNIT + len(arguments) // _ARGUMENTS_BYTES_PER_UNIT

    @property
    def uses_key(self) -> bool:
        """Whether the routing key of a message matters."""
        return self._primary_matcher.uses_key

    def search(
        self, keys: Sequence[str], headers: FieldTable
    ) -> Steps[list[Binding[Q | Exchange[Q]]]]:
        """Find the bindings that match a message with these routing keys, in the order of their creation.

        Bindings to deleted destinations do not match.
        """
        for matcher in (self._primary_matcher, self._fallback_matcher):
            found: dict[Binding[Q | Exchange[Q]], None] = {}
            for key in keys if matcher.uses_key else keys[:1]:
                yield from matcher.search(key, headers, found)
            if not found:
                continue
            matching: list[Binding[Q | Exchange[Q]]] = []
            for chunk in _sort_by_serial(found):
                matching += [binding for binding in chunk if not binding.destination.deleted]
                if not chunk or len(chunk) >= BINDINGS_PER_UNIT:
                    yield max(len(chunk) // BINDINGS_PER_UNIT, 1)
            if matching:
                return matching
        return []

    def check(self) -> None:
        for identity, binding in self.bindings.items():
            assert (
                self.find_binding(binding.destination, binding.routing_key, binding.arguments)
                is binding
            )
            assert identity[0] is binding.destination, "EX1"
        for older, newer in pairwise(self.bindings.values()):
            assert older.serial < newer.serial, "EX3"

    def _matcher_for(self, arguments: FieldTable) -> Matcher[Q | Exchange[Q]]:
        return self._fallback_matcher if is_fallback_binding(arguments) else self._primary_matcher


def _sort_by_serial(bindings: Collection[Binding[T]]) -> Iterator[Sequence[Binding[T]]]:
    """Return the bindings in creation order, in chunks. An empty chunk ends a step that has only sorted."""
    if len(bindings) <= _SORTED_BINDINGS_PER_STEP:
        return iter((sorted(bindings, key=_BY_SERIAL),))
    return _merge_sorted(bindings)


def _merge_sorted(bindings: Collection[Binding[T]]) -> Iterator[Sequence[Binding[T]]]:
    pieces = []
    for chunk in chunks(list(bindings), _SORTED_BINDINGS_PER_STEP):
        pieces.append(sorted(chunk, key=_BY_SERIAL))
        yield ()
    merged = heapq.merge(*pieces, key=_BY_SERIAL)
    while piece := list(islice(merged, _SORTED_BINDINGS_PER_STEP)):
        yield piece
