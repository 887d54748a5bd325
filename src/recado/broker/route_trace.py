"""A trace of the route of a message: which exchanges it would pass, which bindings match, and where it would end.

It follows the same rules as `route_search`, and nothing is published. A message to a delayed exchange is traced as
if it were due now.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from recado.amqp.values import FieldTable

from .binding import BINDINGS_PER_UNIT, Binding, is_fallback_binding
from .delay import read_delay_ms
from .exchange import Exchange
from .queue import Queue
from .steps import STEP_UNITS_MAX, Steps, chunks
from .vhost import Vhost

MATCHES_MAX_COUNT: Final = 1_000
"""Limit of the matches, and of the queues, that a trace lists; further ones are only counted."""
_BINDINGS_PER_STEP: Final = STEP_UNITS_MAX * BINDINGS_PER_UNIT
_REASONS_MAX_COUNT: Final = 5  # dead ends in `unroutable_reason`, which must stay readable

DUPLICATE: Final = "a message with this id was accepted before"

AnyBinding = Binding[Any]


class TracedMatch(msgspec.Struct, frozen=True):
    """A binding that matches, or for the default exchange the name of a queue."""

    destination: Queue | Exchange[Queue]
    routing_key: str
    arguments: FieldTable
    matched_keys: Sequence[str]
    """Those routing keys of the message that match; empty if the exchange type ignores routing keys."""
    is_fallback: bool = False
    """The binding is used because no ordinary binding matches."""


class TracedExchange(msgspec.Struct):
    """An exchange that the message reaches, and where it goes from there."""

    exchange: Exchange[Queue]
    is_alternate: bool = False
    """It was reached as an alternate exchange, not by a binding."""
    matches: list[TracedMatch] = []
    match_count: int = 0
    alternate: str | None = None
    """The alternate exchange that the message is passed to."""
    delay_ms: int = 0
    dead_end: str | None = None
    """Why the message goes nowhere from here."""


class TracedQueue(msgspec.Struct, frozen=True):
    """A queue that the message reaches, and why it would refuse the message; None if it would accept it."""

    queue: Queue
    refusal: str | None


class RouteTrace(msgspec.Struct):
    """The exchanges in the order in which they are reached, and the queues."""

    keys: Sequence[str]
    """The routing keys: that of the message, and those of CC and BCC."""
    exchanges: list[TracedExchange] = []
    queues: list[TracedQueue] = []
    queue_count: int = 0

    @property
    def unroutable_reason(self) -> str | None:
        """Why no queue is reached."""
        if self.queue_count:
            return None
        reasons = [
            f"{_describe(each.exchange)}: {each.dead_end}"
            for each in self.exchanges
            if each.dead_end is not None
        ]
        if len(reasons) > _REASONS_MAX_COUNT:
            reasons[_REASONS_MAX_COUNT:] = ["…"]
        return "; ".join(reasons) or "the exchanges lead only to each other"


def trace_route(
    vhost: Vhost[Queue],
    exchange: Exchange[Queue],
    routing_key: str,
    headers: FieldTable,
    more_keys: Sequence[str],
    message_id: bytes,
    now: int,
) -> Steps[RouteTrace]:
    """Trace a message. As in `find_queues`, the topology may change between two steps."""
    trace = RouteTrace(tuple(dict.fromkeys((routing_key, *more_keys))))
    queues: dict[Queue, None] = {}
    visited = {exchange}
    pending = [TracedExchange(exchange)]
    listed = 0
    for current in pending:
        yield 1
        if current.exchange.deleted:
            continue
        trace.exchanges.append(current)
        window = current.exchange.deduplication_window
        if window is not None and window.has(message_id, now):
            current.dead_end = DUPLICATE
            continue
        if current.exchange.delayed_queue is not None:
            current.delay_ms = read_delay_ms(headers)
        matches = yield from _find_matches(vhost, current.exchange, trace.keys, headers)
        current.match_count = len(matches)
        current.matches = matches[: max(MATCHES_MAX_COUNT - listed, 0)]
        listed += len(current.matches)
        for chunk in chunks(matches, _BINDINGS_PER_STEP):
            for match in chunk:
                if not isinstance(match.destination, Exchange):
                    queues[match.destination] = None
                elif match.destination not in visited:
                    visited.add(match.destination)
                    pending.append(TracedExchange(match.destination))
            yield len(chunk) // BINDINGS_PER_UNIT
        if not matches:
            _follow_alternate(vhost, current, visited, pending)
    reached = [queue for queue in queues if not queue.deleted]
    trace.queue_count = len(reached)
    trace.queues = [
        TracedQueue(queue, _find_refusal(queue, message_id, now))
        for queue in reached[:MATCHES_MAX_COUNT]
    ]
    return trace


def _find_matches(
    vhost: Vhost[Queue], exchange: Exchange[Queue], keys: Sequence[str], headers: FieldTable
) -> Steps[list[TracedMatch]]:
    if exchange is vhost.default_exchange:
        found = [(key, vhost.queues[key]) for key in keys if key in vhost.queues]
        return [
            TracedMatch(queue, key, {}, (key,))
            for key, queue in found
            if not queue.is_reply_address
        ]
    # With all keys at once: a fallback binding matches only if no ordinary binding matches any of them.
    bindings = yield from exchange.search(keys, headers)
    keys_of: dict[AnyBinding, list[str]] = {}
    if exchange.uses_key:
        for key in keys:
            for binding in (yield from exchange.search((key,), headers)):
                keys_of.setdefault(binding, []).append(key)
    matches: list[TracedMatch] = []
    for chunk in chunks(bindings, _BINDINGS_PER_STEP):
        matches += [
            TracedMatch(
                binding.destination,
                binding.routing_key,
                binding.arguments,
                keys_of.get(binding, ()),
                is_fallback_binding(binding.arguments),
            )
            for binding in chunk
        ]
        yield len(chunk) // BINDINGS_PER_UNIT
    return matches


def _follow_alternate(
    vhost: Vhost[Queue],
    current: TracedExchange,
    visited: set[Exchange[Queue]],
    pending: list[TracedExchange],
) -> None:
    """Pass the message to the alternate exchange of an exchange where no binding matches."""
    name = current.exchange.settings.alternate_exchange
    if current.exchange is vhost.default_exchange:
        current.dead_end = "no queue has the name of the routing key"
    elif name is None:
        current.dead_end = "no binding matches, and it has no alternate exchange"
    elif name not in vhost.exchanges:
        current.dead_end = f"no binding matches, and its alternate exchange '{name}' does not exist"
    else:
        current.alternate = name
        alternate = vhost.exchanges[name]
        if alternate in visited:
            current.dead_end = f"no binding matches, and '{name}' was reached already"
        else:
            visited.add(alternate)
            pending.append(TracedExchange(alternate, is_alternate=True))


def _find_refusal(queue: Queue, message_id: bytes, now: int) -> str | None:
    """Return why a queue would not accept the message; None if it would."""
    window = queue.deduplication_window
    if window is not None and window.has(message_id, now):
        return DUPLICATE
    if queue.settings.overflow != "drop-head" and not queue.count_fitting([0]):
        return f"the queue is full and rejects messages ({queue.settings.overflow})"
    return None


def _describe(exchange: Exchange[Queue]) -> str:
    return f"exchange '{exchange.name}'" if exchange.name else "default exchange"
