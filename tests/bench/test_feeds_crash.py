"""Feeds under kill -9, in short: a few seconds on each broker. `./dev bench feeds-crash` takes a minute."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench import feeds_crash
from bench.aims import load_aims
from bench.book import Book
from bench.feeds_crash.judge import Kind, Verdict, Violation
from bench.feeds_crash.town import BROKERS, PEOPLE, Outcome, live_through
from bench.scenario import Side

SEED = 7
SECONDS = 4.0


@pytest.mark.searching
@pytest.mark.timeout(300)
@pytest.mark.parametrize("broker", BROKERS)
def test_nothing_confirmed_is_lost_and_nothing_comes_twice(broker: str, tmp_path: Path) -> None:
    outcome = live_through(broker, tmp_path, SEED, SECONDS)
    assert [*map(str, outcome.verdict.violations), *outcome.faults][:20] == []
    killed = sum(count for what, count in outcome.counts.items() if what.endswith("killed"))
    assert killed > 3
    assert outcome.counts["confirmed"] > 100


def test_one_fault_in_one_run_is_a_fault_in_all() -> None:
    fine = Outcome(Verdict(), [], Counter(confirmed=10))
    bad = Outcome(
        Verdict([Violation(Kind.LOST, "desk", (bytes(16), 1))]), ["desk ended"], Counter()
    )
    book = Book()
    feeds_crash.enter([fine, bad, fine], 3, book)
    for name, expected in (("lost", 1), ("faults", 1), ("twice", 0)):
        assert [each.value for each in book.samples(name, Side.RECADO)] == [expected] * 3


def test_every_kind_of_fault_has_its_aim() -> None:
    aims = load_aims("feeds-crash", feeds_crash.SCENARIOS)
    assert set(aims) == {each.name for each in feeds_crash.SCENARIOS}
    assert set(feeds_crash.VIOLATIONS) == set(Kind)
    assert {"archive", "commit", "save", "trust", "await", "publish"} == set(PEOPLE.values())
