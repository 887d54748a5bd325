"""One Spark for all tests of a worker that need it, as it takes ten seconds to start.

Modules with such tests say `pytestmark = pytest.mark.spark`. They all go to one worker, have more time than
others, and may leave sockets of PySpark's to the collector.
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

GROUP: Final = "spark"
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
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
def is_of_spark(file: Path) -> bool:
    """Whether a module has the mark, told by its text: the process that deals out the tests imports none."""
    return file.suffix == ".py" and "pytest.mark.spark" in file.read_text("utf-8")
