"""The simulation notices when a check is left out of the protocol: here by the seeds that are noted in
`mutations.py`, or a few others. Where the protocol has changed so much that they show nothing any more,

    python -m tests.feeds.sim.test_mutations

tries up to 1,000 for each, for a quarter of an hour, and tells which to note.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from types import ModuleType

import pytest

from bench.feeds_sim.world import live_through

from .mutations import MUTATIONS, Mutation

FEW = range(1, 11)
MOST = range(1, 1_001)
NOTED = [each for each in MUTATIONS if each.seed is not None]


def first_failure(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The seed that shows that something is missing, and what it says."""
    with mutation.in_place():
        for seed in seeds:
            for violation in live_through(seed).verdict.violations:
                if violation.rule in mutation.breaks:
                    return seed, str(violation)
    return None


@pytest.mark.parametrize("mutation", NOTED, ids=[each.what for each in NOTED])
def test_what_is_left_out_is_noticed(mutation: Mutation) -> None:
    assert mutation.seed is not None
    assert first_failure(mutation, [mutation.seed, *FEW]) is not None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[each.what for each in MUTATIONS])
def test_what_is_left_out_is_there_and_used(mutation: Mutation) -> None:
    """Else it would be noticed by nobody, and nobody would notice that."""
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
