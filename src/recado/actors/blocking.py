"""Blocking calls to actors, for programs without an event loop and for other threads of programs with one.

    with BlockingActorSystem("exchange") as system:
        book = system.spawn(Book, name="book.A1")
        book.tell(Cancel())
        ack = book.ask(Place(order), timeout=2)        # blocks; inferred: Ack

    ack = blocking.ask(ref, Place(order), timeout=2)   # any reference, in a thread of any program

BL1  A blocking ask ends with the reply, an exception or AskTimeoutError, also when the system is closed.
BL2  In the loop's thread a blocking call would deadlock. There it raises WrongContextError at once, and sends
     nothing.
BL3  A BlockingFuture completes once: with a value, an exception, or the result of another one.

In a handler that a dispatcher runs in a thread, the sender of a blocking call is the actor of that handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from concurrent.futures import CancelledError, InvalidStateError, wait
from concurrent.futures import Future as ThreadFuture
from contextvars import copy_context
from functools import partial
from threading import Event, Lock, RLock, get_ident
from typing import Any, Generic, Self, TypeVar, overload

from recado.client.loop_thread import LoopThread

from . import system as systems
from .actor import Actor
from .errors import AskTimeoutError, SystemClosedError, WrongContextError
from .message import Message
from .ref import ActorRef
from .runtime.loop_dispatcher import Dispatcher
from .runtime.mailbox import MailboxFactory
from .runtime.os_signals import call_on_first_signal
from .supervision.strategy import PERMANENT, RestartType, SupervisorStrategy

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")
S = TypeVar("S")

# How much longer than its timeout a blocking ask waits for the loop to report that timeout. After that the loop
# is assumed to be stopped. Also the interval in which calls without a timeout check whether the loop is closed.
LOOP_MARGIN_S = 5.0


class BlockingFuture(ThreadFuture[R]):
    """The future of a reply, for threads: `result()` blocks until it is there."""

    def __init__(
        self, system: systems.ActorSystem | None = None, timeout: float | None = None
    ) -> None:
        super().__init__()
        self._system = system
        self._timeout = timeout

    def result(self, timeout: float | None = None) -> R:
        """Return the reply. Blocks for at most `timeout` seconds; None waits for the timeout of the ask.

        Raises AskTimeoutError, the exception that the actor replied with, and WrongContextError in the loop's
        thread.
        """
        if not self.done():
            _require_other_thread(self._system)
        wait_timeout = self._timeout if timeout is None else timeout
        if wait_timeout is None and self._system is not None:
            self._wait_while_loop_runs(self._system)
        try:
            return super().result(wait_timeout)
        except AskTimeoutError:
            raise
        except TimeoutError:
            if self.done():  # the actor has replied with a TimeoutError
                raise
            raise AskTimeoutError(
                "no answer, and no word of the loop that should have got it"
            ) from None

    def _wait_while_loop_runs(self, system: systems.ActorSystem) -> None:
        """Wait while the loop exists that may complete this future. The end of a loop is not reported, so it is
        polled."""
        while wait((self,), LOOP_MARGIN_S).not_done:
            if system._loop.is_closed():
                self.fail(_loop_closed_error(system))

    def complete(self, value: R) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_result(value)

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_exception(error)

    def complete_with(self, other: ThreadFuture[R]) -> None:
        """Complete this future with the result of `other` when that is done."""
        other.add_done_callback(self._copy_result)

    def _copy_result(self, other: ThreadFuture[R]) -> None:
        if error := _exception_of(other):
            self.fail(error)
        else:
            self.complete(other.result())

    @overload
    def then(self, function: Callable[[R], BlockingFuture[S]]) -> BlockingFuture[S]: ...

    @overload
    def then(self, function: Callable[[R], S]) -> BlockingFuture[S]: ...

    def then(self, function: Callable[[R], Any]) -> BlockingFuture[Any]:
        """Return the future of `function(value)`. If that is a BlockingFuture, its result is awaited.

        An exception of this future or of `function` is the exception of the returned future. `function` runs in
        the thread that completes this future, mostly the loop's, so it must not block.
        """
        result: BlockingFuture[Any] = BlockingFuture(self._system)

        def run_function(done: ThreadFuture[R]) -> None:
            if error := _exception_of(done):
                result.fail(error)
                return
            try:
                returned = function(done.result())
            except Exception as error:  # noqa: BLE001 - it is the result
                result.fail(error)
                return
            if isinstance(returned, BlockingFuture):
                result.complete_with(returned)
            else:
                result.complete(returned)

        self.add_done_callback(run_function)
        return result


def join(*futures: BlockingFuture[Any]) -> BlockingFuture[tuple[Any, ...]]:
    """Return the future of all values, in this order. It fails with the first failure at once."""
    joined: BlockingFuture[tuple[Any, ...]] = BlockingFuture(
        futures[0]._system if futures else None
    )
    values: dict[int, Any] = {}
    lock = Lock()

    def collect(number: int, done: ThreadFuture[Any]) -> None:
        if error := _exception_of(done):
            joined.fail(error)
            return
        with lock:
            values[number] = done.result()
            complete = len(values) == len(futures)
        if complete:
            joined.complete(tuple(values[each] for each in range(len(futures))))

    for number, each in enumerate(futures):
        each.add_done_callback(partial(collect, number))
    if not futures:
        joined.complete(())
    return joined


def _exception_of(done: ThreadFuture[Any]) -> BaseException | None:
    return CancelledError() if done.cancelled() else done.exception()


def _require_other_thread(system: systems.ActorSystem | None) -> None:
    if system is not None and get_ident() == system._thread_id:
        raise WrongContextError(
            "a blocking call in the loop's thread would deadlock",
            "Use `await ref.ask(…)` there",
        )


def ask(ref: ActorRef[Any], message: Message[R], timeout: float | None = None) -> R:
    """Send a message, and return its reply (BL1, BL2). Arguments and exceptions as for `ActorRef.ask`."""
    _require_other_thread(ref._system)
    return ask_future(ref, message, timeout).result()


def ask_future(
    ref: ActorRef[Any], message: Message[R], timeout: float | None = None
) -> BlockingFuture[R]:
    """Send a message, and return the future of its reply at once."""
    system = ref._system
    seconds = system._open_asks.default_timeout if timeout is None else timeout
    return _start_on_loop(system, lambda: ref.ask_future(message, seconds), seconds + LOOP_MARGIN_S)


def tell_wait(ref: ActorRef[M], message: M, timeout: float | None = None) -> None:
    """Send a message, and return when the mailbox has accepted it, as `ActorRef.tell_wait` does."""
    system = ref._system
    _require_other_thread(system)
    _start_on_loop(
        system, lambda: system._loop.create_task(ref.tell_wait(message, timeout))
    ).result()


def _start_on_loop(
    system: systems.ActorSystem,
    begin: Callable[[], asyncio.Future[R]],
    timeout: float | None = None,
) -> BlockingFuture[R]:
    """Call `begin` on the loop, in the context of the caller, and return the result of its future."""
    result: BlockingFuture[R] = BlockingFuture(system, timeout)

    def start() -> None:
        try:
            begin().add_done_callback(finish)
        except Exception as error:  # noqa: BLE001 - it is the result
            result.fail(error)

    def finish(done: asyncio.Future[R]) -> None:
        if done.cancelled():
            result.fail(SystemClosedError(f"the system {system.name} was closed before the reply"))
        elif error := done.exception():
            result.fail(error)
        else:
            result.complete(done.result())

    try:
        system._loop.call_soon_threadsafe(start, context=copy_context())
    except RuntimeError:
        result.fail(_loop_closed_error(system))
    return result


def _loop_closed_error(system: systems.ActorSystem) -> SystemClosedError:
    return SystemClosedError(f"the loop of the system {system.name} does not run any more")


class BlockingActorRef(Generic[M_contra]):
    """A reference whose `ask` blocks."""

    __slots__ = ("ref",)

    def __init__(self, ref: ActorRef[M_contra]) -> None:
        self.ref = ref

    def tell(self, message: M_contra) -> None:
        self.ref.tell(message)

    def tell_wait(self, message: M_contra, timeout: float | None = None) -> None:
        tell_wait(self.ref, message, timeout)

    def ask(self, message: Message[R], timeout: float | None = None) -> R:
        return ask(self.ref, message, timeout)

    def ask_future(self, message: Message[R], timeout: float | None = None) -> BlockingFuture[R]:
        return ask_future(self.ref, message, timeout)

    def stop(self) -> None:
        self.ref.stop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockingActorRef) and self.ref == other.ref

    def __hash__(self) -> int:
        return hash(self.ref)

    def __repr__(self) -> str:
        return f"<BlockingActorRef {self.ref}>"


class BlockingActorSystem:
    """An actor system with its own event loop in a thread. All methods may be called from any thread."""

    def __init__(self, name: str = "local", **settings: Any) -> None:
        """Create a system; `with` opens it. The settings are those of ActorSystem."""
        self._system = systems.ActorSystem(name, **settings)
        self._thread = LoopThread(
            f"recado actors {name}", lambda: SystemClosedError(f"{name} is closed")
        )
        self._close_lock = RLock()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._thread.run(self._system.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the system, and return when it is closed. The end of the `with` block does the same."""
        with self._close_lock:  # a second thread returns when the first has closed it
            if self._thread.is_running:
                try:
                    self._thread.run(self._system._close_completely())
                finally:
                    self._thread.stop()

    def run_until_signal(self, *signals: signal.Signals) -> None:
        """Wait for one of these signals, by default SIGTERM and SIGINT, then close the system.

        Returns when the system is closed, also if another thread closes it. Call it in the main thread, the
        only one in which Python handles signals.
        """
        stopped = Event()
        self._system.on_close(stopped.set)
        with call_on_first_signal(signals, stopped.set):
            # Checked after `on_close`: a close from now on calls `stopped.set`.
            if self._system._is_open:
                stopped.wait()
            self.close()

    def spawn(
        self,
        factory: Callable[[], Actor[M]],
        *,
        name: str = "",
        supervisor_strategy: SupervisorStrategy | None = None,
        restart_type: RestartType = PERMANENT,
        dispatcher: Dispatcher | None = None,
        mailbox: MailboxFactory | None = None,
        capacity: int | None = None,
    ) -> BlockingActorRef[M]:
        """Start an actor. Arguments and exceptions as for `ActorSystem.spawn`."""
        spawn = self._system.spawn(
            factory,
            name=name,
            supervisor_strategy=supervisor_strategy,
            restart_type=restart_type,
            dispatcher=dispatcher,
            mailbox=mailbox,
            capacity=capacity,
        )
        return BlockingActorRef(self._thread.run(spawn))

    def actor(
        self, name: str, actor_class: type[Actor[M]] | None = None, *, node: str = ""
    ) -> BlockingActorRef[M]:
        """Return the reference of an actor by name. Arguments and exceptions as for `ActorSystem.actor`."""

        async def find() -> ActorRef[M]:
            return self._system.actor(name, actor_class, node=node)

        return BlockingActorRef(self._thread.run(find()))

    def stop(self, ref: BlockingActorRef[Any]) -> None:
        """Stop an actor, and wait until it has stopped."""
        self._thread.run(self._system.stop(ref.ref))

    def stop_all(self, actor_class: type[Actor[Any]] = Actor) -> None:
        """Stop all actors of a class, by default all, and wait until they have stopped."""
        self._thread.run(self._system.stop_all(actor_class))
