"""Who waits for the broker: woken together, told the same, and nothing is left of who stopped waiting."""

import asyncio

import pytest

from recado.client import NotConfirmed
from recado.client.confirms import Confirms
from recado.client.waits import REMEMBERED, ConfirmWaits, Waiters, Waits

from .running import in_a_loop, soon


def waits_for(count: int) -> ConfirmWaits:
    """So many messages, none of them settled."""
    waits = ConfirmWaits(Confirms(), Waits())
    waits.confirms.published = count
    return waits


def settle(waits: ConfirmWaits, number: int, *, ok: bool) -> None:
    for numbers in waits.confirms.settle(number, multiple=False):
        waits.settled(numbers, ok=ok)


@in_a_loop
async def test_a_change_wakes_all_and_a_time_out_leaves_nothing_behind() -> None:
    waiters = Waiters()
    tasks = [asyncio.create_task(waiters.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert len(waiters._futures) == 2
    waiters.wake()
    await soon(asyncio.gather(*tasks[1:]))
    assert not waiters._futures


@in_a_loop
async def test_all_who_flush_together_are_told_what_was_refused() -> None:
    waits = waits_for(2)
    flushes = [asyncio.create_task(waits.flush()) for _ in range(2)]
    await asyncio.sleep(0)
    settle(waits, 1, ok=True)
    settle(waits, 2, ok=False)
    for flush in flushes:
        with pytest.raises(NotConfirmed) as refused:
            await soon(flush)
        assert refused.value.numbers == [range(2, 3)]
    await waits.flush()  # it was told
    with pytest.raises(
        NotConfirmed
    ):  # who asks about the one message is told the truth all the same
        await waits.confirmed(2)
    await waits.confirmed(1)


@in_a_loop
async def test_refusals_that_nobody_asks_about_do_not_pile_up() -> None:
    waits = waits_for(2 * REMEMBERED)
    for number in range(1, 2 * REMEMBERED + 1):
        settle(waits, number, ok=False)
    with pytest.raises(NotConfirmed) as refused:
        await waits.flush()
    assert len(refused.value.numbers) == REMEMBERED
    assert refused.value.numbers[-1] == range(2 * REMEMBERED, 2 * REMEMBERED + 1)
