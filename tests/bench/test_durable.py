"""The durable benchmark: what it compares, and that it believes no broker that forgets."""

import time
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path

import pytest

from bench import report
from bench.aims import Result, judge, load_aims
from bench.book import Book
from bench.broker import fresh_broker
from bench.durable import SCENARIOS, memory, restart, traffic
from bench.plan import QUICK_S, Plan
from bench.scenario import Sample, Scenario, Side
from workshop import peers

AIMS = load_aims("durable", SCENARIOS)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def test_every_combination_is_measured() -> None:
    combinations = product((1, 50), (1, 20, 1000), (16, 1024), ("", "-consumed"))
    asked = {f"{count}x-window-{window}-{size}b{end}" for count, window, size, end in combinations}
    assert set(BY_NAME) == asked | {
        *("confirm-p50-16b", "confirm-p50-1024b"),
        *("passing", "queued-runs", "queued-singles"),
        *("restart-1k-runs", "restart-16b-singles"),
    }


def test_the_aims_are_those_that_were_agreed() -> None:
    ends = [f"{size}b{end}" for size, end in product((16, 1024), ("", "-consumed"))]
    assert load_aims("durable", SCENARIOS) == {
        **{f"1x-window-1000-{end}": 8 for end in ends},
        **{f"50x-window-1-{end}": 2 for end in ends},
        **{f"confirm-p50-{size}b": 0.7 for size in (16, 1024)},
        "passing": 20,
        **{f"queued-{shape}": 300 for shape in ("runs", "singles")},
        **{f"restart-{backlog}": 5 for backlog in ("1k-runs", "16b-singles")},
    }


def test_all_traffic_is_durable_and_confirmed() -> None:
    for load in traffic.LOADS:
        assert {"--durable", "--confirm-window"} <= set(load.arguments.split())


def test_the_quick_form_leaves_out_nothing_that_an_aim_is_about() -> None:
    quick, full = Plan(quick=True), Plan()
    assert all(full.includes(scenario) for scenario in SCENARIOS)
    left_out = {scenario.name for scenario in SCENARIOS if not quick.includes(scenario)}
    assert left_out
    assert left_out.isdisjoint(AIMS)


def test_what_was_asked_for_by_name_is_in_every_form() -> None:
    name = "50x-window-20-16b"
    plan = Plan(quick=True, only=frozenset([name]))
    assert [each.names for each in traffic.loads_of(plan)] == [[name]]


def test_the_quick_form_shares_out_the_time_that_is_left() -> None:
    least, most = traffic.QUICK_SAMPLE_S
    late = Plan(quick=True, started=time.monotonic() - 2 * QUICK_S)
    assert traffic.sample_seconds(late, loads_left=1) == least
    assert traffic.sample_seconds(Plan(quick=True), loads_left=1) == most
    assert traffic.sample_seconds(Plan(), loads_left=1) == traffic.SAMPLE_S


def test_the_worst_of_a_brokers_life_counts_in_every_round() -> None:
    book, plan = Book(), Plan(quick=True)
    memory.enter(memory.PASSING, 21.5, 500_000, {"peak_at_500000": 60.0}, plan, book)
    result = judge(memory.PASSING, 20, book, plan)
    assert (result.recado, result.not_measured, result.holds) == (21.5, None, True)
    assert report.title(result) == "growth while 10 M pass (at 500,000)"


def test_processor_time_stands_beside_a_rate() -> None:
    scenario = BY_NAME["1x-window-1000-16b"]
    book = Book()
    for side, value, cpu in ((Side.RECADO, 2e5, 4.0), (Side.PEER, 2e4, 50.0)):
        for _ in range(3):
            book.enter(scenario.name, side, Sample(value, {"cpu_us": cpu, "rate": value}))
    row = report.line(judge(scenario, 8, book, Plan()))
    assert "10.0×       ≥ 8×    4.00 µs   50.0 µs" in row


def test_only_the_full_form_restarts_the_peer() -> None:
    assert restart.rounds_of(Plan(quick=True)) == {Side.RECADO: 3}
    assert restart.rounds_of(Plan()) == {Side.RECADO: 3, Side.PEER: 1}
    assert restart.rounds_of(Plan(with_peer=False)) == {Side.RECADO: 3}


def forgetful(side: Side, port: int, data: Path | None) -> AbstractContextManager[peers.Server]:
    assert side is Side.RECADO
    assert data is not None
    return peers.recado(port=port)


def test_a_broker_that_forgets_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fresh_broker, "starting", forgetful)
    monkeypatch.setattr(restart, "QUICK_MESSAGES", 1000)
    (scenario, _) = restart.SCENARIOS
    result = restart_of(scenario, tmp_path)
    assert "no queue" in str(result.not_measured)
    assert result.holds is False


def restart_of(scenario: Scenario, folder: Path) -> Result:
    book, plan = Book(), Plan(quick=True, with_peer=False, only=frozenset([scenario.name]))
    assert list(restart.run(plan, book, folder)) == [scenario.name]
    return judge(scenario, AIMS[scenario.name], book, plan)
