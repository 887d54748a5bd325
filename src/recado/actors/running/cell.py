"""A cell: an actor's mailbox, its behaviour, and the rule that one message is handled at a time.

    post ──► mailbox ──► dispatcher.dispatch(cell) ──► cell.run(budget) ──► behaviour(message)

CE1  At most one handler of a cell runs at any time: only who has claimed it (`busy`) runs it.
CE2  No message waits in a cell that is idle: who puts one dispatches the cell, unless somebody has claimed it;
     and who lets go of a claim looks once more.
CE3  Signals and holds go before messages, but never into a handler.
CE4  A cell that failed stays claimed until its supervisor has decided: what is told meanwhile waits.
CE5  A drain handles at most `budget` messages, then it is others' turn.

A `def` handler is called by whoever drains. The coroutine of an `async def` one is awaited by a task on the
loop, one for the rest of the drain, not one per message; a cell whose last drain awaited begins the next one
as a task (`awaits`). What happens seldom, to a cell that is held, is in lifecycle.py; what follows from a
full mailbox, in pressure.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from queue import Empty
from threading import Lock, get_ident
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from recado.actors.errors import AnsweredTwice, Unhandled, not_there
from recado.actors.failing.bonds import Bonds
from recado.actors.failing.signals import CellSignal, Reason, Signal
from recado.actors.future import interrupted
from recado.actors.message import as_is
from recado.actors.ref import ActorRef, Reply, current
from recado.actors.taking import Taken, taken_by

from . import pressure
from .mailbox import Ahead, LastingMailbox, Letter, Mailbox, Origin, Then
from .state import State

if TYPE_CHECKING:
    from recado.actors.actor import Actor
    from recado.actors.address import Address
    from recado.actors.failing.supervision import Lifecycle
    from recado.actors.system import ActorSystem

    from .turn import Dispatcher

# It returns the answer to an ask, None for none; or an awaitable of either.
Behaviour: TypeAlias = Callable[[Any], Any]
# What is done on the loop while the cell is held; it ends by `rest`, or never.
Hold: TypeAlias = Callable[[], None]

log = logging.getLogger("recado.actors")

NOTHING: Letter = (None, None, None)

_STOPPED = State.STOPPED  # a look into the enum takes 40 ns
_GENERATORS = frozenset({GeneratorType, AsyncGeneratorType})

# One lock for all cells, held for two instructions: a lock in each would take 90 bytes of it.
_claims = Lock()


class Cell:
    __slots__ = (
        "__weakref__",
        "actor",
        "answered",
        "awaits",
        "behaviour",
        "bonded",
        "busy",
        "capacity",
        "dispatcher",
        "doom",
        "factory",
        "internal",
        "knocked",
        "lasting",
        "letter",
        "lifecycle",
        "mailbox",
        "ref",
        "restarts",
        "state",
        "supervisor",
        "suspended",
        "system",
        "taken",
        "task",
        "urgent",
        "waiting",
    )  # fmt: skip

    def __init__(
        self,
        system: ActorSystem,
        address: Address,
        factory: Callable[[], Actor[Any]],
        lifecycle: Lifecycle,
        dispatcher: Dispatcher,
        mailbox: Mailbox,
        capacity: int,
    ) -> None:
        self.system = system
        self.ref: ActorRef[Any] = ActorRef(address, self, system)
        self.factory = factory
        self.lifecycle = lifecycle
        self.dispatcher = dispatcher
        self.mailbox = mailbox
        self.capacity = capacity
        # What remembers is told what became of each message.
        self.lasting = cast(LastingMailbox, mailbox) if hasattr(mailbox, "settle") else None
        if self.lasting is not None:
            self.lasting.meet(self.wake)
        self.state = State.NEW
        self.busy = True  # until it is started (CE2 begins then)
        self.awaits = False
        self.knocked = False
        self.suspended = False
        self.internal = False
        # It is to stop, for this reason: nothing restarts it any more.
        self.doom: tuple[Reason] | None = None
        self.restarts = 0
        self.letter = NOTHING
        # The last message whose ask a handler answered, promised an answer to, or forwarded.
        self.answered: Letter | None = None
        self.actor: Actor[Any] | None = None
        self.behaviour: Behaviour = _nobody
        self.taken: Taken | None = None  # by the behaviour; None: anything
        self.supervisor: ActorRef[Any] | None = None
        self.bonded: Bonds | None = None
        self.task: asyncio.Task[None] | None = None
        self.urgent: deque[Signal | Hold] | None = None
        self.waiting: list[Callable[[], object]] | None = None

    # --- delivery: a cell is the Post of its reference ----------------------------------------------

    def post(
        self,
        target: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        reply: Reply | None,
    ) -> None:
        self.mailbox.put((message, sender, reply))
        if not self.busy:
            self.dispatcher.dispatch(self)
        if self.capacity and self.mailbox.qsize() > self.capacity:
            pressure.overfull(self)

    async def post_wait(
        self,
        target: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        timeout: float | None,  # noqa: ASYNC109  as of `ask`
    ) -> None:
        # Without a timeout where there is nothing to wait for: it takes 1.7 µs.
        if self.lasting is not None or (self.capacity and not pressure.has_room(self)):
            async with asyncio.timeout(timeout):
                if self.capacity:
                    await pressure.room(self)
                if self.lasting is not None:
                    await pressure.stored(self, (message, sender, None))
                    return
        self.post(target, message, sender, None)
        if self.state is _STOPPED:
            raise not_there(self.ref)

    def signal(self, target: Address, signal: CellSignal) -> None:
        self.system.on_loop(self.system.hear, self, signal)

    # --- running ------------------------------------------------------------------------------------

    def claim(self) -> bool:
        """Whether whoever asks may run it now; nobody else may then, until it rests (CE1). From any thread."""
        with _claims:
            if self.busy:
                return False
            self.busy = True
            return True

    def run(self, budget: int) -> None:
        """Handle up to `budget` messages, in the thread of the caller, who has claimed it."""
        if self.state is _STOPPED:
            self.rest()
            return
        token = current.set(self)
        try:
            self.turn(budget)
        finally:
            current.reset(token)

    def turn(self, budget: int) -> None:
        """The same, for who has seen to `current`, and runs cells in the loop's thread only."""
        for _ in range(budget):
            if self.urgent:
                if (handle := self._heed()) is None:
                    return
            else:
                mailbox = self.mailbox
                if not mailbox.qsize():
                    break
                try:
                    letter = self.letter = mailbox.get_nowait()
                except Empty:  # stolen
                    break
                except Exception as error:  # noqa: BLE001  as below
                    self.letter = NOTHING
                    self.fail(error)
                    return
                if self.waiting:
                    pressure.relieve(self)
                handle = self.behaviour
                if (taken := self.taken) is not None and type(letter[0]) not in taken:
                    handle = taken.handler(self)
            try:
                going = handle(self.letter[0])
                if going is None:
                    if self.lasting is not None:
                        self.lasting.settle(self.letter, None)
                    continue
                if type(going) is not CoroutineType and not hasattr(going, "__await__"):
                    self._answer(going)
                    if self.lasting is not None:
                        self.lasting.settle(self.letter, None)
                    continue
            except BaseException as error:  # noqa: BLE001  whatever it is, the supervisor decides
                self._raised(error)
                return
            # Behind it, the handlers of a thread belong to that thread again.
            here = get_ident() == self.system.home
            self.system.on_loop(self._go_on, going, budget if here else 1)
            return
        self.rest()

    async def drain(self, budget: int, going: Any = None) -> None:
        """The same in a task, for handlers that await. `going` is one that was begun."""
        current.set(self)
        awaited = False
        for _ in range(budget):
            try:
                if going is None:
                    if (handle := self._next()) is None:
                        break
                    if handle is GIVEN_AWAY:
                        return
                    going = handle(self.letter[0])
                if going is not None:
                    if type(going) is CoroutineType or hasattr(going, "__await__"):
                        awaited = True
                        going = await going
                    if going is not None:
                        self._answer(going)
                        going = None
                if self.lasting is not None:
                    self.lasting.settle(self.letter, None)
            except BaseException as error:  # noqa: BLE001  as above
                self._raised(error)
                return
        self.awaits = awaited
        self.task = None
        self.rest()

    def _answer(self, value: Any) -> None:
        """Answer an ask by the value that its handler returned; without an ask the value is dropped. Raises
        AnsweredTwice if the handler has replied, promised an answer, or forwarded the ask, and TypeError if
        the handler is a generator function: calling it has handled nothing."""
        if type(value) in _GENERATORS:
            raise TypeError(f"the handler of {self.ref} is a generator function: it uses yield")
        reply = self.letter[2]
        if reply is None:
            return
        if self.letter is self.answered:
            raise AnsweredTwice(
                f"{self.ref} replies to {type(self.letter[0]).__name__} and also returns a value",
                "Return None where it replies, promises or forwards; or only return the answer",
            )
        if type(value) in as_is:
            reply.complete(value)
        else:
            assert self.actor is not None
            self.actor._answer(reply, value)

    def _raised(self, error: BaseException) -> None:
        """A handler has raised this. What ends a program ends it, if raised in the thread of the loop; other
        threads cannot end it."""
        if isinstance(error, GeneratorExit) and self.system.loop.is_closed():
            raise error  # the task is being collected
        self.fail(error if isinstance(error, Exception) else interrupted(self.ref, error))
        if isinstance(error, KeyboardInterrupt | SystemExit) and get_ident() == self.system.home:
            raise error

    def _go_on(self, going: Awaitable[Any], budget: int) -> None:
        self.awaits = True
        self.task = self.system.loop.create_task(self.drain(budget, going))

    def _next(self) -> Behaviour | None:
        """What handles the next message, which is in `letter` then."""
        if self.urgent:
            return self._heed() or GIVEN_AWAY
        self.letter = NOTHING  # what fails here is not the fault of the last one
        try:
            self.letter = self.mailbox.get_nowait()
        except Empty:
            return None
        if self.waiting:
            pressure.relieve(self)
        if (taken := self.taken) is not None and type(self.letter[0]) not in taken:
            return taken.handler(self)
        return self.behaviour

    def _heed(self) -> Behaviour | None:
        """What handles the next signal; None if it was a hold, and the cell is given away."""
        assert self.urgent is not None
        assert self.actor is not None
        first = self.urgent.popleft()
        if isinstance(first, Signal):
            self.letter = (first, None, None)
            return self.actor.on_signal
        self.letter = NOTHING
        self.task = None
        self.system.on_loop(first)
        return None

    def wake(self) -> None:
        """Something was put into its mailbox (CE2). From any thread."""
        if not self.busy:
            self.dispatcher.dispatch(self)

    def rest(self) -> None:
        """Let go of the claim, and look once more (CE2). From any thread."""
        self.letter = NOTHING
        self.answered = None  # it may be large
        self.busy = False
        if self.mailbox.qsize() or self.urgent:
            self.dispatcher.dispatch(self)

    def fail(self, error: Exception) -> None:
        """The handler of `letter` has failed, or something in its place. The claim stays (CE4)."""
        letter = self.letter
        self.task = None
        if isinstance(error, Unhandled) and getattr(letter[2], "stranger", False):
            self._disregard(letter, error)
            return
        try:
            comes_again = self.lasting is not None and not self.lasting.settle(letter, error)
            if letter[2] is not None and not comes_again:
                letter[2].fail(error)
        except Exception:  # its supervisor has to hear of the failure even so
            log.exception("nobody could be told that %s failed by %r", self.ref, error)
        self.system.on_loop(self.system.failed, self, error)

    def _disregard(self, letter: Letter, error: Unhandled) -> None:
        """Nonsense of a stranger, who could end the actor by it if it counted (see Reply)."""
        log.info("of a stranger: %s", error)
        try:
            if self.lasting is not None:
                self.lasting.settle(letter, None)
            if letter[2] is not None:
                letter[2].fail(error)
        finally:
            self.rest()

    # --- being held ---------------------------------------------------------------------------------

    def urge(self, first: Signal | Hold) -> None:
        """Have it heeded before the next message. From any thread."""
        with _claims:
            if self.urgent is None:
                self.urgent = deque()
        self.urgent.append(first)
        if not self.busy:
            self.dispatcher.dispatch(self)

    def hold(self, then: Hold) -> None:
        """Call `then` on the loop, as soon as no handler runs; it has the claim. From the loop's thread."""
        if self.suspended:
            self.suspended = False
            then()
        elif self.claim():
            then()
        else:
            self.urge(then)

    # --- what seldom is ------------------------------------------------------------------------

    def bonds(self) -> Bonds:
        with _claims:
            if self.bonded is None:
                actor = self.actor
                default = self.system.guardian.default if actor is None else actor.supervision
                self.bonded = Bonds(default)
            return self.bonded

    @property
    def doomed(self) -> bool:
        """It is going to stop, or has."""
        return self.state is _STOPPED or self.doom is not None

    @property
    def children(self) -> tuple[ActorRef[Any], ...]:
        return tuple(self.bonded.family.children) if self.bonded is not None else ()

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have it called when this instance of the actor ends, by a restart or a stop. On the loop's thread."""
        self.bonds().endings.append(callback)

    def at_stop(self, callback: Callable[[], None]) -> None:
        """Have it called when the actor has stopped. On the loop's thread."""
        self.bonds().farewells.append(callback)

    def become(self, behaviour: Behaviour, *, keep: bool = False) -> None:
        if keep:
            self.bonds().behaviours.append(self.behaviour)
        self.behaviour = behaviour
        self.taken = taken_by(self)

    def unbecome(self) -> None:
        assert self.actor is not None
        kept = self.bonded.behaviours if self.bonded is not None else None
        self.become(kept.pop() if kept else self.actor.receive)

    def keep(self) -> Letter:
        """Take over what is being handled: until it is put back, it is neither answered nor settled."""
        letter, self.letter = self.letter, NOTHING
        return letter

    def put_from(self, letter: Letter, origin: Origin | None, then: Then | None) -> None:
        assert self.lasting is not None
        self.lasting.put_from(letter, origin, then)
        self.wake()

    def put_back(self, letters: list[Letter]) -> None:
        """Before all that waits, in this order. From its own handler, or while it is held."""
        if not isinstance(self.mailbox, Ahead):
            self.mailbox = Ahead(self.mailbox)
        self.mailbox.put_first(letters)


def _nobody(message: Any) -> None:
    raise AssertionError("a cell without an actor is not run")


GIVEN_AWAY: Behaviour = _nobody
