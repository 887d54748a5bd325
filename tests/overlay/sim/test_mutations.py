"""The simulation notices when a check is left out of the protocol.

`mutations.py` records a seed for each that shows it, and after a change of the protocol it may be another: then
the test searches. The first seed for each is printed, in some minutes, by

    python -m tests.overlay.sim.test_mutations

Mutations of the consensus need rare orders of messages. `test_reconfiguration_machine.py` finds them in less time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

import pytest

from bench.overlay_sim.world import live_through

from .. import test_commands, test_merge, test_replica
from ..test_reconfiguration_machine import WALKED
from .mutations import MUTATIONS, Mutation

SEARCHED = range(1, 61)
NAMES = [each.what for each in MUTATIONS]
SIMULATED = [each for each in MUTATIONS if each.seed is not None]


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


@pytest.mark.parametrize("mutation", SIMULATED, ids=[each.what for each in SIMULATED])
def test_what_is_left_out_is_noticed(mutation: Mutation) -> None:
    assert mutation.seed is not None
    assert first_failure(mutation, [mutation.seed, *SEARCHED]) is not None


DIRECT: dict[str, Callable[[], None]] = {
    "an older state is installed": test_replica.test_an_older_state_is_not_installed,
    "copies of a range share topics that change": (
        test_replica.test_copies_of_a_state_do_not_share_changes
    ),
    "late copies of commands that were given up are executed": lambda: (
        test_commands.test_a_late_copy_of_a_command_that_was_given_up_is_not_executed(
            test_commands.start_network()
        )
    ),
    "reads need no majority": lambda: (
        test_commands.test_an_owner_without_a_majority_answers_no_reads(
            test_commands.start_network()
        )
    ),
    "the upper range does not go on alone": lambda: (
        test_merge.test_the_upper_range_goes_on_alone_if_the_owner_fails_in_between(
            test_merge.start_network()
        )
    ),
    "unfinished deliveries do not move with a range": lambda: (
        test_commands.test_a_new_owner_delivers_what_the_old_one_has_not(
            test_commands.start_network()
        )
    ),
    "a new owner does not resume deliveries": lambda: (
        test_commands.test_a_new_owner_delivers_what_the_old_one_has_not(
            test_commands.start_network()
        )
    ),
    "batches of one topic overtake each other": lambda: (
        test_commands.test_commands_of_one_node_on_a_topic_stay_in_order(
            test_commands.start_network()
        )
    ),
}
"""The tests that notice mutations which the simulation seldom shows."""


@pytest.mark.parametrize("what", DIRECT)
def test_what_is_left_out_is_noticed_by_a_test(what: str) -> None:
    (mutation,) = (each for each in MUTATIONS if each.what == what)
    with mutation.in_place(), pytest.raises((AssertionError, KeyError)):
        DIRECT[what]()


def test_every_mutation_is_noticed_somewhere() -> None:
    walked = {each.what for each in MUTATIONS if each.seed is None} - set(DIRECT)
    assert walked == set(WALKED)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_what_is_left_out_is_there(mutation: Mutation) -> None:
    assert mutation.name in vars(mutation.owner), "its own, and not what it inherits"
    with mutation.in_place():
        assert vars(mutation.owner)[mutation.name] is mutation.instead


def main() -> int:
    wanted = sys.argv[1:]
    missed = 0
    for mutation in SIMULATED:
        if wanted and not any(each in mutation.what for each in wanted):
            continue
        found = first_failure(mutation, SEARCHED)
        missed += found is None
        recorded = "" if found and found[0] == mutation.seed else f", recorded {mutation.seed}"
        print(f"{mutation.what}: {found or 'NOT NOTICED'}{recorded}", flush=True)  # noqa: T201 (a program)
    return missed


if __name__ == "__main__":
    sys.exit(main())
