"""The search for the queues of a message, along the bindings of a vhost."""

from collections.abc import Sequence
from typing import Final, TypeVar

from recado.amqp.values import FieldTable

from .binding import BINDINGS_PER_UNIT, Destination
from .deduplication import ExchangeDeduplication
from .delay import read_delay_ms
from .exchange import Exchange
from .steps import STEP_UNITS_MAX, Steps, chunks
from .vhost import Vhost

Q = TypeVar("Q", bound=Destination)

_BINDINGS_PER_STEP: Final = STEP_UNITS_MAX * BINDINGS_PER_UNIT


def find_queues(
    vhost: Vhost[Q],
    exchange: Exchange[Q],
    routing_key: str,
    headers: FieldTable | None = None,
    more_keys: Sequence[str] = (),
    deduplication: ExchangeDeduplication | None = None,
) -> Steps[list[Q]]:
    """Find the queues of a message: each once, in the order of the bindings.

    Follows the bindings and visits each exchange once, so that cycles end. The search runs in steps, and
    the topology may change between them. A binding that exists during the whole search is followed; one
    that is added or removed meanwhile may be followed or not, as if the message had been published a moment
    earlier or later; a deleted queue is left out.

    `more_keys` are the CC and BCC keys. They belong to the same search, because an alternate exchange is
    used only if none of the keys matches. `deduplication` is set for a message from a client: deduplicating
    exchanges may stop it.
    """
    keys = tuple(dict.fromkeys((routing_key, *more_keys))) if more_keys else (routing_key,)
    headers = headers or {}
    queues: dict[Q, None] = {}
    visited = {exchange: None}
    pending = [exchange]
    for current in pending:
        if current.deleted:
            yield 1  # a transaction may contain such a route for each of its messages
            continue
        if (
            deduplication is not None
            and current.deduplication_window is not None
            and not deduplication.enter(current.deduplication_window)
        ):
            continue
        if current.delayed_queue is not None and read_delay_ms(headers):
            queues[current.delayed_queue] = None
            continue
        if current is vhost.default_exchange:
            queues.update((vhost.queues[key], None) for key in keys if key in vhost.queues)
            yield 1 + len(keys) // BINDINGS_PER_UNIT
            continue
        bindings = yield from current.search(keys, headers)
        for chunk in chunks(bindings, _BINDINGS_PER_STEP):
            for binding in chunk:
                destination = binding.destination
                if not isinstance(destination, Exchange):
                    queues[destination] = None
                elif destination not in visited:
                    visited[destination] = None
                    pending.append(destination)
            yield 1 + len(chunk) // BINDINGS_PER_UNIT
        if not bindings:
            for alternate in vhost.alternate_exchanges(current):
                if alternate not in visited:
                    visited[alternate] = None
                    pending.append(alternate)
    return [queue for queue in queues if not queue.deleted]


def depends_on_headers(vhost: Vhost[Q], exchange: Exchange[Q]) -> Steps[bool]:
    """Whether a message can reach an exchange that uses headers or message ids."""
    visited = {exchange}
    pending = [exchange]
    for current in pending:
        if current.deleted:
            continue
        if current.uses_headers or current.deduplication_window is not None:
            return True
        next_exchanges = {*current.bound_exchanges, *vhost.alternate_exchanges(current)} - visited
        visited |= next_exchanges
        pending += next_exchanges
        yield (len(current.bound_exchanges) + 1) // BINDINGS_PER_UNIT
    return False
