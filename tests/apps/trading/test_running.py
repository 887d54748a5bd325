"""The whole benchmark with real processes, in small: both transports, with and without latency."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recado.apps.trading.archived import Series, measured
from recado.apps.trading.figures import Transport
from recado.apps.trading.measurement import ASKED, RUN, Run
from recado.apps.trading.plan import Plan, Trial
from recado.apps.trading.programs import ProgramFailed
from recado.apps.trading.report import Report
from recado.apps.trading.running import Told, run_all
from recado.feeds.archive.archive import Archive
from workshop.time_limit import scale

ASKS = 120
CLIENTS = 4
LATENCY_US = 20_000
SECONDS = 100


class Remembering(Told):
    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.runs: list[Run] = []

    def begun(self, number: int, trial: Trial) -> None:
        assert number == len(self.trials) + 1
        self.trials.append(trial)

    def ended(self, run: Run) -> None:
        self.runs.append(run)


def run(plan: Plan, folder: Path) -> Remembering:
    told = Remembering()
    asyncio.run(asyncio.wait_for(run_all(plan, folder, told), scale(SECONDS)))
    return told


def test_every_ask_of_every_run_is_in_the_archive(tmp_path: Path) -> None:
    plan = Plan((CLIENTS,), latencies_us=(0, LATENCY_US), asks=ASKS, runs=1)
    told = run(plan, tmp_path / "archive")
    assert told.trials == [*plan.trials()]
    with Archive.open(tmp_path / "archive") as archive:
        keys = [message.key for message in archive.messages()]
    assert (keys.count(ASKED), keys.count(RUN), len(keys)) == (4 * ASKS, 4, 4 * ASKS + 4)
    found = measured(tmp_path / "archive")
    assert [each.run for each in found] == told.runs
    for each in found:
        assert each.run.traded == ASKS // 2 * 1000
        trips = 2 if each.run.transport is Transport.AMQP else 1
        assert each.figures.p25 >= trips * each.run.latency_us
        used = {"clients", "server"}
        used |= {"broker"} if each.run.transport is Transport.AMQP else set()
        used |= {"network"} if each.run.latency_us else set()
        assert set(each.run.processor) == used
    report = Report.of(tmp_path / "archive")
    assert [table.name for table in report.tables] == ["Table 7.1", "Table 7.2"]
    assert {series for series, _ in report.by_latency[0]} == {
        Series("tcp", ""),
        Series("amqp", "recado"),
    }


def test_what_is_measured_later_comes_behind_it(tmp_path: Path) -> None:
    plan = Plan((2,), (Transport.TCP,), asks=60, runs=1)
    first = run(plan, tmp_path)
    second = run(plan, tmp_path)
    assert [each.run for each in measured(tmp_path)] == first.runs + second.runs


def test_a_broker_that_is_not_there(tmp_path: Path) -> None:
    brokers: dict[str, str | None] = {"nobody": "amqp://127.0.0.1:1"}
    plan = Plan((1,), (Transport.AMQP,), asks=30, runs=1, brokers=brokers)
    why = r"the server ended with status 1: .*nobody listens at 127.0.0.1:1"
    with pytest.raises(ProgramFailed, match=why):
        run(plan, tmp_path)
    assert measured(tmp_path) == []
