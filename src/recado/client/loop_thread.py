"""An event loop in a thread of its own, for blocking programs: run coroutines and wait for their results."""

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
    """A daemon thread that runs an event loop from `start` to `stop`."""

    def __init__(self, name: str, make_closed_error: Callable[[], Exception]) -> None:
        """`make_closed_error` creates the error that calls raise before `start` and after `stop`."""
        self._name = name
        self._make_closed_error = make_closed_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._queued_calls: list[Callable[[], object]] = []

    def start(self) -> None:
        """Start the thread and its event loop."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop,), name=self._name, daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the event loop and wait for the end of the thread."""
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run a callback in the loop's thread, in call order.

        Callbacks are queued and the loop is woken once for all of them; waking it for each would take 5 µs.
        """
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
        """Run a coroutine in the loop's thread and return its result.

        Raises `TimeoutError` after `timeout` seconds; the coroutine is cancelled then. Raises `RuntimeError` if
        called from the loop's thread.
        """
        try:
            loop = self._require_loop()
            if threading.current_thread() is self._thread:
                raise RuntimeError(
                    f"blocking call in a callback of thread {self._name!r}, which would have to execute it"
                )
        except BaseException:
            coroutine.close()
            raise
        running = asyncio.run_coroutine_threadsafe(_run_with_timeout(timeout, coroutine), loop)
        try:
            return running.result()
        except BaseException:  # KeyboardInterrupt as well: the result is not needed any more
            running.cancel()
            raise

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise self._make_closed_error()
        return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()


async def _run_with_timeout(seconds: float | None, coroutine: Coroutine[Any, Any, T]) -> T:
    """Apply the timeout in the loop: a timeout in the calling thread could discard a message just received."""
    async with asyncio.timeout(seconds):
        return await coroutine


class LoopThreadProxy(Generic[T_co]):
    """Base class of blocking objects: wraps an object that is used only in the loop's thread."""

    def __init__(self, thread: LoopThread, inner: T_co) -> None:
        self._thread = thread
        self._inner = inner

    def _run(self, coroutine: Coroutine[Any, Any, R], timeout: float | None = None) -> R:
        return self._thread.run(coroutine, timeout)


def make_blocking_method(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[LoopThreadProxy[T], P], R]:
    """Make a blocking method of a `LoopThreadProxy` from the coroutine method of the wrapped object."""

    def call(threaded: LoopThreadProxy[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return threaded._run(method(threaded._inner, *args, **kwargs))

    return update_wrapper(call, method)


def make_blocking_factory(
    wrap: Callable[[LoopThread, R], W],
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[LoopThreadProxy[T], P], W]:
    """Like `make_blocking_method`, for a method whose result is itself wrapped, by `wrap`."""

    def call(threaded: LoopThreadProxy[T], /, *args: P.args, **kwargs: P.kwargs) -> W:
        result = threaded._run(method(threaded._inner, *args, **kwargs))
        return wrap(threaded._thread, result)

    return update_wrapper(call, method)
