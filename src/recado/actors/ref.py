"""References: the handle by which an actor is addressed, on this node or another.

    ref.tell(m)              send without a reply
    await ref.ask(m, 2.0)    the reply, typed by the message; AskTimeoutError after 2 s
    ref.ask_future(m, 2.0)   the same as a future, to chain and to join
    ref.forward(m)           in a handler: the reply goes to the sender of the current message

A reference is immutable and equal to every other reference with its address. It delivers through a
DeliveryTarget: the cell of an actor of this process, or the remote layer. The sender of a message is the actor
whose handler is running, taken from the context variable `current_cell`; None outside of handlers.

RE1  Messages of one sender to one actor are handled in the order in which they were sent.
RE2  `tell` never blocks and never fails because of its recipient; an undeliverable message is a dead letter.
RE3  An ask ends in a reply, an exception or AskTimeoutError; a reply that arrives later is dropped.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from .address import Address
from .errors import WrongContextError
from .message import Message, isolate, shareable_types
from .supervision.signals import Stop

if TYPE_CHECKING:
    from .future import Future
    from .remote_port import Asker
    from .runtime.cell import Cell
    from .supervision.signals import CellSignal
    from .system import ActorSystem

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")


class Reply:
    """The destination of the reply to an ask. The first call of `complete` or `fail` counts. From any
    thread."""

    __slots__ = ()

    def complete(self, value: Any) -> None:
        """Reply with a value."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """Reply with an exception, which `ask` raises."""
        raise NotImplementedError

    def done(self) -> bool:
        """Return whether the ask has ended, as far as this object knows."""
        return False

    @property
    def timeout(self) -> float | None:
        """The seconds that the asker waits, if known."""
        return None

    @property
    def is_untrusted(self) -> bool:
        """Whether the asker is on an untrusted node. An unknown message of such a node is answered by
        UnhandledMessageError, and is not a failure of the actor."""
        return False

    @property
    def asker(self) -> Asker | None:
        """The identity of an asker on another node, by which a later incarnation of this process can reply."""
        return None


class DeliveryTarget(Protocol):
    """Delivers to an address. `deliver` and `deliver_signal` are called by any thread; they neither block nor
    raise."""

    def deliver(
        self, address: Address, message: Any, sender: ActorRef[Any] | None, reply: Reply | None
    ) -> None: ...

    async def deliver_wait(
        self,
        address: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        timeout: float | None,  # noqa: ASYNC109  as in `ask`
    ) -> None:
        """Return when the mailbox has accepted the message: it had space, and a durable mailbox has the message
        on disk. Raises TimeoutError if that is not known within `timeout` seconds, and ActorStoppedError."""

    def deliver_signal(self, address: Address, signal: CellSignal) -> None: ...


# The cell whose handler runs. Set once per run of a cell, and inherited by the tasks that its handlers start.
current_cell: ContextVar[Cell | None] = ContextVar("recado.actors.current_cell", default=None)


class ActorRef(Generic[M_contra]):
    __slots__ = ("__weakref__", "_address", "_system", "_target")

    def __init__(self, address: Address, target: DeliveryTarget, system: ActorSystem) -> None:
        """Created by a system: use `spawn`, `system.actor` or `system.ref`."""
        self._address = address
        self._target = target
        self._system = system

    @property
    def address(self) -> Address:
        return self._address

    def tell(self, message: M_contra) -> None:
        """Send a message and return at once (RE2). From any thread."""
        if type(message) not in shareable_types:
            message = isolate(message)
        sender = current_cell.get()
        self._target.deliver(self._address, message, None if sender is None else sender.ref, None)

    async def tell_wait(
        self,
        message: M_contra,
        timeout: float | None = None,  # noqa: ASYNC109  as in `ask`
    ) -> None:
        """Send a message and return when the mailbox has accepted it, on this node or another: a bounded
        mailbox has space, a durable mailbox has the message on disk.

        `timeout` is in seconds. None means the system's `ask_timeout` for an actor on another node, and no
        limit for an actor on this node.

        Raises:
            TimeoutError: the outcome is not known in time; the message may still be accepted.
            ActorStoppedError: there is no such actor, or it stopped before its mailbox had space.
            SerializationError: the message cannot be sent or stored.
            RemoteError: the other node cannot be reached, as for an ask.

        Except after TimeoutError, a message that was not accepted is a dead letter. Call it on the loop's thread.
        """
        if type(message) not in shareable_types:
            message = isolate(message)
        sender = current_cell.get()
        await self._target.deliver_wait(
            self._address, message, None if sender is None else sender.ref, timeout
        )

    async def ask(
        self,
        message: Message[R],
        timeout: float | None = None,  # noqa: ASYNC109  all asks share the timers of OpenAsks
    ) -> R:
        """Send a message and return its reply.

        `timeout` is in seconds; None means the system's `ask_timeout`. Raises AskTimeoutError, or the exception
        that the actor has failed or replied with. Call it on the loop's thread.
        """
        future = self.ask_future(message, timeout)
        self._system._loop_dispatcher.run_early()  # before the loop polls its sockets (TU3)
        return await future

    def ask_future(self, message: Message[R], timeout: float | None = None) -> Future[R]:
        """Send a message and return the future of its reply. Arguments and exceptions as for `ask`."""
        if type(message) not in shareable_types:
            message = isolate(message)
        future = self._system._open_asks.open(self, timeout)
        sender = current_cell.get()
        self._target.deliver(self._address, message, None if sender is None else sender.ref, future)
        return future

    def forward(self, message: M_contra) -> None:
        """Send a message on behalf of the sender of the current message; the reply goes to that sender.

        Raises WrongContextError outside of a handler.
        """
        cell = current_cell.get()
        if cell is None:
            raise WrongContextError(
                "forward was called outside of a handler", "Use tell or ask there"
            )
        _, sender, reply = cell.envelope
        cell.answered_envelope = cell.envelope  # so the end of the handler is not its reply
        self._target.deliver(self._address, isolate(message), sender, reply)

    def stop(self) -> None:
        """Stop the actor after the message that it is handling; messages that still wait become dead
        letters."""
        self._send_signal(Stop(None))

    def _send_signal(self, signal: CellSignal) -> None:
        self._target.deliver_signal(self._address, signal)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ActorRef) and self._address == other._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __repr__(self) -> str:
        return f"<ActorRef {self._address}>"

    def __str__(self) -> str:
        return str(self._address)

    def __copy__(self) -> ActorRef[M_contra]:
        return self

    def __deepcopy__(self, memo: object) -> ActorRef[M_contra]:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an ActorRef cannot be pickled. Send str(ref.address), and call system.ref(text) at the destination"
        )


shareable_types.add(ActorRef)
