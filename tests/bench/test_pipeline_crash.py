"""Pipelines under kill -9, in short: five kills, one of each kind. `./dev bench pipeline-crash` has fifty."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from bench import pipeline_crash
from bench.aims import load_aims
from bench.book import Book
from bench.pipeline_crash import CONTROLLED, GROUPS, dealt, unseen
from bench.pipeline_crash.job import ROUTES
from bench.pipeline_crash.judge import Arrived, Kind, Violation, judge
from bench.pipeline_crash.siege import KINDS, Outcome, besiege
from bench.scenario import Side

SEED = 7


# It runs beside no other Spark: pytest.mark.spark
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_what_is_promised_holds_through_five_kills(tmp_path: Path) -> None:
    outcome = besiege(tmp_path, KINDS, SEED, routes=CONTROLLED)
    assert [str(each) for each in outcome.violations][:20] == []
    assert outcome.counts["sent"] > 10


@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_without_the_mechanisms_it_is_seen(tmp_path: Path) -> None:
    control = besiege(tmp_path, ("spool", "sink", "lake"), SEED, routes=CONTROLLED, careful=False)
    assert unseen(control) == 0
    assert {each.kind for each in control.violations} == {Kind.TWICE}


def kinds(arrived: Arrived, sent: int, *, once: bool = True) -> list[Kind]:
    return [each.kind for each in judge(arrived, sent, once=once)]


def test_the_judge() -> None:
    assert kinds(Arrived("r", [0, 1, 2]), 3) == []
    assert kinds(Arrived("r", [2, 0, 1]), 3) == []
    assert kinds(Arrived("r", [0, 2]), 3) == [Kind.LOST]
    assert kinds(Arrived("r", [0, 1, 2, 3]), 3) == [Kind.PHANTOM]
    assert kinds(Arrived("r", [0, 1, 1]), 2) == [Kind.TWICE]
    assert kinds(Arrived("r", [0, 1, 1]), 2, once=False) == []
    assert kinds(Arrived("r", [0, 0], ["a", "a"]), 1, once=False) == []
    assert kinds(Arrived("r", [0, 0], ["a", "b"]), 1, once=False) == [Kind.STRANGE]
    assert kinds(Arrived("r", [0, 1], ["a", "a"]), 2, once=False) == [Kind.STRANGE]
    assert str(Violation(Kind.LOST, "r", "message 3")) == "lost on r: message 3"
    assert Arrived("r", [0, 1, 1]).repeats == 1


def test_kills_are_dealt_to_those_they_can_hit() -> None:
    shares = dealt(50, Random(1))
    assert sum(map(len, shares)) == 50
    assert "spool" not in shares[0]
    assert {kind for share in shares for kind in share} == set(KINDS)
    assert {route for group in GROUPS for route in group} == set(ROUTES)


def test_one_fault_anywhere_counts_and_so_does_a_control_that_sees_nothing() -> None:
    lost = Violation(Kind.LOST, "archive-lake", "message 1")
    outcomes = [
        Outcome([], Counter({"driver kills": 2})),
        Outcome([lost], Counter({"sink kills": 3})),
    ]
    book = Book()
    seen = [Violation(Kind.TWICE, CONTROLLED[0].name, "message 1")]
    pipeline_crash.enter(outcomes, Outcome(seen, Counter()), 3, book)
    for name, expected in (("lost", 1), ("twice", 0), ("unseen", 1), ("kills", 5)):
        assert [each.value for each in book.samples(name, Side.RECADO)] == [expected] * 3


def test_every_figure_has_its_aim() -> None:
    aims = load_aims("pipeline-crash", pipeline_crash.SCENARIOS)
    assert set(aims) == {each.name for each in pipeline_crash.SCENARIOS}
    assert set(pipeline_crash.VIOLATIONS) == set(Kind)
