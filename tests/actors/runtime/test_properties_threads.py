"""Threads of the program send while any dispatcher handles: no message is lost or handled twice, and no thread
waits forever."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from random import Random

import pytest

from recado.actors import ActorSystem, AllForOne, DeadLetter, OneForOne
from recado.actors.dispatchers import ElasticPool, FixedPool, ThreadPerActor, WorkStealingPool
from recado.actors.dispatchers.worker_threads import WorkerThreads
from recado.actors.runtime import backpressure
from recado.actors.runtime.cell import Cell
from recado.actors.runtime.mailbox import UnboundedMailbox
from recado.actors.runtime.state import CellState
from recado.actors.supervision.lifecycle import local_cell
from tests.actors.stories import Diary, Listener, Note

MAKERS: list[Callable[[], WorkerThreads] | None] = [
    None,
    FixedPool,
    ElasticPool,
    ThreadPerActor,
    WorkStealingPool,
]
SENDERS, ACTORS, MESSAGES = 4, 8, 150
SOON = 30


@pytest.fixture(autouse=True)
def _switching() -> Iterator[None]:
    """Let threads take turns far more often than usual; and failures are no news here."""
    interval = sys.getswitchinterval()
    log = logging.getLogger("recado.actors")
    log.setLevel(logging.CRITICAL)
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)
    log.setLevel(logging.NOTSET)


@pytest.mark.searching
@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__ if make else "loop")
@pytest.mark.parametrize("seed", range(4))
def test_each_message_is_handled_or_dead_also_with_full_mailboxes_and_stops(
    make: Callable[[], WorkerThreads] | None, seed: int
) -> None:
    chance = Random(seed)
    diaries = [Diary() for _ in range(ACTORS)]
    dead: list[Note] = []
    group = AllForOne(max_restarts=None) if seed % 2 else OneForOne(max_restarts=None)

    async def story(workers: WorkerThreads | None) -> None:
        mailbox = workers.mailbox if isinstance(workers, WorkStealingPool) else UnboundedMailbox
        async with ActorSystem("test", dispatcher=workers) as system:
            settled = asyncio.Event()

            def listen(event: object) -> None:
                if isinstance(event, DeadLetter):
                    dead.append(event.message)

            system._listeners.append(listen)
            refs = [
                await system.spawn(
                    partial(Listener, diary),
                    supervisor_strategy=group,
                    mailbox=mailbox,
                    capacity=chance.choice([0, 1, 3]),
                )
                for diary in diaries
            ]

            def send(sender: int) -> None:
                mine = Random(seed * SENDERS + sender)
                for number in range(MESSAGES):
                    pause = mine.choice([None, None, None, 0.0])
                    fails = mine.random() < 0.03
                    refs[mine.randrange(ACTORS)].tell(Note(sender, number, pause, fails))

            threads = [
                threading.Thread(target=send, args=(each,), daemon=True) for each in range(SENDERS)
            ]
            for thread in threads:
                thread.start()
            stopped = refs[:2] if seed >= 2 else []
            for ref in stopped:
                await asyncio.sleep(0)
                ref.stop()
            async with asyncio.timeout(SOON):
                for thread in threads:
                    await asyncio.to_thread(thread.join)
                for ref in refs[len(stopped) :]:
                    assert await ref.ask(Note(SENDERS, 0), timeout=SOON) == 0
                for ref in stopped:
                    await system.stop(ref)
            system._loop.call_soon(settled.set)  # behind the dead letters that are on their way
            await settled.wait()

    async def with_crew() -> None:
        if make is None:
            await story(None)
        else:
            async with make() as workers:
                await story(workers)

    asyncio.run(with_crew())
    notes = [note for diary in diaries for note in diary.notes if note[0] < SENDERS]
    notes += [(note.sender, note.number) for note in dead]
    assert sorted(notes) == [(who, number) for who in range(SENDERS) for number in range(MESSAGES)]
    for diary in diaries:
        assert not diary.crowded
        if make is not WorkStealingPool:
            diary.check()


def test_room_that_is_made_while_somebody_looks_for_it_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A message is taken out when it was just found that there is no room, before anybody waits for some."""
    looked = backpressure.has_space
    takers: list[threading.Thread] = []

    async def story() -> None:
        async with ActorSystem("test") as system:
            ref = await system.spawn(lambda: Listener(Diary()), capacity=1)
            cell = local_cell(ref)
            assert cell is not None
            cell.state = CellState.CLAIMED  # so that only this test takes anything out
            cell.mailbox.put((Note(0, 0), None, None))

            def take() -> None:
                assert cell is not None
                cell.mailbox.get_nowait()
                if cell.space_callbacks:
                    backpressure.notify_space(cell)

            def has_room(asked: Cell) -> bool:
                found = looked(asked)
                if not takers:
                    takers.append(threading.Thread(target=take))
                    takers[0].start()
                    takers[0].join(0.2)  # unless it has to wait for this one
                return found

            monkeypatch.setattr(backpressure, "has_space", has_room)
            room = threading.Event()
            backpressure.call_when_space(cell, room.set)
            takers[0].join(SOON)
            assert room.is_set()
            cell.release()

    asyncio.run(story())


def test_who_stops_before_the_loop_hears_a_thread_is_gone_for_good() -> None:
    """What is told then is a dead letter, and so is all that follows."""

    async def story() -> int:
        async with ActorSystem("test") as system:
            ref = await system.spawn(lambda: Listener(Diary()))
            thread = threading.Thread(target=ref.tell, args=(Note(0, 0),))
            thread.start()
            thread.join()  # while this task has the loop
            ref.stop()
            for number in range(1, 4):
                system._loop.call_soon(ref.tell, Note(0, number))
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            return system.dead_letter_count

    assert asyncio.run(story()) == 4
