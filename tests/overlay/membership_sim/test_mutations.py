"""The judge notices when a mechanism is left out.

The first seed that shows each is printed by

    python -m tests.overlay.membership_sim.test_mutations
"""

from __future__ import annotations

import sys

import pytest

from bench.membership_sim.judge import RESET_LIMIT_S, SILENT_LIMIT_S, Rule, percentile
from bench.membership_sim.script import draw
from bench.membership_sim.world import World

from .mutations import MUTATIONS, Mutation


def first_failure(mutation: Mutation) -> tuple[int, str] | None:
    """Return the first seed that shows that something is missing, and what it shows."""
    silent: list[float] = []
    reset: list[float] = []
    with mutation.in_place():
        for seed in mutation.seeds:
            verdict = World(draw(seed, mutation.plot, mutation.size)).run()
            for violation in verdict.violations:
                if violation.rule in mutation.breaks:
                    return seed, str(violation)
            silent += verdict.silent
            reset += verdict.reset
    for samples, limit in ((silent, SILENT_LIMIT_S), (reset, RESET_LIMIT_S)):
        if Rule.DETECTION in mutation.breaks and percentile(samples, 99) > limit:
            return mutation.seeds[-1], f"detection: p99 is {percentile(samples, 99):.2f} s"
    return None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.what for each in MUTATIONS])
def test_the_judge_notices_what_is_left_out(mutation: Mutation) -> None:
    assert first_failure(mutation) is not None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.what for each in MUTATIONS])
def test_what_is_left_out_is_there(mutation: Mutation) -> None:
    owner, name = mutation.owner, mutation.name
    assert name in vars(owner), "its own, not an inherited one"
    assert vars(owner)[name] is not mutation.instead


def main() -> int:
    missed = 0
    for mutation in MUTATIONS:
        found = first_failure(mutation)
        missed += found is None
        print(f"{mutation.what}: {found or 'NOT NOTICED'}", flush=True)  # noqa: T201 (a program)
    return missed


if __name__ == "__main__":
    sys.exit(main())
