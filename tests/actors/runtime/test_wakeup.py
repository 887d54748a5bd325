"""Calls from threads to the loop: all of them run, in order, with few wakeups."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Callable
from contextvars import ContextVar
from threading import Thread
from typing import Any
from weakref import ref

import pytest

from recado.actors.runtime.wakeup import LoopWakeup, loop_wakeup
from tests.actors.remote.running import in_a_loop

MANY = 20_000


def in_a_thread(work: Callable[[], object]) -> None:
    thread = Thread(target=work)
    thread.start()
    thread.join()


class Counting:
    """A loop that counts how often it is woken, and is not."""

    def __init__(self) -> None:
        self.rings: list[Callable[[], None]] = []

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.rings.append(callback)


def rung(loop: Any) -> LoopWakeup:
    return LoopWakeup(loop)


def test_it_is_rung_once_for_all_that_comes_before_it_is_answered() -> None:
    loop, made = Counting(), list[int]()
    bell = rung(loop)
    for number in range(10):
        bell.call(made.append, number)
    assert len(loop.rings) == 1
    loop.rings[0]()
    assert made == list(range(10))
    bell.call(made.append, 10)
    assert len(loop.rings) == 2


def test_what_a_call_wants_is_done_in_the_next_turn() -> None:
    loop, made = Counting(), list[str]()
    bell = rung(loop)
    bell.call(lambda: bell.call(made.append, "later"))
    loop.rings[0]()
    assert made == []
    loop.rings[1]()
    assert made == ["later"]


def test_a_call_that_ends_the_program_leaves_the_others_to_be_made() -> None:
    loop, made = Counting(), list[str]()
    bell = rung(loop)

    def leave() -> None:
        raise SystemExit(1)

    bell.call(leave)
    bell.call(made.append, "the other")
    with pytest.raises(SystemExit):
        loop.rings[0]()
    loop.rings[1]()
    assert made == ["the other"]


@in_a_loop
async def test_calls_of_a_thread_are_made_in_order_here() -> None:
    made, done = list[int](), asyncio.Event()
    bell = loop_wakeup(asyncio.get_running_loop())

    def work() -> None:
        for number in range(MANY):
            bell.call(made.append, number)
        bell.call(done.set)

    in_a_thread(work)
    await done.wait()
    assert made == list(range(MANY))


who: ContextVar[str] = ContextVar("who", default="nobody")


@in_a_loop
async def test_each_is_made_in_the_context_of_who_wanted_it() -> None:
    made, done = list[str](), asyncio.Event()
    bell = loop_wakeup(asyncio.get_running_loop())

    def work() -> None:
        for name in ("one", "other"):
            who.set(name)
            bell.call(lambda: made.append(who.get()))
        bell.call(done.set)

    in_a_thread(work)
    await done.wait()
    assert made == ["one", "other"]


@in_a_loop
async def test_what_a_call_raises_is_told_and_the_others_are_made() -> None:
    told, done = list[dict[str, Any]](), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))
    bell = loop_wakeup(loop)

    def work() -> None:
        bell.call(lambda: 1 // 0)
        bell.call(done.set)

    in_a_thread(work)
    await done.wait()
    assert isinstance(told[0]["exception"], ZeroDivisionError)


@in_a_loop
async def test_a_signal_is_heard_however_much_threads_want() -> None:
    """While the loop is busy, as many calls come as would fill its pipe, and then the signal."""
    heard, loop = asyncio.Event(), asyncio.get_running_loop()
    bell = loop_wakeup(loop)

    def work() -> None:
        for _ in range(MANY):
            bell.call(int)

    loop.add_signal_handler(signal.SIGUSR1, heard.set)
    try:
        in_a_thread(work)
        os.kill(os.getpid(), signal.SIGUSR1)
        async with asyncio.timeout(5):
            await heard.wait()
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)


def test_a_loop_that_is_closed_is_not_called_and_nothing_is_kept() -> None:
    loop = asyncio.new_event_loop()
    bell = loop_wakeup(loop)
    assert loop_wakeup(loop) is bell
    loop.close()
    kept = asyncio.Event()
    gone = ref(kept)
    bell.call(kept.set)
    del kept
    assert gone() is None
    weak = ref(loop)
    del loop
    gc.collect()
    assert weak() is None
    bell.call(int)
