"""The base class of actors: `receive`, the lifecycle hooks, and the calls that handlers use.

    class Book(Actor[Place | Cancel]):
        async def receive(self, message: Place | Cancel) -> None:
            match message:
                case Place(order): self.reply(Ack(order.id))
                case Cancel(): self.become(self.closed)

`receive`, every behaviour set by `become`, `on_signal` and the hooks may be `def` or `async def`. One of them
runs at a time (CE1 in runtime/cell.py), so the attributes of an actor need no lock. The dispatcher decides
whether `def` handlers run on the event loop or in a thread; `async def` handlers, the constructor and the hooks
always run on the loop.
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

    # The strategy for failures of its children, unless a child was linked with another one.
    supervisor_strategy: ClassVar[SupervisorStrategy] = DEFAULT_STRATEGY
    # Whether its children keep running when it is restarted. Otherwise they are stopped.
    keeps_children: ClassVar[bool] = False
    # Exceptions that are part of normal operation. They are failures like any other, but logged without
    # traceback.
    expected_errors: ClassVar[tuple[type[BaseException], ...]] = ()

    _cell: Cell

    if not TYPE_CHECKING:  # a type checker would accept any attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name == "_cell":
                raise WrongContextError(
                    f"this {type(self).__name__} is not in a system yet",
                    "Use pre_start instead of the constructor",
                )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def receive(self, message: M) -> Any:
        """Handle a message: the first behaviour. May be `async def`.

        The returned value is the reply to an ask; None means no reply, and the value is dropped if the message
        was told. Returning a value after `reply`, `promise` or `forward` fails with DuplicateReplyError.
        """
        self.unhandled(message)

    # --- lifecycle hooks ------------------------------------------------------------------------------

    def pre_start(self) -> Awaitable[None] | None:
        """Called on each new instance before its first message. `spawn` raises its exceptions; during a restart
        they count as one more failure."""
        return None

    def post_stop(self) -> Awaitable[None] | None:
        """Called after the last message, when all children have stopped."""
        return None

    def pre_restart(self, reason: BaseException, message: Any) -> Awaitable[None] | None:
        """Called on the old instance before a restart. `message` is the message or signal whose handler failed;
        None if a hook failed, or if the actor is restarted because another one of its group failed."""
        return self.post_stop()

    def post_restart(self, reason: BaseException) -> Awaitable[None] | None:
        """Called on the new instance, after `pre_start`."""
        return None

    def on_signal(self, signal: Signal) -> Awaitable[None] | None:
        """Handle the end of a monitored actor (Down), or of a child that is not restarted any more
        (ChildFailed).

        The default fails: with UnhandledMessageError for a Down, and with EscalatedError for a ChildFailed, so
        that the failure escalates to the supervisor of this actor.
        """
        match signal:
            case Down(ref, reason):
                raise UnhandledMessageError(
                    f"{ref} is down ({reason!r}), and {self.ref} has no on_signal"
                )
            case ChildFailed(ref, reason):
                raise EscalatedError(f"{ref} was given up: it failed with {reason!r}") from reason

    # --- the current message --------------------------------------------------------------------------

    @property
    def sender(self) -> ActorRef[Any] | None:
        """The actor that sent the current message; None if it was not sent by an actor."""
        return self._cell.envelope[1]

    def reply(self, value: Any) -> None:
        """Reply to the current message: to the asker, or to the actor that told it.

        If `value` is a future, its result becomes the reply to the ask. Raises NoSenderError if the message was
        neither asked nor told by an actor.
        """
        # The usual case inline: 0.2 µs of an ask.
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
                f"{self.ref} replies to a message that has no sender",
                "Use reply_if_asked where a message may have none",
            )

    def reply_if_asked(self, value: Any) -> bool:
        """Reply as `reply` does if the current message has an asker or a sender, and return whether it has."""
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
        """Reply to an ask with an exception, which `ask` raises. This actor does not fail.

        Raises NoSenderError if the message was not asked.
        """
        reply = self._cell.envelope[2]
        if reply is None:
            raise NoSenderError(
                f"{self.ref} replies with {error!r} to a message that was not asked"
            )
        self._cell.answered_envelope = self._cell.envelope
        reply.fail(error)

    def promise(self) -> Reply:
        """Return the Reply of the current ask, to be completed after this handler has ended.

        Raises NoSenderError if the message was not asked.
        """
        reply = self._cell.envelope[2]
        if reply is None:
            raise NoSenderError(f"{self.ref} promises a reply to a message that was not asked")
        self._cell.answered_envelope = self._cell.envelope
        return reply

    def forward(self, ref: ActorRef[Any]) -> None:
        """Forward the current message; the reply of the other actor goes to the original sender."""
        ref.forward(self._cell.envelope[0])

    def unhandled(self, message: Any) -> NoReturn:
        """Fail with UnhandledMessageError. For the `case _` of a behaviour; also called for messages of a class
        that the actor does not declare."""
        raise UnhandledMessageError(f"{type(message).__name__} is not a message for {self.ref}")

    # --- the next messages ----------------------------------------------------------------------------

    def become(self, behaviour: Callable[[Any], Any], *, keep: bool = False) -> None:
        """Handle the next messages with another behaviour. With `keep`, `unbecome` returns to the current
        one."""
        self._cell.become(behaviour, keep=keep)

    def unbecome(self) -> None:
        """Return to the behaviour that was kept last, or to `receive`."""
        self._cell.unbecome()

    def stop(self) -> None:
        """Stop this actor after the current message."""
        self.ref.stop()

    # --- other actors ---------------------------------------------------------------------------------

    @property
    def ref(self) -> ActorRef[M]:
        return self._cell.ref

    @property
    def system(self) -> ActorSystem:
        return self._cell.system

    @property
    def supervisor(self) -> ActorRef[Any] | None:
        """The supervisor of this actor; None if it is the system itself."""
        return self._cell.supervisor

    @property
    def children(self) -> tuple[ActorRef[Any], ...]:
        """The actors that this one supervises, in the order in which they were linked."""
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
        """Spawn a child of this actor. Arguments, result and exceptions as for `ActorSystem.spawn`."""
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
        """Become the supervisor of an existing actor.

        Raises AlreadyLinkedError if another actor supervises it, or if it supervises this one. An actor on
        another node is checked by that node, later: if it refuses, the actor is removed from `children` again.
        """
        cell = self._cell
        child = cell.system._find_cell(ref.address)
        if child is not None and child.supervisor not in (None, cell.ref):
            raise AlreadyLinkedError(
                f"{ref} is supervised by {child.supervisor}", "Unlink it there first"
            )
        if child is not None and links.supervises(child, cell.ref):
            raise AlreadyLinkedError(f"{self.ref} is supervised by {ref}, and cannot supervise it")
        cell.system._call_on_loop(links.link, cell, ref, supervisor_strategy)

    def unlink(self, ref: ActorRef[Any]) -> None:
        """Stop supervising an actor: the system becomes its supervisor."""
        self.system._call_on_loop(links.unlink, self._cell, ref)

    def monitor(self, ref: ActorRef[Any]) -> None:
        """Receive a Down when an actor has stopped; at once if it has stopped already."""
        self.system._call_on_loop(links.monitor, self._cell, ref)

    def unmonitor(self, ref: ActorRef[Any]) -> None:
        """Stop monitoring an actor."""
        self.system._call_on_loop(links.unmonitor, self._cell, ref)

    def tie(self, ref: ActorRef[Any]) -> None:
        """Tie this actor to another one: when either is stopped because of a failure, the other is stopped,
        too. A restart or a normal stop does not affect the other."""
        self.system._call_on_loop(links.tie, self._cell, ref)

    def untie(self, ref: ActorRef[Any]) -> None:
        """Remove a tie."""
        self.system._call_on_loop(links.untie, self._cell, ref)
