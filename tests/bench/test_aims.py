"""Aims: the arithmetic of ratios, the direction of the tolerance, and what counts as measured."""

from pathlib import Path

import pytest

from bench import broker, durable, pipeline
from bench.__main__ import Bench
from bench.aims import InvalidAimError, judge, load_aims
from bench.book import Book, NotMeasuredError
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side

TIMES = Scenario("cpu", "processor time", "µs", Comparison.TIMES_LESS)
MORE = Scenario("rate", "messages", "messages/s", Comparison.TIMES_MORE)
SHARE = Scenario("memory", "memory", "MB", Comparison.SHARE_OF_PEER)
LIMIT = Scenario("start", "start", "ms", Comparison.AT_MOST)


def book_with(scenario: Scenario, recado: list[float], peer: list[float]) -> Book:
    book = Book()
    for side, values in ((Side.RECADO, recado), (Side.PEER, peer)):
        for value in values:
            book.enter(scenario.name, side, Sample(value))
    return book


def fall_out_of_order() -> None:
    raise NotMeasuredError("recado: message 7 came after message 8")


def test_processor_time_is_told_as_times_less() -> None:
    result = judge(TIMES, 10, book_with(TIMES, [1, 2, 3], [20, 20, 20]), Plan())
    assert (result.recado, result.peer_value, result.ratio) == (2, 20, 10)
    assert result.holds is True


def test_a_rate_is_told_as_times_more() -> None:
    result = judge(MORE, 8, book_with(MORE, [79, 80, 81], [10, 10, 10]), Plan())
    assert (result.recado, result.peer_value, result.ratio) == (80, 10, 8)
    assert result.holds is True
    assert judge(MORE, 8.1, book_with(MORE, [80] * 3, [10] * 3), Plan()).holds is False
    assert judge(MORE, 8.8, book_with(MORE, [80] * 3, [10] * 3), Plan(quick=True)).holds is True


def test_memory_is_told_as_a_share_of_the_peers() -> None:
    result = judge(SHARE, 0.2, book_with(SHARE, [10, 10, 10], [100, 50, 100]), Plan())
    assert result.ratio == 0.1
    assert result.holds is True


def test_a_limit_looks_at_our_own_figure_only() -> None:
    slow = judge(LIMIT, 150, book_with(LIMIT, [151, 151, 151], [4000, 4000, 4000]), Plan())
    assert slow.ratio == pytest.approx(0.03775)
    assert slow.holds is False
    alone = judge(LIMIT, 150, book_with(LIMIT, [80, 80, 80], []), Plan(with_peer=False))
    assert alone.holds is True


def test_the_median_ignores_one_bad_round() -> None:
    result = judge(TIMES, 10, book_with(TIMES, [1, 90, 1], [11, 11, 11]), Plan())
    assert result.ratio == 11


@pytest.mark.parametrize(
    ("scenario", "aim", "recado", "peer", "quick", "full"),
    [
        (TIMES, 10, 1.0, 10.0, True, True),
        (TIMES, 10, 1.0, 9.1, True, False),
        (TIMES, 10, 1.0, 8.9, False, False),
        (SHARE, 0.2, 20.0, 100.0, True, True),
        (SHARE, 0.2, 21.9, 100.0, True, False),
        (SHARE, 0.2, 22.1, 100.0, False, False),
        (LIMIT, 150, 164.0, 4000.0, True, False),
        (LIMIT, 150, 166.0, 4000.0, False, False),
    ],
)
def test_the_quick_form_allows_ten_percent_in_the_direction_of_failure(
    scenario: Scenario, aim: float, recado: float, peer: float, quick: bool, full: bool
) -> None:
    book = book_with(scenario, [recado] * 3, [peer] * 3)
    assert judge(scenario, aim, book, Plan(quick=True)).holds is quick
    assert judge(scenario, aim, book, Plan(quick=False)).holds is full


def test_too_few_rounds_are_not_a_measurement() -> None:
    result = judge(TIMES, 10, book_with(TIMES, [1, 1, 1], [99, 99]), Plan())
    assert result.not_measured == "2 of 3 rounds of peer"
    assert result.holds is False
    assert not result.passes


def test_without_a_peer_nothing_that_compares_holds() -> None:
    result = judge(TIMES, 10, book_with(TIMES, [1, 1, 1], []), Plan(with_peer=False))
    assert result.holds is False
    assert result.ratio is None


def test_a_failure_outweighs_the_samples_before_it() -> None:
    book = book_with(TIMES, [1, 1, 1], [99, 99, 99])
    with book.measuring(TIMES.name):
        fall_out_of_order()
    result = judge(TIMES, 10, book, Plan())
    assert result.not_measured == "recado: message 7 came after message 8"
    assert result.holds is False


def test_without_an_aim_a_scenario_passes_only_when_measured() -> None:
    measured = judge(TIMES, None, book_with(TIMES, [1, 1, 1], [2, 2, 2]), Plan())
    assert (measured.holds, measured.passes) == (None, True)
    missing = judge(TIMES, None, Book(), Plan())
    assert (missing.holds, missing.passes) == (None, False)


def test_the_aims_of_the_broker_are_those_that_were_agreed() -> None:
    assert load_aims("broker", broker.SCENARIOS) == {
        "auto-ack-16b": 10,
        "acks": 8,
        "confirms": 8,
        "changing-routes": 4,
        "confirm-each": 2.5,
        "round-trip-p50": 0.5,
        "idle-memory": 0.2,
        "connections-10000": 0.1,
        "messages-1m": 0.2,
        "start-up": 150,
    }


def test_a_queue_on_spark_has_a_lower_aim_on_rabbitmq() -> None:
    aims = load_aims("pipeline", pipeline.SCENARIOS)
    assert (aims["queue-recado"], aims["queue-rabbitmq"]) == (3, 2.5)
    assert (aims["sink-recado"], aims["sink-rabbitmq"]) == (3, 3)


@pytest.mark.parametrize("bench", [broker, durable])
def test_names_of_scenarios_are_unique(bench: Bench) -> None:
    names = [scenario.name for scenario in bench.SCENARIOS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[b.unheard-of]\ntimes_less = 2", "no scenario 'unheard-of'"),
        ("[b.cpu]\nat_most = 2", "must be 'times_less'"),
        ("[b.cpu]\ntimes_less = 2\nat_most = 2", "must be 'times_less'"),
    ],
)
def test_an_aim_that_fits_no_scenario_is_refused(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "aims.toml"
    file.write_text(text)
    with pytest.raises(InvalidAimError, match=message):
        load_aims("b", [TIMES], file)


def test_a_bench_without_aims_has_none(tmp_path: Path) -> None:
    file = tmp_path / "aims.toml"
    file.write_text("")
    assert load_aims("b", [TIMES], file) == {}
