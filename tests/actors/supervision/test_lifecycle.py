"""How actors start and stop: no zombies, nothing handled twice or after the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from recado.actors import (
    Actor,
    ActorStoppedError,
    ActorSystem,
    Down,
    NameTakenError,
    Stopped,
    SystemClosedError,
    WrongContextError,
)
from recado.actors.runtime.state import CellState
from tests.actors.cast import (
    Break,
    BrokenError,
    Do,
    Echo,
    Notebook,
    Read,
    Say,
    Stage,
    notebook,
    signals,
)
from tests.actors.runtime.test_cell import Threads
from tests.feeds.io.loop import in_the_loop, until, without_waiting


class FailsToBegin(Notebook):
    """In its constructor, in `started`, or there behind an await; with a child that it had already."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        if where == "constructor":
            raise BrokenError(where)

    def pre_start(self) -> Any:
        if self.where == "started":
            raise BrokenError(self.where)
        return self.slowly()

    async def slowly(self) -> None:
        await self.start_link(Notebook, name="child")
        raise BrokenError(self.where)


@pytest.mark.parametrize("where", ["constructor", "started", "later"])
def test_who_could_not_be_started_was_never_there(where: str) -> None:  # LI2
    @in_the_loop
    async def play() -> None:
        happened: list[object] = []
        async with ActorSystem() as system:
            system._listeners.append(happened.append)
            stage = await system.spawn(Stage)
            for attempt in (
                lambda: system.spawn(lambda: FailsToBegin(where), name="book"),
                lambda: stage.ask(
                    Do(lambda stage: stage.start_link(lambda: FailsToBegin(where), name="book"))
                ),
            ):
                with pytest.raises(BrokenError, match=where):
                    await attempt()
                assert len(system.registry) == 1
                assert system.registry.by_name("child") is None
                happened.clear()
            book = await system.spawn(Notebook, name="book")
            assert await book.ask(Echo("free again")) == "free again"
            assert await stage.ask(Do(lambda stage: stage.children)) == ()
            assert not [event for event in happened if isinstance(event, Stopped)]

    play()


@in_the_loop
async def test_what_is_told_before_it_is_started_waits() -> None:
    gate, diary = asyncio.Event(), list[str]()

    class Slow(Notebook):
        def __init__(self) -> None:
            super().__init__(diary)

        async def pre_start(self) -> None:  # type: ignore[override]
            await gate.wait()
            diary.append("started")

    async with ActorSystem() as system:
        spawning = asyncio.create_task(system.spawn(Slow, name="slow"))
        await until(lambda: system.registry.by_name("slow"))
        early = system.actor("slow", Notebook)
        assert system._find_cell(early.address).state is CellState.STARTING  # type: ignore[union-attr]
        early.tell(Say("hello"))
        with pytest.raises(NameTakenError):
            await system.spawn(Notebook, name="slow")
        gate.set()
        assert await spawning == early
        assert await early.ask(Read()) == ("hello",)
        assert diary == ["started", "hello"]


@in_the_loop
async def test_who_is_stopped_while_it_starts_stops_then() -> None:
    gate, diary = asyncio.Event(), list[str]()

    class Slow(Notebook):
        async def pre_start(self) -> None:  # type: ignore[override]
            await gate.wait()

    async with ActorSystem() as system:
        spawning = asyncio.create_task(system.spawn(lambda: Slow(diary), name="slow"))
        await until(lambda: system.registry.by_name("slow"))
        system.actor("slow").tell(Say("never"))
        system.actor("slow").stop()
        gate.set()
        ref = await spawning
        await system.stop(ref)
        assert diary == ["stopped"]
        assert system.dead_letter_count == 1


