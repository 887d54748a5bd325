"""The simulation notices when a check is left out of the protocol: here those that a few seeds show.

All of `mutations.py` are tried, with up to 1,000 seeds each and for some ten minutes, by

    python -m tests.feeds.sim.test_mutations

What it finds is noted there: after a change of the protocol it may be others.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from types import ModuleType

import pytest

from bench.feeds_sim.world import live_through

from .mutations import MUTATIONS, Mutation

FEW = range(1, 61)
MOST = range(1, 1_001)
SOON = [each for each in MUTATIONS if each.seed in FEW]


def first_failure(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The seed that shows that something is missing, and what it says."""
    with mutation.in_place():
        for seed in seeds:
            for violation in live_through(seed).verdict.violations:
                if violation.rule in mutation.breaks:
                    return seed, str(violation)
    return None


@pytest.mark.parametrize("mutation", SOON, ids=[each.what for each in SOON])
def test_what_is_left_out_is_noticed(mutation: Mutation) -> None:
    assert first_failure(mutation, [mutation.seed, *FEW]) is not None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.what for each in MUTATIONS])
def test_what_is_left_out_is_there_and_used(mutation: Mutation) -> None:
    """Else it would be noticed by nobody, and nobody would notice that."""
    assert mutation.seed in MOST
    owner, name = mutation.owner, mutation.name
    assert name in vars(owner), "its own, and not what it inherits"
    assert vars(owner)[name] is not mutation.instead
    if isinstance(owner, ModuleType):
        used = [line for line in inspect.getsource(owner).splitlines() if name in line]
        assert len(used) > 1
    with mutation.in_place():
        assert vars(owner)[name] is mutation.instead


def main() -> int:
    missed = 0
    for mutation in MUTATIONS:
        found = first_failure(mutation, MOST)
        missed += found is None
        print(f"{mutation.what}: {found or 'NOT NOTICED'}", flush=True)  # noqa: T201 (a program)
    return missed


if __name__ == "__main__":
    sys.exit(main())
