"""What an archive knows about its feed, for monitoring: views, publishers, subscribers, stored rows.

Every list has a limit, beside which the whole number is reported. `summarize` runs in the event loop, between two
packets, so it takes no lock and reads no file; `assess_subscriber` draws conclusions from up to a thousand views,
and runs in a thread.
"""

from __future__ import annotations

from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from .delivery_records import DeliveryRecords

if TYPE_CHECKING:
    from .archive.store import ArchiveStore
    from .boundary import ArchiveState
    from .views import View

PAST_VIEWS_MAX_COUNT: Final = 20
MEMBERS_MAX_COUNT: Final = 100
PUBLISHERS_MAX_COUNT: Final = 100
SUBSCRIBERS_MAX_COUNT: Final = 100
RANGES_MAX_COUNT: Final = 100


class MemberSummary(Struct, frozen=True):
    name: str
    incarnation: str
    """32 hex digits."""
    role: str
    """`subscriber` or `archive`."""


class ViewSummary(Struct, frozen=True):
    number: int
    coordinator: str
    """The incarnation of the member that made it."""
    member_count: int
    members: list[MemberSummary]
    """The oldest ones, oldest first."""


class PublisherSummary(Struct, frozen=True):
    publisher: str
    """32 hex digits, another one after each start of the publisher."""
    last: int
    """The last sequence that is on disk."""


class SubscriberSummary(Struct, frozen=True):
    """A subscriber that has acknowledged a view to this archive."""

    name: str
    incarnation: str
    view: int
    """The number of that view."""
    has_left: bool
    """It has left the feed and acknowledged everything that it had processed."""


class ArchiveSummary(Struct, frozen=True):
    name: str
    is_storing: bool
    first_offset: int
    """Retention has deleted the rows before it."""
    sealed_offset: int
    """Rows before it are in files, later ones in the journal."""
    next_offset: int
    """Rows before it are on disk."""
    unsynced: int
    """Rows that were received, and are not yet on disk."""
    lag: float
    """Seconds since the oldest of those was received."""
    file_count: int
    file_bytes: int
    view: ViewSummary | None
    """The current view; None until the archive has joined the feed."""
    past_view_count: int
    past_views: list[ViewSummary]
    """The newest ones, newest first."""
    publisher_count: int
    publishers: list[PublisherSummary]
    subscriber_count: int
    """Incarnations of subscribers."""
    subscribers: list[SubscriberSummary]
    """Those that acknowledged last."""


class DeliveredRange(Struct, frozen=True):
    """Messages first..last of a publisher."""

    first: int
    last: int
    certainty: str
    """`delivered`, `uncertain` or `missed`."""


class PublisherDelivery(Struct, frozen=True):
    publisher: str
    range_count: int
    ranges: list[DeliveredRange]
    """The last ones."""


class SubscriberDelivery(Struct, frozen=True):
    """What an archive knows about the messages that a subscriber has received, over all its incarnations."""

    archive: str
    publisher_count: int
    publishers: list[PublisherDelivery]


def summarize(
    name: str, store: ArchiveStore, current: View | None, *, is_storing: bool
) -> ArchiveSummary:
    """Return the summary of an archive. Call it on the thread that appends."""
    progress, files, records = store.measure_progress(), store.files, store.delivery_records
    vector = store.durable_vector
    past = [record.view for record in records.view_records.values() if not record.provisional]
    if current is not None:
        past = [view for view in past if view.id != current.id]
    acknowledgements = records.acknowledgements
    return ArchiveSummary(
        name=name,
        is_storing=is_storing,
        first_offset=progress.first_offset,
        sealed_offset=progress.sealed_offset,
        next_offset=progress.durable_offset,
        unsynced=progress.unsynced_count,
        lag=progress.lag_s,
        file_count=len(files),
        file_bytes=sum(file.bytes for file in files),
        view=None if current is None else _summarize_view(current),
        past_view_count=len(past),
        past_views=[
            _summarize_view(view)
            for view in nlargest(PAST_VIEWS_MAX_COUNT, past, key=lambda view: view.id)
        ],
        publisher_count=len(vector),
        publishers=[
            PublisherSummary(publisher.hex(), vector[publisher])
            for publisher in islice(vector, PUBLISHERS_MAX_COUNT)
        ],
        subscriber_count=len(acknowledgements),
        subscribers=[
            SubscriberSummary(
                ack.member.name, ack.member.incarnation.hex(), ack.view_id.number, ack.is_final
            )
            for ack in islice(reversed(acknowledgements.values()), SUBSCRIBERS_MAX_COUNT)
        ],
    )


def _summarize_view(view: View) -> ViewSummary:
    return ViewSummary(
        view.id.number,
        view.id.coordinator.hex(),
        len(view.entries),
        [
            MemberSummary(
                entry.member.name, entry.member.incarnation.hex(), entry.role.name.lower()
            )
            for entry in view.entries[:MEMBERS_MAX_COUNT]
        ],
    )


def assess_subscriber(
    archive: str, subscriber: str, state: ArchiveState
) -> SubscriberDelivery | None:
    """Return what is known about a subscriber; None if the archive has no record of it."""
    records = DeliveryRecords((*state.views, *state.stability, *state.acknowledgements))
    if not records.knows(subscriber):
        return None
    status = records.delivery_status(subscriber)
    publishers = []
    for publisher in islice(state.vector, PUBLISHERS_MAX_COUNT):
        ranges = status.split(publisher, 1, state.vector[publisher])
        shown = [
            DeliveredRange(first, last, certainty.name.lower())
            for first, last, certainty in ranges[-RANGES_MAX_COUNT:]
        ]
        publishers.append(PublisherDelivery(publisher.hex(), len(ranges), shown))
    return SubscriberDelivery(archive, len(state.vector), publishers)
