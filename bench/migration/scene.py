"""Queues of every kind, filled with numbered messages, and the check that all of them have arrived."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from recado.cli.management.api import ManagementApi, path_of
from recado.cli.management.server_address import parse_url
from recado.cli.migration.topology import IDENTITIES, JsonObject, compare
from recado.client import Connection, Delivery, Properties, encode_properties
from workshop.peers import Server

VHOSTS = ("/", "shop/eu")
EXCHANGE = "events"
DEAD_LETTERS = "dead"
PRIORITIES_COUNT = 5
HOUR_MS = 3_600_000
DRAIN_COUNT = 2_000  # messages between two waits while filling
IDLE_S = 0.1


class Kind(NamedTuple):
    """Queues of one kind."""

    name: str
    arguments: dict[str, str | int]
    has_priorities: bool = False


KINDS = (
    Kind("plain", {}),
    Kind("priority", {"x-max-priority": PRIORITIES_COUNT}, has_priorities=True),
    Kind("ttl", {"x-message-ttl": HOUR_MS, "x-dead-letter-exchange": DEAD_LETTERS}),
    Kind("limited", {"x-max-length": 10_000_000, "x-overflow": "reject-publish"}),
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
    differences: list[str] = field(default_factory=list)


def api_of(server: Server) -> ManagementApi:
    return ManagementApi(parse_url(f"http://guest:guest@{server.host}:{http_port(server)}"))


def http_port(server: Server) -> int:
    """Return the port of the HTTP API; recado announces it in its log."""
    if server.http_port is not None:
        return server.http_port
    announced = server.log.read_text().partition("management API on http://")[2]
    return int(announced.partition("/")[0].rpartition(":")[2])


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
        definitions: JsonObject = api.get(path_of("definitions"))
        api.close()
        return definitions

    async def _fill(self, server: Server, vhost: str) -> None:
        connection = await Connection.open(amqp_url(server, vhost))
        channel = await connection.channel(confirms=True)
        for name, kind in self.queues[vhost].items():
            for number in range(self.depth):
                channel.publish(
                    EXCHANGE,
                    f"{name}.new",
                    b"%d" % number,
                    encode_properties(properties_of(name, kind, number)),
                )
                if number % DRAIN_COUNT == DRAIN_COUNT - 1:
                    await channel.wait_for_confirms()
            await channel.wait_for_confirms()
        await connection.close()

    async def check(self, server: Server, before: JsonObject) -> Verdict:
        """Take all messages from the server and compare them, and the definitions, with those of `before`."""
        verdict = Verdict()
        api = api_of(server)
        now = api.get(path_of("definitions"))
        verdict.differences += [str(each) for each in compare(before, now)]
        # And nothing more than before.
        kept = {kind: now.get(kind, []) for kind in IDENTITIES}
        verdict.differences += [f"new: {each}" for each in compare(kept, before)]
        api.close()
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
    if headers != expected.headers:
        return f"{queue} {number}: headers {headers}"
    for name in ("message_id", "correlation_id", "priority", "expiration", "timestamp"):
        if getattr(received, name) != getattr(expected, name):
            return f"{queue} {number}: {name} is {getattr(received, name)!r}"
    if delivery.routing_key != f"{queue}.new":
        return f"{queue} {number}: routing key {delivery.routing_key!r}"
    return None
