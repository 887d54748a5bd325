"""Reading an archive: rows and messages, by offset, by column, by selector, and what is certain about them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import encode_table
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.columns import SCHEMA
from recado.feeds.archive.errors import ArchiveNotFoundError
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.vector import Vector
from recado.feeds.views import (
    AcknowledgementRecord,
    Certainty,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
    ViewStability,
)
from recado.selector import SelectorError, parse

from .making import batch, publisher, rows_in, rows_of

BATCHES = [batch(1, 1, 40), batch(2, 1, 40), batch(1, 41, 20)]
ROWS = rows_of(BATCHES)


@pytest.fixture(params=["sealed", "half", "tail"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same rows, in files, in the journal, or in both."""
    with ArchiveStore(tmp_path, "f") as store:
        store.append(BATCHES[:2])
        if request.param != "tail":
            store.seal()
        store.append(BATCHES[2:])
        store.sync()
        if request.param == "sealed":
            store.seal()
    return tmp_path


def test_rows_by_offset(folder: Path) -> None:
    with Archive.open(folder) as archive:
        assert (archive.feed, archive.first_offset, archive.end_offset) == ("f", 0, 100)
        for start, stop in [
            (0, None),
            (0, 100),
            (30, 50),
            (79, 81),
            (80, None),
            (99, 500),
            (50, 50),
        ]:
            assert rows_in(archive, start, stop) == ROWS[start:stop]
            tables = list(archive.batches(start, stop))
            offsets = [offset for table in tables for offset in table.column("offset").to_pylist()]
            assert offsets == list(range(100))[start:stop]
            assert all(table.num_rows and table.schema == SCHEMA for table in tables)


@pytest.mark.parametrize("most_bytes", [1, 500, 1 << 20])
def test_the_same_rows_a_few_at_a_time(folder: Path, most_bytes: int) -> None:
    columns = ["publisher", "sequence", "routing_key", "body"]
    with Archive.open(folder) as archive:
        for start, stop in [(0, None), (30, 50), (79, 81), (99, 500), (50, 50)]:
            whole = list(archive.dictionary_batches(start, stop, columns))
            pieces = list(archive.dictionary_batches(start, stop, columns, max_bytes=most_bytes))
            assert len(pieces) >= len(whole)
            assert [row for each in pieces for row in each.to_pylist()] == [
                row for each in whole for row in each.to_pylist()
            ]


def test_only_the_columns_that_are_asked_for(folder: Path) -> None:
    with Archive.open(folder) as archive:
        table = pa.Table.from_batches(archive.batches(columns=["sequence", "publisher"]))
        assert table.schema.names == ["sequence", "publisher"]
        assert table.column("sequence").to_pylist() == [row[1] for row in ROWS]
        assert table.column("publisher").to_pylist() == [row[0].hex() for row in ROWS]
        with pytest.raises(ValueError, match="unknown column 'price'"):
            list(archive.batches(columns=["price"]))


@pytest.mark.parametrize(
    "text",
    [
        "key = 'key.1'",
        "key = 'key.1' AND body LIKE '1/%'",
        "sequence BETWEEN 5 AND 45",
        "body LIKE '2/1%' OR offset > 95",
        "message_id IS NULL",
        "timestamp > 1700000000.00002",
        "headers.x = 1",
    ],
)
def test_a_selector_is_the_same_for_rows_and_messages(folder: Path, text: str) -> None:
    def wanted(offset: int, row: tuple[bytes, int, str, bytes]) -> bool:
        _, sequence, key, body = row
        return {
            "key = 'key.1'": key == "key.1",
            "key = 'key.1' AND body LIKE '1/%'": key == "key.1" and body.startswith(b"1/"),
            "sequence BETWEEN 5 AND 45": 5 <= sequence <= 45,
            "body LIKE '2/1%' OR offset > 95": body.startswith(b"2/1") or offset > 95,
            "message_id IS NULL": sequence % 2 == 0,
            "timestamp > 1700000000.00002": sequence > 20,
        }.get(text, False)

    expected = [offset for offset, row in enumerate(ROWS) if wanted(offset, row)]
    with Archive.open(folder) as archive:
        assert [each.offset for each in archive.messages(selector=text)] == expected
        assert [each.offset for each in archive.messages(selector=parse(text))] == expected
        tables = archive.batches(selector=text, columns=["offset"])
        assert [each for table in tables for each in table.column("offset").to_pylist()] == expected


