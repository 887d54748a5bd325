"""The actor system: a named node with its event loop and its actors.

    async with ActorSystem("exchange") as system:
        book = await system.spawn(Book, name="book.A1", supervisor_strategy=OneForOne(3, within=10))
        ack = await book.ask(Place(order), timeout=2)

SY1  `tell` and `stop` of a reference may be called from any thread. `ask` and the coroutines of a system run on
     the loop's thread; other threads use blocking.py. Handlers run where the dispatcher of their actor says.
SY2  When a system is closed, no actor of it runs any more, every ask has ended, and messages that waited are
     dead letters.
SY3  The system's own actors (`internal`) are in a separate registry: `stop_all` does not stop them, `close`
     does.

Attributes with a leading underscore are for the rest of this package.
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
# How often a task of the system is cancelled before it is abandoned.
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
        """Create a system; `async with` opens it.

        Args:
            name: the name of the node, by which other nodes address it.
            transport: reaches actors on other nodes (TcpTransport or AmqpTransport of recado.actors.remote).
            options: the RemoteOptions of the transport.
            ask_timeout: default timeout of asks in seconds.
            clock, rng: time and randomness for tests; by default the loop's time and the system's randomness.
            dispatcher, mailbox, capacity: defaults for `spawn`.
        """
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
        self._handled_by_stopped = 0  # messages, counted for each actor when it stops
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
        # Uids start at a random number, so the next incarnation of this node uses other ones (AD2).
        self._last_uid = (rng or random.SystemRandom()).getrandbits(62)
        self._tasks: set[asyncio.Task[None]] = set()
        self._close_callbacks: list[Callable[[], Any]] = []
        self._is_open = False
        self._closed = asyncio.Event()  # set when `close` has ended

    # --- opening and closing ------------------------------------------------------------------------

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
        """Stop the application's actors, close the remote layer, then stop the system's own actors (SY2). If a
        step fails or is cancelled, the next ones run even so."""
        if not self._is_open:
            return
        self._is_open = False
        async with AsyncExitStack() as steps:  # runs its callbacks from the last to the first
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
        """Wait for the tasks of the system. A hook that does not end is cancelled, and then abandoned."""
        for _ in range(CANCELLATIONS_MAX):
            if not self._tasks:
                return
            await asyncio.wait(self._tasks, timeout=STOP_GRACE_S)
            for task in self._tasks:
                task.cancel()
        for task in self._tasks:
            log.error("task abandoned: cancelled, but does not end (task=%s)", task)

    async def run_until_signal(self, *signals: signal.Signals) -> None:
        """Wait for one of these signals, by default SIGTERM and SIGINT, then close the system.

        Returns when the system is closed, also if another task closes it. A second signal ends the program.
        Call it in the main thread. Raises SystemClosedError if the system was never open.
        """
        if not self._thread_id:
            raise SystemClosedError(f"the system {self.name} is not open", "Use it in `async with`")
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
        """Close the system, or wait until it is closed if another task is closing it."""
        await self.close()
        await self._closed.wait()

    def on_close(self, callback: Callable[[], Any]) -> None:
        """Call `callback` when all actors have stopped, and await its result if it returns one. Callbacks run
        in reverse order."""
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
        """Start an actor and return its reference.

        Args:
            factory: the class of the actor, or a function without arguments that creates it. A restart calls it
                again.
            name: unique among the living actors of the node; without a name the actor has only a uid.
            supervisor_strategy: how its failures are handled; by default as its supervisor says.
            restart_type: PERMANENT, or TEMPORARY for an actor that is stopped when it fails.
            dispatcher: runs its handlers; by default that of the system.
            mailbox: creates its mailbox, such as `DurableMailboxes.mailbox(name)`.
            capacity: messages that may wait before senders are paused; 0 is unbounded.
            supervisor: by default the system's guardian.
            internal: whether it is one of the system's own actors (SY3).

        Raises NameTakenError, SystemClosedError, ActorStoppedError if the supervisor has stopped, and every
        exception of the factory and of `pre_start`.
        """
        if not self._is_open:
            raise SystemClosedError(f"the system {self.name} is not open", "Use it in `async with`")
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
            supervisor,
            internal,
        )
        registry.add(cell)
        if supervisor_cell is not None:
            supervisor_cell.ensure_links().children.add(cell.ref, supervisor_strategy)
        elif supervisor is None and supervisor_strategy is not None:
            self._guardian.add(cell.ref, supervisor_strategy)
        await start(cell)
        return cell.ref

    def _supervisor_cell(self, supervisor: ActorRef[Any] | None) -> Cell | None:
        """Return the cell of a supervisor; None if it is the guardian, or if it is on another node, which adds
        the actor to the children of the supervisor itself."""
        if supervisor is None or supervisor.address.node != self.name:
            return None
        cell = self._find_cell(supervisor.address)
        if cell is None or cell.is_stopping:
            raise ActorStoppedError(f"{supervisor} has stopped, and cannot supervise an actor")
        return cell

    async def stop(self, ref: ActorRef[Any], grace: float = STOP_GRACE_S) -> None:
        """Stop an actor and wait until it has stopped. A handler that awaits for longer than `grace` seconds is
        cancelled. An actor on another node is told to stop, and not waited for."""
        ref.stop()
        if (cell := self._find_cell(ref.address)) is not None:
            await wait_stopped(cell, grace)

    async def stop_all(
        self, actor_class: type[Actor[Any]] = Actor, grace: float = STOP_GRACE_S
    ) -> None:
        """Stop all actors of a class and of its subclasses, by default all but the system's own (SY3)."""
        cells = self.registry.cells()
        # A cell that is starting has no actor yet.
        chosen = {
            c.ref: c for c in cells if actor_class is Actor or isinstance(c.actor, actor_class)
        }
        # A chosen actor whose supervisor is chosen, too, is stopped by that supervisor, in order (LI3).
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
        """Return the reference of the actor with a name, on this node or on `node`.

        `actor_class` types the reference. On this node it is checked: raises NoSuchActorError if there is no
        actor of that name and class. An actor of another node is not looked up.
        """
        if not node or node == self.name:
            cell = self.registry.find_cell(Address(self.name, name))
            if cell is None:
                raise NoSuchActorError(f"no actor {name!r} on {self.name}")
            if (
                actor_class is not None
                and cell.actor is not None
                and not isinstance(cell.actor, actor_class)
            ):
                raise NoSuchActorError(f"{cell.ref} is not a {actor_class.__name__}")
            return cell.ref
        return self.ref(Address(node, name))

    def ref(self, address: Address | str) -> ActorRef[Any]:
        """Return a reference to an address, whether an actor has it or not. Raises ValueError for a text that
        is not an address."""
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
        """Return the cell of an address of this node, if there is one."""
        if address.node != self.name:
            return None
        return self.registry.find_cell(address) or self._internal_registry.find_cell(address)

    def _find_durable_cell(self, address: Address) -> Cell | None:
        """Return the cell with a durable mailbox that takes over the messages of a stopped actor of the same
        name."""
        return self.registry.find_durable_cell(address.name) if address.node == self.name else None

    @property
    def durable_mailboxes(self) -> DurableMailboxesPort:
        """The durable mailboxes that `open_system` has opened, if the settings name a folder.

        Raises WrongContextError if there are none.
        """
        if self._durable_mailboxes is None:
            raise WrongContextError(
                f"{self.name} has no durable mailboxes",
                "Set actors.mailbox_folder, or create DurableMailboxes(system, folder)",
            )
        return self._durable_mailboxes

    def mailbox_size(self, ref: ActorRef[Any]) -> int:
        """Return the number of messages that wait for an actor; 0 if it has stopped or is on another node."""
        cell = self._find_cell(ref.address)
        return cell.mailbox.qsize() if cell is not None else 0

    # --- used by cells and the remote layer -------------------------------------------------------------

    def _call_on_loop(self, call: Callable[..., object], *args: Any) -> None:
        """Call a function now if this is the loop's thread, and soon otherwise; never if the loop is closed."""
        if get_ident() == self._thread_id:
            call(*args)
        else:
            self._wakeup.call(call, *args)

    def _handle_failure(self, cell: Cell, error: BaseException) -> None:
        restart.handle_failure(cell, error)

    def _handle_signal(self, cell: Cell, signal: CellSignal) -> None:
        signal_handler.handle_signal(cell, signal)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that `close` waits for. The set holds it, because loops reference their tasks only
        weakly."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _remove_cell(self, cell: Cell) -> None:
        if not cell.is_internal:
            self._handled_by_stopped += cell.handled
        self._registry_of(cell).remove(cell)
        if "events" in self.__dict__:  # created on first use
            self.events.unsubscribe(cell.ref)

    def _registry_of(self, cell: Cell) -> Registry:
        return self._internal_registry if cell.is_internal else self.registry

    # --- events -----------------------------------------------------------------------------------------

    def _publish_event(self, event: object) -> None:
        for listener in self._listeners:
            listener(event)

    @cached_property
    def events(self) -> EventStream:
        """The event stream of the system."""
        from .event_stream import EventStream

        stream = EventStream()
        self._listeners.append(stream.publish)
        return stream

    def _dead_letter(
        self, envelope: MessageEnvelope, recipient: ActorRef[Any], reason: str = ""
    ) -> None:
        """Report an undeliverable message: fail its ask, count it, and publish a DeadLetter."""
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
    """The delivery target of addresses without an actor, and the dispatcher of stopped cells."""

    def __init__(self, system: ActorSystem) -> None:
        self._system = system

    def dispatch(self, cell: Cell) -> None:
        if cell.durable_mailbox is None:  # a durable mailbox keeps its messages for the next actor
            for envelope in drain(cell.mailbox):
                self._system._dead_letter(envelope, cell.ref)

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
        timeout: float | None,  # noqa: ASYNC109  as in `ask`
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
            f"spawn takes a class or a function that creates an actor, not an instance of {kind}: a restart creates "
            f"a new one. Use spawn({example}), or spawn(lambda: {example}(…)) for arguments"
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
