"""Work in steps, within a budget."""

import pytest

from recado.broker.steps import STEP_UNITS_MAX, Steps, StepTask, chunks, run_to_completion


def counting(steps: int, cost: int) -> Steps[str]:
    for _ in range(steps):
        yield cost
    return "done"


def test_work_stops_when_the_budget_is_used() -> None:
    work = StepTask(counting(5, 10))
    assert work.advance(25) == 30  # a step is not divided
    assert work.is_done is False
    assert work.advance(0) == 0
    assert work.advance(100) == 20
    assert work.result == "done"


def test_work_without_steps_is_done_at_once() -> None:
    work = StepTask(counting(0, 1))
    assert work.advance(1) == 0
    assert work.result == "done"


def test_work_may_be_finished_at_once() -> None:
    assert run_to_completion(counting(10, STEP_UNITS_MAX)) == "done"


@pytest.mark.parametrize(
    ("count", "sizes"), [(0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (7, [3, 3, 1])]
)
def test_parts(count: int, sizes: list[int]) -> None:
    items = list(range(count))
    found = list(chunks(items, 3))
    assert [len(part) for part in found] == sizes
    assert [item for part in found for item in part] == items
