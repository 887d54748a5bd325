"""Failures: the decision, the restart and its order; no message is lost meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from recado.actors import (
    TEMPORARY,
    ActorSystem,
    Down,
    GivenUp,
    OneForOne,
    Restarted,
    UnhandledMessageError,
)
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
from tests.feeds.io.loop import in_the_loop, until, without_waiting


@in_the_loop
async def test_a_restart_keeps_reference_and_mailbox() -> None:  # RS1, RS2
    diary: list[str] = []
    async with ActorSystem() as system:
        happened: list[object] = []
        system._listeners.append(happened.append)
        book = await system.spawn(notebook(diary), name="book")
        for text in ("a", "b"):
            book.tell(Say(text))
        book.tell(Break("oh"))
        for text in ("c", "d"):
            book.tell(Say(text))
        assert await book.ask(Read()) == ("c", "d")
        assert diary == [
            "started", "a", "b", "pre_restart oh after 2", "started", "post_restart oh with 0", "c", "d",
        ]  # fmt: skip
        assert [type(event) for event in happened] == [Restarted]
        assert system.actor("book") == book


@in_the_loop
async def test_what_is_told_during_a_restart_is_not_lost() -> None:
    gates = {name: asyncio.Event() for name in ("pre_restart", "started", "post_restart")}
    arrived: list[str] = []

    class Slow(Notebook):
        async def pre_restart(self, reason: BaseException, message: Any) -> None:  # type: ignore[override]
            assert message == Break()
            await self.pass_by("pre_restart")

        async def pre_start(self) -> None:  # type: ignore[override]
            await self.pass_by("started")

        async def post_restart(self, reason: BaseException) -> None:  # type: ignore[override]
            await self.pass_by("post_restart")

        async def pass_by(self, name: str) -> None:
            arrived.append(name)
            await gates[name].wait()

    async with ActorSystem() as system:
        gates["started"].set()
        book = await system.spawn(Slow)
        gates["started"].clear()
        book.tell(Break())
        for name, gate in gates.items():
            await until(lambda name=name: arrived[-1] == name)  # type: ignore[misc]
            book.tell(Say(name))
            gate.set()
        assert await book.ask(Read()) == tuple(gates)


@in_the_loop
async def test_behaviours_of_the_failed_instance_are_forgotten() -> None:
    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        await stage.ask(Do(lambda stage: stage.become(stage.unhandled, keep=True)))
        with pytest.raises(UnhandledMessageError):
            await stage.ask(Do(lambda _: None))
        await stage.ask(Do(lambda stage: stage.unbecome()))
        assert await stage.ask(Do(lambda _: "receive")) == "receive"


@without_waiting
async def test_the_budget_is_exact_at_the_edge_of_the_window() -> None:  # SG1
    class At:
        """A clock that is where the test wants it."""

        now = 0.0

        def time(self) -> float:
            return self.now

        def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Any:
            return asyncio.get_running_loop().call_later(delay, callback, *args)

    clock = At()
    async with ActorSystem(clock=clock) as system:
        book = await system.spawn(Notebook, supervisor_strategy=OneForOne(2, within=10))
        for now in (0.0, 9.0, 10.0, 19.0, 20.0):
            clock.now = now
            with pytest.raises(BrokenError):
                await book.ask(Break())
            assert await book.ask(Echo("alive")) == "alive"
        happened: list[object] = []
        system._listeners.append(happened.append)
        clock.now = 28.999
        book.tell(Break("for good"))
        await until(lambda: len(system.registry) == 0)
        assert [event.ref for event in happened if isinstance(event, GivenUp)] == [book]


@in_the_loop
async def test_a_temporary_actor_stops_when_it_fails() -> None:
    diary: list[str] = []
    async with ActorSystem() as system:
        watcher = await system.spawn(Stage)
        book = await system.spawn(notebook(diary), restart_type=TEMPORARY)
        await watcher.ask(Do(lambda watcher: watcher.monitor(book)))
        book.tell(Break("once"))
        book.tell(Say("never"))
        await until(lambda: len(system.registry) == 1)
        assert diary == ["started", "stopped"]
        [down] = await signals(watcher)
        assert isinstance(down, Down)
        assert repr(down.reason) == "BrokenError('once')"


@in_the_loop
async def test_a_restart_that_fails_is_one_more_failure() -> None:  # RS3
    lives: list[int] = []

    class NineLives(Notebook):
        def __init__(self) -> None:
            lives.append(len(lives))
            if len(lives) in (2, 3):
                raise BrokenError(f"life {len(lives)}")
            super().__init__()

    async with ActorSystem() as system:
        book = await system.spawn(NineLives, supervisor_strategy=OneForOne(3, within=60))
        book.tell(Break())
        assert await book.ask(Echo("fourth life")) == "fourth life"
        assert len(lives) == 4
        asked = book.ask_future(Echo("none left"))
        lives.clear()
        lives.append(0)
        book.tell(Break())
        assert await asked == "none left"
        await until(lambda: len(system.registry) == 0)


@in_the_loop
async def test_who_is_to_stop_is_not_restarted() -> None:  # LI3
    gate, diary = asyncio.Event(), list[str]()

    class Slow(Notebook):
        async def receive(self, message: Any) -> None:  # type: ignore[override]
            await gate.wait()
            raise BrokenError

    async with ActorSystem() as system:
        slow = await system.spawn(lambda: Slow(diary))
        slow.tell(Say("?"))
        await asyncio.sleep(0)
        slow.stop()
        gate.set()
        await system.stop(slow)
        assert diary == ["started", "stopped"]


@in_the_loop
async def test_a_stop_during_a_restart_is_obeyed_after_it() -> None:
    gate, diary = asyncio.Event(), list[str]()

    class Slow(Notebook):
        async def pre_restart(self, reason: BaseException, message: Any) -> None:  # type: ignore[override]
            diary.append("pre")
            await gate.wait()

    async with ActorSystem() as system:
        slow = await system.spawn(lambda: Slow(diary))
        slow.tell(Break())
        await until(lambda: "pre" in diary)
        slow.stop()
        gate.set()
        await system.stop(slow)
        assert diary == ["started", "pre"]


@in_the_loop
async def test_a_failing_pre_restart_does_not_hinder_it() -> None:
    class Clumsy(Notebook):
        def pre_restart(self, reason: BaseException, message: Any) -> None:
            raise BrokenError("again")

    async with ActorSystem() as system:
        clumsy = await system.spawn(Clumsy)
        clumsy.tell(Break())
        assert await clumsy.ask(Echo("here")) == "here"


@in_the_loop
async def test_a_hook_that_awaits_what_it_has_cancelled_does_not_hinder_it() -> None:  # RS3
    class Busy(Notebook):
        async def pre_start(self) -> None:  # type: ignore[override]
            self.task = asyncio.ensure_future(asyncio.Event().wait())

        async def pre_restart(self, reason: BaseException, message: Any) -> None:  # type: ignore[override]
            await self.post_stop()

        async def post_stop(self) -> None:  # type: ignore[override]
            self.task.cancel()
            await self.task

    async with ActorSystem() as system:
        busy = await system.spawn(Busy)
        busy.tell(Break())
        assert await busy.ask(Echo("here")) == "here"
