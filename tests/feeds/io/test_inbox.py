"""The inbox: order, and that a step is done only when all before it is processed."""

from __future__ import annotations

import asyncio

import pytest

from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.inbox import Inbox

from .loop import in_the_loop


def batch(first: int) -> MessageBatch:
    return MessageBatch(bytes(16), first, Block.build([b"x"]))


@in_the_loop
async def test_what_is_behind_a_batch_is_done_when_the_next_is_asked_for() -> None:
    inbox, done = Inbox(), list[str]()
    inbox.run_after(lambda: done.append("at once"))
    inbox.put(batch(1))
    inbox.run_after(lambda: done.append("after 1"))
    inbox.put(batch(2))
    assert done == ["at once"]
    assert await inbox.take() == batch(1)
    assert done == ["at once"]  # it is in hand, not done
    assert not inbox.is_done
    assert await inbox.take() == batch(2)
    assert done == ["at once", "after 1"]


@in_the_loop
async def test_what_is_taken_along_is_in_hand_too_and_nothing_is_done_between() -> None:
    inbox, done = Inbox(), list[str]()
    assert inbox.take_ready() is None  # beside nothing
    for first in (1, 2):
        inbox.put(batch(first))
    inbox.run_after(lambda: done.append("after 2"))
    inbox.put(batch(3))
    assert inbox.take_ready() is None
    assert await inbox.take() == batch(1)
    assert inbox.take_ready() == batch(2)
    assert inbox.take_ready() is None
    assert done == []
    assert await inbox.take() == batch(3)
    assert done == ["after 2"]
    assert inbox.buffered_bytes == 0


@in_the_loop
async def test_who_waits_is_woken_by_steps_too() -> None:
    inbox, done = Inbox(), list[str]()
    inbox.put(batch(1))
    await inbox.take()
    inbox.run_after(lambda: done.append("after 1"))
    taking = asyncio.create_task(inbox.take())
    await asyncio.sleep(0)
    assert done == ["after 1"]
    assert inbox.is_done
    inbox.run_after(lambda: done.append("while waiting"))
    assert done[1:] == ["while waiting"]
    inbox.put(batch(2))
    assert await taking == batch(2)


@in_the_loop
async def test_the_bytes_that_wait() -> None:
    inbox = Inbox()
    inbox.put(batch(1))
    inbox.put(batch(2))
    assert inbox.buffered_bytes == 2 * len(batch(1).block.data)
    await inbox.take()
    assert inbox.buffered_bytes == len(batch(1).block.data)


@in_the_loop
async def test_who_is_cancelled_while_waiting_takes_nothing_away() -> None:
    inbox = Inbox()
    taking = asyncio.create_task(inbox.take())
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    inbox.put(batch(1))
    assert await inbox.take() == batch(1)


@in_the_loop
async def test_one_at_a_time_takes() -> None:
    """Who asks for the next has done with the last; of two, nobody would know which."""
    inbox = Inbox()
    taking = asyncio.create_task(inbox.take())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="another task already waits for the next message"):
        await inbox.take()
    inbox.put(batch(1))
    assert await taking == batch(1)


@in_the_loop
async def test_an_error_comes_after_what_is_there() -> None:
    inbox = Inbox()
    inbox.put(batch(1))
    inbox.close(ConnectionError("gone"))
    assert await inbox.take() == batch(1)
    with pytest.raises(ConnectionError, match="gone"):
        await inbox.take()
    inbox.close()  # the first word counts
    with pytest.raises(ConnectionError, match="gone"):
        await inbox.take()


@in_the_loop
async def test_who_leaves_takes_nothing_more() -> None:
    inbox, done = Inbox(), list[str]()
    inbox.put(batch(1))
    inbox.put(batch(2))
    inbox.run_after(lambda: done.append("after 2"))
    assert await inbox.take() == batch(1)
    inbox.close()
    assert await inbox.take() is None
    assert (inbox.buffered_bytes, done) == (0, [])
