"""The value that a handler returns is the answer to an ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from recado.actors import Actor, ActorSystem, AskTimeoutError, DuplicateReplyError, Message
from recado.actors.dispatchers import FixedPool
from tests.feeds.io.loop import in_the_loop, until

from .cast import Echo, Notebook


class Greet(Message[str]):
    name: str


class Greeter(Actor[Greet]):
    def receive(self, message: Greet) -> str:
        return f"hello {message.name}"


class SlowGreeter(Actor[Greet]):
    async def receive(self, message: Greet) -> str:
        await asyncio.sleep(0)
        return f"hello {message.name}"


@pytest.mark.parametrize("kind", [Greeter, SlowGreeter])
@in_the_loop
async def test_the_returned_value_is_the_answer(kind: type[Actor[Greet]]) -> None:
    async with ActorSystem() as system:
        greeter = await system.spawn(kind)
        answers = [await greeter.ask(Greet(name)) for name in ("a", "b", "c")]
        assert answers == ["hello a", "hello b", "hello c"]
        together = [greeter.ask_future(Greet(str(number))) for number in range(100)]
        assert [await each for each in together] == [f"hello {number}" for number in range(100)]


@in_the_loop
async def test_a_returned_future_is_awaited() -> None:
    class Desk(Actor[Echo]):
        def receive(self, message: Echo) -> Any:
            return book.ask_future(message)

    async with ActorSystem() as system:
        book, desk = await system.spawn(Notebook), await system.spawn(Desk)
        assert await desk.ask(Echo("from the book")) == "from the book"


@in_the_loop
async def test_a_behaviour_returns_answers_too() -> None:
    class Changing(Actor[Greet]):
        def receive(self, message: Greet) -> str:
            self.become(lambda later: f"goodbye {later.name}")
            return "hello"

    async with ActorSystem() as system:
        changing = await system.spawn(Changing)
        assert await changing.ask(Greet("a")) == "hello"
        assert await changing.ask(Greet("a")) == "goodbye a"


@in_the_loop
async def test_an_answer_that_can_change_is_copied() -> None:
    class Names(Message[list[str]]):
        pass

    class Register(Actor[Names]):
        def __init__(self) -> None:
            self.names = ["a"]

        def receive(self, message: Names) -> list[str]:
            return self.names

    async with ActorSystem() as system:
        register = await system.spawn(Register)
        (await register.ask(Names())).append("b")
        assert await register.ask(Names()) == ["a"]


@in_the_loop
async def test_none_is_no_answer_and_a_told_message_has_none() -> None:
    class Silent(Actor[Greet]):
        def receive(self, message: Greet) -> str | None:
            return None if message.name == "nobody" else message.name

    async with ActorSystem() as system:
        silent = await system.spawn(Silent)
        silent.tell(Greet("told"))
        assert await silent.ask(Greet("a")) == "a"
        with pytest.raises(AskTimeoutError):
            await silent.ask(Greet("nobody"), timeout=0.01)
        assert system.dead_letter_count == 0


def replies(actor: Answering) -> None:
    actor.reply("replied")


def replies_by_a_future(actor: Answering) -> None:
    future = asyncio.get_running_loop().create_future()
    future.set_result("later")
    actor.reply(future)


def replies_an_error(actor: Answering) -> None:
    actor.reply_error(KeyError("replied"))


def replies_if_asked(actor: Answering) -> None:
    actor.reply_if_asked("replied")


def promises(actor: Answering) -> None:
    actor.promise()


def forwards(actor: Answering) -> None:
    actor.forward(actor.other)


class Answering(Actor[Greet]):
    def __init__(self, other: Any, answer: Callable[[Answering], None]) -> None:
        self.other = other
        self.answer = answer

    def receive(self, message: Greet) -> str:
        self.answer(self)
        return "returned"


class AnsweringLater(Answering):
    async def receive(self, message: Greet) -> str:  # type: ignore[override]
        self.answer(self)
        await asyncio.sleep(0)
        return "returned"


@pytest.mark.parametrize("kind", [Answering, AnsweringLater])
@pytest.mark.parametrize(
    "answer",
    [replies, replies_by_a_future, replies_an_error, replies_if_asked, promises, forwards],
)
@in_the_loop
async def test_to_answer_and_to_return_a_value_is_an_error(
    kind: type[Answering], answer: Callable[[Answering], None]
) -> None:
    failures: list[object] = []
    async with ActorSystem() as system:
        system._listeners.append(failures.append)
        greeter = await system.spawn(Greeter)
        answering = await system.spawn(lambda: kind(greeter, answer))
        asked = answering.ask_future(Greet("a"))
        await asyncio.wait([asked])
        await until(lambda: bool(failures))
        (restarted,) = failures
        assert isinstance(restarted.reason, DuplicateReplyError)  # type: ignore[attr-defined]
        assert "also returns a value" in str(restarted.reason)  # type: ignore[attr-defined]
        if answer is replies:
            assert asked.result() == "replied"


@in_the_loop
async def test_to_answer_twice_is_noticed_in_a_thread_too() -> None:
    failures: list[object] = []
    async with FixedPool(1) as pool, ActorSystem(dispatcher=pool) as system:
        system._listeners.append(failures.append)
        answering = await system.spawn(lambda: Answering(None, replies))
        assert await answering.ask(Greet("a")) == "replied"
        await until(lambda: bool(failures))
        assert isinstance(failures[0].reason, DuplicateReplyError)  # type: ignore[attr-defined]


@in_the_loop
async def test_the_answer_is_not_kept_alive_by_the_actor() -> None:
    async with ActorSystem() as system:
        book = await system.spawn(Notebook)
        assert await book.ask(Echo("a")) == "a"
        cell = system._find_cell(book.address)
        assert cell is not None
        assert cell.answered_envelope is None


@in_the_loop
async def test_an_async_handler_may_return_a_future() -> None:
    class Desk(Actor[Echo]):
        async def receive(self, message: Echo) -> Any:
            await asyncio.sleep(0)
            return book.ask_future(message)

    async with ActorSystem() as system:
        book, desk = await system.spawn(Notebook), await system.spawn(Desk)
        assert await desk.ask(Echo("from the book")) == "from the book"


class Yielding(Actor[Greet]):
    def receive(self, message: Greet) -> Any:
        yield message.name


class AsyncYielding(Actor[Greet]):
    async def receive(self, message: Greet) -> Any:
        yield message.name


@pytest.mark.parametrize("kind", [Yielding, AsyncYielding])
@in_the_loop
async def test_a_handler_that_is_a_generator_is_an_error_and_not_passed_over(kind: Any) -> None:
    failures: list[Any] = []
    async with ActorSystem() as system:
        system._listeners.append(failures.append)
        yielding = await system.spawn(kind)
        yielding.tell(Greet("a"))
        await until(lambda: bool(failures))
        assert isinstance(failures[0].reason, TypeError)
        with pytest.raises(TypeError, match="generator"):
            await yielding.ask(Greet("a"))
