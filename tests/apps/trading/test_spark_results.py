"""Spark's figures of an archive are those that pyarrow computes, so tables and plots are the same."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import asdict

from recado.apps.trading import results, spark_results
from recado.apps.trading.figures import TransportKind
from recado.apps.trading.measurement import AskTiming, RunSummary
from recado.apps.trading.plots import draw_figures
from recado.apps.trading.report import Report
from recado.apps.trading.results import IncompleteRun, RunResult
from recado.pipeline.builtin import percentiles
from tests.apps.trading.stage import archive_of, asks_of, run_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def measurements() -> list[AskTiming | RunSummary]:
    """Two runs of each kind; one of which asks are missing, one with an ask twice instead of another, and one
    that was not finished."""
    chance = Random(1)
    found: list[AskTiming | RunSummary] = []
    kinds = product((TransportKind.TCP, TransportKind.AMQP), (0, 2000), (1, 4), ("a", "b"))
    for transport, latency, clients, which in kinds:
        name = f"{transport.value}-{latency}-{clients}-{which}"
        broker = "recado" if transport is TransportKind.AMQP else None
        began = 0
        for number in range(240):
            took = int(chance.lognormvariate(12, 0.5)) + latency * 1000
            found.append(AskTiming(name, number % clients, number // clients, began, took))
            began += took // clients
        changes = {"transport": transport, "broker": broker, "latency_us": latency}
        found.append(run_of(name, asks=240, clients=clients, **changes))
    found.append(run_of("short", asks=241))
    found += [*asks_of("again", 29), *asks_of("again", 1), run_of("again", asks=30)]
    found.append(AskTiming("unfinished", 0, 0, 0, 1000))
    return found


def pictures(files: list[Path]) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in files}


def test_spark_finds_what_pyarrow_finds(spark: SparkSession, tmp_path: Path) -> None:
    archive_of(tmp_path / "archive", measurements())
    ours = spark_results.load_runs(tmp_path / "archive")
    theirs = results.load_runs(tmp_path / "archive")
    assert len(ours) == len(theirs) == 18
    for one, other in zip(ours, theirs, strict=True):
        match one, other:
            case RunResult(run, figures), RunResult(same, expected):
                assert run == same
                assert asdict(figures) == pytest.approx(asdict(expected), rel=1e-12)
            case _:
                assert isinstance(one, IncompleteRun)
                assert one == other
    report, wanted = Report.from_runs(ours), Report.from_runs(theirs)
    assert report.text() == wanted.text()
    plots = draw_figures(report.by_latency, tmp_path / "ours")
    wanted_plots = draw_figures(wanted.by_latency, tmp_path / "theirs")
    assert len(plots) == 3
    assert pictures(plots) == pictures(wanted_plots)
    rows = spark.read.format("recado").option("path", str(tmp_path / "archive")).load()
    best = {
        row["run"]
        for row in percentiles.select_best_runs(percentiles.compute_figures(rows)).collect()
    }
    assert best == {each.run.run for each in report.chosen}
