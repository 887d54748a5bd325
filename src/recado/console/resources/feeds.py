"""Feeds: found by their exchanges, and described by the archives that this node runs.

The broker knows nothing of feeds: the exchanges `feed.F` and `feed.F.archive` are a feed, and the queues bound to
`feed.F` are its members and archives. Views, publishers and positions are known to archives only. For a feed without
an archive on this node they are null.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from recado.amqp.properties import Properties
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.broker.vhost import Vhost
from recado.feeds.naming import archive_queue_name, broadcast_exchange, member_exchange

from ..access import Access, is_monitor, visible_vhosts
from ..body import Integer, read_body
from ..query import Listing, Steps
from ..request import Answer, ApiError, ApiRequest, not_found
from ..routes import API, Content
from .topology import access_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recado.feeds.archive.messages import ArchivedMessage
    from recado.feeds.archive_summary import ArchiveSummary

QUEUES_MAX_COUNT: Final = 500  # in the answer about one feed
_PREFIX: Final = broadcast_exchange("")


class FeedEntry(msgspec.Struct, frozen=True):
    """A feed and the vhost that it is in."""

    vhost: Vhost[Queue]
    name: str


def is_feed(vhost: Vhost[Queue], name: str) -> bool:
    """Whether a vhost has the two exchanges of a feed."""
    broadcast = vhost.exchanges.get(broadcast_exchange(name))
    addressed = vhost.exchanges.get(member_exchange(name))
    return (
        broadcast is not None
        and addressed is not None
        and broadcast.settings.exchange_type == "topic"
        and addressed.settings.exchange_type == "direct"
    )


def find_feeds(vhosts: Sequence[Vhost[Queue]]) -> Steps[list[FeedEntry]]:
    """Return the feeds of some vhosts, by the names of their exchanges."""
    found = []
    for vhost in vhosts:
        for exchange in list(vhost.exchanges):
            name = exchange.removeprefix(_PREFIX)
            if name and name != exchange and is_feed(vhost, name):
                found.append(FeedEntry(vhost, name))
            yield
    return found


def _bound_queues(exchange: Exchange[Queue]) -> list[Queue]:
    """Return the queues of a feed. They are read in one step: a feed has one for each member and archive."""
    destinations = (binding.destination for binding in exchange.bindings.values())
    return list(dict.fromkeys(each for each in destinations if isinstance(each, Queue)))


def _summaries(request: ApiRequest, entry: FeedEntry) -> Sequence[ArchiveSummary]:
    archives = request.console.archives
    return () if archives is None else archives.summarize(entry.vhost.name, entry.name)


def feed_object(request: ApiRequest, entry: FeedEntry) -> dict[str, Any]:
    """Return the fields of a feed that lists have."""
    summaries = _summaries(request, entry)
    described: dict[str, Any] = {
        "name": entry.name,
        "vhost": entry.vhost.name,
        "exchange": broadcast_exchange(entry.name),
        "queue_count": 0,
        "archive_count": len(summaries),
        "view": None,
        "member_count": None,
        "publisher_count": None,
        "messages_stored": None,
        "messages_unsynced": None,
        "archive_lag": None,
    }
    exchange = entry.vhost.exchanges.get(broadcast_exchange(entry.name))
    if exchange is not None:
        described["queue_count"] = len(_bound_queues(exchange))
    if summaries:
        # Archives of one feed may be in different views for a moment.
        views = [each.view for each in summaries if each.view is not None]
        if views:
            newest = max(views, key=lambda view: view.number)
            described["view"], described["member_count"] = newest.number, newest.member_count
        described["publisher_count"] = max(each.publisher_count for each in summaries)
        described["messages_stored"] = max(
            each.next_offset - each.first_offset for each in summaries
        )
        described["messages_unsynced"] = max(each.unsynced for each in summaries)
        described["archive_lag"] = max(each.lag for each in summaries)
    return described


def _queue_object(entry: FeedEntry, queue: Queue) -> dict[str, Any]:
    prefix = archive_queue_name(entry.name, "")
    is_archive = queue.name.startswith(prefix)
    return {
        "name": queue.name,
        "archive": queue.name.removeprefix(prefix) if is_archive else None,
        "messages": queue.ready + queue.unacked,
        "consumers": len(queue.consumers),
    }


def _archive_object(entry: FeedEntry, summary: ArchiveSummary) -> dict[str, Any]:
    described: dict[str, Any] = msgspec.to_builtins(summary)
    queue = entry.vhost.queues.get(archive_queue_name(entry.name, summary.name))
    described["packets_waiting"] = None if queue is None else queue.ready + queue.unacked
    return described


@API.add("GET", "/api/feeds", Access.MANAGEMENT, content=Content.PAGES)
def list_feeds(request: ApiRequest) -> Answer:
    """List the feeds of the vhosts that the user may see."""
    names = visible_vhosts(request.user, request.broker)
    return _listing(request, [request.broker.vhosts[name] for name in names])


@API.add("GET", "/api/feeds/{vhost}", Access.VISIBLE_VHOST, content=Content.PAGES)
def list_feeds_of_vhost(request: ApiRequest) -> Answer:
    """List the feeds of one vhost."""
    return _listing(request, [request.vhost()])


def _listing(request: ApiRequest, vhosts: Sequence[Vhost[Queue]]) -> Answer:
    async def wait() -> Answer:
        return Answer(
            listing=Listing(
                await request.console.slices.run(find_feeds(vhosts)),
                partial(feed_object, request),
                lambda entry: entry.name,
                {
                    "name": lambda entry: entry.name,
                    "vhost": lambda entry: entry.vhost.name,
                },
                lambda entry: (entry.vhost.name, entry.name),
            )
        )

    return Answer(wait=wait)


def _find(request: ApiRequest) -> FeedEntry:
    entry = FeedEntry(request.vhost(), request.parameters["feed"])
    if not is_feed(entry.vhost, entry.name):
        raise not_found()
    return entry


@API.add("GET", "/api/feeds/{vhost}/{feed}", Access.VISIBLE_VHOST)
def get_feed(request: ApiRequest) -> Answer:
    """Return one feed with its queues and the archives that this node runs.

    Of an archive: the current view and past ones, the position of each publisher, the subscribers, the stored rows
    and the lag. `archives` is null if this node runs none of the feed.
    """
    entry = _find(request)
    exchange = entry.vhost.exchanges[broadcast_exchange(entry.name)]
    summaries = _summaries(request, entry)
    return Answer(
        body={
            **feed_object(request, entry),
            "queues": [
                _queue_object(entry, queue) for queue in _bound_queues(exchange)[:QUEUES_MAX_COUNT]
            ],
            "archives": [_archive_object(entry, each) for each in summaries] or None,
        }
    )


@API.add("GET", "/api/feeds/{vhost}/{feed}/subscribers/{subscriber}", Access.VISIBLE_VHOST)
def get_subscriber(request: ApiRequest) -> Answer:
    """Return which messages a subscriber of a feed has received, as each archive of this node knows it.

    A range of messages is `delivered`, `uncertain` or `missed`. A subscriber without a record is not found.
    """
    entry, name = _find(request), request.parameters["subscriber"]
    archives = request.console.archives
    if archives is None:
        raise not_found()

    async def wait() -> Answer:
        found = await archives.assess_subscriber(entry.vhost.name, entry.name, name)
        if not found:
            raise not_found()
        body = {
            "name": name,
            "vhost": entry.vhost.name,
            "feed": entry.name,
            "archives": msgspec.to_builtins(found),
        }
        return Answer(body=body)

    return Answer(wait=wait)


# ── search ──────────────────────────────────────────────────────────────────────────────────────────


class FeedSearch(msgspec.Struct):
    """Which rows of an archive to look at."""

    archive: Annotated[str, msgspec.Meta(description="Its name; empty: the first one.")] = ""
    selector: Annotated[
        str, msgspec.Meta(description="A filter expression; empty: all rows match.")
    ] = ""
    since: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=2**52)] | msgspec.UnsetType,
        msgspec.Meta(
            description="Unix time in ms: rows published then or later. Absent: the last rows."
        ),
    ] = msgspec.UNSET
    rows: Annotated[int, msgspec.Meta(ge=1, le=1_000_000, description="At most so many rows.")] = (
        100_000
    )
    count: Annotated[
        int, msgspec.Meta(ge=0, le=200, description="The first matching messages to return.")
    ] = 20
    truncate: Annotated[
        Integer, msgspec.Meta(description="Bytes of a payload to return; all if negative.")
    ] = -1


@API.add(
    "POST", "/api/feeds/{vhost}/{feed}/search", Access.VHOST, answers=(200, 500), body=FeedSearch
)
def search_feed(request: ApiRequest) -> Answer:
    """Count the messages of an archive that a selector matches, from a time on or among the last, and return the first.

    A search ends after five seconds; `complete` tells whether it has looked at all rows.
    """
    entry, body = _find(request), read_body(request, FeedSearch)
    exchange = broadcast_exchange(entry.name)
    access_to(request, entry.vhost).permissions.check_read("exchange", exchange)
    selector = request.message_access.parse_archive_selector(body.selector)
    archives = request.console.archives
    if archives is None:
        raise not_found()

    async def wait() -> Answer:
        from recado.feeds.archive.errors import ArchiveError
        from recado.feeds.archive.search import ArchiveSearch

        since_us = None if body.since is msgspec.UNSET else body.since * 1_000
        wanted = ArchiveSearch(selector, since_us, body.rows, body.count)
        try:
            found = await archives.search(
                entry.vhost.name, entry.name, body.archive or None, wanted
            )
        except ArchiveError as error:
            raise ApiError(500, "internal_error", f"the archive cannot be read: {error}") from error
        if found is None:
            raise not_found()
        name, result = found
        return Answer(
            body={
                "archive": name,
                "folder": result.folder if is_monitor(request.user) else None,
                "first_offset": result.first_offset,
                "end_offset": result.end_offset,
                "examined": result.examined,
                "matched": result.matched,
                "complete": result.is_complete,
                "messages": [
                    _message_object(request, each, body.truncate) for each in result.messages
                ],
            }
        )

    return Answer(wait=wait, is_change=False)


def _message_object(request: ApiRequest, message: ArchivedMessage, truncate: int) -> dict[str, Any]:
    properties = msgspec.structs.replace(
        message.properties or Properties(),
        headers=dict(message.headers) or None,
        message_id=message.message_id or None,
    )
    return {
        "offset": message.offset,
        "publisher": message.publisher.hex(),
        "sequence": message.sequence,
        "published_at": message.timestamp // 1_000,
        "routing_key": message.key,
        **request.message_access.describe(properties, message.body, truncate=truncate),
    }
