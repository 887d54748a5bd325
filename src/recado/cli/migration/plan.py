"""The plan of a migration: the objects to copy, the queues to move, and the reasons why it cannot or may not work."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from recado.cli.management.api import ManagementApi, path_of
from recado.cli.management.output import plural

from .topology import JsonObject, compare, count_objects, read_definitions

SAME_START_MS: Final = 10_000
"""RabbitMQ publishes its uptime every 5 s."""


class QueueJob(NamedTuple):
    """A queue whose messages are moved, or a stream whose messages are copied."""

    vhost: str
    name: str
    is_stream: bool
    messages: int
    """Ready messages when the plan was made."""

    def __str__(self) -> str:
        return f"{'stream' if self.is_stream else 'queue'} '{self.name}' in vhost '{self.vhost}'"


class MigrationPlan(NamedTuple):
    """The plan, before anything is changed."""

    definitions: JsonObject
    jobs: Sequence[QueueJob]
    obstacles: Sequence[str]
    """Reasons for which the migration is refused."""
    warnings: Sequence[str]
    """Queues whose messages will stay at the source or go to its consumers."""
    import_count: int
    """The number of objects that the target does not have yet, or has differently."""

    @property
    def messages(self) -> int:
        return sum(job.messages for job in self.jobs)

    def to_json(self) -> dict[str, Any]:
        return {
            "objects": count_objects(self.definitions),
            "objects_to_import": self.import_count,
            "queues": [job._asdict() for job in self.jobs],
            "messages": self.messages,
            "obstacles": list(self.obstacles),
            "warnings": list(self.warnings),
        }


def make_plan(
    source: ManagementApi,
    target: ManagementApi,
    *,
    vhosts: Sequence[str] | None,
    is_chosen: Callable[[str], bool],
) -> MigrationPlan:
    """Read both servers. `vhosts` limits the migration to some, `is_chosen` to some names of queues.

    Raises `ManagementError`, and `ValueError` if a chosen vhost does not exist or both are the same server.
    """
    existing = [vhost["name"] for vhost in source.get(path_of("vhosts"))]
    chosen = existing if vhosts is None else list(vhosts)
    unknown = set(chosen).difference(existing)
    if unknown:
        raise ValueError(f"the source has no vhost {', '.join(sorted(unknown))}")
    if _is_same_server(source, target):
        raise ValueError(f"{source.address} and {target.address} are the same server")
    definitions = read_definitions(source, chosen, target.address.user)
    differences = compare(definitions, target.get(path_of("definitions")))
    jobs: list[QueueJob] = []
    warnings: list[str] = []
    for vhost in chosen:
        for queue in source.get(path_of("queues", vhost)):
            if is_chosen(queue["name"]):
                _plan_queue(queue, jobs, warnings)
    obstacles = list(_find_unknown_types(definitions, target))
    return MigrationPlan(definitions, jobs, obstacles, warnings, len(differences))


def _is_same_server(source: ManagementApi, target: ManagementApi) -> bool:
    """Whether both are the same, also at different URLs: a migration would never end."""
    listeners, started_at_ms = [], []
    for api in (source, target):
        listeners.append(api.get(path_of("overview")).get("listeners"))
        nodes = api.get(path_of("nodes"))
        now_ms = time.time() * 1000
        started_at_ms.append(
            {(node["name"], node.get("os_pid")): now_ms - node.get("uptime", 0) for node in nodes}
        )
    here, there = started_at_ms
    return listeners[0] == listeners[1] and any(
        abs(here[node] - there[node]) < SAME_START_MS for node in here.keys() & there.keys()
    )


def _plan_queue(queue: JsonObject, jobs: list[QueueJob], warnings: list[str]) -> None:
    ready, unacked = queue.get("messages_ready", 0), queue.get("messages_unacknowledged", 0)
    is_stream = queue.get("type") == "stream"
    job = QueueJob(queue["vhost"], queue["name"], is_stream, ready)
    if queue.get("exclusive"):
        warnings.append(
            f"{job} is exclusive to a connection: it stays, with {plural(ready, 'message')}"
        )
        return
    jobs.append(job)
    if queue.get("consumers") and not is_stream:
        consumers = plural(queue["consumers"], "consumer")
        warnings.append(f"{job} has {consumers}, which will get some of its messages")
    if unacked and not is_stream:
        warnings.append(
            f"{job} has {plural(unacked, 'message')} that a consumer has not acknowledged:"
            " they stay until it does"
        )


def _find_unknown_types(definitions: JsonObject, target: ManagementApi) -> Sequence[str]:
    known = {each["name"] for each in target.get(path_of("overview")).get("exchange_types", [])}
    return [
        f"exchange '{each['name']}' in vhost '{each['vhost']}' has type {each['type']}, which"
        " the target does not have: delete it, or enable the plugin on the target"
        for each in definitions["exchanges"]
        if known and each["type"] not in known
    ]
