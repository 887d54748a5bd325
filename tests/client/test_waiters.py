"""Coroutines that wait for the broker: woken together, with the same result, and without leaks."""

import asyncio

import pytest

from recado.client import PublishNackedError
from recado.client.confirms import ConfirmTracker
from recado.client.waiters import NACK_HISTORY_COUNT, ConfirmWaiters, Notifier, WaitCounter

from .running import in_a_loop, soon


def waits_for(count: int) -> ConfirmWaiters:
    """So many messages, none of them settled."""
    waits = ConfirmWaiters(ConfirmTracker(), WaitCounter())
    waits.tracker.published_count = count
    return waits


def settle(waits: ConfirmWaiters, number: int, *, ok: bool) -> None:
    for numbers in waits.tracker.settle(number, multiple=False):
        waits.handle_confirms(numbers, acked=ok)


@in_a_loop
async def test_a_change_wakes_all_and_a_time_out_leaves_nothing_behind() -> None:
    waiters = Notifier()
    tasks = [asyncio.create_task(waiters.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert len(waiters._futures) == 2
    waiters.notify_all()
    await soon(asyncio.gather(*tasks[1:]))
    assert not waiters._futures


@in_a_loop
async def test_all_who_flush_together_are_told_what_was_refused() -> None:
    waits = waits_for(2)
    flushes = [asyncio.create_task(waits.wait_for_confirms()) for _ in range(2)]
    await asyncio.sleep(0)
    settle(waits, 1, ok=True)
    settle(waits, 2, ok=False)
    for flush in flushes:
        with pytest.raises(PublishNackedError) as refused:
            await soon(flush)
        assert refused.value.sequence_numbers == [range(2, 3)]
    await waits.wait_for_confirms()  # raised before
    with pytest.raises(PublishNackedError):  # a wait for that message still raises
        await waits.wait_for_confirm(2)
    await waits.wait_for_confirm(1)


@in_a_loop
async def test_refusals_that_nobody_asks_about_do_not_pile_up() -> None:
    waits = waits_for(2 * NACK_HISTORY_COUNT)
    for number in range(1, 2 * NACK_HISTORY_COUNT + 1):
        settle(waits, number, ok=False)
    with pytest.raises(PublishNackedError) as refused:
        await waits.wait_for_confirms()
    assert len(refused.value.sequence_numbers) == NACK_HISTORY_COUNT
    assert refused.value.sequence_numbers[-1] == range(
        2 * NACK_HISTORY_COUNT, 2 * NACK_HISTORY_COUNT + 1
    )
