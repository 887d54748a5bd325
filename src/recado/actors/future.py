"""Futures of replies, and the timeouts of all asks of a system.

    ack = await book.ask_future(Place(order), timeout=2)
    receivers.ask_future(Pick()).then(lambda receiver: receiver.ask_future(Place(order)))   # a chain
    await join(a.ask_future(Price()), b.ask_future(Price()))                                # both

FU1  A future completes once: with a value, with an exception, or with the result of another future. Later
     results are dropped.
FU2  Any thread may complete it; it is awaited on the loop of the system.
FU3  Every ask has a timeout, so its future ends. A future of `then` or `join` has none: it ends with the
     futures that it is derived from, and with the awaitable that the function of `then` returned.

Functions that are passed to `then` run on the loop and not in the actor that created the future: in a handler,
use `await` instead.
"""

from __future__ import annotations

import asyncio
from asyncio import _get_running_loop
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, overload

from .errors import ActorInterruptedError, AskTimeoutError, WrongContextError
from .ref import Reply
from .runtime.wakeup import loop_wakeup

if TYPE_CHECKING:
    from .ref import ActorRef
    from .runtime.clock import Clock, Timer

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class TimeoutGroup(dict["Future[Any]", "tuple[float, ActorRef[Any]]"]):
    """The open asks with the same timeout, oldest first. Values are (deadline, asked actor)."""

    __slots__ = ("timeout", "timer")

    def __init__(self, timeout: float | None) -> None:
        self.timeout = timeout
        self.timer: Timer | None = None


# The group of futures that are not asks.
_NO_TIMEOUT_GROUP = TimeoutGroup(None)


class Future(asyncio.Future[R], Reply):
    """The future of a reply. It is also the Reply itself: the actor calls `complete` or `fail`."""

    # No constructor in Python: the one in C takes 0.2 µs, and a wrapper would take as long again.
    __slots__ = ("_timeout_group",)

    _timeout_group: TimeoutGroup

    @classmethod
    def create(cls, loop: asyncio.AbstractEventLoop) -> Future[Any]:
        """Create a future that is not an ask, and so has no timeout of its own."""
        future: Future[Any] = cls(loop=loop)
        future._timeout_group = _NO_TIMEOUT_GROUP
        return future

    @property
    def timeout(self) -> float | None:
        """The timeout of the ask in seconds; None if the future is not an ask."""
        return self._timeout_group.timeout

    def complete(self, value: R) -> None:
        """Complete the future with a value, unless it is done. From any thread."""
        if _get_running_loop() is not self._loop:
            loop_wakeup(self._loop).call(self.complete, value)
        elif not self.done():
            self._timeout_group.pop(self, None)
            self.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Complete the future with an exception, unless it is done. From any thread."""
        if _get_running_loop() is not self._loop:
            loop_wakeup(self._loop).call(self.fail, error)
        elif not self.done():
            self._timeout_group.pop(self, None)
            self.set_exception(_storable_exception(error))

    def complete_with(self, other: asyncio.Future[R]) -> None:
        """Complete this future with the result of `other` when that is done. Call it on the loop's thread."""
        other.add_done_callback(partial(copy_result, self))

    @overload
    def then(self, function: Callable[[R], Future[S]]) -> Future[S]: ...

    @overload
    def then(self, function: Callable[[R], Coroutine[Any, Any, S]]) -> Future[S]: ...

    @overload
    def then(self, function: Callable[[R], S]) -> Future[S]: ...

    def then(self, function: Callable[[R], Awaitable[S] | S]) -> Future[S]:
        """Return the future of `function(value)`. If that is a future or a coroutine, it is awaited.

        An exception of this future or of `function` is the exception of the returned future.
        """
        result: Future[S] = Future.create(self._loop)

        def run_function(done: asyncio.Future[R]) -> None:
            if error := _exception_of(done):
                result.fail(error)
                return
            try:
                returned = function(done.result())
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  it is the result
                result.fail(error)
                return
            if isinstance(returned, Awaitable):
                result.complete_with(asyncio.ensure_future(returned, loop=self._loop))
            else:
                result.complete(returned)

        self.add_done_callback(run_function)
        return result

    def pipe_to(self, ref: ActorRef[Any], on_failure: Callable[[BaseException], Any]) -> None:
        """Tell the value to an actor when it is there; on a failure, tell `on_failure(error)`."""

        def tell_result(done: asyncio.Future[R]) -> None:
            error = _exception_of(done)
            ref.tell(on_failure(error) if error else done.result())

        self.add_done_callback(tell_result)


def copy_result(reply: Reply, source: asyncio.Future[Any]) -> None:
    """Complete a reply with the result of a future that is done."""
    if error := _exception_of(source):
        reply.fail(error)
    else:
        reply.complete(source.result())


def interrupted_error(ref: ActorRef[Any], error: BaseException) -> ActorInterruptedError:
    """Return the failure of an actor whose handler or hook raised `error`, which is not an Exception. The asker
    of a cancelled handler must not be cancelled itself."""
    cancelled = isinstance(error, asyncio.CancelledError)
    cause = "was cancelled" if cancelled else f"raised {error!r}"
    failure = ActorInterruptedError(f"a handler or hook of {ref} {cause}")
    failure.__cause__ = error
    return failure


def _exception_of(done: asyncio.Future[Any]) -> BaseException | None:
    if done.cancelled():
        return ActorInterruptedError("the awaited future was cancelled")
    return done.exception()


def _storable_exception(error: BaseException) -> BaseException:
    """Return an exception that a future can hold. StopIteration is not allowed, and CancelledError would cancel
    the task that awaits the future."""
    stored: BaseException
    match error:
        case StopIteration():
            stored = RuntimeError(f"{error!r} was raised")
        case asyncio.CancelledError():
            stored = ActorInterruptedError("the awaited future was cancelled")
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
    """Return the future of all values, in this order. It fails with the first failure at once."""
    futures = (first, *others)
    joined: Future[tuple[Any, ...]] = Future.create(first._loop)
    missing = len(futures)

    def collect(done: asyncio.Future[Any]) -> None:
        nonlocal missing
        missing -= 1
        if error := _exception_of(done):
            joined.fail(error)
        elif not missing and not joined.done():
            joined.complete(tuple(future.result() for future in futures))

    for future in futures:
        future.add_done_callback(collect)
    return joined


class OpenAsks:
    """The asks of a system that wait for a reply, grouped by timeout.

    Asks with the same timeout expire in the order in which they began. So one timer per distinct timeout is
    enough, and it is set again only when it fires: 0.25 µs per ask, where a timer for each costs 1.9 µs.

    AS1  A group is in the order of its deadlines, and its timer fires no later than the first of them.
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
        """Return the future of a new ask. Raises WrongContextError in another thread than the loop's."""
        if get_ident() != self._thread_id:
            raise WrongContextError(
                f"{target} was asked in a thread that is not the loop's",
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
        """Fail all open asks."""
        for group in list(self._groups.values()):
            if group.timer is not None:
                group.timer.cancel()
            for future in list(group):
                future.fail(error)
        self._groups.clear()  # a later ask starts a new group, with a timer

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
