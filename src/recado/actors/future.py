"""Futures of answers, and the time-outs of all asks of a system.

    ack = await book.ask_future(Place(order), timeout=2)
    receivers.ask_future(Pick()).then(lambda receiver: receiver.ask_future(Place(order)))   # a chain
    await join(a.ask_future(Price()), b.ask_future(Price()))                                # both

FU1  A future completes once: with a value, with an exception, or as another future does. What comes later is
     dropped.
FU2  Any thread may complete it; whoever waits for it does so on the loop of the system.
FU3  Every ask has a time-out. A future made of others ends when they do, so it ends too.

Steps of `then` run on the loop, not in the actor that made them: in a handler, `await` instead.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .errors import ActorInterruptedError, AskTimeoutError, WrongContextError
from .runtime.wakeup import loop_wakeup

if TYPE_CHECKING:
    from .ref import ActorRef, Reply
    from .runtime.clock import Clock, Timer

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class TimeoutGroup(dict["Future[Any]", "tuple[float, ActorRef[Any]]"]):
    """Asks with the same time-out, the first first: when each ends, and who was asked."""

    __slots__ = ("timeout", "timer")

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self.timer: Timer | None = None


# That of futures which are no asks.
_NO_TIMEOUT_GROUP = TimeoutGroup(None)


class Future(asyncio.Future[R]):
    """An answer that is to come. It is a Reply: `complete` and `fail` are for who answers."""

    # No constructor in Python: that of C takes 0.2 µs, and one around it as long again.
    __slots__ = ("_timeout_group",)

    _timeout_group: TimeoutGroup

    @classmethod
    def create(cls, loop: asyncio.AbstractEventLoop) -> Future[Any]:
        """One that is no ask, so it has no time-out of its own."""
        future: Future[Any] = cls(loop=loop)
        future._timeout_group = _NO_TIMEOUT_GROUP
        return future

    @property
    def timeout(self) -> float | None:
        """The time-out that it was asked with."""
        return self._timeout_group.timeout

    def complete(self, value: R) -> None:
        if _get_running_loop() is not self._loop:
            loop_wakeup(self._loop).call(self.complete, value)
        elif not self.done():
            self._timeout_group.pop(self, None)
            self.set_result(value)

    def fail(self, error: BaseException) -> None:
        if _get_running_loop() is not self._loop:
            loop_wakeup(self._loop).call(self.fail, error)
        elif not self.done():
            self._timeout_group.pop(self, None)
            self.set_exception(_storable_exception(error))

    def complete_with(self, other: asyncio.Future[R]) -> None:
        """As `other` does, whenever that is. Call it on the loop's thread."""
        other.add_done_callback(partial(copy_result, self))

    @overload
    def then(self, step: Callable[[R], Future[S]]) -> Future[S]: ...

    @overload
    def then(self, step: Callable[[R], Coroutine[Any, Any, S]]) -> Future[S]: ...

    @overload
    def then(self, step: Callable[[R], S]) -> Future[S]: ...

    def then(self, step: Callable[[R], Awaitable[S] | S]) -> Future[S]:
        """What `step` makes of the value: a value, or another future or coroutine, which is waited for.

        A failure, of this one or of the step, is the failure of the result.
        """
        after: Future[S] = Future.create(self._loop)

        def go_on(done: asyncio.Future[R]) -> None:
            if error := _exception_of(done):
                after.fail(error)
                return
            try:
                made = step(done.result())
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  it is the step's answer
                after.fail(error)
                return
            if isinstance(made, Awaitable):
                after.complete_with(asyncio.ensure_future(made, loop=self._loop))
            else:
                after.complete(made)

        self.add_done_callback(go_on)
        return after

    def pipe_to(self, ref: ActorRef[Any], on_failure: Callable[[BaseException], Any]) -> None:
        """Tell it to an actor when it is there; of a failure, what `failed` makes of it."""

        def tell_result(done: asyncio.Future[R]) -> None:
            error = _exception_of(done)
            ref.tell(on_failure(error) if error else done.result())

        self.add_done_callback(tell_result)


def copy_result(reply: Reply, source: asyncio.Future[Any]) -> None:
    """Answer as a future was."""
    if error := _exception_of(source):
        reply.fail(error)
    else:
        reply.complete(source.result())


