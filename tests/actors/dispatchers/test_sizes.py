"""The number of threads of each dispatcher over time, and which actors run meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from recado.actors.actor import Actor
from recado.actors.dispatchers import ElasticPool, FixedPool, ThreadPerActor, WorkStealingPool
from recado.actors.dispatchers.worker_threads import WorkerThreads
from recado.actors.errors import ActorStoppedError
from recado.actors.message import Message
from recado.actors.system import ActorSystem

SOON = 20.0  # seconds in which it has to happen, or never


class Wait(Message[str]):
    pass


class Meet(Message[None]):
    """Wait in the handler until so many are there."""


class Blocked(Actor[Wait | Meet]):
    def __init__(self, gate: threading.Event, meeting: threading.Barrier) -> None:
        self.gate = gate
        self.meeting = meeting

    def receive(self, message: Wait | Meet) -> None:
        match message:
            case Wait():
                assert self.gate.wait(SOON)
            case Meet():
                self.meeting.wait(SOON)
        self.reply_if_asked(threading.current_thread().name)


def blocked(gate: threading.Event | None = None, parties: int = 1) -> Callable[[], Blocked]:
    opened = threading.Event()
    opened.set()
    meeting = threading.Barrier(parties)
    return lambda: Blocked(gate or opened, meeting)


def shrunk(workers: WorkerThreads, threads: int) -> bool:
    """Wait until no more are left."""
    with workers._lock:
        return workers._thread_ended.wait_for(lambda: workers.thread_count <= threads, SOON)


def test_a_thread_per_actor_begins_with_its_first_message_and_ends_with_it() -> None:
    async def story() -> None:
        async with ThreadPerActor() as workers, ActorSystem("test") as system:
            refs = [await system.spawn(blocked(), dispatcher=workers) for _ in range(4)]
            assert workers.thread_count == 0
            names = [await ref.ask(Wait()) for ref in refs]
            assert names == [await ref.ask(Wait()) for ref in refs]
            assert len(set(names)) == workers.thread_count == 4
            for ref in refs[:3]:
                await system.stop(ref)
            assert await asyncio.to_thread(shrunk, workers, 1)
            assert await refs[3].ask(Wait()) == names[3]

    asyncio.run(story())


def test_a_pool_has_as_many_threads_as_it_has_work_for_and_no_more_than_it_may() -> None:
    async def story() -> None:
        gate = threading.Event()
        async with FixedPool(3) as workers, ActorSystem("test") as system:
            refs = [await system.spawn(blocked(gate), dispatcher=workers) for _ in range(10)]
            for at, ref in enumerate(refs):
                ref.tell(Wait())
                assert workers.thread_count == min(at + 1, 3)
            gate.set()
            assert len({await ref.ask(Wait()) for ref in refs}) <= 3

    asyncio.run(story())


def test_a_pool_without_threads_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one thread: 0"):
        FixedPool(0)
    with pytest.raises(ValueError, match="threads_min must be"):
        ElasticPool(3, 2)


def test_a_self_sizing_pool_grows_while_its_threads_block_and_shrinks_when_they_idle() -> None:
    async def story() -> None:
        async with (
            ElasticPool(1, 6, grow_delay=0.002, idle_timeout=0.05) as workers,
            ActorSystem("test") as system,
        ):
            make = blocked(parties=6)
            refs = [await system.spawn(make, dispatcher=workers) for _ in range(6)]
            # Each waits for all others, so they only end if there are six threads.
            await asyncio.gather(*(ref.ask(Meet(), timeout=SOON) for ref in refs))
            assert workers.wakeup_count >= 6
            assert await asyncio.to_thread(shrunk, workers, 2)  # one works, one watches
            assert workers.worker_count == 1
            assert await refs[0].ask(Wait()) == await refs[1].ask(Wait())

    asyncio.run(story())


def test_a_self_sizing_pool_does_not_grow_beyond_what_it_may() -> None:
    async def story() -> None:
        gate = threading.Event()
        async with ElasticPool(1, 2, grow_delay=0.0) as workers, ActorSystem("test") as system:
            make = blocked(gate, parties=2)
            refs = [await system.spawn(make, dispatcher=workers) for _ in range(6)]
            await asyncio.gather(*(ref.ask(Meet(), timeout=SOON) for ref in refs[:2]))
            for ref in refs:
                ref.tell(Wait())
            assert workers.worker_count == 2
            gate.set()
            for ref in refs:
                await ref.ask(Wait())
            assert workers.worker_count == 2

    asyncio.run(story())


def test_a_self_sizing_pool_does_not_grow_for_work_that_is_quickly_done() -> None:
    async def story() -> None:
        async with ElasticPool(1, 100, grow_delay=60) as workers, ActorSystem("test") as system:
            refs = [await system.spawn(blocked(), dispatcher=workers) for _ in range(50)]
            for _ in range(20):
                await asyncio.gather(*(ref.ask(Wait()) for ref in refs))
            assert workers.worker_count == 1

    asyncio.run(story())


def test_events_that_come_close_together_wake_one_thread_once() -> None:
    async def story() -> None:
        async with ElasticPool(1, 1) as workers, ActorSystem("test") as system:
            gate = threading.Event()
            refs = [await system.spawn(blocked(gate), dispatcher=workers) for _ in range(200)]
            asks = [ref.ask_future(Wait(), timeout=SOON) for ref in refs]
            gate.set()
            await asyncio.gather(*asks)
            assert workers.wakeup_count == 1

    asyncio.run(story())


def test_the_idle_take_what_waits_for_the_busy() -> None:
    async def story() -> None:
        gate = threading.Event()
        async with WorkStealingPool(3) as workers, ActorSystem("test") as system:
            busy, *idle = [
                await system.spawn(
                    blocked(gate),
                    dispatcher=workers,
                    mailbox=workers.mailbox,
                    supervisor_strategy=None,
                )
                for _ in range(3)
            ]
            first = busy.ask_future(Wait(), timeout=SOON)
            others = [busy.ask_future(Meet(), timeout=SOON) for _ in range(20)]
            await asyncio.gather(*others)  # while the one that they were sent to is blocked
            assert not first.done()
            gate.set()
            await first
            assert all([await ref.ask(Wait()) for ref in idle])

    asyncio.run(story())


def test_who_has_stopped_or_never_started_takes_nothing() -> None:
    class Frail(Blocked):
        def pre_start(self) -> None:
            raise ValueError("frail")

    async def story() -> None:
        gate = threading.Event()
        async with WorkStealingPool(2) as workers, ActorSystem("test") as system:
            busy, other = [
                await system.spawn(blocked(gate), dispatcher=workers, mailbox=workers.mailbox)
                for _ in range(2)
            ]
            asks = [ref.ask_future(Wait(), timeout=SOON) for ref in (busy, other)]
            waiting = [busy.ask_future(Meet(), timeout=SOON) for _ in range(5)]
            with pytest.raises(ValueError, match="frail"):
                await system.spawn(
                    lambda: Frail(gate, threading.Barrier(1)),
                    dispatcher=workers,
                    mailbox=workers.mailbox,
                )
            cell, gone = system._find_cell(other.address), asyncio.Event()
            assert cell is not None
            cell.on_stop(gone.set)
            other.stop()
            gate.set()
            await asyncio.gather(*asks, *waiting)
            assert system.dead_letter_count == 0
            await gone.wait()  # until then another one may do what it is asked
            with pytest.raises(ActorStoppedError):
                await other.ask(Wait())
            await busy.ask(Wait())

    asyncio.run(story())
