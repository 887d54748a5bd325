"""Properties of every dispatcher: one message at a time, order, failures, shutdown; and a custom dispatcher."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import pytest

from recado.actors import blocking
from recado.actors.actor import Actor
from recado.actors.dispatchers import ElasticPool, FixedPool, ThreadPerActor, WorkStealingPool
from recado.actors.dispatchers.worker_threads import WorkerThreads
from recado.actors.errors import ActorInterruptedError
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.actors.runtime.cell import Cell
from recado.actors.supervision.strategy import OneForOne
from recado.actors.system import ActorSystem

MAKERS: list[Callable[[], WorkerThreads]] = [
    ThreadPerActor,
    FixedPool,
    ElasticPool,
    WorkStealingPool,
]
ALWAYS = OneForOne(max_restarts=None)


@pytest.fixture(params=MAKERS, ids=lambda make: make.__name__)
def make(request: pytest.FixtureRequest) -> Callable[[], WorkerThreads]:
    chosen: Callable[[], WorkerThreads] = request.param
    return chosen


class Add(Message[int]):
    number: int


class Where(Message[str]):
    """In which thread it is handled."""


class WhereAwaited(Message[str]):
    pass


class Exit(Message[None]):
    pass


class Counter(Actor[Add | Where | WhereAwaited | Exit]):
    def __init__(self) -> None:
        self.inside = threading.Lock()
        self.seen: list[int] = []

    def receive(self, message: Add | Where | WhereAwaited | Exit) -> Any:
        assert self.inside.acquire(blocking=False), "two at a time"
        try:
            match message:
                case Add(number):
                    self.seen.append(number)
                    if number < 0:
                        raise ValueError(number)
                    self.reply_if_asked(len(self.seen))
                case Where():
                    self.reply(threading.current_thread().name)
                case WhereAwaited():
                    return self.where()
                case Exit():
                    sys.exit(3)
        finally:
            self.inside.release()
        return None

    async def where(self) -> None:
        await asyncio.sleep(0)
        self.reply(threading.current_thread().name)


def test_messages_are_handled_in_threads_one_at_a_time_and_in_order(
    make: Callable[[], WorkerThreads],
) -> None:
    counters: list[Counter] = []

    def counter() -> Counter:
        counters.append(Counter())
        return counters[-1]

    async def story() -> None:
        async with make() as workers, ActorSystem("test") as system:
            refs = [await system.spawn(counter, dispatcher=workers) for _ in range(5)]
            for number in range(500):
                for ref in refs:
                    ref.tell(Add(number))
            for ref in refs:
                assert await ref.ask(Add(500)) == 501
                assert (await ref.ask(Where())).startswith("recado-")
                assert await ref.ask(WhereAwaited()) == threading.main_thread().name
                assert await ref.ask(Add(501)) == 502

    asyncio.run(story())
    assert all(each.seen == list(range(502)) for each in counters)
    assert len(counters) == 5


def test_a_failure_restarts_the_actor_and_the_rest_waits(make: Callable[[], WorkerThreads]) -> None:
    async def story() -> None:
        async with make() as workers, ActorSystem("test") as system:
            ref = await system.spawn(Counter, dispatcher=workers, supervisor_strategy=ALWAYS)
            for number in (1, 2, -1, 3, -1, 4):
                ref.tell(Add(number))
            assert await ref.ask(Add(5)) == 2
            with pytest.raises(ValueError, match="-7"):
                await ref.ask(Add(-7))

    asyncio.run(story())


def test_a_handler_that_would_exit_the_thread_is_a_failure_of_its_actor(
    make: Callable[[], WorkerThreads],
) -> None:
    async def story() -> None:
        async with make() as workers, ActorSystem("test") as system:
            ref = await system.spawn(Counter, dispatcher=workers, supervisor_strategy=ALWAYS)
            with pytest.raises(ActorInterruptedError):
                await ref.ask(Exit())
            assert await ref.ask(Add(1)) == 1

    asyncio.run(story())


def test_after_the_end_no_thread_is_left_and_late_messages_are_not_lost(
    make: Callable[[], WorkerThreads],
) -> None:
    async def story() -> None:
        async with ActorSystem("test") as system:
            async with make() as workers:
                ref = await system.spawn(Counter, dispatcher=workers)
                for number in range(100):
                    ref.tell(Add(number))
                assert await ref.ask(Add(100)) == 101
                assert workers.thread_count > 0
            assert workers.thread_count == 0
            assert await ref.ask(Add(101)) == 102
            assert await ref.ask(Where()) == threading.main_thread().name

    asyncio.run(story())


def test_without_an_event_loop_too(make: Callable[[], WorkerThreads]) -> None:
    with make() as workers, blocking.BlockingActorSystem("test") as system:
        ref = system.spawn(Counter, dispatcher=workers)
        assert [ref.ask(Add(number)) for number in range(3)] == [1, 2, 3]


class Chain(Actor[Add]):
    """It asks the next one, blocking its thread meanwhile."""

    def __init__(self, following: ActorRef[Add] | None) -> None:
        self.following = following

    def receive(self, message: Add) -> None:
        if self.following is None:
            self.reply(message.number)
        else:
            self.reply(blocking.ask(self.following, Add(message.number + 1), timeout=10))


def test_handlers_may_ask_and_wait(make: Callable[[], WorkerThreads]) -> None:
    async def story() -> None:
        async with make() as workers, ActorSystem("test") as system:
            ref: ActorRef[Add] | None = None
            for _ in range(5):
                ref = await system.spawn(partial(Chain, ref), dispatcher=workers)
            assert ref is not None
            assert await ref.ask(Add(0), timeout=20) == 4

    asyncio.run(story())


# One of the user's own, as in the documentation: a single queue, emptied when the program says so.


class ByHand:
    def __init__(self) -> None:
        self.ready: deque[Cell] = deque()

    def dispatch(self, cell: Cell) -> None:
        if cell.claim():
            self.ready.append(cell)

    def step(self) -> None:
        self.ready.popleft().run(1)


def test_a_dispatcher_of_ones_own_is_one_method() -> None:
    async def story() -> None:
        async with ActorSystem("test") as system:
            by_hand = ByHand()
            counter = Counter()
            ref = await system.spawn(lambda: counter, dispatcher=by_hand)
            for number in range(3):
                ref.tell(Add(number))
            seen = []
            while by_hand.ready:
                by_hand.step()
                seen.append(len(counter.seen))
            assert seen == [1, 2, 3]

    asyncio.run(story())


def test_crews_are_given_back_when_a_system_is_closed() -> None:
    """`on_close` is the other way to end one, for who keeps no context."""

    async def story() -> WorkerThreads:
        async with ActorSystem("test") as system:
            pool = FixedPool(2)
            system.on_close(pool.close)
            ref = await system.spawn(Counter, dispatcher=pool)
            assert await ref.ask(Add(1)) == 1
        return pool

    assert asyncio.run(story()).thread_count == 0


def test_a_handler_that_does_not_end_holds_up_nobody(
    make: Callable[[], WorkerThreads],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("recado.actors.dispatchers.worker_threads.STOP_GRACE_S", 0.05)
    gate, inside = threading.Event(), threading.Event()

    class Blocks(Actor[Add]):
        def receive(self, message: Add) -> None:
            inside.set()
            gate.wait()

    async def story() -> WorkerThreads:
        workers = make()
        async with ActorSystem("test") as system:
            ref = await system.spawn(Blocks, dispatcher=workers)
            ref.tell(Add(1))
            await asyncio.to_thread(inside.wait)
            await asyncio.to_thread(workers.close)
            await system.stop(ref, grace=0.01)
        return workers

    workers = asyncio.run(story())
    assert "threads abandoned" in caplog.text
    gate.set()
    workers.close()
    assert workers.thread_count == 0


def test_they_are_context_managers_of_both_kinds(make: Callable[[], WorkerThreads]) -> None:
    assert isinstance(make(), AbstractAsyncContextManager)
    with make() as workers:
        assert workers.thread_count == 0