@in_the_loop
async def test_a_stop_is_after_the_message_and_before_the_next() -> None:
    diary: list[str] = []
    async with ActorSystem() as system:
        book = await system.spawn(notebook(diary), name="book")
        book.tell(Say("a"))
        await book.ask(Echo("?"))
        book.tell(Say("b"))
        asked = book.ask_future(Echo("?"))
        book.stop()
        book.stop()
        with pytest.raises(ActorStoppedError):
            await asked
        assert diary == ["started", "a", "stopped"]
        assert system.registry.by_name("book") is None
        assert system.dead_letter_count == 2
        assert system._find_cell(book.address) is None
        await system.stop(book)


@in_the_loop
async def test_an_actor_may_stop_itself() -> None:
    async with ActorSystem() as system:
        stage, watcher = await system.spawn(Stage), await system.spawn(Stage)
        await watcher.ask(Do(lambda watcher: watcher.monitor(stage)))
        await stage.ask(Do(lambda stage: stage.stop()))
        await until(lambda: len(system.registry) == 1)
        assert await signals(watcher) == (Down(stage, None),)


class Parent(Notebook):
    def __init__(self, diary: list[str], name: str, children: int) -> None:
        super().__init__(diary)
        self.name = name
        self.many = children

    async def pre_start(self) -> None:  # type: ignore[override]
        for number in range(self.many):
            name = f"{self.name}.{number}"
            child = partial(Parent, self.diary, name, self.many - 1)
            await self.start_link(child, name=name)

    async def post_stop(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.diary.append(self.name)


@in_the_loop
async def test_children_end_before_their_parents_the_last_first() -> None:  # LI3
    for whole in (False, True):
        diary: list[str] = []
        async with ActorSystem() as system:
            root = await system.spawn(lambda: Parent(diary, "r", 2))  # noqa: B023
            assert len(system.registry) == 5
            if not whole:
                await system.stop(root)
                assert len(system.registry) == 0
        assert diary == ["r.1.0", "r.1", "r.0.0", "r.0", "r"]


@without_waiting
async def test_a_handler_that_awaits_too_long_is_cancelled() -> None:
    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        asked = stage.ask_future(Do(lambda _: asyncio.Event().wait()), timeout=60)
        await until(lambda: not system.mailbox_size(stage))
        began = system._clock.time()
        await system.stop(stage, grace=2)
        assert 2 <= system._clock.time() - began < 2.1
        assert "cancelled" in str(asked.exception())


@in_the_loop
async def test_a_thread_that_does_not_end_is_left_behind() -> None:
    threads, gate, began = Threads(2), threading.Event(), list[str]()

    class Stuck(Actor[Say]):
        def receive(self, message: Say) -> None:
            began.append(message.text)
            gate.wait()
            if message.text == "fail":
                raise BrokenError

    async with ActorSystem() as system:
        for text in ("end", "fail"):
            gate.clear()
            stuck = await system.spawn(Stuck, dispatcher=threads)
            stuck.tell(Say(text))
            stuck.tell(Say("never"))
            await until(lambda: began[-1:] == [text])  # noqa: B023
            await system.stop(stuck, grace=0.01)
            assert len(system.registry) == 0
            gate.set()
        assert system.dead_letter_count == 2
    await asyncio.to_thread(threads.pool.shutdown)


@in_the_loop
async def test_a_failing_stopped_does_not_keep_it_alive() -> None:
    class Clumsy(Actor[Say]):
        def post_stop(self) -> None:
            raise BrokenError("while stopping")

    async with ActorSystem() as system:
        clumsy = await system.spawn(Clumsy)
        await system.stop(clumsy)
        assert len(system.registry) == 0


@in_the_loop
async def test_what_was_to_end_with_it_ends_with_it() -> None:
    calls: list[str] = []

    def prepare(stage: Stage) -> None:
        stage._cell.on_instance_end(lambda: calls.append("end"))
        stage._cell.on_stop(lambda: calls.append("stop"))

    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        await stage.ask(Do(prepare))
        with pytest.raises(ZeroDivisionError):
            await stage.ask(Do(lambda _: 1 // 0))
        await stage.ask(Do(lambda _: None))
        assert calls == ["end"]
        await stage.ask(Do(prepare))
        await system.stop(stage)
        assert calls == ["end", "end", "stop", "stop"]


@in_the_loop
async def test_nobody_is_started_in_a_closed_system_or_by_who_stops() -> None:
    refused: list[type[Exception]] = []

    class Late(Actor[Say]):
        async def post_stop(self) -> None:
            try:
                await self.start_link(Notebook)
            except (ActorStoppedError, SystemClosedError) as error:
                refused.append(type(error))

    system = ActorSystem()
    with pytest.raises(SystemClosedError):
        await system.spawn(Notebook)
    async with system:
        await system.stop(await system.spawn(Late))
        await system.spawn(Late)
    assert refused == [ActorStoppedError, SystemClosedError]
    with pytest.raises(SystemClosedError):
        await system.spawn(Notebook)
    await system.close()


def test_factories_may_be_classes_or_functions() -> None:
    @in_the_loop
    async def play() -> None:
        diary: list[str] = []
        factories: list[Callable[[], Notebook]] = [Notebook, notebook(diary)]
        async with ActorSystem() as system:
            for factory in factories:
                book = await system.spawn(factory)
                assert await book.ask(Read()) == ()
        assert diary == ["started", "stopped"]

    play()


@without_waiting
async def test_hooks_that_do_not_end_hold_up_nothing_for_ever() -> None:
    class Endless(Notebook):
        def __init__(self, where: str) -> None:
            super().__init__()
            self.where = where

        async def post_stop(self) -> None:  # type: ignore[override]
            if self.where == "stopped":
                await asyncio.Event().wait()

        async def pre_restart(self, reason: BaseException, message: Any) -> None:  # type: ignore[override]
            await asyncio.Event().wait()

    system = ActorSystem()
    async with system:
        parent = await system.spawn(lambda: Parent([], "p", 1))
        child = system.actor("p.0")
        await system.spawn(partial(Endless, "stopped"))
        restarting = await system.spawn(partial(Endless, "pre_restart"))
        restarting.tell(Break())
        child.tell(Break())
        await until(lambda: not system.mailbox_size(restarting))
    assert len(system.registry) == 0
    assert parent.address != child.address


@in_the_loop
async def test_a_thread_may_be_late_for_everything() -> None:
    threads, gate, began = Threads(1), threading.Event(), threading.Event()

    class Late(Actor[Echo]):
        def receive(self, message: Echo) -> None:
            began.set()
            gate.wait()
            self.reply("too late")
            self.ref.tell(message)
            raise BrokenError

    def live() -> None:
        async def life() -> None:
            async with ActorSystem() as system:
                system._listeners.append(lambda _: None)
                late = await system.spawn(Late, dispatcher=threads)
                late.ask_future(Echo("?")).add_done_callback(lambda done: done.exception())
                await asyncio.to_thread(began.wait)
                await system.stop(late, grace=0.01)

        asyncio.run(life())

    await asyncio.to_thread(live)
    gate.set()
    await asyncio.to_thread(threads.pool.shutdown)


@in_the_loop
async def test_who_runs_a_cell_that_has_stopped_buries_what_is_in_it() -> None:
    async with ActorSystem() as system:
        book = await system.spawn(Notebook)
        cell = system._find_cell(book.address)
        assert cell is not None
        await system.stop(book)
        assert not cell.claim()
        cell.mailbox.put((Say("too late"), None, None))
        cell.run(1)
        assert system.dead_letter_count == 1
        assert not cell.is_claimed


@in_the_loop
async def test_a_constructor_knows_nothing_of_others() -> None:
    class Early(Notebook):
        def __init__(self) -> None:
            super().__init__()
            self.name = str(self.ref)

    async with ActorSystem() as system:
        with pytest.raises(WrongContextError, match="pre_start"):
            await system.spawn(Early)
        with pytest.raises(AttributeError, match="no attribute 'nothing'"):
            Notebook().nothing  # type: ignore[attr-defined]  # noqa: B018
