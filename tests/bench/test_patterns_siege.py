"""The siege of patterns in short, its parts, and the record; the long form is `./dev bench patterns-siege`."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import pytest

from bench import patterns_siege
from bench.aims import load_aims
from bench.book import Book
from bench.patterns_siege import EXPECTED, FULL, QUICK, Entry, Part
from bench.patterns_siege.judge import Kind, Verdict
from bench.patterns_siege.roles import POINTS, Control
from bench.patterns_siege.schedule import FIRST, Deed, make_strikes
from bench.patterns_siege.siege import Outcome, besiege
from bench.scenario import Side

SEED = 7
KILLS_COUNT = len(FIRST)


@pytest.mark.searching
@pytest.mark.timeout(300)
def test_the_guarantees_hold_under_siege(tmp_path: Path) -> None:
    outcome = besiege("recado", tmp_path, SEED, KILLS_COUNT)
    assert outcome.texts == []
    assert outcome.kills_count >= KILLS_COUNT
    assert outcome.broker_kills_count > 0
    assert min(outcome.published.values()) > 0


def test_every_rule_has_its_limit() -> None:
    aims = load_aims("patterns-siege", patterns_siege.SCENARIOS)
    assert aims == {each.name: 0 for each in patterns_siege.SCENARIOS}
    assert set(patterns_siege.VIOLATIONS) == set(Kind)


def test_a_run_has_two_hundred_kills_on_recado_and_all_controls() -> None:
    kills = sum(
        part.kills_count
        for part in FULL
        if part.broker == "recado" and part.control is Control.NONE
    )
    assert kills == 200
    for parts in (FULL, QUICK):
        assert {part.control for part in parts} == set(Control)
        assert len(set(parts)) == len(parts)


def test_a_seed_decides_the_strikes_and_each_point_has_its_turn() -> None:
    first, second = (list(islice(make_strikes(Random(1)), 400)) for _ in range(2))
    assert first == second
    assert [(each.deed, each.role, each.point) for each in first[: len(FIRST)]] == list(FIRST)
    struck = {(each.role, each.point) for each in first if each.deed is Deed.KILL_AT_POINT}
    assert struck == {(role, point) for role, points in POINTS.items() for point in points}
    assert {each.deed for each in first} == set(Deed)
    assert str(first[0]) == "kill at point flows/ack-list"


def outcome(broker: str = "recado", **violations: int) -> Outcome:
    verdict = Verdict()
    for name, count in violations.items():
        for number in range(count):
            verdict.add(Kind(name), f"violation {number}")
    return Outcome(broker, 5, verdict, [], 3, 1, {"tasks": 9}, {"freeze flows": 1}, 0.1)


def test_a_violation_on_one_broker_is_one_of_all() -> None:
    sound, broken = outcome(), outcome("rabbitmq", lost=1)
    assert sound.is_sound
    assert broken.texts == ["lost: violation 0"]
    assert "'lost': 1" in broken.summary
    book, parts = Book(), {Part("recado", 1, 3): sound, Part("rabbitmq", 1, 3): broken}
    patterns_siege.enter(parts, 3, book)
    for name, expected in (("lost", 1), ("order", 0), ("faults", 0), ("controls", 0)):
        assert [each.value for each in book.samples(name, Side.RECADO)] == [expected] * 3
    (details, *_) = [each.details for each in book.samples("lost", Side.RECADO)]
    assert (details["kills"], details["tasks"], details["kills on rabbitmq"]) == (6, 18, 3)


def test_a_control_must_violate_all_that_its_mechanism_gives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    complete = outcome(
        attempts=1, parked=1, aggregates=1, sagas=1, outbox=1, order=1, lost=1, left=1
    )
    complete.verdict.counts |= {"attempts with id": 1, "attempts without id": 1}
    for control in EXPECTED:
        assert patterns_siege.find_missed(control, complete) == []
    book = Book()
    complete.verdict.counts["attempts without id"] = 0
    patterns_siege.enter({Part("recado", 1, 3, Control.STORES): complete}, 1, book)
    assert [each.value for each in book.samples("controls", Side.RECADO)] == [1]
    # What a control violates is not counted.
    assert [each.value for each in book.samples("lost", Side.RECADO)] == [0]
    assert "recado without stores: attempts without id" in capsys.readouterr().err


def test_a_run_continues_from_its_record(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    part, another = Part("recado", 1, 20), Part("recado", 2, 20)
    assert patterns_siege.read_record(5, "this", file) == {}
    patterns_siege.append_record(Entry("this", 5, part, outcome(sagas=2)), file)
    patterns_siege.append_record(Entry("another", 5, another, outcome()), file)
    patterns_siege.append_record(Entry("this", 6, another, outcome()), file)
    (found,) = patterns_siege.read_record(5, "this", file).items()
    assert found == (part, outcome(sagas=2))
