"""References: tell, ask, forward, and the sender."""

from __future__ import annotations

import asyncio
import copy
import pickle
import threading
from typing import Any

import pytest

from recado.actors import (
    Actor,
    ActorRef,
    ActorStoppedError,
    ActorSystem,
    AskTimeoutError,
    DeadLetter,
    Message,
    NoSenderError,
    Reply,
    UnhandledMessageError,
    WrongContextError,
)
from tests.feeds.io.loop import in_the_loop, without_waiting

from .cast import Break, BrokenError, Do, Echo, Notebook, Read, Say, Stage


@in_the_loop
async def test_messages_of_one_sender_stay_in_order() -> None:  # RE1
    async with ActorSystem() as system:
        book = await system.spawn(Notebook)
        for number in range(1000):
            book.tell(Say(str(number)))
        assert await book.ask(Read()) == tuple(str(number) for number in range(1000))


@in_the_loop
async def test_an_ask_is_answered() -> None:
    async with ActorSystem() as system:
        book = await system.spawn(Notebook)
        answer: str = await book.ask(Echo("hello"), timeout=2)
        assert answer == "hello"


@in_the_loop
async def test_a_failure_is_the_answer_too() -> None:  # RE3
    async with ActorSystem() as system:
        book = await system.spawn(Notebook)
        with pytest.raises(BrokenError, match="why not"):
            await book.ask(Break("why not"))
        assert await book.ask(Echo("still here")) == "still here"


class Mute(Actor[Message[Any]]):
    def __init__(self) -> None:
        self.promises: list[Reply] = []

    def receive(self, message: Message[Any]) -> None:
        match message:
            case Say():
                for promise in self.promises:
                    promise.complete("late")
            case _:
                self.promises.append(self.promise())


@without_waiting
async def test_an_ask_without_answer_ends_at_its_time_and_a_late_answer_is_dropped() -> None:  # RE3
    async with ActorSystem(ask_timeout=3) as system:
        mute = await system.spawn(Mute)
        began = system._clock.time()
        with pytest.raises(AskTimeoutError, match=r"within 0\.5 s"):
            await mute.ask(Echo("?"), timeout=0.5)
        assert 0.5 <= system._clock.time() - began < 0.6
        with pytest.raises(TimeoutError):
            await mute.ask(Echo("?"))
        assert 3.5 <= system._clock.time() - began < 3.7
        mute.tell(Say("answer now"))
        early = mute.ask_future(Echo("?"))
        mute.tell(Say("answer now"))
        assert await early == "late"


@in_the_loop
async def test_a_promise_is_answered_later() -> None:
    async with ActorSystem() as system:
        mute = await system.spawn(Mute)
        answers = [mute.ask_future(Echo("?")) for _ in range(3)]
        mute.tell(Say("now"))
        assert await asyncio.gather(*answers) == ["late"] * 3


@in_the_loop
async def test_an_actor_is_the_sender_of_what_its_handler_sends() -> None:
    class Who(Message[ActorRef[Any] | None]):
        pass

    class Witness(Actor[Who]):
        def receive(self, message: Who) -> None:
            self.reply((self.sender,))

    async with ActorSystem() as system:
        witness, stage = await system.spawn(Witness), await system.spawn(Stage)
        assert await witness.ask(Who()) == (None,)
        # Also behind an await, and from a task that the handler started.
        assert await stage.ask(Do(lambda _: witness.ask(Who()))) == (stage,)

        async def later(_: Stage) -> Any:
            await asyncio.sleep(0)
            return await asyncio.create_task(witness.ask(Who()))

        assert await stage.ask(Do(later)) == (stage,)


@in_the_loop
async def test_a_reply_to_a_tell_goes_to_the_actor_that_sent_it() -> None:
    class Parrot(Actor[Echo]):
        def receive(self, message: Echo) -> None:
            self.reply(Say(message.text))

    class Caller(Notebook):
        def receive(self, message: Any) -> None:
            if isinstance(message, Echo):
                parrot.tell(message)
            else:
                super().receive(message)

    async with ActorSystem() as system:
        parrot, caller = await system.spawn(Parrot), await system.spawn(Caller)
        caller.tell(Echo("hello"))
        while (await caller.ask(Read())) != ("hello",):
            pass


@in_the_loop
async def test_a_reply_to_nobody_is_a_failure_unless_one_looks() -> None:
    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        told: list[object] = []

        def try_all(stage: Stage) -> None:
            told.append(stage.reply_if_asked("?"))
            for attempt in (stage.reply, stage.reply_error):
                with pytest.raises(NoSenderError):
                    attempt(ValueError())
            with pytest.raises(NoSenderError):
                stage.promise()

        stage.tell(Do(try_all))
        await stage.ask(Do(lambda _: None))
        assert told == [False]