def test_a_wrong_selector_is_told_before_anything_is_read(folder: Path) -> None:
    with Archive.open(folder) as archive, pytest.raises(SelectorError):
        list(archive.batches(selector="price >"))


def test_a_message_has_everything_that_was_published(tmp_path: Path) -> None:
    properties = Properties(content_type="text/plain", priority=3)
    block = Block.build(
        [b"one", b"two"],
        timestamps=[1_000_000, 2_500_000],
        keys=[b"a", "ç".encode()],
        message_ids=[b"", b"m-2"],
        headers=[encode_table({"x": 1}), b""],
        properties=[encode_properties(properties), b""],
    )
    view = ViewId(5, publisher(4))
    with ArchiveStore(tmp_path, "f") as store:
        store.append([MessageBatch(publisher(1), 7, block, view)])
        store.seal()
    with Archive.open(tmp_path) as archive:
        one, two = archive.messages()
    assert (one.feed, one.publisher, one.sequence, one.view) == ("f", publisher(1), 7, view)
    assert (one.offset, one.key, one.message_id, one.body) == (0, "a", "", b"one")
    assert (dict(one.headers), one.properties) == ({"x": 1}, properties)
    assert (two.offset, two.key, two.message_id, two.body) == (1, "ç", "m-2", b"two")
    assert (dict(two.headers), two.properties) == ({}, None)
    assert (two.timestamp, two.time.year, two.certainty) == (2_500_000, 1970, Certainty.LIVE)


def test_what_is_certain_about_a_subscriber(tmp_path: Path) -> None:
    desk = MemberId("desk", publisher(8))
    witness = ViewEntry(MemberId("archive-1", publisher(9)), Role.ARCHIVE)
    with_desk = View(ViewId(1, publisher(9)), (witness, ViewEntry(desk, Role.SUBSCRIBER)))
    without = View(ViewId(2, publisher(9)), (witness,))
    one = publisher(1)
    acknowledged = AcknowledgementRecord(desk, with_desk.id, Vector(), Vector({one: 10}))
    with ArchiveStore(tmp_path, "f") as store:
        store.append(
            [ViewRecord(with_desk, Vector(), (), complete=True), batch(1, 1, 20), acknowledged]
        )
        store.seal()
        cut = Vector({one: 30})
        record = ViewRecord(without, cut, (with_desk.id,), complete=True)
        store.append([batch(1, 21, 10), record, ViewStability(without.id, cut), batch(1, 31, 10)])
        store.sync()
    with Archive.open(tmp_path) as archive:
        table = pa.Table.from_batches(
            archive.batches(columns=["sequence"], subscriber="desk", selector="sequence > 5")
        )
        assert table.schema.names == ["sequence", "certainty"]
        assert table.schema.field("certainty").type == pa.string()
        expected = ["delivered"] * 5 + ["uncertain"] * 20 + ["missed"] * 10
        assert table.column("certainty").to_pylist() == expected
        found = [each.certainty.name.lower() for each in archive.messages(5, subscriber="desk")]
        assert found == expected
        strangers = {each.certainty for each in archive.messages(subscriber="nobody")}
        assert strangers == {Certainty.MISSED}


def test_the_dataset_has_what_is_in_files_and_the_day(folder: Path) -> None:
    with Archive.open(folder) as archive:
        dataset = archive.dataset()
        assert dataset.schema.names == [*SCHEMA.names, "date"]
        assert dataset.count_rows() == archive.manifest.tail.offset
        days = {file.date for file in archive.manifest.files}
        assert set(dataset.to_table(columns=["date"]).column("date").to_pylist()) == days
        assert [Path(path).is_file() for path in archive.parquet_paths] == [True] * len(
            archive.parquet_paths
        )


def test_where_there_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveNotFoundError, match=f"no archive in {tmp_path}"):
        Archive.open(tmp_path)
    with pytest.raises(ArchiveNotFoundError):
        Archive.open(tmp_path / "nothing")
    assert list(tmp_path.iterdir()) == []


def test_reading_changes_nothing(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with Archive.open(folder) as archive:
        rows_in(archive)
        assert list(archive.verify()) == []
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
