"""Stopping actors that do not end, and closing systems in which a step fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from recado.actors import Actor, ActorStoppedError, ActorSystem, AskTimeoutError, SystemClosedError
from recado.actors.durable_mailbox.mailboxes import DurableMailboxes
from recado.actors.future import Future
from recado.journal.disk import MemoryDisk
from tests.feeds.io.loop import in_the_loop, until, without_waiting

from .cast import Do, Echo, Notebook, Say, Stage, notebook
from .durable_mailbox.mail import Keeper, Put
from .runtime.test_cell import Threads


class Parent(Actor[Say]):
    """Each of its handlers waits for ever; its child is a Notebook."""

    def __init__(self, diary: list[str]) -> None:
        self.diary = diary

    async def pre_start(self) -> None:
        await self.start_link(notebook(self.diary))

    async def receive(self, message: Say) -> None:
        self.diary.append(message.text)
        await asyncio.Event().wait()

    def post_stop(self) -> None:
        self.diary.append("parent stopped")


@pytest.mark.parametrize("whole", [False, True])
def test_a_parent_whose_handler_awaits_for_ever_is_cancelled(whole: bool) -> None:
    @without_waiting
    async def play() -> None:
        diary: list[str] = []
        async with asyncio.timeout(60), ActorSystem() as system:
            parent = await system.spawn(lambda: Parent(diary))
            parent.tell(Say("waits"))
            await until(lambda: diary[-1:] == ["waits"])
            if not whole:
                await system.stop(parent, grace=2)
        assert len(system.registry) == 0
        assert diary == ["started", "waits", "stopped", "parent stopped"]

    play()


@in_the_loop
async def test_a_parent_whose_thread_does_not_end_is_left_behind_and_its_children_stop() -> None:
    threads, gate, began = Threads(1), threading.Event(), threading.Event()
    diary: list[str] = []

    class Stuck(Parent):
        def receive(self, message: Say) -> None:  # type: ignore[override]
            began.set()
            gate.wait()

    async with ActorSystem() as system:
        parent = await system.spawn(lambda: Stuck(diary), dispatcher=threads)
        parent.tell(Say("waits"))
        await asyncio.to_thread(began.wait)
        async with asyncio.timeout(5):
            await system.stop(parent, grace=0.01)
        assert len(system.registry) == 0
        assert diary == ["started", "stopped"]
        gate.set()
    await asyncio.to_thread(threads.pool.shutdown)


@without_waiting
async def test_who_starts_too_late_is_not_there() -> None:  # LI2
    gate = asyncio.Event()

    class Slow(Notebook):
        async def pre_start(self) -> None:  # type: ignore[override]
            await gate.wait()

    async with ActorSystem() as system:
        spawning = asyncio.create_task(system.spawn(Slow, name="slow"))
        await until(lambda: system.registry.by_name("slow"))
        await system.stop(system.actor("slow"))
        gate.set()
        with pytest.raises(ActorStoppedError):
            await spawning
        await system.spawn(Notebook, name="slow")


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError])
def test_what_fails_while_a_system_is_closed_does_not_hold_up_the_rest(
    error: type[BaseException],
) -> None:
    @in_the_loop
    async def play() -> None:
        closed: list[str] = []

        def fails() -> None:
            raise error("while closing")

        system = ActorSystem()
        await system.__aenter__()
        system.on_close(lambda: closed.append("first"))
        system.on_close(fails)
        system.on_close(lambda: closed.append("last"))
        stage = await system.spawn(Stage)
        asked = Future.create(system._loop)
        open_ask = system._open_asks.open(stage, 60)
        open_ask.add_done_callback(lambda done: asked.complete(done.exception()))
        with pytest.raises(error):
            await system.close()
        assert closed == ["last", "first"]
        assert isinstance(await asked, SystemClosedError)
        assert len(system.registry) == 0

    play()


@without_waiting
async def test_a_task_that_cannot_be_cancelled_does_not_hold_up_the_end() -> None:
    enough = asyncio.Event()

    async def stubborn() -> None:
        while not enough.is_set():
            try:
                await enough.wait()
            except asyncio.CancelledError:
                continue

    system = ActorSystem()
    async with asyncio.timeout(60):
        async with system:
            system._start_task(stubborn())
            await asyncio.sleep(0)
        enough.set()


@in_the_loop
async def test_what_is_told_after_the_end_is_a_dead_letter() -> None:  # K6
    def telling(tell: Callable[[], None]) -> None:
        thread = threading.Thread(target=tell)
        thread.start()
        thread.join()

    async with ActorSystem() as system:
        boxes = DurableMailboxes(system, MemoryDisk())
        durable = await system.spawn(lambda: Keeper([]), name="k", mailbox=boxes.mailbox("k"))
        plain = await system.spawn(Notebook)
    durable.tell(Put(1))
    plain.tell(Say("late"))
    telling(lambda: durable.tell(Put(2)))
    telling(lambda: plain.tell(Say("later")))
    await until(lambda: system.dead_letter_count == 4)
    with pytest.raises(SystemClosedError):
        await durable.ask(Put(3), timeout=1)
    with pytest.raises(SystemClosedError):
        await durable.tell_wait(Put(4))
    with pytest.raises(ActorStoppedError):
        await plain.ask(Echo("?"), timeout=1)


def test_a_thread_may_tell_when_the_loop_is_closed() -> None:  # K6
    async def live() -> Callable[[], None]:
        async with ActorSystem() as system:
            stage = await system.spawn(Stage)
            cell = system._find_cell(stage.address)
            assert cell is not None
            turns = system._loop_dispatcher

            def tell() -> None:
                cell.wakeup_pending = False
                stage.tell(Do(lambda _: None))
                turns.dispatch(cell)

        return tell

    tell = asyncio.run(live())
    failures: list[BaseException] = []

    def attempt() -> None:
        try:
            tell()
        except RuntimeError as error:
            failures.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert not failures


@without_waiting
async def test_an_ask_ends_after_the_end_of_the_system_too() -> None:  # K5
    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        await stage.ask(Do(lambda _: None), timeout=3)
    late = system._open_asks.open(stage, 3)
    async with asyncio.timeout(60):
        with pytest.raises(AskTimeoutError):
            await late
