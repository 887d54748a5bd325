"""Whole networks, simulated, while everything fails that may. A seed that fails is repeated with
`python -m bench.overlay_sim SEED`."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from bench.overlay_sim.history import Disturbed
from bench.overlay_sim.script import Crash, draw
from bench.overlay_sim.world import World, live_through
from recado.simulator.network import NetworkConditions

AT_A_TIME = 10
SEEDS = range(1, 301)


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, AT_A_TIME))
def test_all_guarantees_hold(first: int) -> None:
    for seed in range(first, first + AT_A_TIME):
        assert live_through(seed).problems == [], f"python -m bench.overlay_sim {seed}"


def test_a_seed_is_the_same_in_another_process() -> None:
    """With other hashes."""
    seeds = range(1, 5)
    here = [live_through(seed).trace for seed in seeds]
    code = (
        "from bench.overlay_sim.world import live_through\n"
        f"for seed in {seeds!r}: print(live_through(seed).trace)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    asked = [sys.executable, "-c", code]
    there = subprocess.run(asked, capture_output=True, text=True, check=True, env=environment)
    assert there.stdout.split() == here
    assert len(set(here)) == len(seeds)


def test_a_failure_disturbs_few_topics() -> None:
    """On average over all nodes, the ranges of which the failed one was a member, and no others."""
    shares = []
    for victim in range(8):
        script = msgspec.structs.replace(
            draw(1),
            nodes=8,
            replicas=2,
            operations=0,
            detects=False,
            weather=NetworkConditions(),
            faults=((6.0, Crash(1, None, f"n{victim}")),),
        )
        world = World(script)
        world.run()
        shares += [event.share for event in world.history.of(Disturbed)]
    assert len(shares) == 8
    assert 0.9 < sum(shares) / len(shares) <= 1.2
