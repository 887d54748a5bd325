"""References: what everybody has of an actor, wherever it lives.

    ref.tell(m)              no answer wanted
    await ref.ask(m, 2.0)    its answer, typed by the message; AskTimeout after 2 s
    ref.ask_future(m, 2.0)   the same as a future, to chain and to join
    ref.forward(m)           from a handler: the answer goes to who sent the present message

A reference is immutable and equal to any other with its address. How it delivers is a Post: the cell of an
actor of this process, or what takes messages to another node. Who sends is captured: the actor whose handler
this is, or none.

RE1  Messages of one sender to one actor are handled in the order in which they were sent.
RE2  `tell` never waits, and never fails because of the one it is for; what cannot arrive is a dead letter.
RE3  An ask ends in an answer, an exception or AskTimeout; an answer that comes later is dropped.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, TypeVar

from .address import Address
from .errors import WrongContextError
from .future import Future
from .message import Message, isolate, shareable_types
from .supervision.signals import Stop

if TYPE_CHECKING:
    from .runtime.cell import Cell
    from .supervision.signals import CellSignal
    from .system import ActorSystem

M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")


class Reply(Protocol):
    """Where the answer to an ask goes. Only the first counts; from any thread.

    One with `stranger = True` is that of somebody who is not trusted: what the actor does not know is answered
    by Unhandled then, and is no failure of the actor. One with an `asker` (others.Asker) is that of another
    node: a later life of this process can answer it, too.
    """

    def complete(self, value: Any) -> None: ...

    def fail(self, error: BaseException) -> None: ...


class DeliveryTarget(Protocol):
    """What delivers to an address. `post` and `signal` are called by any thread, neither waits nor raises."""

    def deliver(
        self, address: Address, message: Any, sender: ActorRef[Any] | None, reply: Reply | None
    ) -> None: ...

    async def deliver_wait(
        self,
        address: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        timeout: float | None,  # noqa: ASYNC109  as of `ask`
    ) -> None:
        """Return when the mailbox has taken the message: there was room, and it is on disk if the mailbox is
        durable. Raises TimeoutError if that is not known within `timeout` seconds, and ActorStopped."""

    def deliver_signal(self, address: Address, signal: CellSignal) -> None: ...


# Set by who runs a cell, once per drain, and inherited by the tasks that its handlers start.
current_cell: ContextVar[Cell | None] = ContextVar("recado.actors.current", default=None)


class ActorRef(Generic[M_contra]):
    __slots__ = ("__weakref__", "_address", "_system", "_target")

    def __init__(self, address: Address, target: DeliveryTarget, system: ActorSystem) -> None:
        self._address = address
        self._target = target
        self._system = system

    @property
    def address(self) -> Address:
        return self._address

    def tell(self, message: M_contra) -> None:
        """Send it, and go on (RE2). From any thread."""
        if type(message) not in shareable_types:
            message = isolate(message)
        sender = current_cell.get()
        self._target.deliver(self._address, message, None if sender is None else sender.ref, None)

    async def tell_wait(
        self,
        message: M_contra,
        timeout: float | None = None,  # noqa: ASYNC109  as of `ask`
    ) -> None:
        """Send a message and return when the mailbox has taken it, on this node or another: a bounded mailbox
        has room, a durable mailbox has the message on disk.

        `timeout` is in seconds. Without it another node has the system's `ask_timeout`, and a mailbox of this
        node has as long as it takes. Raises TimeoutError if the outcome is not known in time (the message may
        be taken even so), ActorStopped if there is no such actor or it stops before its mailbox has room,
        CannotSerialise if the message cannot be sent or stored, and the errors of an ask if the other node
        cannot be reached. Except after TimeoutError, a message that was not taken is a dead letter.
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
        timeout: float | None = None,  # noqa: ASYNC109  all asks share the timers of Asks
    ) -> R:
        """Its answer (RE3). Without a time-out, the system's `ask_timeout` is it."""
        future = self.ask_future(message, timeout)
        self._system._loop_dispatcher.run_early()
        return await future

    def ask_future(self, message: Message[R], timeout: float | None = None) -> Future[R]:
        if type(message) not in shareable_types:
            message = isolate(message)
        future = self._system._open_asks.open(self, timeout)
        sender = current_cell.get()
        self._target.deliver(self._address, message, None if sender is None else sender.ref, future)
        return future

    def forward(self, message: M_contra) -> None:
        """Send it in the name of who sent the message that is being handled, and with its wish for an
        answer."""
        cell = current_cell.get()
        if cell is None:
            raise WrongContextError("forward is for handlers of actors", "Elsewhere, tell or ask")
        _, sender, reply = cell.envelope
        cell.answered_envelope = cell.envelope
        self._target.deliver(self._address, isolate(message), sender, reply)

    def stop(self) -> None:
        """Have it stop after the message that it is handling; what else waits for it are dead letters."""
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
        raise TypeError("send str(ref.address), and make a reference of it by system.ref(…)")


shareable_types.add(ActorRef)
