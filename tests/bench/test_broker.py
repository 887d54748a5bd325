"""The parts of the broker benchmark that need no broker."""

import time

import pytest

from bench.aims import Result
from bench.broker import SCENARIOS, fresh_broker, growth, traffic
from bench.picture import advantage, aimed_advantage
from bench.plan import QUICK_S, Plan
from bench.processes import family, resident_megabytes
from bench.scenario import Comparison, Scenario


def test_the_full_form_starts_a_new_broker_for_each_round() -> None:
    paths = growth.paths(growth.CONNECTIONS.marks, Plan(quick=False))
    assert [[stop for stop, _ in path] for path in paths] == [[1_000, 10_000]] * 3


def test_the_quick_form_takes_its_rounds_close_together_and_always_adds() -> None:
    (path,) = growth.paths(growth.CONNECTIONS.marks, Plan(quick=True))
    assert [stop for stop, _ in path] == [1_000, 1_010, 1_020, 3_000, 3_030, 3_060]
    names = [mark.scenario.name for _, mark in path]
    assert names == ["connections-1000"] * 3 + ["connections-10000"] * 3


def test_the_full_form_takes_long_samples() -> None:
    assert traffic.sample_seconds(Plan(quick=False), loads_left=9) == traffic.SAMPLE_S


def test_the_quick_form_shares_out_the_time_that_is_left() -> None:
    least, most = traffic.QUICK_SAMPLE_S
    late = Plan(quick=True, started=time.monotonic() - 2 * QUICK_S)
    assert traffic.sample_seconds(late, loads_left=1) == least
    early = Plan(quick=True)
    assert traffic.sample_seconds(early, loads_left=1) == most
    assert least < traffic.sample_seconds(early, loads_left=len(traffic.LOADS)) <= most


def test_the_version_of_the_peer_is_read_from_its_greeting() -> None:
    greeting = b"\x07productS\0\0\0\x08RabbitMQ\x07versionS\0\0\0\x063.10.8\x08platformS"
    assert fresh_broker.version_in(greeting) == "3.10.8"
    assert fresh_broker.version_in(b"") == ""


def test_a_process_has_itself_in_its_family_and_memory() -> None:
    import os

    assert family(os.getpid())[0] == os.getpid()
    assert 5 < resident_megabytes(os.getpid()) < 5000
    assert resident_megabytes(2**22 + 1) == 0


@pytest.mark.parametrize(
    ("comparison", "aim", "aimed"),
    [
        (Comparison.TIMES_LESS, 8.0, 8.0),
        (Comparison.SHARE_OF_PEER, 0.2, 5.0),
        (Comparison.AT_MOST, 150.0, 20.0),
    ],
)
def test_the_picture_shows_every_aim_on_one_scale(
    comparison: Comparison, aim: float, aimed: float
) -> None:
    scenario = Scenario("s", "s", "ms", comparison)
    result = Result(scenario, 100, 3000, None, aim, True, {})
    assert advantage(result) == 30
    assert aimed_advantage(result) == aimed


def test_the_picture_shows_a_higher_rate_as_an_advantage() -> None:
    scenario = Scenario("s", "s", "messages/s", Comparison.TIMES_MORE)
    result = Result(scenario, 3000, 100, None, 8.0, True, {})
    assert advantage(result) == 30
    assert aimed_advantage(result) == 8


def test_every_scenario_that_was_asked_for_is_there() -> None:
    names = {scenario.name for scenario in SCENARIOS}
    assert names >= {
        *("auto-ack-16b", "auto-ack-1k", "auto-ack-16k", "acks", "confirms", "confirm-each"),
        *("changing-routes", "rich-properties", "fan-out-10", "consumers-4"),
        *("round-trip-p50", "round-trip-p99", "connections-1000", "connections-10000"),
        *("messages-1m", "idle-memory", "start-up"),
    }
