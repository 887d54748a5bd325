"""The siege of patterns in short, and its judge; the long form is `./dev bench patterns-siege`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import patterns_siege
from bench.aims import load_aims
from bench.book import Book
from bench.patterns_siege.judge import Evidence, Kill, Kind, Published, judge
from bench.patterns_siege.siege import Outcome, besiege
from bench.scenario import Side

SEED = 7
KILLS_COUNT = 4

PID = 1


@pytest.mark.searching
@pytest.mark.timeout(120)
def test_the_guarantees_hold_under_siege(tmp_path: Path) -> None:
    outcome = besiege("recado", tmp_path, SEED, KILLS_COUNT)
    assert outcome.verdict.texts == []
    assert outcome.faults == []
    assert outcome.kills_count == KILLS_COUNT
    assert outcome.broker_kills_count > 0
    assert min(outcome.published.values()) > 10


def test_every_rule_has_its_limit() -> None:
    aims = load_aims("patterns-siege", patterns_siege.SCENARIOS)
    assert aims == {each.name: 0 for each in patterns_siege.SCENARIOS}
    assert set(patterns_siege.VIOLATIONS) == set(Kind)


def begin(attempt: int, at: float, pid: int = PID, event: str = "begin") -> dict[str, Any]:
    return {"n": 0, "event": event, "attempt": attempt, "pid": pid, "at": at}


def parked(attempt: int) -> dict[str, Any]:
    return {"queue": "tasks.dead", "id": "i", "body": {"number": 0}, "attempt": attempt}


def evidence(
    kind: str,
    notes: Sequence[dict[str, Any]] = (),
    collected: Sequence[dict[str, Any]] = (),
    kills: Sequence[Kill] = (),
) -> Evidence:
    return Evidence(
        tasks={0: Published(0, kind, 0.0, 0.1)},
        lists_count=0,
        orders_count=0,
        shuffled_count=0,
        sales=set(),
        notes=notes,
        collected=collected,
        kills=kills,
    )


def found(of: Evidence) -> list[Kind]:
    return [kind for kind, texts in judge(of).violations.items() if texts]


def tasks_killed(at: float) -> Kill:
    return Kill("tasks", PID, at, at)


DONE = begin(1, 1.2, event="end")
FOUR = [begin(number, float(number)) for number in range(1, 5)]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (evidence("fine"), [Kind.LOST]),
        (evidence("fine", [begin(1, 1.0)]), [Kind.LOST]),
        (evidence("fine", [begin(1, 1.0), DONE]), []),
        (evidence("fine", [begin(2, 1.0), begin(2, 1.1, event="end")]), [Kind.ATTEMPTS]),
        # It had been delivered to a worker that was killed before its handler began.
        (
            evidence("fine", [begin(2, 1.0), begin(2, 1.1, event="end")], (), [tasks_killed(0.5)]),
            [],
        ),
        # Its handler was running.
        (evidence("fine", [begin(1, 1.0), begin(2, 3.0), DONE], (), [tasks_killed(2.0)]), []),
        (
            evidence("fine", [begin(1, 1.0), begin(1, 3.0), DONE], (), [tasks_killed(2.0)]),
            [Kind.ATTEMPTS],
        ),
        (evidence("poison", FOUR, [parked(4)]), []),
        (evidence("poison", FOUR[:3], [parked(3)]), [Kind.PARKED]),
        (evidence("poison", FOUR, [parked(4), parked(4)]), [Kind.PARKED]),
        (evidence("fine", [begin(1, 1.0), DONE], [parked(4)]), [Kind.PARKED]),
    ],
)
def test_the_judge_of_attempts(of: Evidence, expected: list[Kind]) -> None:
    assert found(of) == expected


def collected(queue: str, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"queue": queue, "id": str(number), "body": body} for number, body in enumerate(bodies)]


def rest(**changes: Any) -> Evidence:
    of = evidence("fine", [begin(1, 1.0), DONE])
    for name, value in changes.items():
        setattr(of, name, value)
    return of


PAIR = {"pair": 0, "items": [0, 1, 2, 3, 4, 5]}
PAID = {"order": 0, "outcome": "paid"}
SALES = [{"account": 0, "number": number} for number in range(2)]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (rest(lists_count=2, collected=collected("sums", PAIR)), []),
        (rest(lists_count=2), [Kind.AGGREGATES]),
        (rest(lists_count=2, collected=collected("sums", PAIR, PAIR)), [Kind.AGGREGATES]),
        (rest(orders_count=1, collected=collected("outcomes", PAID)), []),
        (rest(orders_count=1, collected=collected("outcomes", PAID, PAID)), [Kind.SAGAS]),
        (rest(sales={(0, 0), (0, 1)}, collected=collected("sales", *SALES)), []),
        (rest(sales={(0, 0)}, collected=collected("sales", *SALES)), [Kind.OUTBOX]),
        (rest(sales={(0, 0), (0, 1)}, collected=collected("sales", SALES[0])), [Kind.OUTBOX]),
        (rest(sales={(0, 0), (0, 1)}, collected=collected("sales", *SALES[::-1])), [Kind.OUTBOX]),
        (rest(shuffled_count=1, collected=collected("ordered", {"number": 1})), []),
        (rest(shuffled_count=1), [Kind.ORDER]),
    ],
)
def test_the_judge_of_effects(of: Evidence, expected: list[Kind]) -> None:
    assert found(of) == expected


def test_a_violation_on_one_broker_is_one_of_all() -> None:
    published = {"tasks": 1}
    outcomes = [
        Outcome("recado", judge(of), [], 3, 1, published, 0.1)
        for of in (evidence("fine"), evidence("fine", [begin(1, 1.0), DONE]))
    ]
    book = Book()
    patterns_siege.enter(outcomes, [Kind.ORDER], 3, book)
    for name, expected in (("lost", 1), ("order", 0), ("faults", 0), ("controls", 1)):
        assert [each.value for each in book.samples(name, Side.RECADO)] == [expected] * 3
    assert "'lost': 1" in outcomes[0].summary
