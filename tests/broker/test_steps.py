"""Work in steps: as much of it as a budget allows."""

import pytest

from recado.broker.steps import STEP_UNITS, Steps, Work, finish, parts


def counting(steps: int, cost: int) -> Steps[str]:
    for _ in range(steps):
        yield cost
    return "done"


def test_work_stops_when_the_budget_is_used() -> None:
    work = Work(counting(5, 10))
    assert work.advance(25) == 30  # a step is not divided
    assert work.is_done is False
    assert work.advance(0) == 0
    assert work.advance(100) == 20
    assert work.result == "done"


def test_work_without_steps_is_done_at_once() -> None:
    work = Work(counting(0, 1))
    assert work.advance(1) == 0
    assert work.result == "done"


def test_work_may_be_finished_at_once() -> None:
    assert finish(counting(10, STEP_UNITS)) == "done"


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])]
)
def test_parts(count: int, sizes: list[int]) -> None:
    items = list(range(count))
    found = list(parts(items, 3))
    assert [len(part) for part in found] == sizes
    assert [item for part in found for item in part] == items
