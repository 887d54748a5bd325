"""Observers look at a limited number of messages in a window, and count the others."""

from __future__ import annotations

from recado.amqp.properties import Properties
from recado.broker.message_filter import MessageFilter
from recado.console.message_budget import EXAMINED_MAX_BYTES, WINDOW_MS, MessageBudget
from tests.broker.stage import run_of


def choose(budget: MessageBudget, count: int, now: int = 0, alike: bool = False) -> list[int]:
    run = run_of([b"%04d" % number for number in range(count)], alike=alike)
    return list(budget.choose(run, now, count))


def test_the_number_of_a_window_is_limited() -> None:
    budget = MessageBudget(None, 10)
    assert choose(budget, 7) == list(range(7))
    assert choose(budget, 7, WINDOW_MS - 1, alike=True) == [0, 1, 2]
    assert budget.skipped_count == 4
    assert choose(budget, 1_000, WINDOW_MS) == list(range(10))
    assert budget.skipped_count == 994
    assert choose(budget, 1, 0) == [0], "the clock was set back"


def test_the_caller_may_have_room_for_fewer() -> None:
    budget = MessageBudget(None, 10)
    assert list(budget.choose(run_of([b"a", b"b", b"c"]), 0, 2)) == [0, 1]
    assert list(budget.choose(run_of([b"a"]), 0, 0)) == []
    assert budget.skipped_count == 2


def test_the_cost_of_a_selector_is_limited() -> None:
    budget = MessageBudget(MessageFilter("body = '0007'"), 10)
    count = 2 * EXAMINED_MAX_BYTES // 1_024
    assert choose(budget, count) == [7]
    assert count // 4 < budget.skipped_count < count
    skipped = budget.skipped_count
    assert choose(budget, 10) == []
    assert budget.skipped_count == skipped + 10
    assert choose(budget, 10, WINDOW_MS) == [7]


def test_a_cheap_test_of_headers_comes_first() -> None:
    seen: list[int] = []

    def accepts(content: bytes) -> bool:
        seen.append(len(content))
        return b"id-1" in content

    budget = MessageBudget(MessageFilter("body < '0002'"), 10, accepts)
    mine = Properties(message_id="id-1")
    alike = run_of([b"0001", b"0002", b"0003"], mine, alike=True)
    assert list(budget.choose(alike, 0, 10)) == [0]
    assert len(seen) == 1, "all messages of the run have this header"
    assert list(budget.choose(run_of([b"1", b"2"], mine), 0, 10)) == []
    assert choose(budget, 5, alike=True) == []
    assert len(seen) == 4
    assert budget.skipped_count == 0
