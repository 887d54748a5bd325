"""Actors for programs without an event loop, and for threads of those with one: calls that wait.

    with blocking.ActorSystem("exchange") as system:
        book = system.spawn(Book, name="book.A1")
        book.tell(Cancel())
        ack = book.ask(Place(order), timeout=2)        # waits; inferred: Ack

    ack = blocking.ask(ref, Place(order), timeout=2)   # any reference, in a thread of any program

BL1  A call that waits ends: with the answer, an exception or AskTimeout, also when the system is closed.
BL2  In the thread of the loop it would wait for itself. There it raises NotHere at once, and sends nothing.
BL3  An Answer completes once: with a value, an exception, or as another Answer does.

In a handler that runs in a thread (dispatchers) the actor is the sender, as always.
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
from .errors import AskTimeout, NotHere, SystemClosed
from .failing.supervision import PERMANENT, Lifecycle, Supervision
from .message import Message
from .ref import ActorRef
from .running.mailbox import MailboxFactory
from .running.signals import on_first_signal
from .running.turn import Dispatcher

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)
R = TypeVar("R")
S = TypeVar("S")

# Seconds for the loop to tell that the time is over; after that, it does not run any more.
MARGIN = 5.0


class Answer(ThreadFuture[R]):
    """An answer that is to come, for threads: `result()` waits for it."""

    def __init__(
        self, system: systems.ActorSystem | None = None, within: float | None = None
    ) -> None:
        super().__init__()
        self._system = system
        self._within = within

    def result(self, timeout: float | None = None) -> R:
        """Wait for it, `timeout` seconds at most; the ask has a time-out of its own, so it ends without one."""
        if not self.done():
            _check_thread(self._system)
        within = self._within if timeout is None else timeout
        if within is None and self._system is not None:
            self._outlast(self._system)
        try:
            return super().result(within)
        except AskTimeout:
            raise
        except TimeoutError:
            if self.done():  # it is what was answered
                raise
            raise AskTimeout("no answer, and no word of the loop that should have got it") from None

    def _outlast(self, system: systems.ActorSystem) -> None:
        """Wait as long as there is a loop by which it may complete. Nobody tells when that has ended, so it is
        looked at now and then."""
        while wait((self,), MARGIN).not_done:
            if system.loop.is_closed():
                self.fail(_ended(system))

    def complete(self, value: R) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_result(value)

    def fail(self, error: BaseException) -> None:
        with contextlib.suppress(InvalidStateError):
            self.set_exception(error)

    def complete_with(self, other: ThreadFuture[R]) -> None:
        """As `other` does, whenever that is."""
        other.add_done_callback(self._as)

    def _as(self, other: ThreadFuture[R]) -> None:
        if error := _error(other):
            self.fail(error)
        else:
            self.complete(other.result())

    @overload
    def then(self, step: Callable[[R], Answer[S]]) -> Answer[S]: ...

    @overload
    def then(self, step: Callable[[R], S]) -> Answer[S]: ...

    def then(self, step: Callable[[R], Any]) -> Answer[Any]:
        """What `step` makes of the value: a value, or another Answer, which is waited for.

        A failure, of this one or of the step, is the failure of the result. Steps run in the thread that
        completes this one, mostly the loop's, so they must not wait.
        """
        after: Answer[Any] = Answer(self._system)

        def go_on(done: ThreadFuture[R]) -> None:
            if error := _error(done):
                after.fail(error)
                return
            try:
                made = step(done.result())
            except Exception as error:  # noqa: BLE001 - it is the step's answer
                after.fail(error)
                return
            if isinstance(made, Answer):
                after.complete_with(made)
            else:
                after.complete(made)

        self.add_done_callback(go_on)
        return after


def join(*answers: Answer[Any]) -> Answer[tuple[Any, ...]]:
    """All of them, in this order, when all are there; the first failure at once."""
    joined: Answer[tuple[Any, ...]] = Answer(answers[0]._system if answers else None)
    values: dict[int, Any] = {}
    guard = Lock()

    def one_more(number: int, done: ThreadFuture[Any]) -> None:
        if error := _error(done):
            joined.fail(error)
            return
        with guard:
            values[number] = done.result()
            complete = len(values) == len(answers)
        if complete:
            joined.complete(tuple(values[each] for each in range(len(answers))))

    for number, each in enumerate(answers):
        each.add_done_callback(partial(one_more, number))
    if not answers:
        joined.complete(())
    return joined


def _error(done: ThreadFuture[Any]) -> BaseException | None:
    return CancelledError() if done.cancelled() else done.exception()


def _check_thread(system: systems.ActorSystem | None) -> None:
    if system is not None and get_ident() == system.home:
        raise NotHere(
            "a call that waits, in the thread of the loop, would wait for itself",
            "Use `await ref.ask(…)` there",
        )


def ask(ref: ActorRef[Any], message: Message[R], timeout: float | None = None) -> R:
    """Ask, and wait for the answer (BL1, BL2)."""
    _check_thread(ref._system)
    return ask_future(ref, message, timeout).result()


def ask_future(ref: ActorRef[Any], message: Message[R], timeout: float | None = None) -> Answer[R]:
    """Ask, and go on; `result()` of what is returned waits."""
    system = ref._system
    seconds = system.asks.default if timeout is None else timeout
    return _begun(system, lambda: ref.ask_future(message, seconds), seconds + MARGIN)


def tell_wait(ref: ActorRef[M], message: M, timeout: float | None = None) -> None:
    """Send a message and return when the mailbox has taken it, as `tell_wait` of ActorRef does."""
    system = ref._system
    _check_thread(system)
    _begun(system, lambda: system.loop.create_task(ref.tell_wait(message, timeout))).result()


def _begun(
    system: systems.ActorSystem,
    begin: Callable[[], asyncio.Future[R]],
    within: float | None = None,
) -> Answer[R]:
    """What is begun on the loop, in the name of who calls."""
    answer: Answer[R] = Answer(system, within)

    def go() -> None:
        try:
            begin().add_done_callback(end)
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            answer.fail(error)

    def end(done: asyncio.Future[R]) -> None:
        if done.cancelled():
            answer.fail(SystemClosed("nobody waits for the answer any more"))
        elif error := done.exception():
            answer.fail(error)
        else:
            answer.complete(done.result())

    try:
        system.loop.call_soon_threadsafe(go, context=copy_context())
    except RuntimeError:
        answer.fail(_ended(system))
    return answer


def _ended(system: systems.ActorSystem) -> SystemClosed:
    return SystemClosed(f"the loop of the system {system.name} does not run any more")


class Ref(Generic[M_contra]):
    """A reference whose `ask` waits."""

    __slots__ = ("ref",)

    def __init__(self, ref: ActorRef[M_contra]) -> None:
        self.ref = ref

    def tell(self, message: M_contra) -> None:
        self.ref.tell(message)

    def tell_wait(self, message: M_contra, timeout: float | None = None) -> None:
        tell_wait(self.ref, message, timeout)

    def ask(self, message: Message[R], timeout: float | None = None) -> R:
        return ask(self.ref, message, timeout)

    def ask_future(self, message: Message[R], timeout: float | None = None) -> Answer[R]:
        return ask_future(self.ref, message, timeout)

    def stop(self) -> None:
        self.ref.stop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.ref == other.ref

    def __hash__(self) -> int:
        return hash(self.ref)

    def __repr__(self) -> str:
        return f"<blocking.Ref {self.ref}>"


class ActorSystem:
    """A system of actors with a thread of its own for the loop. Any thread may call."""

    def __init__(self, name: str = "local", **settings: Any) -> None:
        """The settings are those of recado.actors.ActorSystem."""
        self.system = systems.ActorSystem(name, **settings)
        self._thread = LoopThread(
            f"recado actors {name}", lambda: SystemClosed(f"{name} is closed")
        )
        self._closing = RLock()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._thread.run(self.system.__aenter__())
        except BaseException:
            self._thread.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._closing:  # a second thread returns when the first has closed it
            if self._thread.is_running:
                try:
                    self._thread.run(self.system._close_completely())
                finally:
                    self._thread.stop()

    def run_until_signal(self, *signals: signal.Signals) -> None:
        """Wait for one of these signals, by default SIGTERM and SIGINT, then close the system. Returns when the
        system is closed, also if another thread closes it. Call it in the main thread, as Python delivers
        signals there only."""
        stopped = Event()
        self.system.at_close(stopped.set)
        with on_first_signal(signals, stopped.set):
            # Read after `at_close`: to close the system from now on calls `stopped.set`.
            if self.system._open:
                stopped.wait()
            self.close()

    def spawn(
        self,
        factory: Callable[[], Actor[M]],
        *,
        name: str = "",
        supervision: Supervision | None = None,
        lifecycle: Lifecycle = PERMANENT,
        dispatcher: Dispatcher | None = None,
        mailbox: MailboxFactory | None = None,
        capacity: int | None = None,
    ) -> Ref[M]:
        """As `spawn` of recado.actors.ActorSystem."""
        spawning = self.system.spawn(
            factory,
            name=name,
            supervision=supervision,
            lifecycle=lifecycle,
            dispatcher=dispatcher,
            mailbox=mailbox,
            capacity=capacity,
        )
        return Ref(self._thread.run(spawning))

    def actor(self, name: str, kind: type[Actor[M]] | None = None, *, node: str = "") -> Ref[M]:
        async def find() -> ActorRef[M]:
            return self.system.actor(name, kind, node=node)

        return Ref(self._thread.run(find()))

    def stop(self, ref: Ref[Any]) -> None:
        """And wait until it has."""
        self._thread.run(self.system.stop(ref.ref))

    def stop_all(self, kind: type[Actor[Any]] = Actor) -> None:
        self._thread.run(self.system.stop_all(kind))
