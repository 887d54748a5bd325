"""The schedule: order, time, and that it is fast enough for tens of thousands of worlds."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from recado.simulator.schedule import Schedule


def test_the_earliest_action_runs_first() -> None:
    schedule = Schedule()
    done: list[tuple[str, float]] = []
    for name, moment in [("late", 3.0), ("early", 1.0), ("also early", 1.0), ("between", 2.0)]:
        schedule.call_at(moment, lambda name: done.append((name, schedule.now)), name)
    schedule.run()
    assert done == [("early", 1.0), ("also early", 1.0), ("between", 2.0), ("late", 3.0)]
    assert schedule.executed_count == 4


def test_an_action_schedules_further_actions() -> None:
    schedule = Schedule()
    seen: list[float] = []

    def beat() -> None:
        seen.append(schedule.now)
        if len(seen) < 3:
            schedule.call_later(0.5, beat)

    schedule.call_later(0.5, beat)
    schedule.run()
    assert seen == [0.5, 1.0, 1.5]


def test_it_stops_at_the_limit_and_goes_on_from_there() -> None:
    schedule = Schedule()
    seen: list[float] = []
    for moment in (1.0, 2.0, 3.0):
        schedule.call_at(moment, lambda: seen.append(schedule.now))
    schedule.run(until=2.0)
    assert seen == [1.0, 2.0]
    schedule.run(until=2.5)
    assert schedule.now == 2.5
    schedule.run()
    assert seen == [1.0, 2.0, 3.0]


def test_actions_for_the_past_run_now() -> None:
    schedule = Schedule()
    seen: list[float] = []
    schedule.run(until=5.0)
    schedule.call_at(1.0, lambda: seen.append(schedule.now))
    schedule.run()
    assert seen == [5.0]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3))))
def test_time_never_goes_back_and_equals_keep_their_order(wanted: list[tuple[int, int]]) -> None:
    """Each action puts down one more, so many seconds later."""
    schedule = Schedule()
    done: list[tuple[float, int]] = []
    put_down = 0

    def put(moment: float, more: int) -> None:
        nonlocal put_down
        put_down += 1
        schedule.call_at(moment, act, put_down, more)

    def act(number: int, more: int) -> None:
        done.append((schedule.now, number))
        if more:
            put(schedule.now + more, 0)

    for moment, more in wanted:
        put(float(moment), more)
    schedule.run()
    assert done == sorted(done)
    assert len(done) == put_down


def test_a_few_hundred_thousand_actions_take_less_than_a_second() -> None:
    """About a million a second on an idle machine; a tenth of that must do on a busy one."""
    schedule = Schedule()

    def again() -> None:
        schedule.call_later(0.25, again)

    for number in range(100):
        schedule.call_at(number / 1000, again)
    started = time.process_time()
    schedule.run(until=500.0)
    assert schedule.executed_count > 200_000
    assert time.process_time() - started < 2.0
