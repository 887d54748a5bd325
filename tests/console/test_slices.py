"""Slices of the event loop's time: in turn, one at a time, and with pauses that depend on the load."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from time import perf_counter, thread_time

import pytest

from recado.console.query import Steps
from recado.console.slices import (
    BUSY_PAUSE_RATIO,
    IDLE_PAUSE_RATIO,
    MEASURED_S,
    SLICE_S,
    LoopLoad,
    SlicePacer,
    ThreadClock,
)


def use_time(seconds: float) -> None:
    """Keep the thread busy."""
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def test_the_pause_grows_with_the_load_of_the_loop() -> None:
    load = LoopLoad()
    assert load.pause_ratio == IDLE_PAUSE_RATIO
    ratios = []
    for share in (0.0, 0.2, 0.3, 0.4, 0.6, 1.0):
        load.observe(share * MEASURED_S, MEASURED_S)
        ratios.append(load.pause_ratio)
    assert ratios == sorted(ratios)
    assert ratios[:2] == [IDLE_PAUSE_RATIO] * 2
    assert ratios[-2:] == [BUSY_PAUSE_RATIO] * 2


def test_only_the_last_pauses_count() -> None:
    load = LoopLoad()
    for _ in range(100):
        load.observe(0.001, 0.001)
    assert load.pause_ratio == BUSY_PAUSE_RATIO
    load.observe(0.0, MEASURED_S)
    assert load.pause_ratio == IDLE_PAUSE_RATIO


def test_a_thread_that_waits_for_others_uses_no_time() -> None:
    clock = ThreadClock()
    began_s, began_at_s = clock.read(), perf_counter()
    use_time(0.01)
    used_s = clock.read() - began_s
    assert (
        0.01 <= used_s <= perf_counter() - began_at_s + 0.01
    )  # the kernel counts when the thread continues
    clock.close()
    clock.close()
    before_s = clock.read()
    use_time(0.001)
    assert clock.read() - before_s >= 0.001, "without the file too"


def test_requests_get_slices_in_turn_with_turns_of_the_loop_between() -> None:
    order, turns = list[tuple[str, int]](), 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def render(pacer: SlicePacer, name: str) -> None:
        for _ in range(5):
            await pacer.take()
            order.append((name, turns))

    async def render_all() -> None:
        pacer = SlicePacer()
        counting = asyncio.create_task(count_turns())
        await asyncio.gather(*(render(pacer, name) for name in "abc"))
        counting.cancel()

    asyncio.run(render_all())
    assert [name for name, _ in order] == list("abc") * 5
    assert all(before < after for (_, before), (_, after) in pairwise(order)), "SLI1"


def test_every_second_slice_is_for_the_metrics() -> None:
    order = list[str]()

    async def render(pacer: SlicePacer, name: str, count: int) -> None:
        for _ in range(count):
            await pacer.take(is_urgent=name == "metrics")
            order.append(name)

    async def render_all() -> None:
        pacer = SlicePacer()
        await asyncio.gather(
            *(render(pacer, name, 4) for name in "abc"), render(pacer, "metrics", 5)
        )

    asyncio.run(render_all())
    assert order[1:11:2] == ["metrics"] * 5 or order[0:10:2] == ["metrics"] * 5
    assert [name for name in order if name != "metrics"] == list("abc") * 4


def test_a_cancelled_request_does_not_hold_up_the_others() -> None:
    async def cancel_some() -> list[bool]:
        pacer = SlicePacer()
        first, *others = [asyncio.create_task(pacer.take()) for _ in range(4)]
        await asyncio.sleep(0)
        first.cancel()
        others[1].cancel()
        done = await asyncio.gather(first, *others, return_exceptions=True)
        assert await pacer.take() > perf_counter()
        return [isinstance(each, float) for each in done]

    assert asyncio.run(cancel_some()) == [False, True, False, True], "SLI2"


def test_work_gets_its_result_and_short_work_does_not_wait() -> None:
    def steps(count: int, seconds: float) -> Steps[int]:
        for _ in range(count):
            use_time(seconds)
            yield
        return count

    short = SlicePacer().run(steps(3, 0.0))
    with pytest.raises(StopIteration) as done:
        short.send(None)  # without a pause, so that no event loop is necessary
    assert done.value.value == 3

    async def run() -> int:
        return await SlicePacer().run(steps(5, SLICE_S))

    assert asyncio.run(run()) == 5
