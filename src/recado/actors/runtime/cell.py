"""A cell: the runtime of one actor. It has the mailbox and the behaviour, and handles one message at a time.

    deliver ──► mailbox ──► dispatcher.dispatch(cell) ──► cell.run(budget) ──► behaviour(message)

CE1  At most one handler of a cell runs at any time: only the holder of the claim runs it (state.py).
CE2  No message waits in an idle cell. Putting a message dispatches the cell unless it is claimed, and `release`
     checks the mailbox again after it has given up the claim.
CE3  Signals and exclusive actions go before messages, but never interrupt a handler.
CE4  A cell that failed is suspended until its supervisor has decided: no dispatcher can claim it, and messages
     wait meanwhile.
CE5  A run handles at most `budget` messages, so that other cells get their turn.

A `def` handler is called by the thread that runs the cell. The coroutine of an `async def` handler is awaited
by a task on the event loop: one task for the rest of the run, not one per message. A cell whose last run
awaited starts its next run as a task at once (`runs_as_task`). Starting, stopping and restarting are in the
package `supervision`, the handling of full mailboxes in backpressure.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from queue import Empty
from threading import Lock, get_ident
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any, TypeAlias

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

# Returns the reply to an ask, None for no reply, or an awaitable of either.
Behaviour: TypeAlias = Callable[[Any], Any]
# Runs on the loop with the claim of the cell, and ends by `release` or by stopping the cell.
ExclusiveAction: TypeAlias = Callable[[], None]

log = logging.getLogger("recado.actors")

NO_ENVELOPE: MessageEnvelope = (None, None, None)

# Looking up a member of an enum takes 40 ns.
_IDLE = CellState.IDLE
_CLAIMED = CellState.CLAIMED
_STOPPED = CellState.STOPPED
_UNCLAIMED_STATES = frozenset({CellState.IDLE, CellState.STOPPED})
_GENERATOR_TYPES = frozenset({GeneratorType, AsyncGeneratorType})

# One lock for all cells, held for a few instructions. A lock in each cell would take 90 bytes.
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
        "handled",
        "is_internal",
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
        supervisor: ActorRef[Any] | None,
        is_internal: bool,
    ) -> None:
        self.system = system
        self.ref: ActorRef[Any] = ActorRef(address, self, system)
        self.factory = factory
        self.restart_type = restart_type
        self.dispatcher = dispatcher
        self.mailbox = mailbox
        self.capacity = capacity  # 0: unbounded
        self.supervisor = supervisor  # None: the system's guardian
        self.is_internal = is_internal
        # A durable mailbox is notified of the outcome of each message.
        self.durable_mailbox = mailbox if isinstance(mailbox, DurableMailboxPort) else None
        if self.durable_mailbox is not None:
            self.durable_mailbox.attach(self.wake)
        self.state = CellState.STARTING
        # Scheduling hints: whether the last run awaited, and whether another thread has already asked the loop
        # to dispatch this cell.
        self.runs_as_task = False
        self.wakeup_pending = False
        # The reason of a stop that was requested: from then on nothing restarts the actor.
        self.pending_stop: tuple[Reason] | None = None
        self.restarts = 0
        self.handled = 0  # messages and signals, counted once in a run, by the holder of the claim
        self.envelope = NO_ENVELOPE  # of the message that is being handled
        # The last envelope whose ask the handler has answered, promised to answer, or forwarded.
        self.answered_envelope: MessageEnvelope | None = None
        self.actor: Actor[Any] | None = None
        self.behaviour: Behaviour = _no_behaviour
        self.message_types: MessageTypes | None = None  # of the behaviour; None accepts any message
        self.links: Links | None = None
        self.task: asyncio.Task[None] | None = None
        self.system_queue: deque[Signal | ExclusiveAction] | None = None
        self.space_callbacks: list[Callable[[], object]] | None = None

    # --- delivery: a cell is the DeliveryTarget of its reference --------------------------------------

    def deliver(
        self,
        address: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        reply: Reply | None,
    ) -> None:
        self.mailbox.put((message, sender, reply))
        if self.state is not _CLAIMED:
            self.dispatcher.dispatch(self)
        if self.capacity and self.mailbox.qsize() > self.capacity:
            backpressure.handle_overflow(self)

    async def deliver_wait(
        self,
        address: Address,
        message: Any,
        sender: ActorRef[Any] | None,
        timeout: float | None,  # noqa: ASYNC109  as in `ask`
    ) -> None:
        # asyncio.timeout takes 1.7 µs, so it is left out where there is nothing to wait for.
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

    # --- the claim ------------------------------------------------------------------------------------

    def claim(self) -> bool:
        """Claim the cell if it is idle, and return whether that succeeded (CE1). From any thread."""
        with _claim_lock:
            if self.state is not _IDLE:
                return False
            self.state = _CLAIMED
            return True

    def release(self) -> None:
        """Give up the claim, and dispatch the cell if messages have arrived (CE2). On the loop's thread."""
        self.envelope = NO_ENVELOPE
        self.answered_envelope = None  # it may be large
        if self.state is not _STOPPED:
            self.state = _IDLE
        if self.mailbox.qsize() or self.system_queue:
            self.dispatcher.dispatch(self)

    def release_from_thread(self) -> None:
        """Give up the claim as `release` does, from any thread. The lock (0.1 µs) is needed because the loop
        may stop the cell meanwhile."""
        self.envelope = NO_ENVELOPE
        self.answered_envelope = None
        with _claim_lock:
            if self.state is not _STOPPED:
                self.state = _IDLE
        if self.mailbox.qsize() or self.system_queue:
            self.dispatcher.dispatch(self)

    def finish_start(self) -> None:
        """Leave the state STARTING, still with the claim; the caller then calls `release`. On the loop's
        thread."""
        self.state = _CLAIMED

    def suspend(self) -> None:
        """Turn the claim of a failed cell into SUSPENDED until its supervisor has decided (CE4). On the loop's
        thread."""
        self.state = CellState.SUSPENDED

    def mark_stopped(self, dispatcher: Dispatcher) -> None:
        """Drop the actor and enter STOPPED. From now on `dispatcher`, the dead letter office, handles the
        messages that are put into the mailbox. On the loop's thread."""
        self.actor = self.task = None
        self.behaviour, self.message_types = _no_behaviour, None
        self.envelope = NO_ENVELOPE
        self.dispatcher = dispatcher
        with _claim_lock:
            self.state = _STOPPED

    @property
    def is_claimed(self) -> bool:
        return self.state not in _UNCLAIMED_STATES

    @property
    def is_suspended(self) -> bool:
        """Whether the actor has failed and waits for its supervisor."""
        return self.state is CellState.SUSPENDED

    @property
    def is_started(self) -> bool:
        return self.state is not CellState.STARTING and self.state is not _STOPPED

    @property
    def is_stopping(self) -> bool:
        """Whether the actor has stopped, or a stop was requested."""
        return self.state is _STOPPED or self.pending_stop is not None

    def wake(self) -> None:
        """Dispatch the cell because a message was put into its mailbox (CE2). From any thread."""
        if self.state is not _CLAIMED:
            self.dispatcher.dispatch(self)

    # --- running --------------------------------------------------------------------------------------

    def run(self, budget: int) -> None:
        """Handle up to `budget` messages in the calling thread, which has claimed the cell."""
        if self.state is _STOPPED:
            self.release_from_thread()
            return
        token = current_cell.set(self)
        try:
            if self.run_turn(budget):
                self.release_from_thread()
        finally:
            current_cell.reset(token)

    def run_turn(self, budget: int) -> bool:
        """Handle up to `budget` messages for a caller that has set `current_cell` itself. Returns True if the
        caller must release the cell, and False if the claim was passed on: to a task, to an exclusive action,
        or to the handling of a failure."""
        for index in range(budget):
            if self.system_queue:
                if (handler := self._next_system_handler(index)) is None:
                    return False
            else:
                mailbox = self.mailbox
                if not mailbox.qsize():
                    self.handled += index
                    return True
                try:
                    envelope = self.envelope = mailbox.get_nowait()
                except Empty:  # another actor has stolen the message
                    self.handled += index
                    return True
                except Exception as error:  # noqa: BLE001  as below
                    self.envelope = NO_ENVELOPE
                    self.handled += index
                    self.fail(error)
                    return False
                if self.space_callbacks:
                    backpressure.notify_space(self)
                handler = self.behaviour
                types = self.message_types
                if types is not None and type(envelope[0]) not in types:
                    handler = types.find_handler(self)
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
            except BaseException as error:  # noqa: BLE001  the supervisor decides about every failure
                self.handled += index + 1
                self._handle_exception(error)
                return False
            self.handled += index + 1
            # A cell that runs in a thread goes back to it after this message.
            on_loop = get_ident() == self.system._thread_id
            self.system._call_on_loop(self._continue_as_task, result, budget if on_loop else 1)
            return False
        self.handled += budget
        return True

    async def run_as_task(self, budget: int, result: Any = None) -> None:
        """Handle up to `budget` messages in a task, for handlers that await, and release the cell. `result` is
        the awaitable of a handler that was already called."""
        current_cell.set(self)
        awaited = False
        for _ in range(budget):
            try:
                if result is None:
                    if (handler := self._next_handler()) is None:
                        break
                    if handler is CLAIM_PASSED_ON:
                        return
                    self.handled += 1
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

    def _continue_as_task(self, result: Awaitable[Any], budget: int) -> None:
        self.runs_as_task = True
        self.task = self.system._loop.create_task(self.run_as_task(budget, result))

    def _next_handler(self) -> Behaviour | None:
        """Take the next message into `envelope` and return its handler; None if there is no message, and
        CLAIM_PASSED_ON if an exclusive action was next."""
        if self.system_queue:
            return self._next_system_handler() or CLAIM_PASSED_ON
        self.envelope = NO_ENVELOPE  # a failure of get_nowait is not one of the previous message
        try:
            self.envelope = self.mailbox.get_nowait()
        except Empty:
            return None
        if self.space_callbacks:
            backpressure.notify_space(self)
        types = self.message_types
        if types is not None and type(self.envelope[0]) not in types:
            return types.find_handler(self)
        return self.behaviour

    def _next_system_handler(self, handled: int = 0) -> Behaviour | None:
        """Return the handler of the next signal. If an exclusive action is next, count the messages that this run
        has handled, pass the claim on to the action, and return None."""
        assert self.system_queue is not None
        assert self.actor is not None
        item = self.system_queue.popleft()
        if isinstance(item, Signal):
            self.envelope = (item, None, None)
            return self.actor.on_signal
        self.envelope = NO_ENVELOPE
        self.task = None
        self.handled += handled
        self.system._call_on_loop(item)
        return None

    def _reply_with(self, value: Any) -> None:
        """Reply to an ask with the value that its handler returned; drop the value if the message was told.

        Raises DuplicateReplyError if the handler has replied, promised a reply or forwarded the ask, and
        TypeError if it is a generator function, because calling that has handled nothing.
        """
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

    # --- failure --------------------------------------------------------------------------------------

    def _handle_exception(self, error: BaseException) -> None:
        """Fail with the exception of a handler. On the loop's thread, KeyboardInterrupt and SystemExit also end
        the program; in other threads Python does not allow that."""
        if isinstance(error, GeneratorExit) and self.system._loop.is_closed():
            raise error  # the task is being garbage collected
        self.fail(error if isinstance(error, Exception) else interrupted_error(self.ref, error))
        ends_program = isinstance(error, KeyboardInterrupt | SystemExit)
        if ends_program and get_ident() == self.system._thread_id:
            raise error

    def fail(self, error: Exception) -> None:
        """Report that the handler of `envelope` failed. The caller's claim passes to the supervisor (CE4)."""
        envelope = self.envelope
        reply = envelope[2]
        self.task = None
        if isinstance(error, UnhandledMessageError) and reply is not None and reply.is_untrusted:
            self._reject_untrusted(envelope, error)
            return
        try:
            durable = self.durable_mailbox
            is_retried = durable is not None and not durable.acknowledge(envelope, error)
            if reply is not None and not is_retried:
                reply.fail(error)
        except Exception:  # the supervisor must hear of the failure even so
            log.exception(
                "error while reporting a failure to the asker (actor=%s failure=%r)",
                self.ref,
                error,
            )
        self.system._call_on_loop(self.system._handle_failure, self, error)

    def _reject_untrusted(self, envelope: MessageEnvelope, error: UnhandledMessageError) -> None:
        """Reject a message of an untrusted node without a failure: otherwise that node could stop the actor by
        sending messages that it does not know."""
        log.info("message of an untrusted node rejected (actor=%s error=%s)", self.ref, error)
        try:
            if self.durable_mailbox is not None:
                self.durable_mailbox.acknowledge(envelope, None)
            if envelope[2] is not None:
                envelope[2].fail(error)
        finally:
            self.release_from_thread()

    # --- signals and exclusive actions ----------------------------------------------------------------

    def enqueue_system(self, item: Signal | ExclusiveAction) -> None:
        """Process a signal or an exclusive action before the next message (CE3). From any thread."""
        with _claim_lock:
            if self.system_queue is None:
                self.system_queue = deque()
        self.system_queue.append(item)
        if self.state is not _CLAIMED:
            self.dispatcher.dispatch(self)

    def run_exclusively(self, action: ExclusiveAction) -> None:
        """Call `action` with the claim of the cell, as soon as no handler runs. Call it on the loop's
        thread."""
        if self.state is CellState.SUSPENDED:
            self.state = _CLAIMED
            action()
        elif self.claim():
            action()
        else:
            self.enqueue_system(action)

    # --- rarely needed --------------------------------------------------------------------------------

    def ensure_links(self) -> Links:
        """Return the links of the cell. They are created on first use, because most cells have none."""
        with _claim_lock:
            if self.links is None:
                actor = self.actor
                strategy = (
                    self.system._guardian.default_strategy
                    if actor is None
                    else actor.supervisor_strategy
                )
                self.links = Links(strategy)
            return self.links

    @property
    def children(self) -> tuple[ActorRef[Any], ...]:
        return tuple(self.links.children.strategies) if self.links is not None else ()

    def on_instance_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this instance of the actor ends, by a restart or a stop. On the loop's
        thread."""
        self.ensure_links().instance_end_callbacks.append(callback)

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the actor has stopped. On the loop's thread."""
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
        """Take over the message that is being handled: it is neither answered nor acknowledged until it is
        requeued."""
        envelope, self.envelope = self.envelope, NO_ENVELOPE
        return envelope

    def put_durably(
        self, envelope: MessageEnvelope, origin: Origin | None, on_stored: StoredCallback | None
    ) -> None:
        """Put a message into the durable mailbox of this cell (see DurableMailboxPort)."""
        assert self.durable_mailbox is not None
        self.durable_mailbox.put_durably(envelope, origin, on_stored)
        self.wake()

    def requeue(self, envelopes: list[MessageEnvelope]) -> None:
        """Put envelopes before all others in the mailbox, in this order. Call it with the claim of the cell."""
        if not isinstance(self.mailbox, RequeueMailbox):
            self.mailbox = RequeueMailbox(self.mailbox)
        self.mailbox.requeue(envelopes)


def _no_behaviour(message: Any) -> None:
    raise AssertionError("a cell without an actor was run")


# Returned by `_next_handler` instead of a handler: an exclusive action has the claim now.
CLAIM_PASSED_ON: Behaviour = _no_behaviour
