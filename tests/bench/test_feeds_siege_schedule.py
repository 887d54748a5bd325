"""The schedule of faults of the siege of feeds: repeated by its seed, and within its bounds."""

from __future__ import annotations

from bench.feeds_siege.schedule import FULL, QUICK, Fault, FaultKind, make_schedule

WEIGHTS = {"archive-1": 1.0, "archive-2": 1.0, "one": 3.0, "two": 1.0, "broker": 1.0}
ARCHIVES = ("archive-1", "archive-2")
SECONDS = 600.0
PATIENCE_S = 10.0


def schedule(seed: int) -> list[Fault]:
    return make_schedule(seed, SECONDS, WEIGHTS, ARCHIVES, FULL)


def test_a_seed_repeats_its_schedule() -> None:
    assert schedule(1) == schedule(1)
    assert schedule(1) != schedule(2)


def test_every_program_has_every_kind_of_fault() -> None:
    assert {(each.target, each.kind) for each in schedule(1)} == {
        (name, kind) for name in WEIGHTS for kind in FaultKind
    }


def test_faults_of_a_program_do_not_overlap_and_are_within_their_bounds() -> None:
    free = dict.fromkeys(WEIGHTS, 0.0)
    for fault in schedule(3):
        assert free[fault.target] <= fault.at < SECONDS
        free[fault.target] = fault.end
    stops = [each.seconds for each in schedule(3) if each.kind is FaultKind.STOP]
    assert FULL.stop[0] <= min(stops) < max(stops) <= FULL.stop[1] + FULL.blackout[1]


def test_in_a_blackout_no_archive_is_there_for_longer_than_a_gap_is_waited_for() -> None:
    faults = schedule(4)
    blackouts = 0
    for fault in faults:
        others = [
            each
            for each in faults
            if each.target in ARCHIVES and each.at <= fault.at and each.end >= fault.end
        ]
        if fault.target in ARCHIVES and fault.seconds > PATIENCE_S:
            blackouts += {each.target for each in others} == set(ARCHIVES)
    assert blackouts >= SECONDS / FULL.blackout_interval - 1
    assert make_schedule(4, 6.0, WEIGHTS, ARCHIVES, QUICK), "without blackouts"
