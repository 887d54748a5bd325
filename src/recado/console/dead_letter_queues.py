"""The queues that get dead letters of other queues, and the reasons for which the dead letters in a queue died."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from typing import Any, Final

import msgspec

from recado.amqp.properties import decode_properties
from recado.amqp.values import STORED_MAX_ENTRY_COUNT, FieldTable, FieldValue, Timestamp
from recado.broker.exchange import Exchange
from recado.broker.peek import PeekedMessage
from recado.broker.queue import Queue
from recado.broker.replay import REPLAY_COUNT_HEADER
from recado.broker.route_search import find_queues
from recado.broker.steps import STEP_UNITS_MAX, Steps, chunks
from recado.broker.vhost import Vhost

LISTED_SOURCES_MAX_COUNT: Final = 20
GROUPS_MAX_COUNT: Final = 100
_QUEUES_PER_STEP: Final = STEP_UNITS_MAX * 8
_MESSAGES_PER_STEP: Final = STEP_UNITS_MAX // 8

_Origin = tuple[str, str | None]
"""A dead-letter exchange, and the routing key that a queue sets."""


class DeadLetterQueue(msgspec.Struct):
    """A queue that dead letters are routed to, and some of the queues in which they died."""

    queue: Queue
    sources: list[Queue] = []
    source_count: int = 0


class DeadLetterMap(msgspec.Struct):
    """Where the dead letters of all queues go."""

    queues: dict[Queue, DeadLetterQueue] = {}
    lost: list[Queue] = []
    """Queues whose dead letters are dropped, because their dead-letter exchange does not exist or leads to no queue."""


def map_dead_letters(vhosts: Iterable[Vhost[Queue]]) -> Steps[DeadLetterMap]:
    """Find where dead letters go by the bindings of now."""
    found = DeadLetterMap({}, [])
    for vhost in vhosts:
        origins: defaultdict[_Origin, list[Queue]] = defaultdict(list)
        for chunk in chunks(list(vhost.queues.values()), _QUEUES_PER_STEP):
            for queue in chunk:
                name = queue.settings.dead_letter_exchange
                if name is not None:
                    origins[name, queue.settings.dead_letter_routing_key].append(queue)
            yield STEP_UNITS_MAX
        for origin, sources in origins.items():
            targets = yield from _find_targets(vhost, origin)
            if targets is not None and not targets:
                found.lost += sources
            for target in targets or ():
                entry = found.queues.setdefault(target, DeadLetterQueue(target, []))
                entry.source_count += len(sources)
                entry.sources += sources[: LISTED_SOURCES_MAX_COUNT - len(entry.sources)]
            yield 1 + len(targets or ())
    return found


def _find_targets(vhost: Vhost[Queue], origin: _Origin) -> Steps[Collection[Queue] | None]:
    """Return the queues that dead letters may reach; None if that depends on their own routing keys."""
    name, key = origin
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        return ()
    if key is not None:
        found = yield from find_queues(vhost, exchange, key)
        return found
    if exchange is vhost.default_exchange:
        return None
    targets: dict[Queue, None] = {}
    visited, pending = {exchange}, [exchange]
    for current in pending:
        further: list[Exchange[Queue] | None] = []
        for chunk in chunks(list(current.bindings.values()), _QUEUES_PER_STEP):
            for binding in chunk:
                if isinstance(binding.destination, Queue):
                    targets[binding.destination] = None
                else:
                    further.append(binding.destination)
            yield STEP_UNITS_MAX
        further.append(vhost.exchanges.get(current.settings.alternate_exchange or ""))
        for each in further:
            if each is not None and each is not vhost.default_exchange and each not in visited:
                visited.add(each)
                pending.append(each)
    return targets


class DeathGroup(msgspec.Struct, frozen=True):
    """What dead letters of one kind have in common."""

    reason: str
    queue: str
    """Where they died last, not counting deaths in the queue that holds them now."""
    exchange: str
    routing_key: str


class DeathCounts(msgspec.Struct):
    """The dead letters of one kind."""

    count: int = 0
    deaths: int = 0
    """The most deaths of one of them."""
    replays: Counter[int] = msgspec.field(default_factory=Counter)
    """The number of messages, by how often they were replayed."""
    first_at: int | None = None
    last_at: int | None = None
    """Of their deaths, in seconds since 1970."""


def group_deaths(
    messages: Iterable[PeekedMessage], holder: str
) -> Steps[dict[DeathGroup | None, DeathCounts]]:
    """Group dead letters by reason, queue, exchange and routing key; None has those that are no dead letters."""
    groups: dict[DeathGroup | None, DeathCounts] = {}
    for number, message in enumerate(messages):
        properties = decode_properties(message.properties, max_entries=STORED_MAX_ENTRY_COUNT)
        headers = properties.headers or {}
        death = _find_death(headers, holder)
        group = _to_group(death) if death is not None else None
        if group not in groups and len(groups) >= GROUPS_MAX_COUNT:
            group = DeathGroup("", "", "", "")  # all others together
        counts = groups.setdefault(group, DeathCounts())
        counts.count += 1
        replays = headers.get(REPLAY_COUNT_HEADER)
        counts.replays[replays if isinstance(replays, int) and replays > 0 else 0] += 1
        if death is not None:
            _count_death(counts, death)
        if number % _MESSAGES_PER_STEP == 0:
            yield STEP_UNITS_MAX
    return groups


def _find_death(headers: FieldTable, holder: str) -> dict[str, FieldValue] | None:
    """Return the entry of `x-death` about the last death, in the holder only if there is no other."""
    deaths = headers.get("x-death")
    entries = (
        [each for each in deaths if isinstance(each, dict)] if isinstance(deaths, list) else []
    )
    others = [each for each in entries if each.get("queue") != holder]
    return next(iter(others or entries), None)


def _to_group(death: dict[str, FieldValue]) -> DeathGroup:
    def text(value: FieldValue) -> str:
        return value if isinstance(value, str) else ""

    keys = death.get("routing-keys")
    key = keys[0] if isinstance(keys, list) and keys else ""
    return DeathGroup(
        text(death.get("reason")), text(death.get("queue")), text(death.get("exchange")), text(key)
    )


def _count_death(counts: DeathCounts, death: dict[str, FieldValue]) -> None:
    number, at = death.get("count"), death.get("time")
    if isinstance(number, int):
        counts.deaths = max(counts.deaths, int(number))
    if isinstance(at, Timestamp):
        counts.first_at = min(counts.first_at or int(at), int(at))
        counts.last_at = max(counts.last_at or 0, int(at))


def describe_groups(groups: dict[DeathGroup | None, DeathCounts]) -> list[dict[str, Any]]:
    """Return groups as JSON objects, the largest first; the fields of the reason are null for other messages."""
    return [
        {
            "reason": group.reason if group is not None else None,
            "queue": group.queue if group is not None else None,
            "exchange": group.exchange if group is not None else None,
            "routing_key": group.routing_key if group is not None else None,
            "count": counts.count,
            "deaths": counts.deaths,
            "replays": {str(number): count for number, count in sorted(counts.replays.items())},
            "first_at": counts.first_at,
            "last_at": counts.last_at,
        }
        for group, counts in sorted(groups.items(), key=lambda each: -each[1].count)
    ]
