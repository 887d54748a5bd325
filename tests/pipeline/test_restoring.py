"""After an older checkpoint is restored, no row is lost or there twice: a batch with other rows is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recado.pipeline.definition import Pipeline
from recado.pipeline.running import PipelineFailed, run
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


@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_an_older_checkpoint(spark: SparkSession, tmp_path: Path, format_: str) -> None:
    numbers = Numbers(tmp_path, format_)
    numbers.put(0, 1)
    run(numbers.pipeline, spark)
    numbers.back_up()
    numbers.put(2, 3)
    run(numbers.pipeline, spark)
    # Batch 1 is planned anew with more rows. Of files, the source offsets are the same as before.
    numbers.restore()
    numbers.put(4, 5)
    for _ in range(2):
        with pytest.raises(PipelineFailed, match=r"other rows as batch 1, .* Put back the checkp"):
            run(numbers.pipeline, spark)
        assert numbers.rows == [0, 1, 2, 3]
    # With the rows that it had before it is the same batch, and the next one goes on from there.
    numbers.restore()
    numbers.take_back(4)
    assert run(numbers.pipeline, spark).sinks == {}
    numbers.put(6, 7)
    assert run(numbers.pipeline, spark).sinks == {"out": 2}
    assert numbers.rows == [0, 1, 2, 3, 6, 7]
