"""The whole benchmark with real processes, in small: both transports, with and without latency."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recado.apps.trading.benchmark import BenchmarkListener, run_plan
from recado.apps.trading.figures import TransportKind
from recado.apps.trading.measurement import ASK_KEY, RUN_KEY, RunSummary
from recado.apps.trading.plan import BenchmarkPlan, Trial
from recado.apps.trading.processes import ProcessFailedError
from recado.apps.trading.report import Report
from recado.apps.trading.results import Series, load_complete_runs
from recado.feeds.archive.archive import Archive
from workshop.time_limit import scale

ASKS = 120
CLIENTS = 4
LATENCY_US = 20_000
SECONDS = 100


class Remembering(BenchmarkListener):
    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.runs: list[RunSummary] = []

    def run_started(self, number: int, trial: Trial) -> None:
        assert number == len(self.trials) + 1
        self.trials.append(trial)

    def run_finished(self, run: RunSummary) -> None:
        self.runs.append(run)


def run(plan: BenchmarkPlan, folder: Path) -> Remembering:
    told = Remembering()
    asyncio.run(asyncio.wait_for(run_plan(plan, folder, told), scale(SECONDS)))
    return told


def test_every_ask_of_every_run_is_in_the_archive(tmp_path: Path) -> None:
    plan = BenchmarkPlan((CLIENTS,), latencies_us=(0, LATENCY_US), asks=ASKS, runs=1)
    told = run(plan, tmp_path / "archive")
    assert told.trials == [*plan.trials()]
    with Archive.open(tmp_path / "archive") as archive:
        keys = [message.key for message in archive.messages()]
    assert (keys.count(ASK_KEY), keys.count(RUN_KEY), len(keys)) == (4 * ASKS, 4, 4 * ASKS + 4)
    found = load_complete_runs(tmp_path / "archive")
    assert [each.run for each in found] == told.runs
    for each in found:
        assert each.run.traded == ASKS // 2 * 1000
        trips = 2 if each.run.transport is TransportKind.AMQP else 1
        assert each.figures.p25 >= trips * each.run.latency_us
        used = {"clients", "server"}
        used |= {"broker"} if each.run.transport is TransportKind.AMQP else set()
        used |= {"network"} if each.run.latency_us else set()
        assert set(each.run.processor) == used
    report = Report.from_archive(tmp_path / "archive")
    assert [table.name for table in report.tables] == ["Table 7.1", "Table 7.2"]
    assert {series for series, _ in report.by_latency[0]} == {
        Series("tcp", ""),
        Series("amqp", "recado"),
    }


def test_what_is_measured_later_comes_behind_it(tmp_path: Path) -> None:
    plan = BenchmarkPlan((2,), (TransportKind.TCP,), asks=60, runs=1)
    first = run(plan, tmp_path)
    second = run(plan, tmp_path)
    assert [each.run for each in load_complete_runs(tmp_path)] == first.runs + second.runs


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    brokers: dict[str, str | None] = {"nobody": "amqp://127.0.0.1:1"}
    plan = BenchmarkPlan((1,), (TransportKind.AMQP,), asks=30, runs=1, brokers=brokers)
    why = r"the server ended with status 1: .*connection to 127.0.0.1:1 refused"
    with pytest.raises(ProcessFailedError, match=why):
        run(plan, tmp_path)
    assert load_complete_runs(tmp_path) == []
