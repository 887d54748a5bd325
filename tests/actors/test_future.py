"""Futures complete once, chain and join; timeouts are exact, and one timer serves all asks with the same
timeout."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recado.actors import (
    ActorInterruptedError,
    ActorSystem,
    AskTimeoutError,
    Future,
    SystemClosedError,
    join,
)
from tests.feeds.io.loop import in_the_loop, without_waiting

from .cast import Break, BrokenError, Do, Echo, Notebook, Read, Say, Stage


def fresh(system: ActorSystem) -> Future[Any]:
    return Future.create(system._loop)


@in_the_loop
async def test_it_completes_once() -> None:  # FU1
    async with ActorSystem() as system:
        future = fresh(system)
        future.complete(1)
        future.complete(2)
        future.fail(ValueError())
        assert await future == 1
        failed = fresh(system)
        failed.fail(ValueError("first"))
        failed.complete(1)
        with pytest.raises(ValueError, match="first"):
            await failed


@in_the_loop
async def test_another_thread_may_complete_it() -> None:  # FU2
    async with ActorSystem() as system:
        value, error = fresh(system), fresh(system)
        await asyncio.to_thread(value.complete, 1)
        await asyncio.to_thread(error.fail, KeyError())
        assert await value == 1
        with pytest.raises(KeyError):
            await error


@in_the_loop
async def test_it_completes_as_another_does() -> None:
    async with ActorSystem() as system:
        futures, others = [fresh(system) for _ in range(3)], [fresh(system) for _ in range(3)]
        for future, other in zip(futures, others, strict=True):
            future.complete_with(other)
        others[0].complete(1)
        others[1].fail(KeyError())
        others[2].cancel()
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [int, KeyError, ActorInterruptedError]


@in_the_loop
async def test_answers_chain() -> None:
    async with ActorSystem() as system:
        book = await system.spawn(Notebook)
        shouted = book.ask_future(Echo("a")).then(str.upper)
        assert await shouted == "A"
        twice = book.ask_future(Echo("b")).then(lambda text: book.ask_future(Echo(text * 2)))
        assert await twice == "bb"
        as_coroutine = book.ask_future(Echo("c")).then(lambda text: book.ask(Echo(text * 3)))
        assert await as_coroutine == "ccc"
        with pytest.raises(BrokenError):
            await book.ask_future(Break()).then(lambda _: pytest.fail("not reached"))
        with pytest.raises(ZeroDivisionError):
            await book.ask_future(Echo("d")).then(lambda _: 1 // 0)
        with pytest.raises(BrokenError):
            await book.ask_future(Echo("e")).then(lambda _: book.ask_future(Break()))


@in_the_loop
async def test_answers_join() -> None:
    async with ActorSystem() as system:
        book, stage = await system.spawn(Notebook), await system.spawn(Stage)
        gate = asyncio.Event()
        slow = stage.ask_future(Do(lambda _: gate.wait()))
        both = join(slow, book.ask_future(Echo("quick")))
        failed = join(slow, book.ask_future(Break()))
        with pytest.raises(BrokenError):  # at once
            await failed
        gate.set()
        assert await both == (True, "quick")


@in_the_loop
async def test_an_answer_may_be_sent_to_an_actor() -> None:
    async with ActorSystem() as system:
        book, other = await system.spawn(Notebook), await system.spawn(Notebook)
        book.ask_future(Echo("hello")).then(Say).pipe_to(other, lambda error: Say(repr(error)))
        book.ask_future(Break("x")).pipe_to(other, lambda error: Say(repr(error)))
        while len(lines := await other.ask(Read())) < 2:
            pass
        assert set(lines) == {"hello", "BrokenError('x')"}


@without_waiting
async def test_each_ask_ends_at_its_own_time() -> None:  # FU3, AS1
    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        never = asyncio.Event()
        stage.tell(Do(lambda _: never.wait()))
        ended: list[tuple[float, float]] = []
        began = system._clock.time()

        async def ask(timeout: float) -> None:  # noqa: ASYNC109  that of the ask
            asked = system._clock.time()
            with pytest.raises(AskTimeoutError):
                await stage.ask(Do(lambda _: None), timeout=timeout)
            ended.append((timeout, system._clock.time() - asked))

        asks = []
        for timeout in (2.0, 1.0, 2.0, 0.5, 1.0, 2.0):
            asks.append(asyncio.create_task(ask(timeout)))
            await asyncio.sleep(0.25)
        await asyncio.gather(*asks)
        assert all(timeout <= took < timeout + 0.05 for timeout, took in ended)
        assert system._clock.time() - began < 3.5
        never.set()


@in_the_loop
async def test_whoever_asks_a_system_that_closes_is_told() -> None:
    system = ActorSystem()
    async with system:
        future = system._open_asks.open(await system.spawn(Stage), 60)
    with pytest.raises(SystemClosedError):
        await future


@in_the_loop
async def test_a_failure_that_no_future_can_hold_is_told_as_another_one() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    def raises(error: BaseException) -> None:
        raise error

    async with ActorSystem() as system:
        results: list[Future[None]] = []
        for step in (
            lambda _: raises(StopIteration()),
            lambda _: raises(asyncio.CancelledError()),
            lambda _: cancelled(),
        ):
            first = fresh(system)
            results.append(first.then(step))
            first.complete(1)
        outcomes = await asyncio.gather(*results, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [
            RuntimeError,
            ActorInterruptedError,
            ActorInterruptedError,
        ]
