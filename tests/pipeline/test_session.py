"""The master of a session: that of spark-submit, or this machine, where it listens on loopback only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from recado.pipeline import session
from recado.pipeline.session import (
    LOCAL_SETTINGS,
    SOCKET_DIR_KEY,
    read_submit_settings,
    register,
    spark_session,
)
from tests.pipeline.making import filled, quotes


class Builder:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    def appName(self, _: str) -> Builder:  # noqa: N802 (Spark's name)
        return self

    def master(self, url: str) -> Builder:
        return self.config("spark.master", url)

    def config(self, key: str, value: str) -> Builder:
        self.told[key] = value
        return self

    def getOrCreate(self) -> None:  # noqa: N802 (Spark's name)
        return None


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    for name in ("SPARK_LOCAL_IP", "PYSPARK_SUBMIT_ARGS", "JAVA_HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    found = Builder()
    monkeypatch.setattr(SparkSession, "builder", found)
    monkeypatch.setattr(session, "register", lambda _: None)
    return found


def test_here_unless_it_is_told(builder: Builder) -> None:
    spark_session(settings={"spark.sql.shuffle.partitions": "1"})
    assert builder.told["spark.master"] == "local[*]"
    assert builder.told["spark.driver.bindAddress"] == "127.0.0.1"
    assert builder.told["spark.sql.shuffle.partitions"] == "1"
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_the_spark_ui_is_off_unless_asked_for(builder: Builder) -> None:
    spark_session()
    assert builder.told["spark.ui.enabled"] == "false"
    spark_session(ui=True)
    assert builder.told["spark.ui.enabled"] == "true"
    assert builder.told["spark.driver.bindAddress"] == "127.0.0.1"  # also of the UI


def test_the_spark_ui_of_a_cluster_is_left_to_its_configuration(builder: Builder) -> None:
    spark_session(master="spark://m:7077")
    assert "spark.ui.enabled" not in builder.told
    spark_session(master="spark://m:7077", ui=True)
    assert builder.told["spark.ui.enabled"] == "true"


def test_nobody_else_reaches_the_sockets_of_its_python_processes(builder: Builder) -> None:
    spark_session()
    folder = Path(builder.told[SOCKET_DIR_KEY])
    assert builder.told["spark.python.unix.domain.socket.enabled"] == "true"
    assert folder.stat().st_mode & 0o077 == 0
    assert len(str(folder / f".{uuid4()}.sock")) < 104  # the shortest limit there is, of macOS
    spark_session()
    assert builder.told[SOCKET_DIR_KEY] == str(folder)


@pytest.mark.parametrize("option", [True, False])
def test_a_driver_that_others_must_reach(
    builder: Builder, monkeypatch: pytest.MonkeyPatch, option: bool
) -> None:
    given: dict[str, Any] = {"master": "spark://m:7077"} if option else {}
    if not option:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://m:7077 pyspark-shell")
    spark_session(**given)
    assert builder.told["spark.master"] == "spark://m:7077"
    assert not {*LOCAL_SETTINGS, SOCKET_DIR_KEY} & builder.told.keys()
    assert "SPARK_LOCAL_IP" not in os.environ


def test_what_spark_submit_was_told_stays(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"spark.master": "yarn", "spark.sql.session.timeZone": "America/Sao_Paulo"}
    monkeypatch.setattr(session, "read_submit_settings", lambda: told)
    spark_session()
    assert builder.told["spark.master"] == "yarn"
    assert "spark.sql.session.timeZone" not in builder.told


def test_nothing_was_said() -> None:
    assert (
        read_submit_settings({})
        == read_submit_settings({"PYSPARK_SUBMIT_ARGS": "pyspark-shell"})
        == {}
    )


@pytest.mark.parametrize("between", [" ", "="])
def test_what_spark_is_to_be_told_when_it_starts(between: str) -> None:
    words = [
        "--master",
        "yarn",
        "--conf",
        "'spark.app.name=a --conf=c'",
        "-c spark.ui.enabled=true",
    ]
    pairs = [between.join(words[:2]), between.join(words[2:4]), words[4], "pyspark-shell"]
    assert read_submit_settings({"PYSPARK_SUBMIT_ARGS": " ".join(pairs)}) == {
        "spark.master": "yarn",
        "spark.app.name": "a --conf=c",
        "spark.ui.enabled": "true",
    }


@pytest.mark.spark
def test_streams_add_nothing_to_the_map_that_they_share(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A probe of Spark's own: should it begin to put other names there, we want to know."""
    register(spark)
    java: Any = spark._jsparkSession
    found = java.sessionState().dataSourceManager().lookupDataSource("recado")
    environment = found.dataSourceCls().envVars()
    before = set(environment)
    rows = spark.readStream.format("recado").load(
        str(filled(tmp_path / "archive", [[quotes(1, 1, 20)]]))
    )
    writer = rows.writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "state")).start().awaitTermination()
    assert set(environment) == before
    assert environment["SPARK_LOCAL_DIRS"] != ""  # so it was put