@in_the_loop
async def test_an_error_may_be_the_answer_without_being_a_failure() -> None:
    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        with pytest.raises(KeyError):
            await stage.ask(Do(lambda stage: stage.reply_error(KeyError("no such order"))))
        assert system._find_cell(stage.address).restarts == 0  # type: ignore[union-attr]


@in_the_loop
async def test_an_ask_may_be_answered_by_a_future() -> None:
    class Clerk(Actor[Echo | Break]):
        def receive(self, message: Echo | Break) -> None:
            match message:
                case Echo():
                    self.reply(book.ask_future(message))
                case Break():
                    self.reply_if_asked(book.ask_future(message))

    async with ActorSystem() as system:
        book, clerk = await system.spawn(Notebook), await system.spawn(Clerk)
        assert await clerk.ask(Echo("from the book")) == "from the book"
        with pytest.raises(BrokenError):
            await clerk.ask(Break())


@in_the_loop
async def test_forwarding_keeps_the_asker() -> None:
    class Desk(Actor[Echo]):
        def receive(self, message: Echo) -> None:
            if message.text == "whole":
                self.forward(book)
            else:
                book.forward(Echo(f"forwarded {message.text}"))

    async with ActorSystem() as system:
        book, desk = await system.spawn(Notebook), await system.spawn(Desk)
        assert await desk.ask(Echo("whole")) == "whole"
        assert await desk.ask(Echo("part")) == "forwarded part"
        with pytest.raises(WrongContextError):
            book.forward(Echo("from nowhere"))


@in_the_loop
async def test_what_is_not_known_is_a_failure() -> None:
    async with ActorSystem() as system:
        book, plain = await system.spawn(Notebook), await system.spawn(Actor[Any])
        with pytest.raises(UnhandledMessageError, match="Do is not a message for"):
            await book.ask(Do(lambda _: None))
        with pytest.raises(UnhandledMessageError):
            await plain.ask(Echo("?"))
        assert await book.ask(Echo("restarted")) == "restarted"
        assert system._find_cell(book.address).restarts == 1  # type: ignore[union-attr]


@in_the_loop
async def test_what_cannot_arrive_is_a_dead_letter() -> None:  # RE2
    dead_letters: list[object] = []
    async with ActorSystem() as system:
        system._listeners.append(dead_letters.append)
        book = await system.spawn(Notebook)
        await system.stop(book)
        book.tell(Say("too late"))
        with pytest.raises(ActorStoppedError):
            await book.ask(Echo("?"))
        elsewhere = system.ref("recado-actor://nowhere/nobody")
        elsewhere.tell(Say("hello?"))
        for ref in (elsewhere, book):
            with pytest.raises(ActorStoppedError):
                await ref.tell_wait(Say("hello??"))
        assert dead_letters[-5:] == [
            DeadLetter(Say("too late"), None, book),
            DeadLetter(Echo("?"), None, book),
            DeadLetter(Say("hello?"), None, elsewhere),
            DeadLetter(Say("hello??"), None, elsewhere),
            DeadLetter(Say("hello??"), None, book),
        ]
        assert system.dead_letter_count == 5


@in_the_loop
async def test_any_thread_may_tell_but_only_the_loops_may_ask() -> None:
    async with ActorSystem() as system:
        book = await system.spawn(Notebook)
        refused: list[Exception] = []

        def work(name: str) -> None:
            for number in range(200):
                book.tell(Say(f"{name}{number}"))
            try:
                book.ask_future(Read())
            except WrongContextError as error:
                refused.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        lines = await book.ask(Read())
        for name in "abc":
            mine = [line for line in lines if line[0] == name]
            assert mine == [f"{name}{number}" for number in range(200)]
        assert len(refused) == 3


@in_the_loop
async def test_references_are_their_addresses() -> None:
    async with ActorSystem("exchange") as system:
        book = await system.spawn(Notebook, name="book")
        same = system.ref(str(book))
        assert same == book
        assert hash(same) == hash(book)
        assert same != book.address
        assert str(book).startswith("recado-actor://exchange/book#")
        assert repr(book) == f"<ActorRef {book}>"
        assert copy.deepcopy([book])[0] is book
        assert copy.copy(book) is book
        with pytest.raises(TypeError, match="str"):
            pickle.dumps(book)
        with pytest.raises(AttributeError):
            book.address = same.address  # type: ignore[misc]


@in_the_loop
async def test_what_is_mutable_is_copied_on_the_way() -> None:  # MG1
    class Keep(Message[list[str]]):
        names: list[str]

    class Keeper(Actor[Keep]):
        def receive(self, message: Keep) -> None:
            self.names = message.names
            self.reply(self.names)

    async with ActorSystem() as system:
        keeper = await system.spawn(Keeper)
        mine = ["a"]
        answer = await keeper.ask(Keep(mine))
        mine.append("b")
        answer.append("c")
        assert system._find_cell(keeper.address).actor.names == ["a"]  # type: ignore[union-attr]
