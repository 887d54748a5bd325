"""The simulation notices when a check is left out of the protocol.

`mutations.py` records a seed for each that shows it, and after a change of the protocol it may be another: then
the test searches. The first seed for each is printed, in a minute or two, by

    python -m tests.feeds.sim.test_mutations
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from types import ModuleType

import pytest

from bench.feeds_sim.script import draw, suits
from bench.feeds_sim.world import live_through

from .mutations import MUTATIONS, Mutation

SEEDS = range(1, 61)
NAMES = [each.what for each in MUTATIONS]
PLOTTED = [each for each in MUTATIONS if each.plot is not None]


def first_failure(mutation: Mutation, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The seed that shows that something is missing, and what it says."""
    plot = mutation.plot
    with mutation.in_place():
        for seed in seeds:
            if plot is not None and not suits(plot, draw(seed).kind):
                continue
            for violation in live_through(seed, plot).verdict.violations:
                if violation.rule in mutation.breaks:
                    return seed, str(violation)
    return None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_what_is_left_out_is_noticed(mutation: Mutation) -> None:
    assert first_failure(mutation, [mutation.seed, *SEEDS]) is not None


@pytest.mark.parametrize("mutation", PLOTTED, ids=[each.what for each in PLOTTED])
def test_nothing_is_wrong_if_nothing_is_left_out(mutation: Mutation) -> None:
    assert live_through(mutation.seed, mutation.plot).problems == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_what_is_left_out_is_there_and_used(mutation: Mutation) -> None:
    """Else it would be noticed by nobody, and nobody would notice that."""
    assert mutation.seed in SEEDS
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
        found = first_failure(mutation, SEEDS)
        missed += found is None
        recorded = "" if found and found[0] == mutation.seed else f", recorded {mutation.seed}"
        print(f"{mutation.what}: {found or 'NOT NOTICED'}{recorded}", flush=True)  # noqa: T201 (a program)
    return missed


if __name__ == "__main__":
    sys.exit(main())
