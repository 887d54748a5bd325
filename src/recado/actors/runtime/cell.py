"""A cell: an actor's mailbox, its behaviour, and the rule that one message is handled at a time.

    post ──► mailbox ──► dispatcher.dispatch(cell) ──► cell.run(budget) ──► behaviour(message)

CE1  At most one handler of a cell runs at any time: only who has claimed it (`is_claimed`) runs it.
CE2  No message waits in a cell that is idle: who puts one dispatches the cell, unless somebody has claimed it;
     and who lets go of a claim looks once more.
CE3  Signals and holds go before messages, but never into a handler.
CE4  A cell that failed stays claimed until its supervisor has decided: what is told meanwhile waits.
CE5  A drain handles at most `budget` messages, then it is others' turn.

A `def` handler is called by whoever drains. The coroutine of an `async def` one is awaited by a task on the
loop, one for the rest of the drain, not one per message; a cell whose last drain awaited begins the next one
as a task (`runs_as_task`). What happens seldom, to a cell that is held, is in lifecycle.py; what follows from a
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

from recado.actors.errors import DuplicateReplyError, UnhandledMessageError, actor_stopped_error
from recado.actors.future import interrupted_error
from recado.actors.message import shareable_types
from recado.actors.message_types import MessageTypes, message_types_of
from recado.actors.ref import ActorRef, Reply, current_cell
from recado.actors.supervision.links import Links
from recado.actors.supervision.signals import CellSignal, Reason, Signal

from . import backpressure
from .mailbox import (
    DurableMailboxPort,
    Mailbox,
    MessageEnvelope,
    Origin,
    RequeueMailbox,
    StoredCallback,
)
from .state import CellState

if TYPE_CHECKING:
    from recado.actors.actor import Actor
    from recado.actors.address import Address
    from recado.actors.supervision.strategy import RestartType
    from recado.actors.system import ActorSystem

    from .loop_dispatcher import Dispatcher

# It returns the answer to an ask, None for none; or an awaitable of either.
Behaviour: TypeAlias = Callable[[Any], Any]
# What is done on the loop while the cell is held; it ends by `rest`, or never.
ExclusiveAction: TypeAlias = Callable[[], None]

log = logging.getLogger("recado.actors")

NO_ENVELOPE: MessageEnvelope = (None, None, None)

_STOPPED = CellState.STOPPED  # a look into the enum takes 40 ns
_GENERATOR_TYPES = frozenset({GeneratorType, AsyncGeneratorType})

# One lock for all cells, held for two instructions: a lock in each would take 90 bytes of it.
_claim_lock = Lock()


class Cell:
    __slots__ = (
        "__weakref__",
        "actor",
        "answered_envelope",
        "behaviour",
        "capacity",
        "dispatcher",
        "durable_mailbox",
        "envelope",
        "factory",
        "is_claimed",
        "is_internal",
        "is_suspended",
        "links",
        "mailbox",
        "message_types",
        "pending_stop",
        "ref",
        "restart_type",
        "restarts",
        "runs_as_task",
        "space_callbacks",
        "state",
        "supervisor",
        "system",
        "system_queue",
        "task",
        "wakeup_pending",
    )  # fmt: skip

    def __init__(
        self,
        system: ActorSystem,
        address: Address,
        factory: Callable[[], Actor[Any]],
        restart_type: RestartType,
        dispatcher: Dispatcher,
        mailbox: Mailbox,
        capacity: int,
    ) -> None:
        self.system = system
        self.ref: ActorRef[Any] = ActorRef(address, self, system)
        self.factory = factory
        self.restart_type = restart_type
        self.dispatcher = dispatcher
        self.mailbox = mailbox
        self.capacity = capacity
        # What remembers is told what became of each message.
        self.durable_mailbox = (
            cast(DurableMailboxPort, mailbox) if hasattr(mailbox, "acknowledge") else None
        )
        if self.durable_mailbox is not None:
            self.durable_mailbox.attach(self.wake)
        self.state = CellState.STARTING
        self.is_claimed = True  # until it is started (CE2 begins then)
        self.runs_as_task = False
        self.wakeup_pending = False
        self.is_suspended = False
        self.is_internal = False
        # It is to stop, for this reason: nothing restarts it any more.
        self.pending_stop: tuple[Reason] | None = None
        self.restarts = 0
        self.envelope = NO_ENVELOPE
        # The last message whose ask a handler answered, promised an answer to, or forwarded.
        self.answered_envelope: MessageEnvelope | None = None
        self.actor: Actor[Any] | None = None
        self.behaviour: Behaviour = _no_behaviour
        self.message_types: MessageTypes | None = None  # by the behaviour; None: anything
        self.supervisor: ActorRef[Any] | None = None
        self.links: Links | None = None
        self.task: asyncio.Task[None] | None = None
        self.system_queue: deque[Signal | ExclusiveAction] | None = None
        self.space_callbacks: list[Callable[[], object]] | None = None

    # --- delivery: a cell is the Post of its reference ----------------------------------------------

    def deliver(
        self,
        address: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        reply: Reply | None,
    ) -> None:
        self.mailbox.put((message, sender, reply))
        if not self.is_claimed:
            self.dispatcher.dispatch(self)
        if self.capacity and self.mailbox.qsize() > self.capacity:
            backpressure.handle_overflow(self)

    async def deliver_wait(
        self,
        address: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        timeout: float | None,  # noqa: ASYNC109  as of `ask`
    ) -> None:
        # Without a timeout where there is nothing to wait for: it takes 1.7 µs.
        if self.durable_mailbox is not None or (self.capacity and not backpressure.has_space(self)):
            async with asyncio.timeout(timeout):
                if self.capacity:
                    await backpressure.wait_for_space(self)
                if self.durable_mailbox is not None:
                    await backpressure.store_and_wait(self, (message, sender, None))
                    return
        self.deliver(address, message, sender, None)
        if self.state is _STOPPED:
            raise actor_stopped_error(self.ref)

    def deliver_signal(self, address: Address, signal: CellSignal) -> None:
        self.system._call_on_loop(self.system._handle_signal, self, signal)

    # --- running ------------------------------------------------------------------------------------

    def claim(self) -> bool:
        """Whether whoever asks may run it now; nobody else may then, until it rests (CE1). From any thread."""
        with _claim_lock:
            if self.is_claimed:
                return False
            self.is_claimed = True
            return True

    def run(self, budget: int) -> None:
        """Handle up to `budget` messages, in the thread of the caller, who has claimed it."""
        if self.state is _STOPPED:
            self.release()
            return
        token = current_cell.set(self)
        try:
            self.run_turn(budget)
        finally:
            current_cell.reset(token)

    def run_turn(self, budget: int) -> None:
        """The same, for who has seen to `current_cell`, and runs cells in the loop's thread only."""
        for _ in range(budget):
            if self.system_queue:
                if (handler := self._next_system_handler()) is None:
                    return
            else:
                mailbox = self.mailbox
                if not mailbox.qsize():
                    break
                try:
                    envelope = self.envelope = mailbox.get_nowait()
                except Empty:  # stolen
                    break
                except Exception as error:  # noqa: BLE001  as below
                    self.envelope = NO_ENVELOPE
                    self.fail(error)
                    return
                if self.space_callbacks:
                    backpressure.notify_space(self)
                handler = self.behaviour
                if (message_types := self.message_types) is not None and type(
                    envelope[0]
                ) not in message_types:
                    handler = message_types.find_handler(self)
            try:
                result = handler(self.envelope[0])
                if result is None:
                    if self.durable_mailbox is not None:
                        self.durable_mailbox.acknowledge(self.envelope, None)
                    continue
                if type(result) is not CoroutineType and not hasattr(result, "__await__"):
                    self._reply_with(result)
                    if self.durable_mailbox is not None:
                        self.durable_mailbox.acknowledge(self.envelope, None)
                    continue
            except BaseException as error:  # noqa: BLE001  whatever it is, the supervisor decides
                self._handle_exception(error)
                return
            # Behind it, the handlers of a thread belong to that thread again.
            on_loop = get_ident() == self.system._thread_id
            self.system._call_on_loop(self._continue_as_task, result, budget if on_loop else 1)
            return
        self.release()

    async def run_as_task(self, budget: int, result: Any = None) -> None:
        """The same in a task, for handlers that await. `going` is one that was begun."""
        current_cell.set(self)
        awaited = False
        for _ in range(budget):
            try:
                if result is None:
                    if (handler := self._next_handler()) is None:
                        break
                    if handler is CLAIM_PASSED_ON:
                        return
                    result = handler(self.envelope[0])
                if result is not None:
                    if type(result) is CoroutineType or hasattr(result, "__await__"):
                        awaited = True
                        result = await result
                    if result is not None:
                        self._reply_with(result)
                        result = None
                if self.durable_mailbox is not None:
                    self.durable_mailbox.acknowledge(self.envelope, None)
            except BaseException as error:  # noqa: BLE001  as above
                self._handle_exception(error)
                return
        self.runs_as_task = awaited
        self.task = None
        self.release()

    def _reply_with(self, value: Any) -> None:
        """Answer an ask by the value that its handler returned; without an ask the value is dropped. Raises
        AnsweredTwice if the handler has replied, promised an answer, or forwarded the ask, and TypeError if
        the handler is a generator function: calling it has handled nothing."""
        if type(value) in _GENERATOR_TYPES:
            raise TypeError(f"the handler of {self.ref} is a generator function: it uses yield")
        reply = self.envelope[2]
        if reply is None:
            return
        if self.envelope is self.answered_envelope:
            raise DuplicateReplyError(
                f"{self.ref} replies to {type(self.envelope[0]).__name__} and also returns a value",
                "Return None where it replies, promises or forwards; or only return the answer",
            )
        if type(value) in shareable_types:
            reply.complete(value)
        else:
            assert self.actor is not None
            self.actor._complete_reply(reply, value)

    def _handle_exception(self, error: BaseException) -> None:
        """A handler has raised this. What ends a program ends it, if raised in the thread of the loop; other
        threads cannot end it."""
        if isinstance(error, GeneratorExit) and self.system._loop.is_closed():
            raise error  # the task is being collected
        self.fail(error if isinstance(error, Exception) else interrupted_error(self.ref, error))
        if (
            isinstance(error, KeyboardInterrupt | SystemExit)
            and get_ident() == self.system._thread_id
        ):
            raise error

    def _continue_as_task(self, result: Awaitable[Any], budget: int) -> None:
        self.runs_as_task = True
        self.task = self.system._loop.create_task(self.run_as_task(budget, result))

    def _next_handler(self) -> Behaviour | None:
        """What handles the next message, which is in `letter` then."""
        if self.system_queue:
            return self._next_system_handler() or CLAIM_PASSED_ON
        self.envelope = NO_ENVELOPE  # what fails here is not the fault of the last one
        try:
            self.envelope = self.mailbox.get_nowait()
        except Empty:
            return None
        if self.space_callbacks:
            backpressure.notify_space(self)
        if (message_types := self.message_types) is not None and type(
            self.envelope[0]
        ) not in message_types:
            return message_types.find_handler(self)
        return self.behaviour

    def _next_system_handler(self) -> Behaviour | None:
        """What handles the next signal; None if it was a hold, and the cell is given away."""
        assert self.system_queue is not None
        assert self.actor is not None
        first = self.system_queue.popleft()
        if isinstance(first, Signal):
            self.envelope = (first, None, None)
            return self.actor.on_signal
        self.envelope = NO_ENVELOPE
        self.task = None
        self.system._call_on_loop(first)
        return None

    def wake(self) -> None:
        """Something was put into its mailbox (CE2). From any thread."""
        if not self.is_claimed:
            self.dispatcher.dispatch(self)

    def release(self) -> None:
        """Let go of the claim, and look once more (CE2). From any thread."""
        self.envelope = NO_ENVELOPE
        self.answered_envelope = None  # it may be large
        self.is_claimed = False
        if self.mailbox.qsize() or self.system_queue:
            self.dispatcher.dispatch(self)

    def fail(self, error: Exception) -> None:
        """The handler of `letter` has failed, or something in its place. The claim stays (CE4)."""
        envelope = self.envelope
        self.task = None
        if isinstance(error, UnhandledMessageError) and getattr(envelope[2], "is_untrusted", False):
            self._reject_untrusted(envelope, error)
            return
        try:
            is_retried = self.durable_mailbox is not None and not self.durable_mailbox.acknowledge(
                envelope, error
            )
            if envelope[2] is not None and not is_retried:
                envelope[2].fail(error)
        except Exception:  # its supervisor has to hear of the failure even so
            log.exception("nobody could be told that %s failed by %r", self.ref, error)
        self.system._call_on_loop(self.system._handle_failure, self, error)

    def _reject_untrusted(self, envelope: MessageEnvelope, error: UnhandledMessageError) -> None:
        """Nonsense of a stranger, who could end the actor by it if it counted (see Reply)."""
        log.info("of a stranger: %s", error)
        try:
            if self.durable_mailbox is not None:
                self.durable_mailbox.acknowledge(envelope, None)
            if envelope[2] is not None:
                envelope[2].fail(error)
        finally:
            self.release()

    # --- being held ---------------------------------------------------------------------------------

    def enqueue_system(self, item: Signal | ExclusiveAction) -> None:
        """Have it heeded before the next message. From any thread."""
        with _claim_lock:
            if self.system_queue is None:
                self.system_queue = deque()
        self.system_queue.append(item)
        if not self.is_claimed:
            self.dispatcher.dispatch(self)

    def run_exclusively(self, action: ExclusiveAction) -> None:
        """Call `then` on the loop, as soon as no handler runs; it has the claim. From the loop's thread."""
        if self.is_suspended:
            self.is_suspended = False
            action()
        elif self.claim():
            action()
        else:
            self.enqueue_system(action)

    # --- what seldom is ------------------------------------------------------------------------

    def ensure_links(self) -> Links:
        with _claim_lock:
            if self.links is None:
                actor = self.actor
                default = (
                    self.system._guardian.default_strategy
                    if actor is None
                    else actor.supervisor_strategy
                )
                self.links = Links(default)
            return self.links

    @property
    def is_stopping(self) -> bool:
        """It is going to stop, or has."""
        return self.state is _STOPPED or self.pending_stop is not None

    @property
    def children(self) -> tuple[ActorRef[Any], ...]:
        return tuple(self.links.children.strategies) if self.links is not None else ()

    def on_instance_end(self, callback: Callable[[], None]) -> None:
        """Have it called when this instance of the actor ends, by a restart or a stop. On the loop's thread."""
        self.ensure_links().instance_end_callbacks.append(callback)

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Have it called when the actor has stopped. On the loop's thread."""
        self.ensure_links().stop_callbacks.append(callback)

    def become(self, behaviour: Behaviour, *, keep: bool = False) -> None:
        if keep:
            self.ensure_links().behaviour_stack.append(self.behaviour)
        self.behaviour = behaviour
        self.message_types = message_types_of(self)

    def unbecome(self) -> None:
        assert self.actor is not None
        previous = self.links.behaviour_stack if self.links is not None else None
        self.become(previous.pop() if previous else self.actor.receive)

    def take_envelope(self) -> MessageEnvelope:
        """Take over what is being handled: until it is put back, it is neither answered nor settled."""
        envelope, self.envelope = self.envelope, NO_ENVELOPE
        return envelope

    def put_durably(
        self, envelope: MessageEnvelope, origin: Origin | None, on_stored: StoredCallback | None
    ) -> None:
        assert self.durable_mailbox is not None
        self.durable_mailbox.put_durably(envelope, origin, on_stored)
        self.wake()

    def requeue(self, envelopes: list[MessageEnvelope]) -> None:
        """Before all that waits, in this order. From its own handler, or while it is held."""
        if not isinstance(self.mailbox, RequeueMailbox):
            self.mailbox = RequeueMailbox(self.mailbox)
        self.mailbox.requeue(envelopes)


def _no_behaviour(message: Any) -> None:
    raise AssertionError("a cell without an actor is not run")


CLAIM_PASSED_ON: Behaviour = _no_behaviour
