"""What one writes to make an actor: a class with `receive`, and what its methods may do.

    class Book(Actor[Place | Cancel]):
        async def receive(self, message: Place | Cancel) -> None:
            match message:
                case Place(order): self.reply(Ack(order.id))
                case Cancel(): self.become(self.closed)

`receive`, any behaviour that it becomes, `on_signal` and the hooks may be `def` or `async def`. One of them
runs at a time (CE1), so an actor's attributes need no lock. Handlers run where the dispatcher says: on the
loop, or in a thread; the constructor and the hooks always on the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar

from .errors import (
    AlreadyLinkedError,
    EscalatedError,
    NoSenderError,
    UnhandledMessageError,
    WrongContextError,
)
from .future import copy_result
from .message import isolate, shareable_types
from .supervision import links
from .supervision.signals import ChildFailed, Down, Signal
from .supervision.strategy import DEFAULT_STRATEGY, PERMANENT, RestartType, SupervisorStrategy

if TYPE_CHECKING:
    from .ref import ActorRef, Reply
    from .runtime.cell import Cell
    from .runtime.loop_dispatcher import Dispatcher
    from .runtime.mailbox import MailboxFactory
    from .system import ActorSystem

M = TypeVar("M")
C = TypeVar("C")


class Actor(Generic[M]):
    __slots__ = ("_cell",)

    # How it answers failures of those that it supervises, if they were not linked with another strategy.
    supervisor_strategy: ClassVar[SupervisorStrategy] = DEFAULT_STRATEGY
    # Whether those that it supervises go on when it is restarted, or are stopped.
    keeps_children: ClassVar[bool] = False
    # The failures of its trade: they are answered like any, but noted in the log by a line only.
    expected_errors: ClassVar[tuple[type[BaseException], ...]] = ()

    _cell: Cell

    if not TYPE_CHECKING:  # it would take any name for an attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name == "_cell":
                raise WrongContextError(
                    f"this {type(self).__name__} is not in a system yet",
                    "A constructor knows nothing of others; `started` does",
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def receive(self, message: M) -> Any:
        """The first behaviour. May be `async def`. The value that a behaviour returns is the answer to an ask;
        None is no answer, and the value is dropped if the message was told. To return a value after `reply`,
        `promise` or `forward` fails with AnsweredTwice."""
        self.unhandled(message)

    # --- what a life consists of ------------------------------------------------------------------

    def pre_start(self) -> Awaitable[None] | None:
        """On each new instance, before its first message. If it fails, so does the spawn."""
        return None

    def post_stop(self) -> Awaitable[None] | None:
        """After the last message; those that it supervised are gone already."""
        return None

    def pre_restart(self, reason: BaseException, message: Any) -> Awaitable[None] | None:
        """On the instance that failed. `message` is what it failed on, None if it was none."""
        return self.post_stop()

    def post_restart(self, reason: BaseException) -> Awaitable[None] | None:
        """On the new instance, after `started`."""
        return None

    def on_signal(self, signal: Signal) -> Awaitable[None] | None:
        """Somebody that it monitors is down; somebody that it supervises was given up."""
        match signal:
            case Down(ref, reason):
                raise UnhandledMessageError(
                    f"{ref} is down ({reason!r}), and {self.ref} has no on_signal"
                )
            case ChildFailed(ref, reason):
                raise EscalatedError(f"{ref} was given up: it failed with {reason!r}") from reason

    # --- around the message that is being handled -------------------------------------------------

    @property
    def sender(self) -> ActorRef[Any] | None:
        """Who sent it: the actor that did, None if it was somebody else."""
        return self._cell.envelope[1]

    def reply(self, value: Any) -> None:
        """Answer it: an ask, or a tell of an actor. An ask may be answered by a future: as that one will be."""
        # The usual case on the shortest way: 0.2 µs of an ask.
        cell = self._cell
        envelope = cell.envelope
        if (reply := envelope[2]) is not None:
            cell.answered_envelope = envelope
            if type(value) in shareable_types:
                reply.complete(value)
            else:
                self._complete_reply(reply, value)
        elif not self.reply_if_asked(value):
            raise NoSenderError(
                f"{self.ref} replies, and nobody has asked",
                "Where that is possible, use reply_if_asked",
            )

    def reply_if_asked(self, value: Any) -> bool:
        """Answer it if there is anybody to answer to."""
        envelope = self._cell.envelope
        _, sender, reply = envelope
        if reply is not None:
            self._cell.answered_envelope = envelope
            self._complete_reply(reply, value)
        elif sender is not None:
            sender.tell(value)
        else:
            return False
        return True

    def _complete_reply(self, reply: Reply, value: Any) -> None:
        if isinstance(value, asyncio.Future):
            self.system._call_on_loop(value.add_done_callback, partial(copy_result, reply))
        else:
            reply.complete(isolate(value))

    def reply_error(self, error: BaseException) -> None:
        """Answer an ask by an exception. It is raised where was asked, and this actor goes on."""
        reply = self._cell.envelope[2]
        if reply is None:
            raise NoSenderError(f"{self.ref} replies {error!r}, and nobody has asked")
        self._cell.answered_envelope = self._cell.envelope
        reply.fail(error)

    def promise(self) -> Reply:
        """Where the answer goes, to be kept, and completed after this handler has ended."""
        reply = self._cell.envelope[2]
        if reply is None:
            raise NoSenderError(f"{self.ref} promises an answer, and nobody has asked")
        self._cell.answered_envelope = self._cell.envelope
        return reply

    def forward(self, ref: ActorRef[Any]) -> None:
        """Pass the message on; the answer goes to who sent it."""
        ref.forward(self._cell.envelope[0])

    def unhandled(self, message: Any) -> NoReturn:
        """For the `case _` of a behaviour, and for what the actor was not declared with: it is a failure like
        any (Unhandled)."""
        raise UnhandledMessageError(f"{type(message).__name__} is not a message for {self.ref}")

    # --- what comes next --------------------------------------------------------------------------

    def become(self, behaviour: Callable[[Any], Any], *, keep: bool = False) -> None:
        """Handle the next messages by this; `keep` the present one for `unbecome`."""
        self._cell.become(behaviour, keep=keep)

    def unbecome(self) -> None:
        """Back to the behaviour before, `receive` if none was kept."""
        self._cell.unbecome()

    def stop(self) -> None:
        """Stop after this message."""
        self.ref.stop()

    # --- others -----------------------------------------------------------------------------------

    @property
    def ref(self) -> ActorRef[M]:
        return self._cell.ref

    @property
    def system(self) -> ActorSystem:
        return self._cell.system

    @property
    def supervisor(self) -> ActorRef[Any] | None:
        """None: the system itself."""
        return self._cell.supervisor

    @property
    def children(self) -> tuple[ActorRef[Any], ...]:
        """Those that it supervises, in the order in which they were linked."""
        return self._cell.children

    async def start_link(
        self,
        factory: Callable[[], Actor[C]],
        *,
        name: str = "",
        supervisor_strategy: SupervisorStrategy | None = None,
        restart_type: RestartType = PERMANENT,
        dispatcher: Dispatcher | None = None,
        mailbox: MailboxFactory | None = None,
        capacity: int | None = None,
    ) -> ActorRef[C]:
        """Spawn an actor that this one supervises."""
        return await self.system.spawn(
            factory,
            name=name,
            supervisor_strategy=supervisor_strategy,
            restart_type=restart_type,
            dispatcher=dispatcher,
            mailbox=mailbox,
            capacity=capacity,
            supervisor=self.ref,
        )

    def link(
        self, ref: ActorRef[Any], *, supervisor_strategy: SupervisorStrategy | None = None
    ) -> None:
        """Supervise an actor that is there already; AlreadyLinked if another one does, or if it supervises
        this one. (If it is on another node, that is found out there: then it is not among `children` any
        more.)"""
        cell = self._cell
        linked_cell = cell.system._find_cell(ref.address)
        if linked_cell is not None and linked_cell.supervisor not in (None, cell.ref):
            raise AlreadyLinkedError(
                f"{ref} is supervised by {linked_cell.supervisor}", "Have that one unlink it"
            )
        if linked_cell is not None and links.supervises(linked_cell, cell.ref):
            raise AlreadyLinkedError(f"{self.ref} is supervised by {ref}, and cannot supervise it")
        cell.system._call_on_loop(links.link, cell, ref, supervisor_strategy)

    def unlink(self, ref: ActorRef[Any]) -> None:
        """Leave it to the system."""
        self.system._call_on_loop(links.unlink, self._cell, ref)

    def monitor(self, ref: ActorRef[Any]) -> None:
        """Be told by a Down when it has stopped, at once if it has already."""
        self.system._call_on_loop(links.monitor, self._cell, ref)

    def unmonitor(self, ref: ActorRef[Any]) -> None:
        self.system._call_on_loop(links.unmonitor, self._cell, ref)

    def tie(self, ref: ActorRef[Any]) -> None:
        """Die together: when either fails for good, the other is stopped."""
        self.system._call_on_loop(links.tie, self._cell, ref)

    def untie(self, ref: ActorRef[Any]) -> None:
        self.system._call_on_loop(links.untie, self._cell, ref)
