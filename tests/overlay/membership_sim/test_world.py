"""Whole networks under faults: what is promised about membership holds, and a seed repeats its world."""

from __future__ import annotations

import pytest

from bench.membership_sim import script
from bench.membership_sim.judge import RESET_LIMIT_S, SILENT_LIMIT_S, Rule, percentile
from bench.membership_sim.script import PLOTS, Plot, draw
from bench.membership_sim.world import World

DISTINCT = tuple(dict.fromkeys(PLOTS))


@pytest.mark.parametrize("plot", DISTINCT, ids=lambda plot: plot.__name__)
def test_membership_survives(plot: Plot) -> None:
    """OFD1 to FD6, OMB1 to MB3, in networks of 2 to 24 nodes."""
    for seed, size in enumerate((2, 3, 5, 8, 13, 24), 100):
        world = World(draw(seed, plot, size))
        violations = world.run().violations
        assert violations == [], f"python -m bench.membership_sim {seed} --size {size} --plot …"


@pytest.mark.parametrize(
    ("plot", "limit"),
    [(script.silent_crashes, SILENT_LIMIT_S), (script.reset_crashes, RESET_LIMIT_S)],
    ids=["silent", "reset"],
)
@pytest.mark.parametrize("size", [2, 5, 40])
def test_all_nodes_notice_a_crash_in_time(plot: Plot, limit: float, size: int) -> None:
    samples: list[float] = []
    for seed in range(2 if size == 40 else 5):
        verdict = World(draw(seed, plot, size)).run()
        samples += verdict.silent + verdict.reset
    assert len(samples) >= 4
    assert percentile(samples, 99) <= limit


def test_a_seed_repeats_its_world() -> None:
    script = draw(37)
    first, second = World(script), World(script)
    first.run()
    second.run()
    assert first.trace() == second.trace()
    other = World(draw(38))
    other.run()
    assert other.trace() != first.trace()


def test_the_judge_sees_a_network_without_faults_at_rest() -> None:
    world = World(draw(1, lambda random, size: [], 13))
    verdict = world.run()
    assert verdict.violations == []
    assert verdict.counts["refutations"] == 0
    assert verdict.counts["failed"] == 0


def test_the_judge_objects_to_a_node_that_is_not_noticed() -> None:
    """A judge that knows of a crash that does not happen finds that nobody has noticed it."""
    world = World(draw(1, lambda random, size: [], 5))
    crash = script.Kill(5.0, 1, is_reset=False)
    world.judge._script = draw(1, lambda random, size: [crash], 5)
    assert {violation.rule for violation in world.run().violations} == {Rule.DETECTION}
