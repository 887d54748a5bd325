"""The simulation notices when a check is left out of the protocol.

`mutations.py` records a seed for each that shows it, and after a change of the protocol it may be another: then
the test searches. The first seed for each is printed, in some minutes, by

    python -m tests.overlay.sim.test_mutations
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest

from bench.overlay_sim.world import live_through

from .mutations import MUTATIONS, Mutation

SEEDS = range(1, 301)
SEARCHED = range(1, 61)
NAMES = [each.what for each in MUTATIONS]


def first_failure(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The seed that shows that something is missing, and what it says."""
    with mutation.in_place():
        for seed in seeds:
            outcome = live_through(seed)
            if outcome.faults and mutation.raises:
                return seed, outcome.faults[0]
            for violation in outcome.verdict.violations:
                if violation.rule in mutation.breaks:
                    return seed, str(violation)
    return None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_what_is_left_out_is_noticed(mutation: Mutation) -> None:
    assert first_failure(mutation, [mutation.seed, *SEARCHED]) is not None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_what_is_left_out_is_there(mutation: Mutation) -> None:
    assert mutation.name in vars(mutation.owner), "its own, and not what it inherits"
    with mutation.in_place():
        assert vars(mutation.owner)[mutation.name] is mutation.instead


def main() -> int:
    wanted = sys.argv[1:]
    missed = 0
    for mutation in MUTATIONS:
        if wanted and not any(each in mutation.what for each in wanted):
            continue
        found = first_failure(mutation, SEEDS)
        missed += found is None
        recorded = "" if found and found[0] == mutation.seed else f", recorded {mutation.seed}"
        print(f"{mutation.what}: {found or 'NOT NOTICED'}{recorded}", flush=True)  # noqa: T201 (a program)
    return missed


if __name__ == "__main__":
    sys.exit(main())
