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
from .actor_events import DeadLetter
from .address import Address
from .errors import (
    ActorStoppedError,
    NoSuchActorError,
    SystemClosedError,
    WrongContextError,
    actor_stopped_error,
)
from .future import OpenAsks
from .ref import ActorRef, Reply
from .registry import Registry
from .remote_port import RemoteLayer, TransportProvider
from .runtime.cell import Cell
from .runtime.loop_dispatcher import Dispatcher, LoopDispatcher
from .runtime.mailbox import (
    DurableMailboxesPort,
    MailboxFactory,
    MessageEnvelope,
    UnboundedMailbox,
    drain,
)
from .runtime.os_signals import call_on_first_signal
from .runtime.state import CellState
from .runtime.wakeup import loop_wakeup
from .runtime.watchdog import watchdog
from .supervision import restart, signal_handler
from .supervision.children import Children
from .supervision.lifecycle import STOP_GRACE_S, start, wait_stopped
from .supervision.signals import CellSignal
from .supervision.strategy import DEFAULT_STRATEGY, PERMANENT, RestartType, SupervisorStrategy

if TYPE_CHECKING:
    from .event_stream import EventStream
    from .runtime.clock import Clock

log = logging.getLogger("recado.actors")

M = TypeVar("M")
OptionsT = TypeVar("OptionsT")

ASK_TIMEOUT_S = 5.0
NAME_CHARACTERS_MAX = 255
# How often a task of the system's own is cancelled, before it is left behind.
CANCELLATIONS_MAX = 3


