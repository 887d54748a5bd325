"""A system of actors: a node by name, the loop it runs on, and everybody who lives there.

    async with ActorSystem("exchange") as system:
        book = await system.spawn(Book, name="book.A1", supervision=OneForOne(3, within=10))
        ack = await book.ask(Place(order), timeout=2)

SY1  Everything but sending is done on the loop's thread; sending may be done by any.
SY2  When a system is closed no actor of it runs any more, every ask has ended, and what waited are dead
     letters.
SY3  Actors of the system's own (`internal`) are in a registry apart: `stop_all` leaves them, closing does not.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import cached_property, partial
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from .actor import Actor
from .address import Address
from .errors import ActorStopped, NoSuchActor, NotHere, SystemClosed, not_there
from .failing import hearing, restart
from .failing.family import Family
from .failing.lifecycle import GRACE, gone, start
from .failing.signals import CellSignal
from .failing.supervision import DEFAULT, PERMANENT, Lifecycle, Supervision
from .future import Asks
from .occurrences import DeadLetter
from .others import Carrier, Others
from .ref import ActorRef, Reply
from .registry import Registry
from .running.cell import Cell
from .running.doorbell import doorbell
from .running.mailbox import LastingMailboxes, Letter, MailboxFactory, Unbounded, emptied
from .running.signals import on_first_signal
from .running.state import State
from .running.turn import Dispatcher, Turns
from .running.watchdog import watchdog

if TYPE_CHECKING:
    from .events import EventStream
    from .running.clock import Clock

log = logging.getLogger("recado.actors")

M = TypeVar("M")
Options = TypeVar("Options")

ASK_TIMEOUT = 5.0
LONGEST_NAME = 255
# How often a task of the system's own is cancelled, before it is left behind.
CANCELLATIONS = 3


class ActorSystem:
    def __init__(
        self,
        name: str = "local",
        *,
        transport: Carrier[Options] | None = None,
        options: Options | None = None,
        ask_timeout: float = ASK_TIMEOUT,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        dispatcher: Dispatcher | None = None,
        mailbox: MailboxFactory = Unbounded,
        capacity: int = 0,
    ) -> None:
        """`transport` and `options` are for actors of other nodes (recado.actors.remote). The rest are
        defaults, and for tests the time and the chance that it lives by; without them, the loop's time and
        the machine's chance."""
        if not name or len(name) > LONGEST_NAME:
            raise ValueError(f"a node has a name of 1 to {LONGEST_NAME} characters: {name!r}")
        self.name = name
        self.registry = Registry()
        self.internals = Registry()
        self.guardian: Family[ActorRef[Any]] = Family(DEFAULT)
        self.undertaker = Undertaker(self)
        self.dead_letters = 0
        self.node: Others | None = None
        self.listeners: list[Callable[[object], None]] = []
        self.loop: asyncio.AbstractEventLoop
        self.clock: Clock
        self.asks: Asks
        self.home = 0  # the loop's thread
        self._mailboxes: LastingMailboxes | None = None
        self._join = None if transport is None else partial(transport.join, self, options)
        self._ask_timeout = ask_timeout
        self._given_clock = clock
        self._given_dispatcher = dispatcher
        self._mailbox = mailbox
        self._capacity = capacity
        # From a random number on: the next life of this node gives other ones (AD2).
        self._last_uid = (chance or random.SystemRandom()).getrandbits(62)
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_close: list[Callable[[], Any]] = []
        self._open = False
        self._closed = asyncio.Event()  # set when `close` has ended

    # --- its life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self.loop = asyncio.get_running_loop()
        self.home = get_ident()
        self._doorbell = doorbell(self.loop)
        self.clock = self._given_clock or self.loop
        self.asks = Asks(self.clock, self.loop, self._ask_timeout)
        self.turns = Turns(self.loop)
        self.dispatcher: Dispatcher = self._given_dispatcher or self.turns
        self._open = True
        self._closed.clear()
        watchdog(self.loop).enter()
        if self._join is not None:
            self.node = self._join()
            try:
                await self.node.open()
            except BaseException:
                await self.close()
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop everybody: the application's actors, the node, then the system's own (SY2). If one of these
        steps fails, or this is cancelled, the others are done even so."""
        if not self._open:
            return
        self._open = False
        async with AsyncExitStack() as rest:  # from the last to the first
            rest.callback(self._closed.set)
            rest.callback(watchdog(self.loop).leave)
            rest.push_async_callback(self._finish)
            rest.callback(self.asks.close, SystemClosed(f"the system {self.name} was closed"))
            rest.push_async_callback(self._call_back)
            rest.push_async_callback(self._stop_internals)
            if self.node is not None:
                rest.push_async_callback(self.node.close)
                self.node.hush()
            await self.stop_all()

    async def _stop_internals(self) -> None:
        await _stop([cell for cell in self.internals.cells() if cell.supervisor is None])

    async def _call_back(self) -> None:
        async with AsyncExitStack() as callbacks:
            for callback in self._at_close:
                callbacks.push_async_callback(_awaited, callback)

    async def _finish(self) -> None:
        """Wait for the system's own tasks; a hook that does not end is cancelled, and then left behind."""
        for _ in range(CANCELLATIONS):
            if not self._tasks:
                return
            await asyncio.wait(self._tasks, timeout=GRACE)
            for task in self._tasks:
                task.cancel()
        for task in self._tasks:
            log.error("%s is left behind: it was cancelled, and does not end", task)

    async def run_until_signal(self, *signals: signal.Signals) -> None:
        """Wait for one of these signals, by default SIGTERM and SIGINT, then close the system.

        Returns when the system is closed, also if something else closes it. A second signal has its usual
        effect: it ends the program. Call it in the main thread.
        """
        if not self.home:
            raise SystemClosed(f"the system {self.name} is not open", "Use it by async with")
        if self._open:
            stopped = asyncio.Event()
            self.at_close(stopped.set)
            with on_first_signal(signals, partial(self.loop.call_soon_threadsafe, stopped.set)):
                await stopped.wait()
                await self._close_completely()
        else:
            await self._close_completely()

    async def _close_completely(self) -> None:
        """Close the system, or wait until it is closed if that has begun elsewhere."""
        await self.close()
        await self._closed.wait()

    def at_close(self, callback: Callable[[], Any]) -> None:
        """Have it called, and awaited if it returns something, when all actors have stopped; the last one
        first."""
        self._at_close.append(callback)

    # --- actors ---------------------------------------------------------------------------------------

    async def spawn(
        self,
        factory: Callable[[], Actor[M]],
        *,
        name: str = "",
        supervision: Supervision | None = None,
        lifecycle: Lifecycle = PERMANENT,
        dispatcher: Dispatcher | None = None,
        mailbox: MailboxFactory | None = None,
        capacity: int | None = None,
        supervisor: ActorRef[Any] | None = None,
        internal: bool = False,
    ) -> ActorRef[M]:
        """Start an actor, of a class or of what makes one. It raises what that raises, and NameTaken.

        `supervision` is how its failures are answered; without it, as its supervisor does. Without a supervisor
        the system itself is it. `capacity` is how many messages may wait before those who send have to; 0 is
        any.
        """
        if not self._open:
            raise SystemClosed(f"the system {self.name} is not open", "Use it by async with")
        _check_factory(factory)
        if len(name) > LONGEST_NAME:
            raise ValueError(f"a name has at most {LONGEST_NAME} characters: {name!r}")
        above = self._above(supervisor)
        internal = internal or (above is not None and above.internal)
        registry = self.internals if internal else self.registry
        registry.require_free(name)
        self._last_uid += 1
        cell = Cell(
            self,
            Address(self.name, name, self._last_uid),
            factory,
            lifecycle,
            dispatcher or self.dispatcher,
            (mailbox or self._mailbox)(),
            self._capacity if capacity is None else capacity,
        )
        cell.internal = internal
        cell.supervisor = supervisor
        registry.add(cell)
        if above is not None:
            above.bonds().family.link(cell.ref, supervision)
        elif supervisor is None and supervision is not None:
            self.guardian.link(cell.ref, supervision)
        await start(cell)
        return cell.ref

    def _above(self, supervisor: ActorRef[Any] | None) -> Cell | None:
        """The cell of a supervisor; one on another node has linked the actor there."""
        if supervisor is None or supervisor.address.node != self.name:
            return None
        above = self.cell(supervisor.address)
        if above is None or above.doomed:
            raise ActorStopped(f"{supervisor} has stopped, and supervises nobody any more")
        return above

    async def stop(self, ref: ActorRef[Any], grace: float = GRACE) -> None:
        """Stop it, and wait until it has; a handler that awaits longer than `grace` seconds is cancelled."""
        ref.stop()
        if (cell := self.cell(ref.address)) is not None:
            await gone(cell, grace)

    async def stop_all(self, kind: type[Actor[Any]] = Actor, grace: float = GRACE) -> None:
        """All of this class, by default everybody; but not the system's own (SY3)."""
        everybody = self.registry.cells()
        # One that is about to start has no actor yet.
        chosen = {c.ref: c for c in everybody if kind is Actor or isinstance(c.actor, kind)}
        # The others are stopped by their supervisors, in order (LI3).
        await _stop([cell for cell in chosen.values() if cell.supervisor not in chosen], grace)

    @overload
    def actor(self, name: str, kind: type[Actor[M]], *, node: str = "") -> ActorRef[M]: ...

    @overload
    def actor(self, name: str, kind: None = None, *, node: str = "") -> ActorRef[Any]: ...

    def actor(
        self, name: str, kind: type[Actor[Any]] | None = None, *, node: str = ""
    ) -> ActorRef[Any]:
        """The actor of that name, here or on another node; `kind` is for the type checker, and checked here."""
        if not node or node == self.name:
            cell = self.registry.cell(Address(self.name, name))
            if cell is None:
                raise NoSuchActor(f"no actor {name!r} on {self.name}")
            if kind is not None and cell.actor is not None and not isinstance(cell.actor, kind):
                raise NoSuchActor(f"{cell.ref} is no {kind.__name__}")
            return cell.ref
        return self.ref(Address(node, name))

    def ref(self, address: Address | str) -> ActorRef[Any]:
        """A reference to whoever lives there, if anybody does. To an actor of this node it is the actor's
        own."""
        if isinstance(address, str):
            address = Address.parse(address)
        if address.node == self.name:
            cell = self.cell(address)
            return cell.ref if cell is not None else ActorRef(address, self.undertaker, self)
        if self.node is None:
            return ActorRef(address, self.undertaker, self)
        return self.node.ref(address)

    def cell(self, address: Address) -> Cell | None:
        """The cell of an address, if it is one of this node and somebody lives there."""
        if address.node != self.name:
            return None
        return self.registry.cell(address) or self.internals.cell(address)

    def heir(self, address: Address) -> Cell | None:
        """Where nobody lives at an address of this node: who takes what is told to it even so."""
        return self.registry.heir(address.name) if address.node == self.name else None

    @property
    def mailboxes(self) -> LastingMailboxes:
        """Those that outlast it, if settings name a folder for them (open_system)."""
        if self._mailboxes is None:
            raise NotHere(
                f"{self.name} has no durable mailboxes",
                "Name a folder by `mailboxes` of [actors], or make DurableMailboxes(system, folder)",
            )
        return self._mailboxes

    @mailboxes.setter
    def mailboxes(self, mailboxes: LastingMailboxes) -> None:
        self._mailboxes = mailboxes

    def waiting(self, ref: ActorRef[Any]) -> int:
        """How many messages wait for it; 0 if it is gone, or on another node."""
        cell = self.cell(ref.address)
        return cell.mailbox.qsize() if cell is not None else 0

    # --- what cells need ------------------------------------------------------------------------------

    def on_loop(self, call: Callable[..., object], *args: Any) -> None:
        """Now, or soon if this is another thread; never if the loop is closed: nobody is there any more."""
        if get_ident() == self.home:
            call(*args)
        else:
            self._doorbell.call(call, *args)

    def failed(self, cell: Cell, error: BaseException) -> None:
        restart.failed(cell, error)

    def hear(self, cell: Cell, signal: CellSignal) -> None:
        hearing.hear(cell, signal)

    def keep(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that is the system's own; loops hold theirs only weakly."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, cell: Cell) -> None:
        self._registry(cell).remove(cell)
        if "events" in self.__dict__:  # or nobody has asked for them
            self.events.unsubscribe(cell.ref)

    def _registry(self, cell: Cell) -> Registry:
        return self.internals if cell.internal else self.registry

    # --- who wants to know ------------------------------------------------------------------------------

    def publish(self, event: object) -> None:
        for listener in self.listeners:
            listener(event)

    @cached_property
    def events(self) -> EventStream:
        from .events import EventStream

        stream = EventStream()
        self.listeners.append(stream.publish)
        return stream

    def bury(self, letter: Letter, recipient: ActorRef[Any], reason: str = "") -> None:
        """A message that nobody will handle: whoever asked is told, whoever listens for dead letters too."""
        if (reply := letter[2]) is not None:
            reply.fail(not_there(recipient))
        self.on_loop(self._note, letter, recipient, reason)

    def _note(self, letter: Letter, recipient: ActorRef[Any], reason: str) -> None:
        self.dead_letters += 1
        if self.listeners:
            self.publish(DeadLetter(letter[0], letter[1], recipient, reason))


class Undertaker:
    """Where nobody lives: the Post of addresses without an actor, and the dispatcher of cells that have
    stopped."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system

    def dispatch(self, cell: Cell) -> None:
        if cell.lasting is None:  # what lasts waits for the next life
            for letter in emptied(cell.mailbox):
                self._system.bury(letter, cell.ref)

    def post(
        self, target: Address, message: Any, sender: ActorRef[Any] | None, reply: Reply | None
    ) -> None:
        if (heir := self._system.heir(target)) is not None:
            heir.post(target, message, sender, reply)
        else:
            self._system.bury((message, sender, reply), ActorRef(target, self, self._system))

    async def post_wait(
        self,
        target: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        timeout: float | None,  # noqa: ASYNC109  as of `ask`
    ) -> None:
        if (heir := self._system.heir(target)) is not None:
            await heir.post_wait(target, message, sender, timeout)
        else:
            self.post(target, message, sender, None)
            raise not_there(ActorRef(target, self, self._system))

    def signal(self, target: Address, signal: CellSignal) -> None:
        self._system.on_loop(hearing.echo, ActorRef(target, self, self._system), signal)


def _check_factory(factory: object) -> None:
    if isinstance(factory, Actor) or not callable(factory):
        kind = type(factory).__name__
        example = kind if isinstance(factory, Actor) else "Book"
        raise TypeError(
            f"spawn takes a class or a function that makes an actor, not an object of {kind}: a restart makes "
            f"a new actor. Use spawn({example}), or spawn(lambda: {example}(…)) for arguments"
        )


async def _awaited(callback: Callable[[], Any]) -> None:
    if (going := callback()) is not None:
        await going


async def _stop(cells: list[Cell], grace: float = GRACE) -> None:
    for cell in cells:
        cell.ref.stop()
    await asyncio.gather(*(gone(cell, grace) for cell in cells if cell.state is not State.STOPPED))
