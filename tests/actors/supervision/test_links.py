"""Links, monitors and ties: which actors are notified of an end."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from recado.actors import (
    TEMPORARY,
    ActorRef,
    ActorSystem,
    AlreadyLinkedError,
    Down,
    NoSuchActorError,
    OneForOne,
    UnhandledMessageError,
)
from recado.actors.supervision.signals import Exit, Failed, Link, Stop
from tests.actors.cast import Break, BrokenError, Do, Echo, Notebook, Say, Stage, signals
from tests.feeds.io.loop import in_the_loop, until


async def heard(stage: ActorRef[Do], many: int) -> list[Any]:
    while len(told := await signals(stage)) < many:
        pass
    return list(told)


@in_the_loop
async def test_who_monitors_hears_of_the_end_once() -> None:  # LI4
    async with ActorSystem() as system:
        watcher = await system.spawn(Stage)
        first, second, third = [
            await system.spawn(Notebook, restart_type=TEMPORARY, name=name) for name in "abc"
        ]
        for ref in (first, first, second, third):
            await watcher.ask(Do(lambda watcher, ref=ref: watcher.monitor(ref)))  # type: ignore[misc]
        await watcher.ask(Do(lambda watcher: watcher.unmonitor(third)))
        first.stop()
        second.tell(Break("oh"))
        third.stop()
        told = await heard(watcher, 2)
        assert {down.ref for down in told} == {first, second}
        assert {repr(down.reason) for down in told} == {"None", "BrokenError('oh')"}
        # A restart is no end, and who is gone already is told of at once.
        alive = await system.spawn(Notebook)
        await watcher.ask(Do(lambda watcher: watcher.monitor(alive)))
        alive.tell(Break())
        assert await alive.ask(Echo("restarted")) == "restarted"
        for gone in (first, system.ref("recado-actor://local/nobody")):
            await watcher.ask(Do(lambda watcher, gone=gone: watcher.monitor(gone)))  # type: ignore[misc]
        told = await heard(watcher, 4)
        assert len(told) == 4
        assert all(isinstance(down.reason, NoSuchActorError) for down in told[2:])


@in_the_loop
async def test_the_name_is_free_when_down_is_heard() -> None:  # LI4
    free: list[object] = []

    class Watcher(Stage):
        def on_signal(self, signal: Any) -> None:
            free.append(self.system.registry.by_name("book"))

    async with ActorSystem() as system:
        watcher, book = await system.spawn(Watcher), await system.spawn(Notebook, name="book")
        await watcher.ask(Do(lambda watcher: watcher.monitor(book)))
        book.stop()
        await until(lambda: free == [None])


@in_the_loop
async def test_who_has_no_on_signal_should_not_monitor() -> None:
    class Careless(Stage):
        def on_signal(self, signal: Any) -> Any:
            return super(Stage, self).on_signal(signal)

    async with ActorSystem() as system:
        careless = await system.spawn(Careless, restart_type=TEMPORARY)
        watcher, book = await system.spawn(Stage), await system.spawn(Notebook)
        await watcher.ask(Do(lambda watcher: watcher.monitor(careless)))
        await careless.ask(Do(lambda careless: careless.monitor(book)))
        book.stop()
        [down] = await heard(watcher, 1)
        assert isinstance(down.reason, UnhandledMessageError)


@in_the_loop
async def test_an_actor_that_is_there_may_be_linked_and_unlinked() -> None:
    async with ActorSystem() as system:
        a, b = await system.spawn(Stage), await system.spawn(Stage)
        book = await system.spawn(Notebook)
        await a.ask(Do(lambda a: a.link(book, supervisor_strategy=OneForOne(0))))
        assert await a.ask(Do(lambda a: a.children)) == (book,)
        with pytest.raises(AlreadyLinkedError):
            await b.ask(Do(lambda b: b.link(book)))
        book.tell(Break())
        [exhausted] = await heard(a, 1)
        assert exhausted.ref == book
        assert await a.ask(Do(lambda a: a.children)) == ()

        other = await system.spawn(Notebook)
        await a.ask(Do(lambda a: a.link(other, supervisor_strategy=OneForOne(0))))
        await a.ask(Do(lambda a: a.unlink(other)))
        await a.ask(Do(lambda a: a.unlink(other)))
        other.tell(Break())
        assert await other.ask(Echo("the system restarts it")) == "the system restarts it"
        await system.stop(a)
        assert await other.ask(Echo("and does not stop it")) == "and does not stop it"


def cannot_link(ref: ActorRef[Any], stage: Stage) -> bool:
    with pytest.raises(AlreadyLinkedError):  # in the handler: it is no failure of the actor then
        stage.link(ref)
    return True


@in_the_loop
async def test_nobody_supervises_itself_or_who_supervises_it() -> None:
    async with ActorSystem() as system:
        a, b, c = [await system.spawn(Stage) for _ in range(3)]
        for one, other in ((a, b), (b, c)):
            await one.ask(Do(lambda one, other=other: one.link(other)))  # type: ignore[misc]
        for below, above in ((a, a), (c, b), (c, a)):
            assert await below.ask(Do(partial(cannot_link, above)))
        a._send_signal(Link(c))  # as if two threads had begun at the same time
        assert await a.ask(Do(lambda a: a.supervisor)) is None
        await system.stop(a)
        assert len(system.registry) == 0


@in_the_loop
async def test_who_supervises_is_known_to_who_is_supervised() -> None:
    async with ActorSystem() as system:
        parent = await system.spawn(Stage)
        child = await parent.ask(Do(lambda parent: parent.start_link(Stage)))
        assert isinstance(child, ActorRef)
        assert await child.ask(Do(lambda child: child.supervisor)) == parent
        assert await parent.ask(Do(lambda parent: parent.supervisor)) is None
        await system.stop(parent)
        assert len(system.registry) == 0


@in_the_loop
async def test_those_who_are_tied_die_together() -> None:
    async with ActorSystem() as system:
        a, b, c, watcher = [await system.spawn(Stage, restart_type=TEMPORARY) for _ in range(4)]
        for one, other in ((a, b), (b, c)):
            await one.ask(Do(lambda one, other=other: one.tie(other)))  # type: ignore[misc]
        await watcher.ask(Do(lambda watcher: list(map(watcher.monitor, (a, b, c)))))
        b.tell(Do(lambda _: 1 // 0))
        downs = await heard(watcher, 3)
        assert {down.ref for down in downs} == {a, b, c}
        assert {type(down.reason) for down in downs} == {ZeroDivisionError}


@in_the_loop
async def test_a_normal_end_is_not_shared_nor_one_that_was_untied() -> None:
    async with ActorSystem() as system:
        a, b, c = [await system.spawn(Stage, restart_type=TEMPORARY) for _ in range(3)]
        await a.ask(Do(lambda a: a.tie(b)))
        await a.ask(Do(lambda a: a.tie(c)))
        await a.ask(Do(lambda a: a.untie(c)))
        await system.stop(b)
        assert await a.ask(Do(lambda _: "alive")) == "alive"
        c.tell(Do(lambda _: 1 // 0))
        await until(lambda: len(system.registry) == 1)
        assert await a.ask(Do(lambda _: "alive")) == "alive"
        # To somebody who is not there one cannot be tied.
        await a.ask(Do(lambda a: a.tie(c)))
        await until(lambda: len(system.registry) == 0)


@in_the_loop
async def test_signals_that_come_too_late_are_answered() -> None:
    async with ActorSystem() as system:
        gone, child = (
            await system.spawn(Stage),
            await system.spawn(Notebook, restart_type=TEMPORARY),
        )
        await system.stop(gone)
        parent = await system.spawn(Stage)
        await parent.ask(Do(lambda parent: parent.link(gone)))
        assert await parent.ask(Do(lambda parent: parent.children)) == ()
        gone._send_signal(Stop(None))
        gone._send_signal(Failed(child, BrokenError()))  # its supervisor is gone: it is stopped
        await until(lambda: len(system.registry) == 1)
        parent._send_signal(Exit(child, BrokenError()))  # they are not tied
        parent._send_signal(Down(child, None))  # nor does it monitor it
        parent._send_signal(Link(gone))
        assert await signals(parent) == ()


@in_the_loop
async def test_a_supervisor_that_awaits_does_not_keep_its_children_waiting() -> None:
    async with ActorSystem() as system:
        parent, gate = await system.spawn(Stage), asyncio.Event()
        child = await parent.ask(Do(lambda parent: parent.start_link(Notebook)))
        assert isinstance(child, ActorRef)
        waiting = parent.ask_future(Do(lambda _: gate.wait()))
        child.tell(Break())
        child.tell(Say("x"))
        assert await child.ask(Echo("restarted")) == "restarted"
        assert not waiting.done()
        gate.set()
        await waiting
