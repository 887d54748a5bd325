"""Staged rows, and the publish record."""

from __future__ import annotations

import shutil
import tempfile
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

from recado.pipeline.feed.options import parse_write_options
from recado.pipeline.feed.staging_area import (
    STAGED_SCHEMA,
    BatchChangedError,
    PublishRecord,
    StagingArea,
    StaleBatchError,
    digest_rows,
    split_rows,
)
from recado.pipeline.feed.writer import FeedBatchWriter, StagedFile, StagedRowEncoder, publish_batch
from recado.pipeline.options import OptionError

GIVEN = parse_write_options({"url": "amqp://localhost", "feed": "out"})


def rows(*numbers: int) -> pa.RecordBatch:
    texts = {name: [b"%d" % each for each in numbers] for name in STAGED_SCHEMA.names}
    columns = texts | {name: list(numbers) for name in ("offset", "timestamp")}
    return pa.RecordBatch.from_pydict(columns, schema=STAGED_SCHEMA)


class TestFiles:
    def test_the_order_is_that_of_the_rows_however_they_were_dealt_out(
        self, tmp_path: Path
    ) -> None:
        staging = StagingArea(tmp_path / "new", "out")
        deals: list[list[tuple[int, ...]]] = [[(5, 1, 12), (3,), (10, 2)], [(1, 2, 3, 5, 10, 12)]]
        found = set()
        for deal in deals:
            for files in permutations(deal):
                names = [staging.write(iter([rows(*numbers)]))[0] for numbers in files]
                table = staging.read(names)
                assert table.column("offset").to_pylist() == [1, 2, 3, 5, 10, 12]
                found.add(digest_rows(table))
        assert len(found) == 1
        assert sum(each.num_rows for each in split_rows(table)) == 6
        staging.clear()
        assert list(staging.folder.iterdir()) == []
        assert staging.read([]).num_rows == 0

    @pytest.mark.parametrize("named", ["rows", "file:rows", "file://{here}/rows"])
    def test_a_task_has_another_working_folder_than_the_driver(
        self, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        staging = StagingArea(named.format(here=tmp_path), "out")
        elsewhere = tmp_path / "task"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        name, _ = staging.write(iter([rows(1)]))
        assert (tmp_path / "rows" / name).exists()

    def test_a_folder_that_tasks_do_not_share(self, tmp_path: Path) -> None:
        with pytest.raises(
            OptionError, match=rf"{tmp_path} does not have all files .* all machines share"
        ):
            publish_batch(GIVEN, StagingArea(tmp_path, "out"), [StagedFile("0.arrow", 1)], 0)

    def test_several_writers_have_one_folder_and_each_its_own_files(self, tmp_path: Path) -> None:
        one, other = StagingArea(tmp_path, "one"), StagingArea(tmp_path, "one-more")
        name, _ = one.write(iter([rows(1)]))
        other.write(iter([rows(2)]))
        other.clear()  # its batch is published, and that of the first is not
        assert one.read([name]).num_rows == 1
        one.clear()
        assert list(tmp_path.iterdir()) == []


class TestNote:
    def test_batches_follow_each_other(self) -> None:
        first = PublishRecord("p").plan_batch(0, 10, "a")
        assert first == PublishRecord("p", 0, 1, 10, "a")
        assert first.plan_batch(0, 10, "a") == first
        assert first.plan_batch(7, 5, "b") == PublishRecord("p", 7, 11, 5, "b")

    def test_a_batch_before_the_last_one_is_of_another_query_and_refused(self) -> None:
        with pytest.raises(
            StaleBatchError,
            match="batch 500 is already published, so batch 0 belongs to another query",
        ):
            PublishRecord("p", 500, 11, 5, "b").plan_batch(0, 10, "a")

    @pytest.mark.parametrize(("count", "digest"), [(9, "a"), (10, "b")])
    def test_a_repeat_with_other_rows_is_refused(self, count: int, digest: str) -> None:
        with pytest.raises(BatchChangedError, match="batch 3 had 10 rows"):
            PublishRecord("p", 3, 1, 10, "a").plan_batch(3, count, digest)

    def test_it_is_kept(self, tmp_path: Path) -> None:
        staging = StagingArea(tmp_path / "new", "out")
        fresh = staging.load_record()
        assert fresh.publisher != staging.load_record().publisher
        staging.save_record(fresh)
        staging.clear()
        assert StagingArea(tmp_path / "new", "out").load_record() == fresh
        assert StagingArea(tmp_path / "new", "another").load_record() != fresh

    @pytest.mark.parametrize("is_repeated", [False, True])
    @pytest.mark.parametrize("in_place", [False, True])
    def test_g3_a_copy_goes_on_as_another_publisher(
        self, tmp_path: Path, is_repeated: bool, in_place: bool
    ) -> None:
        staging, backup = StagingArea(tmp_path / "staging", "out"), tmp_path / "backup"
        staging.save_record(PublishRecord("p").plan_batch(0, 10, "a"))
        shutil.copytree(staging.folder, backup)
        with (staging.folder / "out.json").open():  # so that no file soon has its inode again
            staging.save_record(staging.load_record().plan_batch(1, 5, "b"))
            assert staging.load_record() == PublishRecord("p", 1, 11, 5, "b")
            if not in_place:
                shutil.rmtree(staging.folder)
            shutil.copytree(backup, staging.folder, dirs_exist_ok=True)
        if is_repeated:
            repeated = staging.load_record().plan_batch(0, 10, "a")
            assert (repeated.publisher, repeated.first) == ("p", 1)
            staging.save_record(repeated)
        other = staging.load_record().plan_batch(1, 7, "c")
        assert other.publisher != "p"
        assert other == PublishRecord(other.publisher, 1, 1, 7, "c")
        staging.save_record(other)
        assert staging.load_record().plan_batch(2, 1, "d") == PublishRecord(
            other.publisher, 2, 8, 1, "d"
        )

    def test_a_note_of_before_there_were_seals(self, tmp_path: Path) -> None:
        (tmp_path / "out.json").write_text('{"publisher":"p","batch":0,"first":1,"rows":10}')
        planned = StagingArea(tmp_path, "out").load_record().plan_batch(1, 5, "b")
        assert planned == PublishRecord("p", 1, 11, 5, "b")


class TestColumns:
    @pytest.mark.parametrize(
        ("types", "told"),
        [
            ({"key": "string"}, "needs a column body"),
            ({"body": "bigint"}, "the column body is bigint, but .* needs binary or string"),
            ({"body": "string", "timestamp": "string"}, "needs timestamp: cast"),
            ({"body": "string", "properties": "string"}, "needs struct: cast"),
            ({"body": "string"}, r'format\("recado"\) makes message ids of'),
        ],
    )
    def test_what_is_wrong_is_said_before_it_starts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, types: dict[str, str], told: str
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with pytest.raises(OptionError, match=told):
            FeedBatchWriter(GIVEN, types)
        assert list(tmp_path.iterdir()) == []

    def test_what_is_missing_is_empty(self) -> None:
        columns = StagedRowEncoder(GIVEN, {"body": "string", "message_id": "string"})
        staged = columns.encode(pa.record_batch({"body": ["a", None], "message_id": ["1", "2"]}))
        assert staged.column("body").to_pylist() == [b"a", b""]
        assert staged.column("headers").to_pylist() == [b"", b""]
        assert staged.column("message_id").to_pylist() == [b"1", b"2"]


@pytest.mark.parametrize("name", ["orders", "../elsewhere", "shop/orders", "a\0b", "é 1"])
def test_a_note_is_in_its_folder_whatever_its_name_is(tmp_path: Path, name: str) -> None:
    staging = StagingArea(tmp_path / "staging", name)
    noted = PublishRecord("00", batch=3)
    staging.save_record(noted)
    assert staging.load_record() == noted
    assert [each.name for each in tmp_path.iterdir()] == ["staging"]
    assert len(list(staging.folder.iterdir())) == 2  # the note and its seal
