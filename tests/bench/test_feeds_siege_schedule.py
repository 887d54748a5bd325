"""The schedule of faults of the siege of feeds: repeated by its seed, and within its bounds."""

from __future__ import annotations

from bench.feeds_siege.schedule import FULL, Fault, FaultKind, make_schedule

TARGETS = {("one",): 3.0, ("two",): 1.0, ("broker",): 1.0, ("one", "two"): 1.0}
NAMES = ("one", "two", "broker")
SECONDS = 600.0


def schedule(seed: int) -> list[Fault]:
    return make_schedule(seed, SECONDS, TARGETS, FULL)


def test_a_seed_repeats_its_schedule() -> None:
    assert schedule(1) == schedule(1)
    assert schedule(1) != schedule(2)


def test_a_fault_may_happen_to_several_programs_at_once() -> None:
    together = {each.at for each in schedule(1) if each.target == "one"}
    assert together & {each.at for each in schedule(1) if each.target == "two"}


def test_every_target_has_every_kind_of_fault() -> None:
    faults = schedule(1)
    assert {(each.target, each.kind) for each in faults} == {
        (name, kind) for name in NAMES for kind in FaultKind
    }


def test_faults_of_a_target_do_not_overlap_and_are_within_their_bounds() -> None:
    faults = schedule(3)
    free = dict.fromkeys(NAMES, 0.0)
    for fault in faults:
        assert free[fault.target] <= fault.at < SECONDS
        free[fault.target] = fault.end
    stops = [each.seconds for each in faults if each.kind is FaultKind.STOP]
    assert FULL.stop[0] <= min(stops) < max(stops) <= FULL.stop[1]
