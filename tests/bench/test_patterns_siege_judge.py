"""What the judge of the siege of patterns accepts, and what it finds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from bench.patterns_siege.attempts import Kill
from bench.patterns_siege.judge import Evidence, Kind, Published, judge

PID, ANOTHER = 1, 2


def note(event: str, attempt: int, at: float, pid: int = PID, task: int = 0) -> dict[str, Any]:
    return {"n": task, "event": event, "attempt": attempt, "pid": pid, "at": at}


def begin(attempt: int, at: float, pid: int = PID, task: int = 0) -> dict[str, Any]:
    return note("begin", attempt, at, pid, task)


def fail(attempt: int, at: float, pid: int = PID) -> dict[str, Any]:
    return note("fail", attempt, at, pid)


def end(attempt: int, at: float, pid: int = PID) -> dict[str, Any]:
    return note("end", attempt, at, pid)


def failed(*attempts: int, pid: int = PID) -> list[dict[str, Any]]:
    """Return attempts at 1 s, 2 s, … that have failed after 0.1 s."""
    return [
        each
        for at, attempt in enumerate(attempts, 1)
        for each in (begin(attempt, at, pid), fail(attempt, at + 0.1, pid))
    ]


def dead(attempt: int = 4, id: str = "i", reason: str = "ValueError: bad") -> dict[str, Any]:  # noqa: A002
    body = json.dumps({"number": 0})
    return {"queue": "tasks.dead", "id": id, "body": body, "attempt": attempt, "reason": reason}


def killed(at: float, pid: int = PID) -> Kill:
    return Kill("tasks", pid, at, at)


def away(began: float, ended: float) -> Kill:
    return Kill("broker", 0, began, ended)


def evidence(
    kind: str = "fine",
    notes: Sequence[dict[str, Any]] = (),
    collected: Sequence[dict[str, Any]] = (),
    kills: Sequence[Kill] = (),
    **changes: Any,
) -> Evidence:
    content: dict[str, Any] = {
        "tasks": {0: Published(0, kind, 0.0, 0.1)},
        "garbled_count": 0,
        "lists_count": 0,
        "orders_count": 0,
        "shuffled_count": 0,
        "sales": set(),
        "left": {},
        "open_groups_count": 0,
    }
    return Evidence(notes=notes, collected=collected, kills=kills, **content | changes)


def found(of: Evidence) -> list[Kind]:
    return [kind for kind, texts in judge(of).violations.items() if texts]


LOST = "WorkerLostError: x"


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (evidence(), [Kind.LOST]),
        (evidence("fine", [begin(1, 1), end(1, 1.1)]), []),
        (evidence("fine", [begin(1, 1), fail(1, 1.1)]), [Kind.LOST]),
        (evidence("flaky", [*failed(1), begin(2, 2), end(2, 2.1)]), []),
        # Numbers that nothing explains: too high, repeated, too low.
        (evidence("fine", [begin(2, 1), end(2, 1.1)]), [Kind.ATTEMPTS]),
        (evidence("flaky", [*failed(1), begin(1, 2), end(1, 2.1)]), [Kind.ATTEMPTS]),
        (evidence("flaky", [*failed(1, 2), begin(1, 3), end(1, 3.1)]), [Kind.ATTEMPTS]),
        # Handled once more, though its acknowledgement cannot have been lost.
        (evidence("fine", [begin(1, 1), end(1, 1.1), begin(2, 2), end(2, 2.1)]), [Kind.ATTEMPTS]),
        # A handler that has begun has an end, unless its worker was killed.
        (evidence("fine", [begin(1, 1), begin(2, 2), end(2, 2.1)]), [Kind.ATTEMPTS]),
        # More attempts than `Retry` has.
        (
            evidence("bad", failed(1, 2, 3, 4, 5), [dead(5)], [killed(4.5)]),
            [Kind.ATTEMPTS],
        ),
    ],
)
def test_numbers_of_attempts_without_kills(of: Evidence, expected: list[Kind]) -> None:
    assert found(of) == expected


def test_a_handler_that_was_killed_is_an_attempt() -> None:
    kill = [killed(2.0)]
    again = [begin(2, 3, ANOTHER), end(2, 3.1, ANOTHER)]
    assert found(evidence("fine", [begin(1, 1), *again], (), kill)) == []
    same = [begin(1, 3, ANOTHER), end(1, 3.1, ANOTHER)]
    assert found(evidence("fine", [begin(1, 1), *same], (), kill)) == [Kind.ATTEMPTS]


def test_a_delivery_counts_if_its_worker_was_killed_before_the_handler_began() -> None:
    done = [begin(2, 1), end(2, 1.1)]
    assert found(evidence("fine", done, (), [killed(0.5)])) == []
    # Not if the worker was killed while it handled another task: it has one at a time.
    other = begin(1, 0.4, task=1)
    of = evidence("fine", [other, *done], (), [killed(0.5)])
    assert found(of) == [Kind.ATTEMPTS]
    # Or before the task was published.
    assert found(evidence("fine", done, (), [killed(-0.5)])) == [Kind.ATTEMPTS]
    third = [begin(3, 1), end(3, 1.1)]
    assert found(evidence("fine", third, (), [killed(0.5)])) == [Kind.ATTEMPTS]
    assert found(evidence("fine", third, (), [killed(0.5), killed(0.6, ANOTHER)])) == []


def test_a_kill_between_a_retry_and_the_acknowledgement_leaves_two_copies() -> None:
    twice = [
        *failed(1),
        *(begin(2, 2, ANOTHER), end(2, 2.1, ANOTHER)),
        *(begin(2, 3, ANOTHER), end(2, 3.1, ANOTHER)),
    ]
    assert found(evidence("flaky", twice, (), [killed(1.2)])) == []
    assert found(evidence("flaky", twice, (), [killed(1.2, pid=3)])) == [Kind.ATTEMPTS]
    # Not after its worker has begun the next task, which it gets after the acknowledgement.
    settled = [*twice[:2], begin(1, 1.15, task=1), note("end", 1, 1.16, task=1), *twice[2:]]
    assert found(evidence("flaky", settled, (), [killed(1.2)])) == [Kind.ATTEMPTS]


def test_a_task_may_be_published_twice_while_the_broker_is_away() -> None:
    twice = [begin(1, 1), end(1, 1.1), begin(1, 2), end(1, 2.1)]
    assert found(evidence("fine", twice, (), [away(0.0, 0.05)])) == []
    assert found(evidence("fine", twice, (), [away(8.0, 8.1)])) == [Kind.ATTEMPTS]


def test_a_retry_may_be_published_twice_while_the_broker_is_away() -> None:
    thrice = [
        *failed(1),
        *(begin(2, 2, ANOTHER), end(2, 2.1, ANOTHER)),
        *(begin(2, 3, ANOTHER), end(2, 3.1, ANOTHER)),
        *(begin(2, 4, ANOTHER), end(2, 4.1, ANOTHER)),
    ]
    assert found(evidence("flaky", thrice, (), [away(1.2, 1.3)])) == []
    assert found(evidence("flaky", thrice, (), [killed(1.2)])) == [Kind.ATTEMPTS]
    # After its worker was killed, it publishes nothing.
    late = [killed(1.2), away(1.8, 1.9)]
    assert found(evidence("flaky", thrice, (), late)) == [Kind.ATTEMPTS]


def test_a_handler_may_outlive_the_connection() -> None:
    """The task is delivered again, and the failure of the first handler is published as a retry too."""
    twice = [
        *(begin(1, 1), begin(2, 1.5, ANOTHER), fail(1, 1.6), end(2, 1.7, ANOTHER)),
        *(begin(2, 2, ANOTHER), end(2, 2.1, ANOTHER)),
    ]
    assert found(evidence("flaky", twice, (), [away(1.1, 1.2)])) == []
    assert found(evidence("flaky", twice)) == [Kind.ATTEMPTS]


POISONED = [begin(number, float(number)) for number in range(1, 5)]
KILLS = [killed(number + 0.5) for number in range(1, 5)]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (evidence("bad", failed(1, 2, 3, 4), [dead()]), []),
        (evidence("bad", failed(1, 2, 3, 4)), [Kind.PARKED]),
        (evidence("bad", failed(1, 2, 3), [dead(3)]), [Kind.PARKED]),
        (evidence("bad", failed(1, 2, 3, 4), [dead(), dead(id="j")]), [Kind.PARKED]),
        # The observer has noted one dead letter twice.
        (evidence("bad", failed(1, 2, 3, 4), [dead(), dead()]), []),
        # A worker was killed before it had acknowledged what it has parked.
        (evidence("bad", failed(1, 2, 3, 4), [dead(), dead(id="j")], [killed(4.2)]), []),
        (evidence("bad", failed(1, 2, 3), [dead(3, reason=LOST)], [killed(3.2)]), []),
        (evidence("bad", failed(1, 2, 3, 4), [dead(reason="KeyError: 1")]), [Kind.PARKED]),
        (evidence("bad", [begin(1, 1), end(1, 1.1)]), [Kind.PARKED]),
        (evidence("poison", POISONED, [dead(reason=LOST)], KILLS), []),
        (evidence("poison", POISONED, [dead(reason=LOST)], KILLS[:3]), [Kind.ATTEMPTS]),
        (evidence("poison", POISONED[:3], [dead(reason=LOST)], KILLS[:3]), [Kind.PARKED]),
        (evidence("fine", [begin(1, 1), end(1, 1.1)], [dead(reason=LOST)]), [Kind.PARKED]),
    ],
)
def test_tasks_are_parked_after_their_last_attempt(of: Evidence, expected: list[Kind]) -> None:
    assert found(of) == expected


def invalid(body: str, reason: str = "TranslationError: x") -> dict[str, Any]:
    return {"queue": "tasks.invalid", "id": "i", "body": body, "attempt": 1, "reason": reason}


def collected(queue: str, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"queue": queue, "id": str(number), "body": json.dumps(body), "reason": None}
        for number, body in enumerate(bodies)
    ]


def rest(*notes: dict[str, Any], **changes: Any) -> Evidence:
    return evidence("fine", [begin(1, 1), end(1, 1.1)], notes, **changes)


PAIRS = [
    {"pair": pair, "items": list(range(6 * pair, 6 * pair + 6)), "booked": pair + 1}
    for pair in range(2)
]
PAID = {"order": 0, "outcome": "paid"}
SALES = [{"account": 0, "number": number, "booked": number + 1} for number in range(2)]
FIRST, SECOND = {"booked": 1}, {"booked": 2}
MADE = {(0, 0), (0, 1)}


def sold(
    seen: Sequence[dict[str, Any]], booked: Sequence[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Return what was published by the outbox, and what was booked; by default the same."""
    return [
        *collected("sales.seen", *seen),
        *collected("sold", *(seen if booked is None else booked)),
    ]


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (rest(invalid("garbled 0"), garbled_count=1), []),
        (rest(garbled_count=1), [Kind.LOST]),
        (rest(invalid("garbled 0", "ValueError"), garbled_count=1), [Kind.PARKED]),
        (rest(invalid('{"number": 1}')), [Kind.PARKED]),
        (rest(*collected("dead-letters", PAID)), [Kind.PARKED]),
        (rest(*collected("booked", *PAIRS), lists_count=4), []),
        # An output is published at least once, with one id.
        (rest(*2 * collected("booked", *PAIRS), lists_count=4), []),
        (rest(*collected("booked", *PAIRS), *collected("booked", PAIRS[0]), lists_count=4), []),
        (rest(*collected("booked", PAIRS[0]), lists_count=4), [Kind.AGGREGATES]),
        (rest(*collected("booked", *PAIRS, PAIRS[1]), lists_count=4), [Kind.AGGREGATES]),
        (rest(*collected("booked", *PAIRS[::-1]), lists_count=4), [Kind.AGGREGATES]),
        (rest(*collected("booked", PAIRS[0] | {"items": [0]}), lists_count=2), [Kind.AGGREGATES]),
        (rest(*collected("booked", PAIRS[0] | {"booked": 2}), lists_count=2), [Kind.AGGREGATES]),
        (rest(open_groups_count=1), [Kind.AGGREGATES]),
        (rest(*collected("outcomes", PAID), orders_count=1), []),
        (rest(orders_count=1), [Kind.SAGAS]),
        (rest(*collected("outcomes", PAID, PAID), orders_count=1), [Kind.SAGAS]),
        (
            rest(*collected("outcomes", PAID | {"outcome": "refunded"}), orders_count=1),
            [Kind.SAGAS],
        ),
        (rest(*sold(SALES), sales=MADE), []),
        # A frozen process has delayed a message that was delivered to it.
        (rest(*sold(SALES, [SALES[1] | FIRST, SALES[0] | SECOND]), sales=MADE), []),
        (rest(*sold(SALES), sales={(0, 0)}), [Kind.OUTBOX]),
        (rest(*sold(SALES[:1]), sales=MADE), [Kind.OUTBOX]),
        (rest(*sold(SALES, SALES[:1]), sales=MADE), [Kind.OUTBOX]),
        (rest(*sold(SALES[:1], SALES), sales=MADE), [Kind.OUTBOX]),
        (rest(*sold(SALES[::-1], SALES), sales=MADE), [Kind.OUTBOX]),
        (rest(*sold([SALES[0], *SALES], SALES), sales=MADE), [Kind.OUTBOX]),
        (rest(*sold(SALES, [SALES[0], SALES[1] | {"booked": 3}]), sales=MADE), [Kind.OUTBOX]),
        (rest(*sold(SALES, [*SALES, SALES[1] | {"booked": 3}]), sales=MADE), [Kind.OUTBOX]),
        (rest(*sold(SALES, SALES[::-1]), sales=MADE), [Kind.OUTBOX]),
        (rest(*collected("ordered", {"number": 1}, {"number": 2}), shuffled_count=2), []),
        (rest(*collected("ordered", {"number": 2}, {"number": 1}), shuffled_count=2), [Kind.ORDER]),
        (rest(*collected("ordered", {"number": 1}), shuffled_count=2), [Kind.ORDER]),
        (rest(left={"tasks": 0, "state.sqlite": 1}), [Kind.LEFT]),
    ],
)
def test_flows_and_sales(of: Evidence, expected: list[Kind]) -> None:
    assert found(of) == expected
