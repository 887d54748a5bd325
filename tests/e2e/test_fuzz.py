"""Hostile clients against a broker of our own: the fuzz benchmark, with ten thousand frames.

The seed is fixed, so that a failure here is the same on every machine; `./dev bench fuzz` takes another
each time, and a hundred times as many frames.
"""

from __future__ import annotations

from bench import fuzz
from bench.aims import load_aims
from bench.plan import Plan

SEED = 20
FRAMES = 10_000


def test_ten_thousand_mutated_frames_hurt_nobody() -> None:
    aims = load_aims("fuzz", fuzz.SCENARIOS)
    (outcome,) = fuzz.fuzz(Plan(rounds=1), SEED, FRAMES)
    assert outcome.outcome.frames >= FRAMES
    assert outcome.testimony.trips > 0
    assert {name: value for name, value in outcome.figures.items() if value > aims[name]} == {}
