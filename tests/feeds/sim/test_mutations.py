"""The simulation notices when a check is left out of the protocol: a few here, within a few seeds.

All of `mutations.py` are tried, with up to 1,000 seeds each, by `python -m tests.feeds.sim.test_mutations`.
"""

from __future__ import annotations

import sys

import pytest

from bench.feeds_sim.world import live_through

from .mutations import MUTATIONS, Mutation

MOST_SEEDS = 1_000
QUICK = {
    "who has promised goes on delivering",
    "one archive is enough for uniform delivery",
    "live messages do not wait for recovery",
    "an archive does not answer who recovers",
    "whoever was away is said to have missed everything",
    "messages pass in the order in which they come",
    "a gap is taken for a loss before the absent are back",
}


def first_failure(mutation: Mutation) -> tuple[int, str] | None:
    """The seed that shows that something is missing, and what it says."""
    with mutation.in_place():
        for seed in range(1, MOST_SEEDS + 1):
            for violation in live_through(seed).verdict.violations:
                if violation.rule in mutation.breaks:
                    return seed, str(violation)
    return None


@pytest.mark.parametrize("what", sorted(QUICK))
def test_what_is_left_out_is_noticed(what: str) -> None:
    mutation = {each.what: each for each in MUTATIONS}[what]
    assert first_failure(mutation) is not None


def main() -> int:
    missed = 0
    for mutation in MUTATIONS:
        found = first_failure(mutation)
        missed += found is None
        print(f"{mutation.what}: {found or 'NOT NOTICED'}", flush=True)  # noqa: T201 (a program)
    return missed


if __name__ == "__main__":
    sys.exit(main())
