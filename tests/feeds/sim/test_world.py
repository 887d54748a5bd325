"""Whole feeds, simulated: publishers, subscribers and three archives, while everything fails that may.

A seed that fails here is repeated with `python -m bench.feeds_sim SEED`.
"""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from bench.feeds_sim import __main__ as again
from bench.feeds_sim import plots, work
from bench.feeds_sim.fault import Cut, Outage, Stall
from bench.feeds_sim.faults import Faults
from bench.feeds_sim.judge import judge
from bench.feeds_sim.script import Kind, draw
from bench.feeds_sim.world import World, live_through
from recado.simulator.network import NetworkConditions

AT_A_TIME = 10
SEEDS = range(1, 321)


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, AT_A_TIME))
def test_nothing_is_wrong_with_a_feed(first: int) -> None:
    tally = work.worlds(range(first, first + AT_A_TIME))
    assert tally.problems == []
    assert tally.worlds == AT_A_TIME


@pytest.mark.parametrize(
    "seed", [403, 560, 618, 651, 694, 734, 816, 1965, 2935, 6312, 7352, 200138]
)
def test_nothing_is_wrong_where_it_once_was(seed: int) -> None:
    assert work.worlds([seed]).problems == []


@pytest.mark.parametrize("kind", list(Kind))
def test_a_feed_in_which_nothing_fails(kind: Kind) -> None:
    """Everybody gets everything live, but for what was published before they came."""
    script = msgspec.structs.replace(
        draw(1), kind=kind, faults=(), weather=NetworkConditions(), absent=()
    )
    world = World(script)
    world.run()
    assert world.faults == []
    verdict = judge(world.history)
    assert verdict.violations == []
    assert verdict.counts["told lost"] == verdict.counts["gave up"] == 0
    assert verdict.counts["live"] > 0.8 * verdict.counts["delivered"]


def test_the_seeds_meet_every_kind_of_trouble() -> None:
    scripts = [draw(seed) for seed in SEEDS]
    assert {script.kind for script in scripts} == set(Kind)
    befallen = {type(fault).__name__ for script in scripts for _, fault in script.faults}
    assert befallen == {
        "Crash",
        "Blackout",
        "Leave",
        "Stall",
        "Slow",
        "Cut",
        "Storm",
        "CutOff",
        "Outage",
        "Halt",
    }
    assert {(script.total, script.uniform) for script in scripts} == {
        (total, uniform) for total in (False, True) for uniform in (False, True)
    }


def test_some_worlds_in_total_order_have_long_stalls_of_any_member() -> None:
    stalled = [
        script
        for script in map(draw, SEEDS)
        if len(script.faults) > 1
        and all(isinstance(fault, Stall) and fault.seconds >= 3.0 for _, fault in script.faults)
    ]
    assert {script.kind for script in stalled} == set(Kind)
    assert all(script.total for script in stalled)
    names = {fault.name[0] for s in stalled for _, fault in s.faults if isinstance(fault, Stall)}
    assert names == {"a", "p", "s"}, "archives, publishers and subscribers"


def test_a_seed_is_the_same_in_another_process() -> None:
    """With other hashes."""
    seeds = range(1, 9)
    here = [live_through(seed).trace for seed in seeds]
    code = (
        "from bench.feeds_sim.world import live_through\n"
        f"for seed in {seeds!r}: print(live_through(seed).trace)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    asked = [sys.executable, "-c", code]
    there = subprocess.run(asked, capture_output=True, text=True, check=True, env=environment)
    assert there.stdout.split() == here
    assert len(set(here)) == len(seeds)


def test_a_world_can_be_repeated_and_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.feeds_sim", "1", "--about", "Began"])
    assert again.main() == 0
    said = capsys.readouterr().out
    assert "Began(at=" in said
    assert "no violations" in said
    assert said.endswith(f"trace {live_through(1).trace}\n")


def test_a_world_can_be_repeated_with_other_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.feeds_sim", "1", "--plot", "by_turns"])
    assert again.main() == 0
    trace = live_through(1, plots.by_turns).trace
    assert capsys.readouterr().out.endswith(f"trace {trace}\n")
    assert trace != live_through(1).trace


def test_a_member_that_raises_is_a_fault_and_says_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("it does not start")

    monkeypatch.setattr("bench.feeds_sim.world.FeedMember", broken)
    tally = work.worlds([4])
    assert (tally.faults, tally.violations.total()) == (1, 0)
    assert tally.problems[0].startswith("python -m bench.feeds_sim 4: at 0.")
    monkeypatch.setattr("sys.argv", ["bench.feeds_sim", "4"])
    assert again.main() == 1
    assert "it does not start" in capsys.readouterr().out


def test_a_fault_of_another_medium_is_refused() -> None:
    scripts = {script.kind: script for script in map(draw, SEEDS)}
    with pytest.raises(ValueError, match="does not befall"):
        Faults(World(scripts[Kind.ETHER])).befall(Outage(1.0))
    with pytest.raises(ValueError, match="does not befall"):
        Faults(World(scripts[Kind.RABBIT])).befall(Cut((), 1.0))
