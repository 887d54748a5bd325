"""Rows on their way to a feed, and the note of what was published as what."""

from __future__ import annotations

import shutil
import tempfile
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

from recado.pipeline.feed.options import writing
from recado.pipeline.feed.sink import Columns, FeedWriter, Staged, publish
from recado.pipeline.feed.staging import (
    ROWS,
    AnotherQuery,
    Note,
    NotTheSame,
    Staging,
    chunks,
    digest_of,
)
from recado.pipeline.options import OptionError

GIVEN = writing({"url": "amqp://localhost", "feed": "out"})


def rows(*numbers: int) -> pa.RecordBatch:
    texts = {name: [b"%d" % each for each in numbers] for name in ROWS.names}
    columns = texts | {name: list(numbers) for name in ("offset", "timestamp")}
    return pa.RecordBatch.from_pydict(columns, schema=ROWS)


class TestFiles:
    def test_the_order_is_that_of_the_rows_however_they_were_dealt_out(
        self, tmp_path: Path
    ) -> None:
        staging = Staging(tmp_path / "new", "out")
        deals: list[list[tuple[int, ...]]] = [[(5, 1, 12), (3,), (10, 2)], [(1, 2, 3, 5, 10, 12)]]
        found = set()
        for deal in deals:
            for files in permutations(deal):
                names = [staging.write(iter([rows(*numbers)]))[0] for numbers in files]
                table = staging.read(names)
                assert table.column("offset").to_pylist() == [1, 2, 3, 5, 10, 12]
                found.add(digest_of(table))
        assert len(found) == 1
        assert sum(each.num_rows for each in chunks(table)) == 6
        staging.clear()
        assert list(staging.folder.iterdir()) == []
        assert staging.read([]).num_rows == 0

    @pytest.mark.parametrize("named", ["rows", "file:rows", "file://{here}/rows"])
    def test_a_task_has_another_working_folder_than_the_driver(
        self, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        staging = Staging(named.format(here=tmp_path), "out")
        elsewhere = tmp_path / "task"
        elsewhere.mkdir()
        monkeypatch.chdir(elsewhere)
        name, _ = staging.write(iter([rows(1)]))
        assert (tmp_path / "rows" / name).exists()

    def test_a_folder_that_tasks_do_not_share(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=rf"{tmp_path} has not all .* all machines share"):
            publish(GIVEN, Staging(tmp_path, "out"), [Staged("0.arrow", 1)], 0)

    def test_several_writers_have_one_folder_and_each_its_own_files(self, tmp_path: Path) -> None:
        one, other = Staging(tmp_path, "one"), Staging(tmp_path, "one-more")
        name, _ = one.write(iter([rows(1)]))
        other.write(iter([rows(2)]))
        other.clear()  # its batch is published, and that of the first is not
        assert one.read([name]).num_rows == 1
        one.clear()
        assert list(tmp_path.iterdir()) == []


class TestNote:
    def test_batches_follow_each_other(self) -> None:
        first = Note("p").planned(0, 10, "a")
        assert first == Note("p", 0, 1, 10, "a")
        assert first.planned(0, 10, "a") == first
        assert first.planned(7, 5, "b") == Note("p", 7, 11, 5, "b")

    def test_a_batch_before_the_last_one_is_of_another_query_and_refused(self) -> None:
        with pytest.raises(AnotherQuery, match="batch 500 was published already, and now comes"):
            Note("p", 500, 11, 5, "b").planned(0, 10, "a")

    @pytest.mark.parametrize(("count", "digest"), [(9, "a"), (10, "b")])
    def test_a_repeat_with_other_rows_is_refused(self, count: int, digest: str) -> None:
        with pytest.raises(NotTheSame, match="batch 3 had 10 rows"):
            Note("p", 3, 1, 10, "a").planned(3, count, digest)

    def test_it_is_kept(self, tmp_path: Path) -> None:
        staging = Staging(tmp_path / "new", "out")
        fresh = staging.note()
        assert fresh.publisher != staging.note().publisher
        staging.keep(fresh)
        staging.clear()
        assert Staging(tmp_path / "new", "out").note() == fresh
        assert Staging(tmp_path / "new", "another").note() != fresh

    @pytest.mark.parametrize("is_repeated", [False, True])
    @pytest.mark.parametrize("in_place", [False, True])
    def test_g3_a_copy_goes_on_as_another_publisher(
        self, tmp_path: Path, is_repeated: bool, in_place: bool
    ) -> None:
        staging, backup = Staging(tmp_path / "staging", "out"), tmp_path / "backup"
        staging.keep(Note("p").planned(0, 10, "a"))
        shutil.copytree(staging.folder, backup)
        with (staging.folder / "out.json").open():  # so that no file soon has its inode again
            staging.keep(staging.note().planned(1, 5, "b"))
            assert staging.note() == Note("p", 1, 11, 5, "b")
            if not in_place:
                shutil.rmtree(staging.folder)
            shutil.copytree(backup, staging.folder, dirs_exist_ok=True)
        if is_repeated:
            repeated = staging.note().planned(0, 10, "a")
            assert (repeated.publisher, repeated.first) == ("p", 1)
            staging.keep(repeated)
        other = staging.note().planned(1, 7, "c")
        assert other.publisher != "p"
        assert other == Note(other.publisher, 1, 1, 7, "c")
        staging.keep(other)
        assert staging.note().planned(2, 1, "d") == Note(other.publisher, 2, 8, 1, "d")

    def test_a_note_of_before_there_were_seals(self, tmp_path: Path) -> None:
        (tmp_path / "out.json").write_text('{"publisher":"p","batch":0,"first":1,"rows":10}')
        planned = Staging(tmp_path, "out").note().planned(1, 5, "b")
        assert planned == Note("p", 1, 11, 5, "b")


class TestColumns:
    @pytest.mark.parametrize(
        ("types", "told"),
        [
            ({"key": "string"}, "needs a column body"),
            ({"body": "bigint"}, "the column body is bigint, and .* takes binary or string"),
            ({"body": "string", "timestamp": "string"}, "takes timestamp: cast it"),
            ({"body": "string", "properties": "string"}, "takes struct: cast it"),
            ({"body": "string"}, r'format\("recado"\) makes a message.s id of'),
        ],
    )
    def test_what_is_wrong_is_said_before_it_starts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, types: dict[str, str], told: str
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with pytest.raises(OptionError, match=told):
            FeedWriter(GIVEN, types)
        assert list(tmp_path.iterdir()) == []

    def test_what_is_missing_is_empty(self) -> None:
        columns = Columns(GIVEN, {"body": "string", "message_id": "string"})
        staged = columns.staged(pa.record_batch({"body": ["a", None], "message_id": ["1", "2"]}))
        assert staged.column("body").to_pylist() == [b"a", b""]
        assert staged.column("headers").to_pylist() == [b"", b""]
        assert staged.column("message_id").to_pylist() == [b"1", b"2"]


@pytest.mark.parametrize("name", ["orders", "../elsewhere", "shop/orders", "a\0b", "é 1"])
def test_a_note_is_in_its_folder_whatever_its_name_is(tmp_path: Path, name: str) -> None:
    staging = Staging(tmp_path / "staging", name)
    noted = Note("00", batch=3)
    staging.keep(noted)
    assert staging.note() == noted
    assert [each.name for each in tmp_path.iterdir()] == ["staging"]
    assert len(list(staging.folder.iterdir())) == 2  # the note and its seal
