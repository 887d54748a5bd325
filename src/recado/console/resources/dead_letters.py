"""Dead letters: which queues have them, where they come from, and why they died."""

from __future__ import annotations

from typing import Any, Final

from recado.broker.peek import PeekSettings, peek
from recado.broker.queue import Queue
from recado.broker.ready_messages import ReadyMessages
from recado.broker.work_queue import WorkQueue

from ..access import Access, listed_vhosts
from ..broker_steps import run_broker_steps
from ..dead_letter_queues import DeadLetterQueue, describe_groups, group_deaths, map_dead_letters
from ..query import VHOST
from ..request import Answer, ApiRequest, bad_request
from ..routes import API
from .messages import GET_MAX_BYTES
from .queue_operations import find_readable_queue
from .statistics import count_unacked

EXAMINED_MAX_COUNT: Final = 1_000
LOST_MAX_COUNT: Final = 100


@API.add("GET", "/api/dead-letters", Access.MANAGEMENT, query=(VHOST,))
def list_dead_letter_queues(request: ApiRequest) -> Answer:
    """List the queues to which dead letters of other queues go, by the bindings of now, the longest first.

    `lost` has the first 100 queues whose dead letters are dropped, because their dead-letter exchange does not exist or
    leads to no queue; `lost_count` counts all.
    """
    wanted = frozenset(request.repeated(VHOST.name))
    names = listed_vhosts(request.user, request.broker)
    vhosts = [request.broker.vhosts[name] for name in names if not wanted or name in wanted]

    async def wait() -> Answer:
        found = await run_broker_steps(request, map_dead_letters(vhosts))
        queues = sorted(
            found.queues.values(), key=lambda each: (-each.queue.ready, each.queue.name)
        )
        return Answer(
            body={
                "queues": [_queue_object(each) for each in queues],
                "lost": [_lost_object(queue) for queue in found.lost[:LOST_MAX_COUNT]],
                "lost_count": len(found.lost),
            }
        )

    return Answer(wait=wait)


def _queue_object(entry: DeadLetterQueue) -> dict[str, Any]:
    queue = entry.queue
    return {
        "vhost": queue.vhost.name,
        "name": queue.name,
        "type": queue.declared_settings.queue_type,
        "messages_ready": queue.ready,
        "messages_unacknowledged": count_unacked(queue),
        "consumers": len(queue.consumers),
        "entered": queue.published_count,
        "sources": [each.name for each in entry.sources],
        "source_count": entry.source_count,
    }


def _lost_object(queue: Queue) -> dict[str, Any]:
    return {
        "vhost": queue.vhost.name,
        "name": queue.name,
        "dead_letter_exchange": queue.settings.dead_letter_exchange,
    }


@API.add("GET", "/api/dead-letters/{vhost}/{queue}", Access.VHOST)
def count_deaths(request: ApiRequest) -> Answer:
    """Count the first 1,000 ready messages of a queue by why and where they died, and how often they were replayed."""
    queue = find_readable_queue(request)
    if not isinstance(queue, WorkQueue):
        raise bad_request("dead letters in a stream are not counted")
    settings = PeekSettings(EXAMINED_MAX_COUNT, GET_MAX_BYTES, body_bytes_max=0)
    steps = peek(ReadyMessages(queue), settings, request.now_ms)

    async def wait() -> Answer:
        messages = await run_broker_steps(request, steps)
        groups = await run_broker_steps(request, group_deaths(messages, queue.name))
        return Answer(
            body={
                "vhost": queue.vhost.name,
                "name": queue.name,
                "messages_ready": queue.ready,
                "examined": len(messages),
                "groups": describe_groups(groups),
            }
        )

    return Answer(wait=wait)
