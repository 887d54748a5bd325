"""Restarts of groups whose members are slow, or do not end."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from recado.actors import TEMPORARY, ActorSystem, AllForOne
from recado.actors.dispatchers import FixedPool
from recado.actors.supervision import restart
from recado.actors.supervision.lifecycle import STOP_GRACE_S
from tests.actors.cast import Break, BrokenError, Echo, Named, Say
from tests.feeds.io.loop import in_the_loop, until, without_waiting


class Slow(Named):
    """Fails when the gate opens, or goes on."""

    def __init__(self, diary: list[str], name: str, gate: asyncio.Event, fails: bool) -> None:
        super().__init__(diary, name)
        self.gate = gate
        self.fails = fails

    def receive(self, message: Any) -> Any:
        if isinstance(message, Say):
            return self.wait()
        return super().receive(message)

    async def wait(self) -> None:
        await self.gate.wait()
        if self.fails:
            raise BrokenError("late")


@pytest.mark.parametrize("fails", [False, True])
def test_a_group_waits_for_the_handlers_of_its_members(fails: bool) -> None:
    @in_the_loop
    async def play() -> None:
        diary, gate, group = list[str](), asyncio.Event(), AllForOne(1)
        async with ActorSystem() as system:
            quick = await system.spawn(partial(Named, diary, "q"), supervisor_strategy=group)
            slow = await system.spawn(
                partial(Slow, diary, "s", gate, fails), supervisor_strategy=group
            )
            gone = await system.spawn(
                partial(Named, diary, "t"), supervisor_strategy=group, restart_type=TEMPORARY
            )
            diary.clear()
            slow.tell(Say("wait"))
            await until(lambda: not system.mailbox_size(slow))
            quick.tell(Break())
            await until(lambda: system._find_cell(gone.address) is None)
            assert diary == ["t gone"]
            gate.set()
            assert await slow.ask(Echo("one restart")) == "one restart"
            assert await quick.ask(Echo("for both")) == "for both"
            assert diary == ["t gone", "s down", "q down", "q up", "s up"]

    play()


@in_the_loop
async def test_a_member_that_stops_is_not_waited_for() -> None:
    diary, gate, group = list[str](), asyncio.Event(), AllForOne(1)
    async with ActorSystem() as system:
        quick = await system.spawn(partial(Named, diary, "q"), supervisor_strategy=group)
        slow = await system.spawn(partial(Slow, diary, "s", gate, False), supervisor_strategy=group)
        slow.tell(Say("wait"))
        await until(lambda: not system.mailbox_size(slow))
        slow.stop()
        quick.tell(Break())
        gate.set()
        assert await quick.ask(Echo("alone")) == "alone"
        assert diary == ["q up", "s up", "s gone", "q down", "q up"]


@without_waiting
async def test_a_member_whose_handler_does_not_end_is_cancelled() -> None:  # RS4
    diary, group = list[str](), AllForOne(1)
    async with ActorSystem() as system:
        quick = await system.spawn(partial(Named, diary, "q"), supervisor_strategy=group)
        never = partial(Slow, diary, "s", asyncio.Event(), False)
        slow = await system.spawn(never, supervisor_strategy=group)
        diary.clear()
        slow.tell(Say("wait"))
        await until(lambda: not system.mailbox_size(slow))
        quick.tell(Break())
        assert await quick.ask(Echo("again"), timeout=3 * STOP_GRACE_S) == "again"
        assert await slow.ask(Echo("too")) == "too"
        assert diary == ["s down", "q down", "q up", "s up"]


@in_the_loop
async def test_a_member_that_blocks_a_thread_is_restarted_when_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # RS4
    monkeypatch.setattr(restart, "STOP_GRACE_S", 0.02)
    diary, gate, group = list[str](), threading.Event(), AllForOne(1)

    class Blocking(Named):
        def receive(self, message: Any) -> None:
            if isinstance(message, Say):
                gate.wait()
            else:
                super().receive(message)

    async with FixedPool(1) as pool, ActorSystem() as system:
        quick = await system.spawn(partial(Named, diary, "q"), supervisor_strategy=group)
        blocks = partial(Blocking, diary, "s")
        slow = await system.spawn(blocks, supervisor_strategy=group, dispatcher=pool)
        diary.clear()
        slow.tell(Say("block"))
        await until(lambda: not system.mailbox_size(slow))
        quick.tell(Break())
        assert await quick.ask(Echo("again")) == "again"
        assert diary == ["q down", "q up"]
        gate.set()
        assert await slow.ask(Echo("too")) == "too"
        assert diary == ["q down", "q up", "s down", "s up"]


@in_the_loop
async def test_restarts_of_a_group_leave_nothing_with_its_members() -> None:
    diary, group = list[str](), AllForOne(max_restarts=None)
    async with ActorSystem() as system:
        members = [
            await system.spawn(partial(Named, diary, name), supervisor_strategy=group)
            for name in "ab"
        ]
        for _ in range(3):
            members[0].tell(Break())
            for member in members:
                assert await member.ask(Echo("again")) == "again"
        for member in members:
            cell = system._find_cell(member.address)
            assert cell is not None
            assert cell.ensure_links().stop_callbacks == []


@in_the_loop
async def test_a_rebuild_that_fails_is_one_more_failure_of_the_group() -> None:
    diary, group, lives = list[str](), AllForOne(2), list[int]()

    def second() -> Named:
        lives.append(1)
        if len(lives) == 2:
            raise BrokenError("second life")
        return Named(diary, "b")

    async with ActorSystem() as system:
        first = await system.spawn(partial(Named, diary, "a"), supervisor_strategy=group)
        await system.spawn(second, supervisor_strategy=group, name="b")
        diary.clear()
        first.tell(Break())
        await until(lambda: len(lives) == 3)
        assert await system.actor("b").ask(Echo("third life")) == "third life"
        assert diary == ["b down", "a down", "a up", "a down", "a up", "b up"]
        first.tell(Break())  # the budget is spent
        await until(lambda: len(system.registry) == 0)


@in_the_loop
async def test_who_joins_a_group_that_is_rebuilt_and_fails_waits_for_that() -> None:  # FA3
    diary, gate, group = list[str](), asyncio.Event(), AllForOne(max_restarts=None)

    class Hesitant(Named):
        async def pre_restart(self, reason: BaseException, message: Any) -> None:  # type: ignore[override]
            await gate.wait()
            self.diary.append(f"{self.name} down")

    async with ActorSystem() as system:
        first = await system.spawn(partial(Hesitant, diary, "a"), supervisor_strategy=group)
        first.tell(Break())
        await until(lambda: system._guardian.group_restarts)
        joined = await system.spawn(partial(Named, diary, "b"), supervisor_strategy=group)
        failures = system._guardian.group_restarts[group]
        joined.tell(Break())
        await until(lambda: failures.get(joined) is not None)
        diary.clear()
        gate.set()
        assert await joined.ask(Echo("up")) == "up"
        assert await first.ask(Echo("up")) == "up"
        assert diary == ["a down", "a up", "b down", "a down", "a up", "b up"]
        assert not system._guardian.group_restarts


@in_the_loop
async def test_a_member_whose_hook_is_cancelled_does_not_end_its_group() -> None:  # RS3
    diary, group = list[str](), AllForOne(max_restarts=None)

    class Cancelled(Named):
        def pre_restart(self, reason: BaseException, message: Any) -> None:
            super().pre_restart(reason, message)
            raise asyncio.CancelledError

    async with ActorSystem() as system:
        first = await system.spawn(partial(Named, diary, "a"), supervisor_strategy=group)
        second = await system.spawn(partial(Cancelled, diary, "b"), supervisor_strategy=group)
        for _ in range(2):
            diary.clear()
            first.tell(Break())
            assert await second.ask(Echo("up")) == "up"
            assert await first.ask(Echo("up")) == "up"
            assert diary == ["b down", "a down", "a up", "b up"]
