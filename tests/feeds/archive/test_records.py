"""What is in the journal comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.feeds.archive.records import StoredBatch, StoredRecord, decode, encode
from recado.feeds.block import MalformedDataError
from recado.feeds.boundary import ArchiveEntry
from recado.feeds.vector import Vector
from recado.feeds.views import (
    AcknowledgementRecord,
    LostRange,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
    ViewStability,
)

from .making import batch, publisher

VIEW = ViewId(3, publisher(9))
DESK = MemberId("desk", publisher(8))
CUT = Vector({publisher(1): 5})
ENTRIES: list[ArchiveEntry] = [
    batch(1, 7, 3, view=VIEW),
    ViewRecord(View(VIEW, (ViewEntry(DESK, Role.SUBSCRIBER),)), CUT, (ViewId(2, publisher(9)),)),
    ViewStability(VIEW, CUT),
    AcknowledgementRecord(DESK, VIEW, Vector(), CUT, True),
    LostRange(publisher(1), 3, 4),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_an_entry_comes_back(entry: ArchiveEntry) -> None:
    stored = decode(encode(entry, 12, 34))
    assert (stored.offset, stored.stored_us) == (12, 34)
    match stored:
        case StoredBatch():
            assert stored.as_batch() == entry
            assert (stored.last, stored.end) == (9, 15)
        case StoredRecord():
            assert stored.record == entry


@given(st.binary(max_size=40))
def test_whatever_else_is_refused(payload: bytes) -> None:
    try:
        decode(payload)
    except MalformedDataError as error:
        assert str(error)  # noqa: PT017 (most of it is, some is not)
