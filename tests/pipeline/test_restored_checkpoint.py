"""After an older checkpoint is restored, no row is lost or stored twice: a batch with other rows is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recado.pipeline.definition import Pipeline
from recado.pipeline.runner import PipelineFailedError, run
from tests.pipeline.lake.test_lake import read_back

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Numbers:
    """A pipeline from files of numbers to a table, and a backup of its checkpoint."""

    def __init__(self, folder: Path, format_: str) -> None:
        self._source, self._checkpoint = folder / "in", folder / "state"
        self._backup = folder / "backup"
        self._source.mkdir()
        place = {"path": str(folder / "out")}
        if format_ == "iceberg":
            place = {"table": "a.b", "warehouse": str(folder / "out")}
        self.pipeline = (
            Pipeline("numbers", checkpoint=str(self._checkpoint), trigger="available-now")
            .read("in", "json", path=str(self._source), schema="n long")
            .write("out", format_, **place)
        )

    def put(self, *numbers: int) -> None:
        part = self._source / f".{numbers[0]}.json"
        part.write_text("\n".join(json.dumps({"n": number}) for number in numbers))
        part.rename(self._source / part.name[1:])

    def take_back(self, first: int) -> None:
        (self._source / f"{first}.json").unlink()

    def back_up(self) -> None:
        shutil.copytree(self._checkpoint, self._backup)

    def restore(self) -> None:
        shutil.rmtree(self._checkpoint)
        shutil.copytree(self._backup, self._checkpoint)

    @property
    def rows(self) -> list[int]:
        return sorted(row["n"] for row in read_back(self.pipeline.sinks["out"]))


@pytest.fixture
def restored(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Numbers:
    """Two batches were written, and then the checkpoint of the first was restored."""
    numbers = Numbers(tmp_path, request.param)
    numbers.put(0, 1)
    run(numbers.pipeline, spark)
    numbers.back_up()
    numbers.put(2, 3)
    run(numbers.pipeline, spark)
    numbers.restore()
    return numbers


@pytest.mark.parametrize("restored", ["delta", "iceberg"], indirect=True)
def test_an_older_checkpoint(spark: SparkSession, restored: Numbers) -> None:
    """Batch 1 is planned anew with more rows. Of files, the source offsets are the same as before."""
    restored.put(4, 5)
    with pytest.raises(
        PipelineFailedError,
        match=r"batch 1 was not written: the table has other rows.* Put back the newest checkpoint",
    ):
        run(restored.pipeline, spark)
    assert restored.rows == [0, 1, 2, 3]


@pytest.mark.parametrize("restored", ["parquet"], indirect=True)
def test_an_older_checkpoint_that_is_tried_again(spark: SparkSession, restored: Numbers) -> None:
    restored.put(4, 5)
    for _ in range(2):
        with pytest.raises(
            PipelineFailedError, match="batch 1 was not written: the table has other rows"
        ):
            run(restored.pipeline, spark)
    # With the rows that it had before it is the same batch, and the next one goes on from there.
    restored.restore()
    restored.take_back(4)
    assert run(restored.pipeline, spark).sinks == {}
    restored.put(6, 7)
    assert run(restored.pipeline, spark).sinks == {"out": 2}
    assert restored.rows == [0, 1, 2, 3, 6, 7]
