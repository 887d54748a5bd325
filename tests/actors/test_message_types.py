"""Messages of undeclared classes fail with UnhandledMessageError, whatever `receive` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NewType,
    Optional,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    runtime_checkable,
)

import pytest
from typing_extensions import TypeAliasType

from recado.actors import (
    TEMPORARY,
    Actor,
    ActorRef,
    ActorSystem,
    DeadLetter,
    Down,
    Message,
    OneForOne,
    Restarted,
    Stopped,
    Timers,
    UnhandledMessageError,
)
from recado.actors.message_types import SUBCLASSES_MAX, message_types_of
from recado.actors.routers import pool
from recado.actors.testkit import Probe
from tests.feeds.io.loop import in_the_loop

from .cast import Do, Stage, signals

M = TypeVar("M")
N = TypeVar("N")


class Order(Message[None]):
    id: int


class Ack(Message[None]):
    id: int


class Place(Message[Ack]):
    order: Order


class Cancel(Message[None]):
    pass


class Urgent(Place):
    pass


class Halt(Message[bool]):
    pass


class Book(Actor[Place | Cancel]):
    async def receive(self, message: Place | Cancel) -> None:
        match message:
            case Place(order):
                self.reply(Ack(order.id))
            case Cancel():
                self.become(self.closed)

    def closed(self, message: Any) -> None:
        match message:
            case Halt():
                self.reply(True)
            case Place():
                self.unbecome()
                self.reply(Ack(0))
            case _:
                self.unhandled(message)


PLACE = Place(Order(1))
URGENT = Urgent(Order(2))


# --- what becomes of it -----------------------------------------------------------------------------


@in_the_loop
async def test_an_ask_that_no_case_is_for_fails() -> None:  # TA1
    async with ActorSystem() as system:
        book = await system.spawn(Book, name="book.A1", supervisor_strategy=OneForOne(3, within=10))
        with pytest.raises(
            UnhandledMessageError, match="Halt is not a message for recado-actor://local/book"
        ):
            await book.ask(Halt(), timeout=2)
        assert await book.ask(PLACE, timeout=2) == Ack(1)
        assert system._find_cell(book.address).restarts == 1  # type: ignore[union-attr]


@in_the_loop
async def test_a_tell_that_no_case_is_for_fails_the_actor() -> None:  # TA1
    async with ActorSystem() as system:
        probe: Probe[Any] = await Probe.spawn(system)
        system.events.subscribe(probe.ref, Restarted)
        book: ActorRef[Any] = await system.spawn(Book)
        brief: ActorRef[Any] = await system.spawn(Book, restart_type=TEMPORARY)
        book.tell(Halt())
        restarted = await probe.expect(Restarted)
        assert restarted.ref == book
        assert isinstance(restarted.reason, UnhandledMessageError)
        probe.monitor(brief)
        brief.tell("nonsense")
        down = await probe.expect(Down)
        assert isinstance(down.reason, UnhandledMessageError)


@in_the_loop
async def test_also_behind_a_message_whose_handler_awaits() -> None:  # TA1, in a task
    async with ActorSystem() as system:
        book = await system.spawn(Book)
        first, second, third = (
            book.ask_future(PLACE),
            book.ask_future(Halt()),
            book.ask_future(PLACE),
        )
        assert await first == Ack(1)
        with pytest.raises(UnhandledMessageError):
            await second
        assert await third == Ack(1)


@in_the_loop
async def test_the_actor_may_have_its_own_way_with_it() -> None:
    class Lenient(Book):
        def unhandled(self, message: Any) -> Any:
            self.reply(f"what is {type(message).__name__}?")

    async with ActorSystem() as system:
        book: ActorRef[Any] = await system.spawn(Lenient)
        message: Any = Halt()
        assert await book.ask(message) == "what is Halt?"


@in_the_loop
async def test_what_it_becomes_decides_itself() -> None:  # TA3
    async with ActorSystem() as system:
        book = await system.spawn(Book)
        book.tell(Cancel())
        assert await book.ask(Halt()) is True
        await book.ask(PLACE)  # back to receive
        with pytest.raises(UnhandledMessageError):
            await book.ask(Halt())
        book.tell(Cancel())
        with pytest.raises(UnhandledMessageError):  # said by `closed`
            await book.ask(Share(1))
        with pytest.raises(UnhandledMessageError):  # the new instance begins with receive
            await book.ask(Halt())


@in_the_loop
async def test_what_is_kept_is_taken_up_with_what_it_takes() -> None:  # TA3
    def anything(message: Any) -> None:
        if isinstance(message, Do):
            message.act(stages[0])
        stages[0].reply(message)

    stages: list[Stage] = []
    async with ActorSystem() as system:
        stage = await system.spawn(Stage)
        await stage.ask(Do(stages.append))
        await stage.ask(Do(lambda stage: stage.become(anything, keep=True)))
        assert await stage.ask(Halt()) == Halt()  # type: ignore[comparison-overlap]
        await stage.ask(Do(lambda stage: stage.unbecome()))
        with pytest.raises(UnhandledMessageError):
            await stage.ask(Halt())


# --- what is none of its messages, or is so all the same --------------------------------------------


@in_the_loop
async def test_signals_need_not_be_declared() -> None:
    async with ActorSystem() as system:
        watcher, book = await system.spawn(Stage), await system.spawn(Book)
        await watcher.ask(Do(lambda watcher: watcher.monitor(book)))
        await system.stop(book)
        assert await signals(watcher) == (Down(book, None),)


@in_the_loop
async def test_events_and_timers_are_messages_like_any() -> None:
    heard: list[object] = []

    class Listener(Actor[Stopped | Halt]):
        def pre_start(self) -> None:
            self.system.events.subscribe(self.ref, Stopped, DeadLetter)
            Timers(self).once(0.001, Halt())

        def receive(self, message: Stopped | Halt) -> None:
            heard.append(message)

    async with ActorSystem() as system:
        probe: Probe[Any] = await Probe.spawn(system)
        system.events.subscribe(probe.ref, Restarted)
        await system.spawn(Listener)
        book = await system.spawn(Book)
        await system.stop(book)
        book.tell(Cancel())
        assert isinstance((await probe.expect(Restarted)).reason, UnhandledMessageError)
        assert Stopped(book, None) in heard
        assert not [event for event in heard if isinstance(event, DeadLetter)]


@in_the_loop
async def test_a_router_takes_what_its_actors_take() -> None:
    async with ActorSystem() as system:
        books = await system.spawn(pool(Book, 2))
        assert await books.ask(PLACE) == Ack(1)
        with pytest.raises(UnhandledMessageError):
            await books.ask(Halt())


# --- what a declaration says ------------------------------------------------------------------------


class Naming(Actor[M]):
    """Answers by the name of what it was sent."""

    def receive(self, message: M) -> None:
        self.reply(type(message).__name__)


class Labelled(Naming[M], Generic[N, M]):
    label: N


class Stoppable(Naming[M | Halt]):
    pass


@runtime_checkable
class Priced(Protocol):
    price: int


class Sized(Protocol):
    size: int


class Share(Message[None]):
    price: int


Orders: TypeAlias = Place | Cancel
Number = NewType("Number", int)
Lazy = TypeAliasType("Lazy", "Place | Cancel")
Either = TypeAliasType("Either", Union[M, Cancel], type_params=(M,))  # noqa: UP007  as one may write it


class OfOne(Naming[Place]):
    pass


class Derived(OfOne):
    pass


class OfUnion(Naming[Place | Cancel]):
    pass


class OfOldUnion(Naming[Union[Place, Cancel]]):  # noqa: UP007  as one may write it
    pass


class OfOptional(Naming[Optional[Place]]):  # noqa: UP045  as one may write it
    pass


class OfAlias(Naming[Orders]):
    pass


class OfGenericAlias(Naming[Either[Place]]):
    pass


class OfAnnotated(Naming[Annotated[Place, "well meant"] | Cancel]):
    pass


class OfNames(Naming["Later | Cancel"]):
    pass


class OfPartlyNames(Naming[Union["Later", Cancel]]):
    pass


class OfSecond(Labelled[Any, Place]):
    pass


class OfMore(Stoppable[Place]):
    pass


class OfNewType(Naming[Number]):
    pass


class OfFloat(Naming[float]):
    pass


class OfList(Naming[list[int] | Sequence[str]]):
    pass


class OfTuple(Naming[tuple[int, ...]]):
    pass


class OfPriced(Naming[Priced]):
    pass


class Later(Message[None]):
    pass


@pytest.mark.parametrize(
    ("kind", "taken", "refused"),
    [
        (OfOne, [PLACE, URGENT], [Cancel(), None]),
        (Derived, [PLACE, URGENT], [Cancel()]),
        (OfUnion, [PLACE, URGENT, Cancel()], [Halt(), "text"]),
        (OfOldUnion, [PLACE, Cancel()], [Halt()]),
        (OfOptional, [PLACE, None], [Halt()]),
        (OfAlias, [PLACE, Cancel()], [Halt()]),
        (OfGenericAlias, [PLACE, Cancel()], [Halt()]),
        (OfAnnotated, [PLACE, Cancel()], [Halt()]),
        (OfNames, [Later(), Cancel()], [PLACE]),
        (OfPartlyNames, [Later(), Cancel()], [PLACE]),
        (OfSecond, [PLACE], [Cancel()]),
        (OfMore, [PLACE, Halt()], [Cancel()]),
        (OfNewType, [1, True], [1.5]),
        (OfFloat, [1.5, 1], ["1"]),
        (OfList, [[1], "text"], [{1}]),
        (OfTuple, [(1, 2)], [1, [1, 2]]),
        (OfPriced, [Share(1)], [Cancel()]),
    ],
)
@in_the_loop
async def test_a_declaration(kind: Any, taken: list[Any], refused: list[Any]) -> None:
    async with ActorSystem() as system:
        ref: ActorRef[Any] = await system.spawn(kind, supervisor_strategy=OneForOne(None))
        for message in taken * 2:
            assert await ref.ask(message) == type(message).__name__
        for message in refused * 2:
            with pytest.raises(UnhandledMessageError):
                await ref.ask(message)


class Undeclared(Naming):  # type: ignore[type-arg]  # as one may write it
    pass


class OfAnything(Naming[Any]):
    pass


class OfSomething(Naming[object]):
    pass


class OfOpen(Naming[M]):
    pass


class OfLiteral(Naming[Literal["a", "b"] | Place]):
    pass


class OfSized(Naming[Sized]):
    pass


class OfNobody(Naming["Unheard | Place"]):  # type: ignore[name-defined]
    pass


class OfLazyNames(Naming[Lazy]):
    """A text in an alias: nobody knows of which module."""


class Both(OfAnything, OfOne):
    pass


@pytest.mark.parametrize(
    "kind",
    [Undeclared, OfAnything, OfSomething, OfOpen, OfLiteral, OfSized, OfNobody, OfLazyNames, Both],
)
@in_the_loop
async def test_a_declaration_that_refuses_nothing(kind: Any) -> None:  # TA2
    async with ActorSystem() as system:
        ref: ActorRef[Any] = await system.spawn(kind)
        messages: tuple[Any, ...] = (PLACE, Cancel(), "text", 1, None)
        for message in messages:
            assert await ref.ask(message) == type(message).__name__


@in_the_loop
async def test_a_message_that_cannot_be_asked_is_not_refused() -> None:  # TA2
    class Secretive:
        by_reference = True

        @property
        def price(self) -> int:
            raise RuntimeError("nobody is told")

    async with ActorSystem() as system:
        ref: ActorRef[Any] = await system.spawn(OfPriced)
        message: Any = Secretive()
        assert await ref.ask(message) == "Secretive"


# --- what is remembered -----------------------------------------------------------------------------


@in_the_loop
async def test_classes_without_end_are_not_remembered() -> None:
    class Parent:
        by_reference = True

    class Crowd(Actor[Parent]):
        def receive(self, message: Parent) -> None:
            self.reply(type(message).__name__)

    async with ActorSystem() as system:
        ref: ActorRef[Any] = await system.spawn(Crowd)
        for number in range(SUBCLASSES_MAX + 10):
            child = type(f"Child{number}", (Parent,), {})
            assert await ref.ask(child()) == f"Child{number}"
        cell = system._find_cell(ref.address)
        assert cell is not None
        taken = message_types_of(cell)
        assert taken is not None
        assert len(taken) == SUBCLASSES_MAX
