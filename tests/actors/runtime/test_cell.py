"""Cells: one message at a time, in order, with every dispatcher; behaviours; requeued messages."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors import TEMPORARY, Actor, ActorInterruptedError, ActorSystem, Down, Message
from recado.actors.runtime.cell import Cell
from recado.actors.runtime.mailbox import DurableMailboxPort, MessageEnvelope
from tests.actors.cast import Do, Echo, Notebook, Read, Say, Stage, signals
from tests.actors.stories import told
from tests.feeds.io.loop import in_the_loop, until


class Step(Message[None]):
    number: int
    pauses: int = 0


class Alone(Actor[Step | Read]):
    """Notices when it is not."""

    def __init__(self, seen: list[int]) -> None:
        self.seen = seen
        self.inside = 0

    def receive(self, message: Step | Read) -> Any:
        match message:
            case Read():
                self.reply(())
                return None
            case Step(number, 0):
                self.enter(number)
                self.inside -= 1
                return None
            case Step(number, pauses):
                return self.slowly(number, pauses)

    def enter(self, number: int) -> None:
        self.inside += 1
        assert self.inside == 1
        self.seen.append(number)

    async def slowly(self, number: int, pauses: int) -> None:
        self.enter(number)
        for _ in range(pauses):
            await asyncio.sleep(0)
        self.inside -= 1


class Threads:
    """A dispatcher of threads, as simple as it can be."""

    def __init__(self, threads: int) -> None:
        self.pool = ThreadPoolExecutor(threads)

    def dispatch(self, cell: Cell) -> None:
        if cell.claim():
            self.pool.submit(cell.run, 3)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=40), st.booleans())
def test_one_at_a_time_and_in_order(pauses: list[int], threads: bool) -> None:  # CE1, CE2, RE1
    @in_the_loop
    async def play() -> None:
        dispatcher = Threads(4) if threads else None
        seen: list[int] = []
        async with ActorSystem(dispatcher=dispatcher) as system:
            alone = await system.spawn(lambda: Alone(seen))
            for number, pause in enumerate(pauses):
                alone.tell(Step(number, pause))
                if pause == 2:
                    await asyncio.sleep(0)
            await alone.ask(Read())
            assert system._find_cell(alone.address).restarts == 0  # type: ignore[union-attr]
        if dispatcher is not None:
            dispatcher.pool.shutdown()
        assert seen == list(range(len(pauses)))

    play()


@in_the_loop
async def test_handlers_run_in_threads_hooks_and_coroutines_on_the_loop() -> None:
    home, where = threading.get_ident(), dict[str, bool]()

    class Where(Actor[Echo]):
        def __init__(self) -> None:
            where["constructor"] = threading.get_ident() == home

        def pre_start(self) -> None:
            where["started"] = threading.get_ident() == home

        def receive(self, message: Echo) -> Any:
            where[message.text] = threading.get_ident() == home
            if message.text == "coroutine":
                return self.slowly()
            return self.reply(message.text)

        async def slowly(self) -> None:
            where["in the coroutine"] = threading.get_ident() == home
            self.reply("coroutine")

    threads = Threads(2)
    async with ActorSystem() as system:
        ref = await system.spawn(Where, dispatcher=threads)
        for text in ("first", "coroutine", "last"):
            assert await ref.ask(Echo(text)) == text
    threads.pool.shutdown()
    assert [name for name, at_home in where.items() if not at_home] == [
        "first",
        "coroutine",
        "last",
    ]


@in_the_loop
async def test_a_long_mailbox_leaves_turns_to_others() -> None:  # CE5
    async with ActorSystem() as system:
        busy, other = await system.spawn(Notebook), await system.spawn(Notebook)
        for number in range(10_000):
            busy.tell(Say(str(number)))
        await other.ask(Echo("?"))
        assert system.mailbox_size(busy) > 9000


@in_the_loop
async def test_a_coroutine_that_does_not_await_starves_nobody() -> None:
    class Eager(Actor[Say]):
        async def receive(self, message: Say) -> None:
            self.ref.tell(message)

    async with ActorSystem() as system:
        eager = await system.spawn(Eager)
        eager.tell(Say("for ever"))
        await asyncio.sleep(0.001)


@in_the_loop
async def test_becoming_something_else_and_back() -> None:
    class Door(Actor[Say | Read]):
        def receive(self, message: Say | Read) -> None:
            match message:
                case Say(how):
                    self.become(self.closed, keep=how == "keep")
                case Read():
                    self.reply(("open",))

        def closed(self, message: Say | Read) -> None:
            match message:
                case Say("lock"):
                    self.become(self.locked, keep=True)
                case Say():
                    self.unbecome()
                case Read():
                    self.reply(("closed",))

        async def locked(self, message: Say | Read) -> None:
            match message:
                case Say():
                    self.unbecome()
                case Read():
                    self.reply(("locked",))

    async with ActorSystem() as system:
        door = await system.spawn(Door)
        for says, then in (
            (["close"], "closed"),
            (["open"], "open"),  # nothing was kept: back to receive
            (["keep", "lock"], "locked"),
            (["unlock"], "closed"),
            (["open"], "open"),
            (["open", "lock"], "locked"),
        ):
            for say in says:
                door.tell(Say(say))
            assert await door.ask(Read()) == (then,)


@in_the_loop
async def test_what_is_put_back_comes_before_the_rest() -> None:
    class Patient(Notebook):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[MessageEnvelope] = []

        def receive(self, message: Any) -> None:
            match message:
                case Say("now"):
                    self._cell.requeue(self.kept)
                    self.become(super().receive)
                case _:
                    self.kept.append(self._cell.take_envelope())

    async with ActorSystem() as system:
        patient = await system.spawn(Patient)
        for text in ("a", "b"):
            patient.tell(Say(text))
        early = patient.ask_future(Read())
        patient.tell(Say("now"))
        patient.tell(Say("c"))
        assert await early == ("a", "b")
        assert await patient.ask(Read()) == ("a", "b", "c")


@in_the_loop
async def test_a_handler_that_is_cancelled_has_failed() -> None:
    async with ActorSystem() as system:
        stage = await system.spawn(Stage)

        async def wait_for_what_is_cancelled(_: Stage) -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

        with pytest.raises(ActorInterruptedError):
            await stage.ask(Do(wait_for_what_is_cancelled))
        assert await stage.ask(Do(lambda _: "again")) == "again"


class Drastic(BaseException):
    pass


class Fragile(Actor[Echo]):
    def receive(self, message: Echo) -> None:
        if message.text == "break":
            raise Drastic("x")
        self.reply(message.text)


class FragileAsync(Fragile):
    async def receive(self, message: Echo) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        super().receive(message)


class FragileRestart(Fragile):
    """Its first restart raises in this hook."""

    def __init__(self, hook: str, broken: list[str]) -> None:
        self.hook = hook
        self.broken = broken

    def _break(self, hook: str) -> None:
        if hook == self.hook and hook not in self.broken:
            self.broken.append(hook)
            raise Drastic(hook)

    def pre_restart(self, reason: BaseException, message: Any) -> None:
        self._break("pre_restart")

    def post_restart(self, reason: BaseException) -> None:
        self._break("post_restart")


@pytest.mark.parametrize(
    "make",
    [
        Fragile,
        FragileAsync,
        lambda: FragileRestart("pre_restart", broken),
        lambda: FragileRestart("post_restart", broken),
    ],
    ids=["def", "async def", "pre_restart", "post_restart"],
)
def test_a_base_exception_is_a_failure_of_the_actor_and_does_not_block_it(
    make: Callable[[], Fragile],
) -> None:
    broken.clear()

    async def story(system: ActorSystem) -> None:
        ref = await system.spawn(make)
        waiting = ref.ask_future(Echo("break"))
        after = ref.ask_future(Echo("after"))
        with pytest.raises(ActorInterruptedError, match="Drastic") as failure:
            await waiting
        assert isinstance(failure.value.__cause__, Drastic)
        assert await after == "after"
        await system.stop(
            ref
        )  # told() has virtual time: a blocked one would be left behind, and logged

    told(story)


broken: list[str] = []


@pytest.mark.parametrize("kind", [GeneratorExit, asyncio.CancelledError])
@pytest.mark.parametrize("awaits", [False, True])
def test_what_python_raises_itself_is_a_failure_of_the_actor(
    kind: type[BaseException], awaits: bool
) -> None:
    async def slowly(_: Stage) -> None:
        await asyncio.sleep(0)
        raise kind

    def at_once(_: Stage) -> None:
        raise kind

    async def story(system: ActorSystem) -> None:
        stage = await system.spawn(Stage)
        with pytest.raises(ActorInterruptedError):
            await stage.ask(Do(slowly if awaits else at_once))
        assert await stage.ask(Do(lambda _: "again")) == "again"

    told(story)


def test_a_base_exception_is_counted_as_a_failure_and_monitors_hear_of_the_end() -> None:
    async def story(system: ActorSystem) -> None:
        ref = await system.spawn(Fragile, restart_type=TEMPORARY)
        watcher = await system.spawn(Stage)
        await watcher.ask(Do(lambda stage: stage.monitor(ref)))
        with pytest.raises(ActorInterruptedError):
            await ref.ask(Echo("break"))
        (down,) = await signals(watcher)
        assert isinstance(down, Down)
        assert isinstance(down.reason, ActorInterruptedError)

    told(story)


@in_the_loop
async def test_a_handler_is_in_a_task_like_any_other() -> None:
    async def act(stage: Stage) -> str:
        assert asyncio.current_task() is not None
        async with asyncio.timeout(1), asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(0, "done"))
        return task.result()

    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        assert await stage.ask(Do(act)) == "done"
        assert await stage.ask(Do(act)) == "done"


class Lasting(DurableMailboxPort):
    """A mailbox that notes what it is told."""

    def __init__(self, notes: list[Any], attempts: int) -> None:
        self.notes = notes
        self.attempts = attempts
        self.waiting: list[MessageEnvelope] = []

    def attach(self, wake: Callable[[], None]) -> None: ...

    def put(self, envelope: MessageEnvelope) -> None:
        self.waiting.append(envelope)

    def put_durably(self, envelope: MessageEnvelope, origin: Any, on_stored: Any) -> None:
        self.waiting.append(envelope)
        if origin is not None:
            self.notes.append(origin)
        self.when_stored(on_stored)

    def get_nowait(self) -> MessageEnvelope:
        if not self.waiting:
            raise Empty
        return self.waiting.pop(0)

    def qsize(self) -> int:
        return len(self.waiting)

    def when_stored(self, on_stored: Callable[[BaseException | None], object]) -> None:
        on_stored(OSError("disk full") if "full" in self.notes else None)

    def acknowledge(self, envelope: MessageEnvelope, failure: BaseException | None) -> bool:
        self.notes.append((envelope[0], type(failure).__name__))
        if failure is not None and self.attempts:
            self.attempts -= 1
            self.waiting.insert(0, envelope)
            return False
        return True

    def close(self) -> None:
        self.notes.append("closed")


@in_the_loop
async def test_a_mailbox_that_remembers_is_told_what_became_of_each() -> None:
    notes: list[Any] = []
    async with ActorSystem() as system:
        stage = await system.spawn(Stage, mailbox=lambda: Lasting(notes, 1), name="stage")
        good, bad = Do(lambda _: "good"), Do(lambda _: 1 // 0)
        await stage.tell_wait(good)
        assert await stage.ask(good) == "good"
        with pytest.raises(ZeroDivisionError):
            await stage.ask(bad)  # only when it is not tried again
        tried = [(good, "NoneType")] * 2 + [(bad, "ZeroDivisionError")] * 2
        assert notes == tried
        stored: list[object] = []
        cell = system._find_cell(stage.address)
        assert cell is not None
        cell.put_durably((good, None, None), (b"life", 7), stored.append)
        assert stored == [None]
        await until(lambda: notes[4:] == [(b"life", 7), (good, "NoneType")])
        notes.append("full")
        with pytest.raises(OSError, match="full"):
            await stage.tell_wait(good)
        cell.mailbox.put((good, None, None))
    assert notes[-1] == "closed"
    assert system.dead_letter_count == 0


class Raises(Message[None]):
    error: str


class Raiser(Actor[Raises | Echo]):
    def receive(self, message: Raises | Echo) -> None:
        match message:
            case Raises("StopIteration"):
                next(iter(()))
            case Raises():
                raise asyncio.CancelledError
            case Echo(text):
                self.reply(text)


@pytest.mark.parametrize(
    ("raised", "heard"),
    [("StopIteration", RuntimeError), ("CancelledError", ActorInterruptedError)],
)
@pytest.mark.parametrize("threads", [False, True])
def test_what_no_future_can_hold_is_a_failure_like_any(
    raised: str, heard: type[Exception], threads: bool
) -> None:
    @in_the_loop
    async def play() -> None:
        dispatcher = Threads(1) if threads else None
        async with ActorSystem(dispatcher=dispatcher) as system:
            raiser = await system.spawn(Raiser)
            with pytest.raises(heard):
                await raiser.ask(Raises(raised))
            assert await raiser.ask(Echo("restarted")) == "restarted"
            cell = system._find_cell(raiser.address)
            assert cell is not None
            assert cell.restarts == 1
        if dispatcher is not None:
            await asyncio.to_thread(dispatcher.pool.shutdown)

    play()


class Faulty(SimpleQueue[MessageEnvelope], DurableMailboxPort):
    """A mailbox that fails once: when a message is taken out, or when it is acknowledged."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def attach(self, wake: Callable[[], None]) -> None: ...

    def put_durably(self, *_: object) -> None: ...

    def when_stored(self, on_stored: object) -> None: ...

    def fails(self, where: str) -> None:
        if self.where == where:
            self.where = ""
            raise OSError(where)

    def get_nowait(self) -> MessageEnvelope:
        self.fails("get")
        return super().get_nowait()

    def acknowledge(self, envelope: MessageEnvelope, failure: BaseException | None) -> bool:
        self.fails("acknowledge" if failure is None else "acknowledge failure")
        return True

    def close(self) -> None:
        pass


@pytest.mark.parametrize("where", ["get", "acknowledge", "acknowledge failure"])
@pytest.mark.parametrize("awaits", [False, True])
def test_a_mailbox_that_fails_is_a_failure_of_its_actor(where: str, awaits: bool) -> None:
    @in_the_loop
    async def play() -> None:
        async with ActorSystem() as system:
            factory: Callable[[], Actor[Any]] = Stage if awaits else Raiser
            stage = await system.spawn(factory, mailbox=lambda: Faulty(where))
            cell = system._find_cell(stage.address)
            assert cell is not None
            cell.runs_as_task = awaits
            stage.tell(
                Do(lambda _: 1 // (where != "acknowledge failure")) if awaits else Raises(where)
            )
            await until(lambda: cell.restarts)
            answer = Do(lambda _: "goes on") if awaits else Echo("goes on")
            assert await stage.ask(answer) == "goes on"

    play()
