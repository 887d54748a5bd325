"""What an archive says about its feed: its limits, and what it knows about a subscriber."""

from __future__ import annotations

from pathlib import Path

from recado.feeds.archive.store import ArchiveStore
from recado.feeds.archive_summary import (
    MEMBERS_MAX_COUNT,
    PAST_VIEWS_MAX_COUNT,
    PUBLISHERS_MAX_COUNT,
    RANGES_MAX_COUNT,
    SUBSCRIBERS_MAX_COUNT,
    assess_subscriber,
    summarize,
)
from recado.feeds.boundary import ArchiveState
from recado.feeds.vector import Vector
from recado.feeds.views import (
    AcknowledgementRecord,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
    ViewStability,
)

from .test_delivery_records import P, ack, id_of, member, settled, view


def state_of(*records: object, last: int = 10) -> ArchiveState:
    return ArchiveState(
        vector=Vector({P: last}),
        views=tuple(each for each in records if isinstance(each, ViewRecord)),
        stability=tuple(each for each in records if isinstance(each, ViewStability)),
        acknowledgements=tuple(each for each in records if isinstance(each, AcknowledgementRecord)),
        next_offset=last,
        lost=(),
    )


def test_what_a_returning_subscriber_has_received() -> None:
    """It has acknowledged 1 to 4, can have received up to 7, and was away for the rest."""
    records = (
        view(1, 0, "a", 0),
        view(2, 0, "a x"),
        ack("x", 2, 0, 4),
        view(3, 8, "a"),
        settled(3, 7),
    )
    found = assess_subscriber("a", "x", state_of(*records))
    assert found is not None
    assert (found.archive, found.publisher_count) == ("a", 1)
    (publisher,) = found.publishers
    assert publisher.publisher == P.hex()
    assert [(each.first, each.last, each.certainty) for each in publisher.ranges] == [
        (1, 4, "delivered"),
        (5, 7, "uncertain"),
        (8, 10, "missed"),
    ]
    assert assess_subscriber("a", "y", state_of(*records)) is None


def test_ranges_are_bounded() -> None:
    """The limit of holes is that of a vector, so several incarnations are needed for more ranges."""
    acks = [
        AcknowledgementRecord(
            MemberId("x", bytes([number]) * 16),
            id_of(2),
            Vector({P: 10 * number}),
            Vector({P: 10 * number + 5}),
            is_final=True,
        )
        for number in range(RANGES_MAX_COUNT)
    ]
    found = assess_subscriber("a", "x", state_of(view(2, 0, "a x", 0), *acks, last=2_000))
    assert found is not None
    (publisher,) = found.publishers
    assert publisher.range_count > RANGES_MAX_COUNT
    assert len(publisher.ranges) == RANGES_MAX_COUNT
    assert publisher.ranges[-1].last == 2_000


def test_every_list_is_bounded(tmp_path: Path) -> None:
    crowd = [MemberId(f"m{number}", number.to_bytes(16)) for number in range(150)]
    entries = tuple(ViewEntry(each, Role.SUBSCRIBER) for each in crowd)
    views = [
        ViewRecord(View(ViewId(number, b"c" * 16), entries), Vector(), ())
        for number in range(1, 41)
    ]
    acks = [
        AcknowledgementRecord(each, ViewId(40, b"c" * 16), Vector(), Vector()) for each in crowd
    ]
    with ArchiveStore(tmp_path, "quotes", archive_name="keep") as store:
        store.append([*views, *acks])
        store.sync()
        store.durable_vector = Vector({each.incarnation: 7 for each in crowd})
        found = summarize("keep", store, views[-1].view, is_storing=True)
    assert found.view is not None
    assert (found.view.number, found.view.member_count) == (40, 150)
    assert len(found.view.members) == MEMBERS_MAX_COUNT
    assert found.past_view_count == 39
    assert [each.number for each in found.past_views] == [*range(39, 39 - PAST_VIEWS_MAX_COUNT, -1)]
    assert (found.publisher_count, len(found.publishers)) == (150, PUBLISHERS_MAX_COUNT)
    assert (found.subscriber_count, len(found.subscribers)) == (150, SUBSCRIBERS_MAX_COUNT)
    assert found.subscribers[0].name == "m149"  # acknowledged last
    assert (found.first_offset, found.next_offset, found.file_bytes) == (0, 0, 0)


def test_an_archive_that_has_not_joined(tmp_path: Path) -> None:
    with ArchiveStore(tmp_path, "quotes", archive_name="keep") as store:
        found = summarize("keep", store, None, is_storing=False)
    assert (found.view, found.past_views, found.publishers) == (None, [], [])
    assert not found.is_storing


def test_a_view_that_an_archive_was_only_invited_to_is_not_shown(tmp_path: Path) -> None:
    entries = (ViewEntry(member("a"), Role.ARCHIVE),)
    invited = ViewRecord(View(id_of(1), entries), Vector(), (), provisional=True)
    with ArchiveStore(tmp_path, "quotes", archive_name="keep") as store:
        store.append([invited])
        assert summarize("keep", store, None, is_storing=True).past_view_count == 0