class ActorSystem:
    def __init__(
        self,
        name: str = "local",
        *,
        transport: TransportProvider[OptionsT] | None = None,
        options: OptionsT | None = None,
        ask_timeout: float = ASK_TIMEOUT_S,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        dispatcher: Dispatcher | None = None,
        mailbox: MailboxFactory = UnboundedMailbox,
        capacity: int = 0,
    ) -> None:
        """`transport` and `options` are for actors of other nodes (recado.actors.remote). The rest are
        defaults, and for tests the time and the chance that it lives by; without them, the loop's time and
        the machine's chance."""
        if not name or len(name) > NAME_CHARACTERS_MAX:
            raise ValueError(
                f"a node has a name of 1 to {NAME_CHARACTERS_MAX} characters: {name!r}"
            )
        self.name = name
        self.registry = Registry()
        self._internal_registry = Registry()
        self._guardian: Children[ActorRef[Any]] = Children(DEFAULT_STRATEGY)
        self._dead_letter_office = DeadLetterOffice(self)
        self.dead_letter_count = 0
        self._remote: RemoteLayer | None = None
        self._listeners: list[Callable[[object], None]] = []
        self._loop: asyncio.AbstractEventLoop
        self._clock: Clock
        self._open_asks: OpenAsks
        self._thread_id = 0  # the loop's thread
        self._durable_mailboxes: DurableMailboxesPort | None = None
        self._join_network = None if transport is None else partial(transport.join, self, options)
        self._ask_timeout = ask_timeout
        self._configured_clock = clock
        self._configured_dispatcher = dispatcher
        self._default_mailbox = mailbox
        self._default_capacity = capacity
        # From a random number on: the next life of this node gives other ones (AD2).
        self._last_uid = (rng or random.SystemRandom()).getrandbits(62)
        self._tasks: set[asyncio.Task[None]] = set()
        self._close_callbacks: list[Callable[[], Any]] = []
        self._is_open = False
        self._closed = asyncio.Event()  # set when `close` has ended

    # --- its life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread_id = get_ident()
        self._wakeup = loop_wakeup(self._loop)
        self._clock = self._configured_clock or self._loop
        self._open_asks = OpenAsks(self._clock, self._loop, self._ask_timeout)
        self._loop_dispatcher = LoopDispatcher(self._loop)
        self._default_dispatcher: Dispatcher = self._configured_dispatcher or self._loop_dispatcher
        self._is_open = True
        self._closed.clear()
        watchdog(self._loop).add_system()
        if self._join_network is not None:
            self._remote = self._join_network()
            try:
                await self._remote.open()
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
        if not self._is_open:
            return
        self._is_open = False
        async with AsyncExitStack() as steps:  # from the last to the first
            steps.callback(self._closed.set)
            steps.callback(watchdog(self._loop).remove_system)
            steps.push_async_callback(self._finish_tasks)
            steps.callback(
                self._open_asks.close, SystemClosedError(f"the system {self.name} was closed")
            )
            steps.push_async_callback(self._run_close_callbacks)
            steps.push_async_callback(self._stop_internals)
            if self._remote is not None:
                steps.push_async_callback(self._remote.close)
                self._remote.quiesce()
            await self.stop_all()

    async def _stop_internals(self) -> None:
        await _stop_cells(
            [cell for cell in self._internal_registry.cells() if cell.supervisor is None]
        )

    async def _run_close_callbacks(self) -> None:
        async with AsyncExitStack() as callbacks:
            for callback in self._close_callbacks:
                callbacks.push_async_callback(_run_callback, callback)

    async def _finish_tasks(self) -> None:
        """Wait for the system's own tasks; a hook that does not end is cancelled, and then left behind."""
        for _ in range(CANCELLATIONS_MAX):
            if not self._tasks:
                return
            await asyncio.wait(self._tasks, timeout=STOP_GRACE_S)
            for task in self._tasks:
                task.cancel()
        for task in self._tasks:
            log.error("%s is left behind: it was cancelled, and does not end", task)

    async def run_until_signal(self, *signals: signal.Signals) -> None:
        """Wait for one of these signals, by default SIGTERM and SIGINT, then close the system.

        Returns when the system is closed, also if something else closes it. A second signal has its usual
        effect: it ends the program. Call it in the main thread.
        """
        if not self._thread_id:
            raise SystemClosedError(f"the system {self.name} is not open", "Use it by async with")
        if self._is_open:
            stopped = asyncio.Event()
            self.on_close(stopped.set)
            with call_on_first_signal(
                signals, partial(self._loop.call_soon_threadsafe, stopped.set)
            ):
                await stopped.wait()
                await self._close_completely()
        else:
            await self._close_completely()

    async def _close_completely(self) -> None:
        """Close the system, or wait until it is closed if that has begun elsewhere."""
        await self.close()
        await self._closed.wait()

    def on_close(self, callback: Callable[[], Any]) -> None:
        """Have it called, and awaited if it returns something, when all actors have stopped; the last one
        first."""
        self._close_callbacks.append(callback)

    # --- actors ---------------------------------------------------------------------------------------

    async def spawn(
        self,
        factory: Callable[[], Actor[M]],
        *,
        name: str = "",
        supervisor_strategy: SupervisorStrategy | None = None,
        restart_type: RestartType = PERMANENT,
        dispatcher: Dispatcher | None = None,
        mailbox: MailboxFactory | None = None,
        capacity: int | None = None,
        supervisor: ActorRef[Any] | None = None,
        internal: bool = False,
    ) -> ActorRef[M]:
        """Start an actor, of a class or of what makes one. It raises what that raises, and NameTaken.

        `supervisor_strategy` is how its failures are answered; without it, as its supervisor does. Without a supervisor
        the system itself is it. `capacity` is how many messages may wait before those who send have to; 0 is
        any.
        """
        if not self._is_open:
            raise SystemClosedError(f"the system {self.name} is not open", "Use it by async with")
        _check_factory(factory)
        if len(name) > NAME_CHARACTERS_MAX:
            raise ValueError(f"a name has at most {NAME_CHARACTERS_MAX} characters: {name!r}")
        supervisor_cell = self._supervisor_cell(supervisor)
        internal = internal or (supervisor_cell is not None and supervisor_cell.is_internal)
        registry = self._internal_registry if internal else self.registry
        registry.check_name_free(name)
        self._last_uid += 1
        cell = Cell(
            self,
            Address(self.name, name, self._last_uid),
            factory,
            restart_type,
            dispatcher or self._default_dispatcher,
            (mailbox or self._default_mailbox)(),
            self._default_capacity if capacity is None else capacity,
        )
        cell.is_internal = internal
        cell.supervisor = supervisor
        registry.add(cell)
        if supervisor_cell is not None:
            supervisor_cell.ensure_links().children.add(cell.ref, supervisor_strategy)
        elif supervisor is None and supervisor_strategy is not None:
            self._guardian.add(cell.ref, supervisor_strategy)
        await start(cell)
        return cell.ref

    def _supervisor_cell(self, supervisor: ActorRef[Any] | None) -> Cell | None:
        """The cell of a supervisor; one on another node has linked the actor there."""
        if supervisor is None or supervisor.address.node != self.name:
            return None
        cell = self._find_cell(supervisor.address)
        if cell is None or cell.is_stopping:
            raise ActorStoppedError(f"{supervisor} has stopped, and supervises nobody any more")
        return cell

    async def stop(self, ref: ActorRef[Any], grace: float = STOP_GRACE_S) -> None:
        """Stop it, and wait until it has; a handler that awaits longer than `grace` seconds is cancelled."""
        ref.stop()
        if (cell := self._find_cell(ref.address)) is not None:
            await wait_stopped(cell, grace)

    async def stop_all(
        self, actor_class: type[Actor[Any]] = Actor, grace: float = STOP_GRACE_S
    ) -> None:
        """All of this class, by default everybody; but not the system's own (SY3)."""
        cells = self.registry.cells()
        # One that is about to start has no actor yet.
        chosen = {
            c.ref: c for c in cells if actor_class is Actor or isinstance(c.actor, actor_class)
        }
        # The others are stopped by their supervisors, in order (LI3).
        await _stop_cells(
            [cell for cell in chosen.values() if cell.supervisor not in chosen], grace
        )

    @overload
    def actor(self, name: str, actor_class: type[Actor[M]], *, node: str = "") -> ActorRef[M]: ...

    @overload
    def actor(self, name: str, actor_class: None = None, *, node: str = "") -> ActorRef[Any]: ...

    def actor(
        self, name: str, actor_class: type[Actor[Any]] | None = None, *, node: str = ""
    ) -> ActorRef[Any]:
        """The actor of that name, here or on another node; `kind` is for the type checker, and checked here."""
        if not node or node == self.name:
            cell = self.registry.find_cell(Address(self.name, name))
            if cell is None:
                raise NoSuchActorError(f"no actor {name!r} on {self.name}")
            if (
                actor_class is not None
                and cell.actor is not None
                and not isinstance(cell.actor, actor_class)
            ):
                raise NoSuchActorError(f"{cell.ref} is no {actor_class.__name__}")
            return cell.ref
        return self.ref(Address(node, name))

    def ref(self, address: Address | str) -> ActorRef[Any]:
        """A reference to whoever lives there, if anybody does. To an actor of this node it is the actor's
        own."""
        if isinstance(address, str):
            address = Address.parse(address)
        if address.node == self.name:
            cell = self._find_cell(address)
            return (
                cell.ref if cell is not None else ActorRef(address, self._dead_letter_office, self)
            )
        if self._remote is None:
            return ActorRef(address, self._dead_letter_office, self)
        return self._remote.ref(address)

    def _find_cell(self, address: Address) -> Cell | None:
        """The cell of an address, if it is one of this node and somebody lives there."""
        if address.node != self.name:
            return None
        return self.registry.find_cell(address) or self._internal_registry.find_cell(address)

    def _find_durable_cell(self, address: Address) -> Cell | None:
        """Where nobody lives at an address of this node: who takes what is told to it even so."""
        return self.registry.find_durable_cell(address.name) if address.node == self.name else None

    @property
    def durable_mailboxes(self) -> DurableMailboxesPort:
        """Those that outlast it, if settings name a folder for them (open_system)."""
        if self._durable_mailboxes is None:
            raise WrongContextError(
                f"{self.name} has no durable mailboxes",
                "Name a folder by `mailboxes` of [actors], or make DurableMailboxes(system, folder)",
            )
        return self._durable_mailboxes

    @durable_mailboxes.setter
    def durable_mailboxes(self, mailboxes: DurableMailboxesPort) -> None:
        self._durable_mailboxes = mailboxes

    def mailbox_size(self, ref: ActorRef[Any]) -> int:
        """How many messages wait for it; 0 if it is gone, or on another node."""
        cell = self._find_cell(ref.address)
        return cell.mailbox.qsize() if cell is not None else 0

    # --- what cells need ------------------------------------------------------------------------------

    def _call_on_loop(self, call: Callable[..., object], *args: Any) -> None:
        """Now, or soon if this is another thread; never if the loop is closed: nobody is there any more."""
        if get_ident() == self._thread_id:
            call(*args)
        else:
            self._wakeup.call(call, *args)

    def _handle_failure(self, cell: Cell, error: BaseException) -> None:
        restart.handle_failure(cell, error)

    def _handle_signal(self, cell: Cell, signal: CellSignal) -> None:
        signal_handler.handle_signal(cell, signal)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """A task that is the system's own; loops hold theirs only weakly."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _remove_cell(self, cell: Cell) -> None:
        self._registry_of(cell).remove(cell)
        if "events" in self.__dict__:  # or nobody has asked for them
            self.events.unsubscribe(cell.ref)

    def _registry_of(self, cell: Cell) -> Registry:
        return self._internal_registry if cell.is_internal else self.registry

    # --- who wants to know ------------------------------------------------------------------------------

    def _publish_event(self, event: object) -> None:
        for listener in self._listeners:
            listener(event)

    @cached_property
    def events(self) -> EventStream:
        from .event_stream import EventStream

        stream = EventStream()
        self._listeners.append(stream.publish)
        return stream

    def _dead_letter(
        self, envelope: MessageEnvelope, recipient: ActorRef[Any], reason: str = ""
    ) -> None:
        """A message that nobody will handle: whoever asked is told, whoever listens for dead letters too."""
        if (reply := envelope[2]) is not None:
            reply.fail(actor_stopped_error(recipient))
        self._call_on_loop(self._publish_dead_letter, envelope, recipient, reason)

    def _publish_dead_letter(
        self, envelope: MessageEnvelope, recipient: ActorRef[Any], reason: str
    ) -> None:
        self.dead_letter_count += 1
        if self._listeners:
            self._publish_event(DeadLetter(envelope[0], envelope[1], recipient, reason))


class DeadLetterOffice:
    """Where nobody lives: the Post of addresses without an actor, and the dispatcher of cells that have
    stopped."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system

    def dispatch(self, cell: Cell) -> None:
        if cell.durable_mailbox is None:  # what lasts waits for the next life
            for letter in drain(cell.mailbox):
                self._system._dead_letter(letter, cell.ref)

    def deliver(
        self, address: Address, message: Any, sender: ActorRef[Any] | None, reply: Reply | None
    ) -> None:
        if (durable_cell := self._system._find_durable_cell(address)) is not None:
            durable_cell.deliver(address, message, sender, reply)
        else:
            self._system._dead_letter(
                (message, sender, reply), ActorRef(address, self, self._system)
            )

    async def deliver_wait(
        self,
        address: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        timeout: float | None,  # noqa: ASYNC109  as of `ask`
    ) -> None:
        if (durable_cell := self._system._find_durable_cell(address)) is not None:
            await durable_cell.deliver_wait(address, message, sender, timeout)
        else:
            self.deliver(address, message, sender, None)
            raise actor_stopped_error(ActorRef(address, self, self._system))

    def deliver_signal(self, address: Address, signal: CellSignal) -> None:
        self._system._call_on_loop(
            signal_handler.reply_for_absent, ActorRef(address, self, self._system), signal
        )


def _check_factory(factory: object) -> None:
    if isinstance(factory, Actor) or not callable(factory):
        kind = type(factory).__name__
        example = kind if isinstance(factory, Actor) else "Book"
        raise TypeError(
            f"spawn takes a class or a function that makes an actor, not an object of {kind}: a restart makes "
            f"a new actor. Use spawn({example}), or spawn(lambda: {example}(…)) for arguments"
        )


async def _run_callback(callback: Callable[[], Any]) -> None:
    if (awaitable := callback()) is not None:
        await awaitable


async def _stop_cells(cells: list[Cell], grace: float = STOP_GRACE_S) -> None:
    for cell in cells:
        cell.ref.stop()
    await asyncio.gather(
        *(wait_stopped(cell, grace) for cell in cells if cell.state is not CellState.STOPPED)
    )
