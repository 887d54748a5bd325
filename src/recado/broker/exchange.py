"""An exchange: its bindings, and which of them a message takes.

X1  No two bindings of an exchange have the same destination, key and arguments.
X2  A message takes bindings of last resort (those with `x-dead-letter-binding`) only when it can
    take no ordinary one.
X3  Bindings keep the order in which they were made.

What distinguishes the kinds of exchange is the `Matcher` that holds the bindings. The two simple
ones live here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any, Final, Generic, Protocol, TypeVar

from recado.amqp.values import Table

from .arguments import ExchangeSettings
from .binding import (
    BINDINGS_PER_UNIT,
    Binding,
    Destination,
    Matcher,
    collect,
    fingerprint,
    is_last_resort,
)
from .deduplication import Window
from .delay import DELAYED, TYPE_ARGUMENT
from .headers import HeadersMatcher
from .pattern import PatternMatcher
from .steps import Steps, parts
from .topic import TopicMatcher

T = TypeVar("T")
Q = TypeVar("Q", bound=Destination)

_SERIAL = attrgetter("serial")
_SORTED_PER_STEP: Final = 1024  # merging takes 1.5 µs for each
_KEY_BYTES_PER_UNIT: Final = 16  # of a binding to remove: a topic leaves word by word, 0.5 µs each
_ARGUMENTS_BYTES_PER_UNIT: Final = 64


class DirectMatcher(Generic[T]):
    """The routing key must be the binding's own."""

    __slots__ = ("_by_key",)

    by_key = True
    add_units = 0

    def __init__(self) -> None:
        self._by_key: dict[str, dict[Binding[T], None]] = {}

    def add(self, binding: Binding[T]) -> None:
        self._by_key.setdefault(binding.routing_key, {})[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        bindings = self._by_key[binding.routing_key]
        del bindings[binding]
        if not bindings:
            del self._by_key[binding.routing_key]

    def search(self, key: str, headers: Table, found: dict[Binding[T], None]) -> Steps[None]:
        return collect(self._by_key.get(key, {}), found)


class FanoutMatcher(Generic[T]):
    """Every binding matches."""

    __slots__ = ("_bindings",)

    by_key = False
    add_units = 0

    def __init__(self) -> None:
        self._bindings: dict[Binding[T], None] = {}

    def add(self, binding: Binding[T]) -> None:
        self._bindings[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        del self._bindings[binding]

    def search(self, key: str, headers: Table, found: dict[Binding[T], None]) -> Steps[None]:
        return collect(self._bindings, found)


KINDS: Final[dict[str, Callable[[], Matcher[Any]]]] = {
    "direct": DirectMatcher,
    "fanout": FanoutMatcher,
    "topic": TopicMatcher,
    "headers": HeadersMatcher,
    "regex": PatternMatcher,
}


class Holder(Protocol[Q]):
    """Gives each delayed exchange a place to hold messages."""

    def open(self, exchange: Exchange[Q]) -> Q:
        """For an exchange that is new."""

    def close(self, holding: Q) -> None:
        """Its exchange is gone, and so is all that it holds."""


# What every vhost has from the beginning.
PREDECLARED: Final[dict[str, ExchangeSettings]] = {
    "": ExchangeSettings(kind="direct", durable=True),
    "amq.direct": ExchangeSettings(kind="direct", durable=True),
    "amq.fanout": ExchangeSettings(kind="fanout", durable=True),
    "amq.topic": ExchangeSettings(kind="topic", durable=True),
    "amq.headers": ExchangeSettings(kind="headers", durable=True),
    "amq.match": ExchangeSettings(kind="headers", durable=True),
    "amq.rabbitmq.trace": ExchangeSettings(kind="topic", durable=True, internal=True),
}


class Exchange(Generic[Q]):
    __slots__ = (
        "_last_resort",
        "_next_serial",
        "_ordinary",
        "bindings",
        "bound_exchanges",
        "by_headers",
        "declared",
        "deleted",
        "holding",
        "name",
        "settings",
        "window",
    )

    def __init__(self, name: str, settings: ExchangeSettings) -> None:
        self.name = name
        self.declared = settings
        self.settings = settings
        """What was declared, and what policies make of it."""
        self.deleted = False
        self.by_headers = settings.kind in ("headers", DELAYED)
        self.holding: Q | None = None
        """Where a delayed exchange holds messages until they are due."""
        self.window: Window | None = None
        """What was seen lately, where duplicates are to be found."""
        self.bindings: dict[tuple[Q | Exchange[Q], str, bytes], Binding[Q | Exchange[Q]]] = {}
        self.bound_exchanges: dict[Exchange[Q], int] = {}
        """The exchanges among the destinations, and by how many bindings each."""
        kind = settings.kind
        new_matcher = KINDS[str(settings.arguments[TYPE_ARGUMENT]) if kind == DELAYED else kind]
        self._ordinary: Matcher[Q | Exchange[Q]] = new_matcher()
        self._last_resort: Matcher[Q | Exchange[Q]] = new_matcher()
        self._next_serial = 0

    @property
    def is_new(self) -> bool:
        """Whether it never had a binding."""
        return not self._next_serial

    @property
    def bind_units(self) -> int:
        """What a binding costs to make, beyond what any method costs."""
        return self._ordinary.add_units

    def bind(
        self, destination: Q | Exchange[Q], routing_key: str, arguments: Table
    ) -> Binding[Q | Exchange[Q]] | None:
        """The new binding, or None where there is one like it."""
        identity = destination, routing_key, fingerprint(arguments)
        if identity in self.bindings:
            return None
        binding = Binding(self.name, destination, routing_key, arguments, self._next_serial)
        self._matcher(arguments).add(binding)
        self._next_serial += 1
        self.bindings[identity] = binding
        if isinstance(destination, Exchange):
            self.bound_exchanges[destination] = self.bound_exchanges.get(destination, 0) + 1
        return binding

    def find(
        self, destination: Q | Exchange[Q], routing_key: str, arguments: Table
    ) -> Binding[Q | Exchange[Q]] | None:
        return self.bindings.get((destination, routing_key, fingerprint(arguments)))

    def unbind(self, binding: Binding[Q | Exchange[Q]]) -> int:
        """Remove a binding; return the cost beyond that of a short one."""
        destination, key = binding.destination, binding.routing_key
        arguments = fingerprint(binding.arguments)
        del self.bindings[destination, key, arguments]
        self._matcher(binding.arguments).remove(binding)
        if isinstance(destination, Exchange):
            self.bound_exchanges[destination] -= 1
            if not self.bound_exchanges[destination]:
                del self.bound_exchanges[destination]
        return len(key) // _KEY_BYTES_PER_UNIT + len(arguments) // _ARGUMENTS_BYTES_PER_UNIT

    def search(self, keys: Sequence[str], headers: Table) -> Steps[list[Q | Exchange[Q]]]:
        """Where a message with these routing keys goes from here; a destination may come twice.

        Bindings to a destination that was deleted do not count.
        """
        for matcher in (self._ordinary, self._last_resort):
            found: dict[Binding[Q | Exchange[Q]], None] = {}
            for key in keys if matcher.by_key else keys[:1]:
                yield from matcher.search(key, headers, found)
            if not found:
                continue
            destinations: list[Q | Exchange[Q]] = []
            for some in _in_order(found):
                destinations += [each.destination for each in some if not each.destination.deleted]
                if units := len(some) // BINDINGS_PER_UNIT:
                    yield units
            if destinations:
                return destinations
        return []

    def check(self) -> None:
        for identity, binding in self.bindings.items():
            assert self.find(binding.destination, binding.routing_key, binding.arguments) is binding
            assert identity[0] is binding.destination, "X1"
        for older, newer in pairwise(self.bindings.values()):
            assert older.serial < newer.serial, "X3"

    def _matcher(self, arguments: Table) -> Matcher[Q | Exchange[Q]]:
        return self._last_resort if is_last_resort(arguments) else self._ordinary


def _in_order(bindings: Collection[Binding[T]]) -> Iterator[Sequence[Binding[T]]]:
    """The bindings from the oldest to the newest, in pieces; each takes only a part of the sorting."""
    if len(bindings) <= _SORTED_PER_STEP:
        return iter((sorted(bindings, key=_SERIAL),))
    return _merged(bindings)


def _merged(bindings: Collection[Binding[T]]) -> Iterator[Sequence[Binding[T]]]:
    pieces = []
    for some in parts(list(bindings), _SORTED_PER_STEP):
        pieces.append(sorted(some, key=_SERIAL))
        yield ()
    merged = heapq.merge(*pieces, key=_SERIAL)
    while piece := list(islice(merged, _SORTED_PER_STEP)):
        yield piece
