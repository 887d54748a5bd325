"""A thread with an event loop in it, for programs without one: they hand it work, or wait for its answers."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
W = TypeVar("W")


class LoopThread:
    """It runs from `start` to `stop`."""

    def __init__(self, name: str, make_closed_error: Callable[[], Exception]) -> None:
        """`closed` makes the error for those who come before or behind."""
        self._name = name
        self._make_closed_error = make_closed_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._queued_calls: list[Callable[[], object]] = []

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name=self._name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Done in the loop's thread, in the order of these calls; waking it for each would take 5 µs."""
        loop = self._require_loop()
        with self._lock:
            self._queued_calls.append(callback)
            if len(self._queued_calls) == 1:
                loop.call_soon_threadsafe(self._run_queued)

    def _run_queued(self) -> None:
        with self._lock:
            work, self._queued_calls = self._queued_calls, []
        for each in work:
            each()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Its result; `TimeoutError` if there is none in time, and then the work has been cancelled."""
        try:
            loop = self._require_loop()
            if threading.current_thread() is self._thread:
                raise RuntimeError(
                    "a hook must not wait: the thread that it is called in does the work"
                )
        except BaseException:
            coroutine.close()
            raise
        running = asyncio.run_coroutine_threadsafe(_run_with_timeout(timeout, coroutine), loop)
        try:
            return running.result()
        except BaseException:  # an interrupt as well: nobody waits any more
            running.cancel()
            raise

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise self._make_closed_error()
        return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


async def _run_with_timeout(timeout: float | None, coroutine: Coroutine[Any, Any, T]) -> T:
    """Timed in the loop: a thread that gives up may do so when the work has just taken a message."""
    async with asyncio.timeout(timeout):
        return await coroutine


class LoopThreadProxy(Generic[T_co]):
    """What lives in a loop's thread, for all others."""

    def __init__(self, thread: LoopThread, inner: T_co) -> None:
        self._thread = thread
        self._inner = inner

    def _run(self, coroutine: Coroutine[Any, Any, R], timeout: float | None = None) -> R:
        return self._thread.run(coroutine, timeout)


def make_blocking_method(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[LoopThreadProxy[T], P], R]:
    """The same call of what lives there, waited for."""

    def call(threaded: LoopThreadProxy[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return threaded._run(method(threaded._inner, *args, **kwargs))

    return update_wrapper(call, method)


def make_blocking_factory(
    wrap: Callable[[LoopThread, R], W],
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[LoopThreadProxy[T], P], W]:
    """The same, and what it gives lives there, too."""

    def call(threaded: LoopThreadProxy[T], /, *args: P.args, **kwargs: P.kwargs) -> W:
        found = threaded._run(method(threaded._inner, *args, **kwargs))
        return wrap(threaded._thread, found)

    return update_wrapper(call, method)
