"""The thread with the event loop: start, stop, results, and timeouts."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from recado.client import ConnectionClosedByClientError
from recado.client.loop_thread import LoopThread


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread("a test", ConnectionClosedByClientError)
    thread.start()
    yield thread
    thread.stop()


async def take(found: list[str]) -> str:
    """Takes longer than anybody waits, and has something then."""
    time.sleep(0.05)  # noqa: ASYNC251 (the loop does nothing else, not even look at the time)
    return found.pop()


def test_what_was_taken_is_given_however_late(thread: LoopThread) -> None:
    found = ["a message"]
    assert thread.run(take(found), timeout=0.001) == "a message"


def test_who_waited_for_nothing_took_nothing(thread: LoopThread) -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(TimeoutError):
        thread.run(wait(), timeout=0.001)
    assert ended == ["cancelled"]


def test_it_ends_with_all_that_it_does(thread: LoopThread) -> None:
    ended: list[str] = []

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def begin() -> asyncio.Task[None]:
        task = asyncio.create_task(for_ever())
        await asyncio.sleep(0)
        return task

    thread.run(begin())
    thread.stop()
    assert ended == ["cancelled"]
    assert not thread.is_running
    with pytest.raises(ConnectionClosedByClientError):
        thread.run(begin())
    with pytest.raises(ConnectionClosedByClientError):
        thread.call_soon(list)
