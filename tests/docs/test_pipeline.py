"""The page docs/pipeline.md: its examples run, its file is a pipeline that nothing is wrong with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import recado.feeds
from recado.pipeline.definition import check, load
from recado.pipeline.definition.step import STEP_CLASSES
from tests.pipeline.making import filled, quotes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_example(spark: SparkSession, tmp_path: Path) -> None:
    names: dict[str, object] = {"FOLDER": str(tmp_path)}
    for code in blocks("python"):
        exec(compile(code, PAGE.name, "exec"), names)
    assert names["spark"] is spark


def test_the_parts_about_feeds(spark: SparkSession, tmp_path: Path) -> None:
    """They are in pieces, and speak of an archive and a configuration that are somewhere."""
    path = filled(tmp_path / "quotes", [[quotes(1, 1, 100)]], [quotes(1, 101, 50)])
    config = tmp_path / "recado.toml"
    config.write_text(f'[feeds.archives.quotes]\nfeed = "quotes"\nfolder = "{path}"\n')
    reading, table, writing = (
        code.replace("/data/quotes", str(path)).replace("PETR4", "S3") for code in blocks("py")
    )
    # Spark's processes are in a folder of their own.
    reading = reading.replace(".load()", f'.option("config", "{config}").load()')
    names: dict[str, Any] = {"spark": spark, "FOLDER": str(tmp_path / "state")}
    exec(compile(reading, PAGE.name, "exec"), names)
    exec(compile(table, PAGE.name, "exec"), names)
    assert names["history"].count() == 150
    assert names["rows"].count() == 100  # what is in files
    names["bars"] = names["quotes"]
    with recado.Broker(port=0) as broker, recado.feeds.connect_blocking(broker.url) as link:
        names["URL"] = broker.url
        with link.archive("bars", tmp_path / "bars"):
            exec(compile(writing, PAGE.name, "exec"), names)
            (query,) = spark.streams.active
            query.processAllAvailable()
            query.stop()
            last = query.lastProgress
            assert last is not None
            assert last.numInputRows == sum(wanted(number) for number in range(1, 151))


def wanted(number: int) -> bool:
    """By the selector of the page."""
    return number % 7 == 3 and number % 90 + 0.5 > 30


def test_the_file(tmp_path: Path) -> None:
    for text in blocks("toml-pipeline"):
        (tmp_path / "large.toml").write_text(text)
        assert check(load(tmp_path / "large.toml")).pipeline.name == "large"


def test_all_options_of_all_steps_are_told() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| ", PAGE.read_text(), re.MULTILINE)
    told = {
        step: set(re.findall(r"`(\w+)`", options)) for step, options in rows if step in STEP_CLASSES
    }
    assert told == {
        step: {field.name for field in msgspec.structs.fields(kind)} - {"name"}
        for step, kind in STEP_CLASSES.items()
    }
