"""Supervisors are notified, decide and escalate; groups are restarted as a whole."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, ClassVar

import pytest

from recado.actors import (
    PERMANENT,
    TEMPORARY,
    Actor,
    ActorRef,
    ActorSystem,
    AllForOne,
    ChildFailed,
    EscalatedError,
    OneForOne,
    Signal,
)
from recado.actors.supervision.strategy import SupervisorStrategy
from tests.actors.cast import (
    Break,
    BrokenError,
    Do,
    Echo,
    Named,
    Notebook,
    Read,
    Say,
    Stage,
    signals,
)
from tests.feeds.io.loop import in_the_loop, until


class Director(Actor[Do]):
    """Supervises notebooks; writes down what it hears, and raises if it is to."""

    supervisor_strategy: ClassVar[SupervisorStrategy] = OneForOne(1, within=60, trap=(BrokenError,))
    gives_up: ClassVar[bool] = False
    children_names: ClassVar[tuple[str, ...]] = ("x", "y", "z")

    def __init__(self, diary: list[str]) -> None:
        self.diary = diary
        self.signals: list[Signal] = []

    async def pre_start(self) -> None:
        self.diary.append("director started")
        for name in self.children_names:
            await self.start_link(partial(Named, self.diary, name), name=name)

    async def receive(self, message: Do) -> None:
        result = message.act(self)  # type: ignore[arg-type]
        self.reply_if_asked(await result if hasattr(result, "__await__") else result)

    def on_signal(self, signal: Signal) -> None:
        self.signals.append(signal)
        if self.gives_up:
            super().on_signal(signal)


class Escalating(Director):
    gives_up = True


@in_the_loop
async def test_the_supervisor_is_told_and_decides() -> None:  # SG2
    diary: list[str] = []
    async with ActorSystem() as system:
        director = await system.spawn(lambda: Director(diary))
        child = system.actor("x", Notebook)
        child.tell(Break("one"))
        assert await child.ask(Echo("back")) == "back"
        child.tell(Break("two"))
        await until(lambda: system.registry.by_name("x") is None)
        [told] = await director.ask(Do(lambda director: tuple(director.signals)))
        assert isinstance(told, ChildFailed)
        assert told.ref == child
        assert [ref.address.name for ref in await director.ask(Do(lambda d: d.children))] == [
            "y",
            "z",
        ]


@in_the_loop
async def test_who_does_not_decide_escalates() -> None:
    diary: list[str] = []
    async with ActorSystem() as system:
        top = await system.spawn(Stage)
        director = await top.ask(
            Do(
                lambda top: top.start_link(
                    lambda: Escalating(diary), supervisor_strategy=OneForOne(1)
                )
            )
        )
        first = system.actor("x", Notebook)
        for _ in range(2):
            first.tell(Break())
        # The director is restarted by its own supervisor, with new children in place of the old ones.
        await until(lambda: diary.count("director started") == 2)
        assert diary[-7:] == [
            "x gone", "z gone", "y gone", "director started", "x up", "y up", "z up",
        ]  # fmt: skip
        second = system.actor("x", Notebook)
        assert second != first
        for _ in range(2):
            second.tell(Break())
        await until(lambda: len(system.registry) == 1)
        [told] = await signals(top)
        assert isinstance(told, ChildFailed)
        assert told.ref == director
        assert isinstance(told.reason, EscalatedError)


@in_the_loop
async def test_what_is_not_trapped_escalates_at_once() -> None:
    async with ActorSystem() as system:
        diary: list[str] = []
        director = await system.spawn(lambda: Escalating(diary), restart_type=TEMPORARY)
        child = system.actor("y", Notebook)
        child.tell(Do(lambda _: None))  # type: ignore[arg-type]
        await until(lambda: len(system.registry) == 0)
        assert diary[-3:] == ["y gone", "z gone", "x gone"]
        assert system._find_cell(director.address) is None


class Together(Director):
    supervisor_strategy: ClassVar[SupervisorStrategy] = AllForOne(1, within=60)


@in_the_loop
async def test_all_for_one_is_rebuilt_like_a_house() -> None:  # FA1
    diary: list[str] = []
    async with ActorSystem() as system:
        director = await system.spawn(lambda: Together(diary))
        refs = [system.actor(name, Notebook) for name in "xyz"]
        diary.clear()
        for ref in refs:
            ref.tell(Say("before"))
        refs[1].tell(Break())
        for ref in refs:
            ref.tell(Say("after"))
        assert await refs[1].ask(Read()) == ("after",)
        assert diary.count("after") == 3
        lifes = [line for line in diary if line[2:] in ("up", "down", "gone")]
        assert lifes == ["z down", "y down", "x down", "x up", "y up", "z up"]
        refs[0].tell(Break())
        await until(lambda: len(system.registry) == 1)
        [told] = await director.ask(Do(lambda director: tuple(director.signals)))
        assert isinstance(told, ChildFailed)


@in_the_loop
async def test_a_group_of_the_systems_own() -> None:
    group, diary = AllForOne(5), list[str]()
    async with ActorSystem() as system:
        refs = dict[str, ActorRef[Any]]()
        for name, strategy in (("a", group), ("b", None), ("c", group)):
            refs[name] = await system.spawn(
                partial(Named, diary, name),
                supervisor_strategy=strategy,
                restart_type=TEMPORARY if name == "b" else PERMANENT,
            )
        diary.clear()
        refs["c"].tell(Break())
        await refs["a"].ask(Read())
        await refs["c"].ask(Read())
        assert diary == ["c down", "a down", "a up", "c up"]


@in_the_loop
async def test_two_of_a_group_fail_together() -> None:
    diary, gate = list[str](), asyncio.Event()

    class Slow(Named):
        async def pre_restart(self, reason: BaseException, message: Any) -> None:  # type: ignore[override]
            self.diary.append(f"{self.name} down")
            await gate.wait()

    group = AllForOne(1)
    async with ActorSystem() as system:
        a, b = [
            await system.spawn(partial(Slow, diary, name), supervisor_strategy=group)
            for name in "ab"
        ]
        diary.clear()
        a.tell(Break("a"))
        b.tell(Break("b"))
        b.tell(Say("kept"))
        gate.set()
        assert await b.ask(Read()) == ("kept",)
        assert await a.ask(Read()) == ()
        diary.remove("kept")
        assert diary == ["b down", "a down", "a up", "b up"]  # one restart answers both


@in_the_loop
async def test_children_may_be_kept() -> None:
    class Keeper(Director):
        keeps_children: ClassVar[bool] = True

        async def pre_start(self) -> None:
            if not self.children:
                await super().pre_start()

    diary: list[str] = []
    async with ActorSystem() as system:
        keeper = await system.spawn(lambda: Keeper(diary))
        child = system.actor("x", Notebook)
        child.tell(Say("mine"))
        with pytest.raises(ZeroDivisionError):
            await keeper.ask(Do(lambda _: 1 // 0))
        assert child in await keeper.ask(Do(lambda keeper: keeper.children))
        assert await child.ask(Read()) == ("mine",)


@in_the_loop
async def test_failures_of_the_trade_are_a_line_in_the_log() -> None:
    class Fragile(Notebook):
        expected_errors: ClassVar[tuple[type[BaseException], ...]] = (BrokenError,)

    lines: list[logging.LogRecord] = []
    log = logging.getLogger("recado.actors")
    handler = logging.Handler()
    handler.emit = lines.append  # type: ignore[assignment, method-assign]
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        async with ActorSystem() as system:
            fragile, other = await system.spawn(Fragile), await system.spawn(Notebook)
            for ref in (fragile, other):
                with pytest.raises(BrokenError):
                    await ref.ask(Break())
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert [(line.levelname, line.exc_info is not None) for line in lines] == [
        ("INFO", False),
        ("WARNING", True),
    ]


@in_the_loop
async def test_a_supervisor_may_bear_what_is_not_trapped() -> None:  # SG2
    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        only = OneForOne(trap=(KeyError,))
        book = await stage.ask(
            Do(lambda stage: stage.start_link(Notebook, supervisor_strategy=only))
        )
        book.tell(Break("not trapped"))
        await until(lambda: system._find_cell(book.address) is None)
        [told] = await signals(stage)
        assert isinstance(told, ChildFailed)
        assert told.ref == book
        assert isinstance(told.reason, BrokenError)
        cell = system._find_cell(stage.address)
        assert cell is not None
        assert cell.restarts == 0
