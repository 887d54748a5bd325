"""One Spark for all tests of a worker that need it, as it takes ten seconds to start.

Modules with such tests say `pytestmark = pytest.mark.spark`. Those that take the fixture all go to one worker;
those that start processes with a Spark of their own go to another. They have a longer time limit than others, start
first (see `schedule`), and may leave sockets of PySpark to the garbage collector.
"""

from __future__ import annotations

import gc
import importlib.util
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHARING: Final = "those that share a Spark"
APART: Final = "those with Sparks of their own"
GROUPS: Final = (SHARING, APART)
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    # Nothing runs long enough to be worth Java code of its own, which takes longer to compile than to run.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmn512m",
}
SECONDS: Final = 600  # the start of Spark counts for the first test, and machines are busy


@pytest.fixture(scope="session")
def _one_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if importlib.util.find_spec("pyspark") is None:
        pytest.fail(
            "pyspark is missing: `./dev setup` installs it, or `pip install 'recado[spark]'`"
        )
    from recado.pipeline import spark_session

    folder = tmp_path_factory.mktemp("spark")
    folders = {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
    }
    started = spark_session("tests", master="local[2]", settings=SETTINGS | folders)
    yield started
    started.stop()
    _collect()


@pytest.fixture(scope="module")
def spark(_one_spark: SparkSession) -> Iterator[SparkSession]:
    yield _one_spark
    for query in _one_spark.streams.active:
        query.stop()
    _collect()


def _collect() -> None:
    """PySpark leaves the sockets of its answers to the collector, which would complain in a later test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def mark(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SECONDS))


@cache
def group_of(file: Path) -> str | None:
    """Return the group of a file, by its text: the process that distributes the tests imports none."""
    text = file.read_text("utf-8") if file.suffix == ".py" else ""
    if "pytest.mark.spark" not in text:
        return None
    return SHARING if "spark: SparkSession" in text else APART
