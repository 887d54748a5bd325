"""Queues of every kind, filled with numbered messages, and the check that all of them have arrived."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import msgspec

from recado.amqp.values import FieldValue
from recado.cli.management.api import ManagementApi, path_of
from recado.cli.management.server_address import parse_url
from recado.cli.migration.topology import (
    IDENTITIES,
    SKIPPED_GLOBAL_PARAMETERS,
    JsonObject,
    compare,
)
from recado.client import (
    Channel,
    Connection,
    Delivery,
    Properties,
    encode_properties,
)
from workshop.peers import Server
from workshop.time_limit import scale

VHOSTS = ("/", "shop/eu")
EXCHANGE = "events"
DEAD_LETTERS = "dead"
PRIORITIES_COUNT = 5
HOUR_MS = 3_600_000
DRAIN_COUNT = 2_000  # messages between two waits while filling
IDLE_S = 0.1
EXPIRY_LIMIT_S = 120.0


class Kind(NamedTuple):
    """Queues of one kind."""

    name: str
    arguments: dict[str, str | int]
    has_priorities: bool = False
    is_of_dead_letters: bool = False
    """Whether all messages have expired in another queue, and have the header x-death."""


KINDS = (
    Kind("plain", {}),
    Kind("priority", {"x-max-priority": PRIORITIES_COUNT}, has_priorities=True),
    Kind(
        "ttl",
        {
            "x-message-ttl": HOUR_MS,
            "x-dead-letter-exchange": DEAD_LETTERS,
            "x-max-length": 10_000_000,
            "x-overflow": "reject-publish",
        },
    ),
    Kind("dead", {}, is_of_dead_letters=True),
    Kind("quorum", {"x-queue-type": "quorum", "x-delivery-limit": 50}),
)


@dataclass
class Verdict:
    """What has arrived."""

    received: int = 0
    lost: int = 0
    out_of_order: int = 0
    twice: int = 0
    changed: list[str] = field(default_factory=list)


def api_of(server: Server) -> ManagementApi:
    return ManagementApi(parse_url(f"http://guest:guest@{server.host}:{http_port(server)}"))


def http_port(server: Server) -> int:
    """Return the port of the HTTP API; recado announces it in its log."""
    if server.http_port is not None:
        return server.http_port
    announced = server.log.read_text().partition("management API on http://")[2]
    return int(announced.partition("/")[0].rpartition(":")[2])


def definitions_of(server: Server) -> JsonObject:
    """Return everything but what is not migrated: the login itself, and the names of the server."""
    api = api_of(server)
    found: JsonObject = api.get(path_of("definitions"))
    api.close()
    left_out = {"users": {"guest"}, "global_parameters": SKIPPED_GLOBAL_PARAMETERS}
    for kind, names in left_out.items():
        found[kind] = [each for each in found.get(kind, []) if each["name"] not in names]
    return found


def amqp_url(server: Server, vhost: str) -> str:
    name = path_of(vhost).removeprefix("/api/")
    return f"amqp://guest:guest@{server.host}:{server.port}/{name}"


class Scene:
    """20 queues in two vhosts with `depth` messages each, an exchange with bindings, a user and a policy."""

    QUEUES_COUNT: ClassVar[int] = 20

    def __init__(self, depth: int) -> None:
        self.depth = depth
        copies = self.QUEUES_COUNT // len(KINDS) // len(VHOSTS)
        self.queues = {
            vhost: {f"{kind.name} {number}": kind for kind in KINDS for number in range(copies)}
            for vhost in VHOSTS
        }

    @property
    def total(self) -> int:
        return self.depth * self.QUEUES_COUNT

    async def populate(self, server: Server) -> JsonObject:
        """Declare and fill everything; return the definitions of the server."""
        api = api_of(server)
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        for vhost in VHOSTS:
            api.put(path_of("vhosts", vhost), {})
            api.put(path_of("permissions", vhost, "guest"), rights)
        api.put(path_of("users", "ana"), {"password": "a long one", "tags": "monitoring"})
        api.put(path_of("permissions", VHOSTS[1], "ana"), rights)
        policy = {"pattern": "^none", "definition": {"max-length": 5}, "apply-to": "queues"}
        api.put(path_of("policies", VHOSTS[1], "short"), policy)
        for vhost, queues in self.queues.items():
            api.put(path_of("exchanges", vhost, EXCHANGE), {"type": "topic", "durable": True})
            api.put(path_of("exchanges", vhost, DEAD_LETTERS), {"type": "fanout", "durable": True})
            for name, kind in queues.items():
                queue = {"durable": True, "arguments": kind.arguments}
                api.put(path_of("queues", vhost, name), queue)
                binding = {"routing_key": f"{name}.#", "arguments": {}}
                path = path_of("bindings", vhost, "e", EXCHANGE, "q", name)
                api.request("POST", path, binding)
            await self._fill(server, vhost)
        api.close()
        return definitions_of(server)

    async def _fill(self, server: Server, vhost: str) -> None:
        connection = await Connection.open(amqp_url(server, vhost))
        channel = await connection.channel(confirms=True)
        for name, kind in self.queues[vhost].items():
            exchange, key = EXCHANGE, f"{name}.new"
            if kind.is_of_dead_letters:
                exchange, key = "", f"{name} before"
                await self._declare_expiring(channel, key, f"{name}.new")
            for number in range(self.depth):
                channel.publish(
                    exchange,
                    key,
                    b"%d" % number,
                    encode_properties(properties_of(name, kind, number)),
                )
                if number % DRAIN_COUNT == DRAIN_COUNT - 1:
                    await channel.wait_for_confirms()
            await channel.wait_for_confirms()
            if kind.is_of_dead_letters:
                await self._wait_for_dead_letters(channel, name)
                await channel.delete_queue(key)
        await connection.close()

    async def _declare_expiring(self, channel: Channel, name: str, routing_key: str) -> None:
        """Declare a queue whose messages expire immediately and are routed again with this key."""
        arguments: dict[str, FieldValue] = {
            "x-message-ttl": 1,
            "x-dead-letter-exchange": EXCHANGE,
            "x-dead-letter-routing-key": routing_key,
        }
        await channel.declare_queue(name, durable=True, arguments=arguments)

    async def _wait_for_dead_letters(self, channel: Channel, name: str) -> None:
        async with asyncio.timeout(scale(EXPIRY_LIMIT_S)):
            while (await channel.declare_queue(name, passive=True)).message_count < self.depth:  # noqa: ASYNC110 - no event
                await asyncio.sleep(IDLE_S)

    def find_differences(self, server: Server, before: JsonObject) -> list[str]:
        """Return how the definitions of a server differ from those of `before`."""
        now = definitions_of(server)
        # And nothing more than before.
        kept = {kind: now.get(kind, []) for kind in IDENTITIES}
        return [
            *(f"{server.name}: {each}" for each in compare(before, now)),
            *(f"{server.name}, new: {each}" for each in compare(kept, before)),
        ]

    async def check(self, server: Server) -> Verdict:
        """Take all messages from the server and compare them with the published ones."""
        verdict = Verdict()
        for vhost, queues in self.queues.items():
            connection = await Connection.open(amqp_url(server, vhost))
            for name, kind in queues.items():
                await self._check_queue(connection, name, kind, verdict)
            await connection.close()
        return verdict

    async def _check_queue(
        self, connection: Connection, name: str, kind: Kind, verdict: Verdict
    ) -> None:
        seen: Counter[int] = Counter()
        newest: dict[int, int] = defaultdict(lambda: -1)
        async with await connection.channel(confirms=False) as channel:
            await channel.qos(DRAIN_COUNT)
            async with await channel.consume(name) as consumer:
                while True:
                    try:
                        async with asyncio.timeout(IDLE_S):
                            batch = await consumer.next_batch()
                    except TimeoutError:
                        declared = await channel.declare_queue(name, passive=True)
                        if declared.message_count == 0:
                            break
                        continue
                    for delivery in batch:
                        number = int(delivery.body)
                        bucket = number % PRIORITIES_COUNT if kind.has_priorities else 0
                        if not seen[number]:
                            verdict.out_of_order += number < newest[bucket]
                            newest[bucket] = max(number, newest[bucket])
                        seen[number] += 1
                        if (problem := find_change(delivery, name, kind, number)) is not None:
                            verdict.changed.append(problem)
                    batch[-1].ack(multiple=True)
        verdict.received += len(seen)
        verdict.lost += self.depth - len(seen)
        verdict.twice += seen.total() - len(seen)


def properties_of(queue: str, kind: Kind, number: int) -> Properties:
    """Return the properties of a message, with everything that could go wrong on the way."""
    return Properties(
        delivery_mode=2,
        message_id=f"{queue}:{number}",
        correlation_id=f"c{number}",
        content_type="text/plain",
        priority=number % PRIORITIES_COUNT if kind.has_priorities else None,
        expiration=str(HOUR_MS) if number % 7 == 0 else None,
        timestamp=1_700_000_000 + number,
        headers={"n": number, "tenant": "é"},
    )


def find_change(delivery: Delivery, queue: str, kind: Kind, number: int) -> str | None:
    """Return how a message differs from the published one; None if it does not."""
    expected = properties_of(queue, kind, number)
    received = delivery.properties
    headers = dict(received.headers or {})
    for added in ("x-delivery-count",):  # by a quorum queue, after an interruption
        headers.pop(added, None)
    if kind.is_of_dead_letters:
        if (problem := find_change_of_death(headers, queue, number)) is not None:
            return f"{queue} {number}: {problem}"
        expected = msgspec.structs.replace(expected, expiration=None)  # as RabbitMQ removes it
    if headers != expected.headers:
        return f"{queue} {number}: headers {headers}"
    for name in ("message_id", "correlation_id", "priority", "expiration", "timestamp"):
        if getattr(received, name) != getattr(expected, name):
            return f"{queue} {number}: {name} is {getattr(received, name)!r}"
    if delivery.routing_key != f"{queue}.new":
        return f"{queue} {number}: routing key {delivery.routing_key!r}"
    return None


def find_change_of_death(headers: dict[str, Any], queue: str, number: int) -> str | None:
    """Take the headers of a dead letter out of `headers`; return what is wrong with them."""
    source = f"{queue} before"
    first = {key: headers.pop(f"x-first-death-{key}", None) for key in ("queue", "reason")}
    headers.pop("x-first-death-exchange", None)
    deaths = headers.pop("x-death", None)
    if first != {"queue": source, "reason": "expired"}:
        return f"first death {first}"
    if not isinstance(deaths, list) or len(deaths) != 1:
        return f"x-death {deaths!r}"
    expected = {"queue": source, "reason": "expired", "count": 1, "routing-keys": [source]}
    if number % 7 == 0:
        expected["original-expiration"] = str(HOUR_MS)
    return None if expected.items() <= deaths[0].items() else f"x-death {deaths!r}"