def interrupted_error(ref: ActorRef[Any], error: BaseException) -> ActorInterruptedError:
    """The failure of an actor whose handler or hook raised `error`, which is no Exception: the asker of a
    cancelled handler is not cancelled itself."""
    cancelled = isinstance(error, asyncio.CancelledError)
    cause = "was cancelled" if cancelled else f"raised {error!r}"
    failure = ActorInterruptedError(f"a handler or hook of {ref} {cause}")
    failure.__cause__ = error
    return failure


def _exception_of(done: asyncio.Future[Any]) -> BaseException | None:
    return (
        ActorInterruptedError("what it waits for was cancelled")
        if done.cancelled()
        else done.exception()
    )


def _storable_exception(error: BaseException) -> BaseException:
    """What a future can hold: no StopIteration; and no CancelledError, as who awaits it was not cancelled."""
    stored: BaseException
    match error:
        case StopIteration():
            stored = RuntimeError(f"{error!r} was raised")
        case asyncio.CancelledError():
            stored = ActorInterruptedError("what it waits for was cancelled")
        case _:
            return error
    stored.__cause__ = error
    return stored


@overload
def join(first: Future[R], second: Future[S], /) -> Future[tuple[R, S]]: ...


@overload
def join(first: Future[R], second: Future[S], third: Future[T], /) -> Future[tuple[R, S, T]]: ...


@overload
def join(first: Future[R], *others: Future[R]) -> Future[tuple[R, ...]]: ...


@overload
def join(first: Future[Any], *others: Future[Any]) -> Future[tuple[Any, ...]]: ...


def join(first: Future[Any], *others: Future[Any]) -> Future[tuple[Any, ...]]:
    """All answers, in this order, when all are there; the first failure at once."""
    futures = (first, *others)
    joined: Future[tuple[Any, ...]] = Future.create(first._loop)
    missing = len(futures)

    def one_more(done: asyncio.Future[Any]) -> None:
        nonlocal missing
        missing -= 1
        if error := _exception_of(done):
            joined.fail(error)
        elif not missing and not joined.done():
            joined.complete(tuple(each.result() for each in futures))

    for each in futures:
        each.add_done_callback(one_more)
    return joined


class OpenAsks:
    """The asks that wait for an answer, by their time-out.

    Asks with the same time-out end in the order in which they began, so one timer per distinct time-out is
    enough for all of them, and it is set anew only when it fires: 0.25 µs per ask, where a timer of its own
    costs 1.9.

    AS1  A lane is in the order of its deadlines, and its timer is set for no later than the first of them.
    """

    def __init__(
        self, clock: Clock, loop: asyncio.AbstractEventLoop, default_timeout: float
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._thread_id = get_ident()
        self.default_timeout = default_timeout
        self._groups: dict[float, TimeoutGroup] = {}

    def open(self, target: ActorRef[Any], timeout: float | None) -> Future[Any]:
        if get_ident() != self._thread_id:
            raise WrongContextError(
                "asked from a thread that is not the loop's",
                "Use recado.actors.blocking there, or tell",
            )
        if timeout is None:
            timeout = self.default_timeout
        group = self._groups.get(timeout)
        if group is None:
            group = self._groups[timeout] = TimeoutGroup(timeout)
            group.timer = self._clock.call_later(timeout, self._expire, group)
        future: Future[Any] = Future(loop=self._loop)
        future._timeout_group = group
        group[future] = (self._clock.time() + timeout, target)
        return future

    def close(self, error: BaseException) -> None:
        """Nobody will answer any more."""
        for group in list(self._groups.values()):
            if group.timer is not None:
                group.timer.cancel()
            for future in list(group):
                future.fail(error)
        self._groups.clear()  # a later ask begins a lane, and with it a timer

    def _expire(self, group: TimeoutGroup) -> None:
        now, timeout = self._clock.time(), group.timeout
        assert timeout is not None
        while group:
            future, (deadline, target) = next(iter(group.items()))
            if deadline > now:
                group.timer = self._clock.call_later(deadline - now, self._expire, group)
                return
            del group[future]
            if not future.done():
                future.set_exception(
                    AskTimeoutError(f"no answer from {target} within {timeout:g} s")
                )
        del self._groups[timeout]
