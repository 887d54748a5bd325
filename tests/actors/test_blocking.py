"""Blocking calls: replies, failures, timeouts, chains; and where they are an error instead of a deadlock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from recado.actors import blocking
from recado.actors.actor import Actor
from recado.actors.errors import (
    ActorStoppedError,
    AskTimeoutError,
    NameTakenError,
    SystemClosedError,
    WrongContextError,
)
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.actors.supervision.strategy import OneForOne
from recado.actors.system import ActorSystem


class Twice(Message[int]):
    number: int


class Silence(Message[int]):
    pass


class Fail(Message[int]):
    pass


class Who(Message[str]):
    pass


class Server(Actor[Twice | Silence | Fail | Who]):
    def receive(self, message: Twice | Silence | Fail | Who) -> None:
        match message:
            case Twice(number):
                self.reply(2 * number)
            case Silence():
                pass
            case Fail():
                raise KeyError("fail")
            case Who():
                self.reply(str(self.sender))


@pytest.fixture
def system() -> Any:
    with blocking.BlockingActorSystem("test", ask_timeout=5) as system:
        yield system


def test_an_ask_waits_for_its_answer(system: blocking.BlockingActorSystem) -> None:
    ref = system.spawn(Server, name="server", supervisor_strategy=OneForOne(max_restarts=None))
    assert ref.ask(Twice(4)) == 8
    with pytest.raises(KeyError):
        ref.ask(Fail())
    with pytest.raises(AskTimeoutError, match=r"0.01 s"):
        ref.ask(Silence(), timeout=0.01)
    assert ref.ask(Twice(5), timeout=3) == 10
    ref.tell(Twice(1))
    assert system.actor("server", Server) == ref
    assert len({ref, system.actor("server")}) == 1
    assert "server" in repr(ref)
    with pytest.raises(NameTakenError):
        system.spawn(Server, name="server")
    system.stop(ref)
    with pytest.raises(ActorStoppedError):
        ref.ask(Twice(1))


def test_actors_stop_by_class_and_by_reference(system: blocking.BlockingActorSystem) -> None:
    refs = [system.spawn(Server) for _ in range(3)]
    refs[0].stop()
    with pytest.raises(ActorStoppedError):
        refs[0].ask(Twice(1))
    system.stop_all(Server)
    for ref in refs:
        with pytest.raises(ActorStoppedError):
            ref.ask(Twice(1))


def test_futures_complete_with_a_result_an_exception_or_another_future(
    system: blocking.BlockingActorSystem,
) -> None:
    ref = system.spawn(Server, supervisor_strategy=OneForOne(max_restarts=None))
    assert ref.ask_future(Twice(2)).result() == 4
    chained = ref.ask_future(Twice(2)).then(lambda four: ref.ask_future(Twice(four)))
    assert chained.then(lambda eight: eight + 1).result(5) == 9
    both = blocking.join(ref.ask_future(Twice(1)), ref.ask_future(Twice(2)))
    assert both.result(5) == (2, 4)
    assert blocking.join().result() == ()
    with pytest.raises(KeyError):
        ref.ask_future(Fail()).then(lambda number: number).result(5)
    with pytest.raises(ZeroDivisionError):
        ref.ask_future(Twice(0)).then(lambda zero: 1 // zero).result(5)
    with pytest.raises(KeyError):
        blocking.join(ref.ask_future(Fail()), ref.ask_future(Twice(2))).result(5)


def test_an_answer_counts_once() -> None:
    answer: blocking.BlockingFuture[int] = blocking.BlockingFuture()
    answer.complete(1)
    answer.complete(2)
    answer.fail(KeyError())
    assert answer.result() == 1
    other: blocking.BlockingFuture[int] = blocking.BlockingFuture()
    other.complete_with(answer)
    assert other.result() == 1
    cancelled: blocking.BlockingFuture[int] = blocking.BlockingFuture()
    cancelled.cancel()
    with pytest.raises(CancelledError):
        cancelled.then(lambda number: number).result(5)
    nobody: blocking.BlockingFuture[int] = blocking.BlockingFuture()
    with pytest.raises(AskTimeoutError):
        nobody.result(0.001)
    failed: blocking.BlockingFuture[int] = blocking.BlockingFuture()
    failed.fail(TimeoutError("what the actor raised"))
    with pytest.raises(TimeoutError, match="the actor"):
        failed.result()


def test_an_answer_that_failed_or_is_not_wanted_any_more(
    system: blocking.BlockingActorSystem,
) -> None:
    ref = system.spawn(Server, supervisor_strategy=OneForOne(max_restarts=None))
    other: blocking.BlockingFuture[int] = blocking.BlockingFuture()
    other.complete_with(ref.ask_future(Fail()))
    with pytest.raises(KeyError):
        other.result(5)
    with pytest.raises(TypeError):  # what cannot even be asked, is told to who waits
        ref.ask(Twice(1), timeout="soon")  # type: ignore[arg-type]


def test_telling_may_wait_until_the_message_is_taken(system: blocking.BlockingActorSystem) -> None:
    gate = threading.Event()

    class Slow(Actor[Twice]):
        async def receive(self, message: Twice) -> None:
            await asyncio.to_thread(gate.wait)
            self.reply_if_asked(message.number)

    ref = system.spawn(Slow, capacity=1)
    ref.tell_wait(Twice(1))
    ref.tell_wait(Twice(2), timeout=5)
    with pytest.raises(TimeoutError):
        ref.tell_wait(Twice(3), timeout=0.01)
    gate.set()
    ref.tell_wait(Twice(4), timeout=5)
    assert ref.ask(Twice(5)) == 5

    async def wrong() -> None:
        with pytest.raises(WrongContextError):
            ref.tell_wait(Twice(6))

    system._thread.run(wrong())


def test_without_a_time_out_it_is_that_of_the_system() -> None:
    with blocking.BlockingActorSystem("test", ask_timeout=0.01) as system:
        ref = system.spawn(Server)
        with pytest.raises(AskTimeoutError, match=r"within 0.01 s"):
            ref.ask(Silence())


def test_many_threads_ask_at_once(system: blocking.BlockingActorSystem) -> None:
    ref = system.spawn(Server)
    answers: dict[int, list[int]] = {}

    def work(number: int) -> None:
        answers[number] = [ref.ask(Twice(each)) for each in range(100)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: [2 * each for each in range(100)] for number in range(4)}


def test_in_the_thread_of_the_loop_it_is_an_error_at_once_and_nothing_is_sent() -> None:
    class Deadlocking(Actor[Twice]):
        def __init__(self, server: ActorRef[Any]) -> None:
            self.server = server

        def receive(self, message: Twice) -> None:
            with pytest.raises(WrongContextError, match="await"):
                blocking.ask(self.server, message, timeout=1)
            with pytest.raises(WrongContextError, match="await"):
                blocking.ask_future(self.server, Silence(), timeout=1).result()
            self.reply(0)

    class Watched(Server):
        asked = 0

        def receive(self, message: Any) -> None:
            Watched.asked += isinstance(message, Twice)
            super().receive(message)

    async def story() -> None:
        async with ActorSystem("test") as system:
            server = await system.spawn(Watched)
            ref = await system.spawn(lambda: Deadlocking(server))
            assert await ref.ask(Twice(1), timeout=1) == 0
            assert Watched.asked == 0

    asyncio.run(story())


def test_a_thread_of_a_program_with_a_loop_may_ask_too() -> None:
    async def story() -> None:
        async with ActorSystem("test") as system:
            ref = await system.spawn(Server)
            assert await asyncio.to_thread(blocking.ask, ref, Twice(3)) == 6
            assert await asyncio.to_thread(blocking.ask, ref, Who()) == "None"

    asyncio.run(story())


def test_whoever_waits_when_the_system_is_closed_is_told() -> None:
    failures: list[BaseException] = []

    with blocking.BlockingActorSystem("test") as system:
        ref = system.spawn(Server)
        asked = ref.ask_future(Silence(), timeout=60)
        ref.ask(Twice(1))  # so the other one has arrived

        def work() -> None:
            try:
                asked.result()
            except SystemClosedError as error:
                failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
    thread.join()
    assert len(failures) == 1
    with pytest.raises((SystemClosedError, ActorStoppedError)):
        ref.ask(Twice(1))
    with pytest.raises(SystemClosedError):
        system.spawn(Server)
    system.close()


def test_a_system_that_cannot_be_opened_leaves_no_thread() -> None:
    before = threading.active_count()
    system = blocking.BlockingActorSystem("test")

    async def fails() -> None:
        raise KeyError("broken")

    system._system.__aenter__ = fails  # type: ignore[method-assign,assignment]
    with pytest.raises(KeyError), system:
        pass
    assert threading.active_count() == before


class Ending(asyncio.SelectorEventLoop):
    """Takes one more call when it does not run any more, and is closed then."""

    has_run = False

    def call_soon_threadsafe(self, *args: Any, **settings: Any) -> asyncio.Handle:  # type: ignore[override]
        handle = super().call_soon_threadsafe(*args, **settings)
        if self.has_run:
            self.close()
        return handle


@pytest.mark.parametrize(
    "wait",
    [
        lambda ref: blocking.ask_future(ref, Twice(1)).then(str).result(),
        lambda ref: blocking.join(blocking.ask_future(ref, Twice(1))).result(),
        lambda ref: blocking.tell_wait(ref, Twice(1)),
    ],
)
def test_whoever_waits_when_the_loop_has_ended_is_told(  # BL1
    wait: Callable[[ActorRef[Any]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "LOOP_MARGIN_S", 0.01)
    refs: list[ActorRef[Any]] = []

    async def live() -> None:
        async with ActorSystem("test") as system:
            refs.append(await system.spawn(Server))

    loop = Ending()
    thread = threading.Thread(target=loop.run_until_complete, args=(live(),))
    thread.start()
    thread.join()
    loop.has_run = True
    with pytest.raises(SystemClosedError, match="does not run any more"):
        wait(refs[0])
