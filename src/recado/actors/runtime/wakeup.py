"""Calls from other threads to the event loop, with one wakeup of the loop for many calls.

`call_soon_threadsafe` writes a byte to the loop's self-pipe for each call. That takes 5 µs, and while the loop
is busy the pipe fills up after some hundreds of calls: then a signal such as SIGTERM is lost, because it uses
the same pipe.

DB1  Calls run on the loop's thread, in the order in which they were made, each in the context of its caller.
DB2  Between two runs of the queued calls the loop is woken once, however many calls are made.
DB3  An exception of a call goes to the loop's exception handler; the other calls run even so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary, ref


class LoopWakeup:
    """The calls that other threads have queued for one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)  # a strong reference would keep the key of `_wakeups` alive
        self._calls: deque[tuple[Context, Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_scheduled = False

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Queue a call for the loop's thread, from any thread. The call is dropped if the loop is closed."""
        self._calls.append((copy_context(), function, args))
        # Check after the append: a run that is already scheduled will find this call.
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        loop = self._loop()
        try:
            if loop is None:
                raise RuntimeError("the loop was garbage collected")  # as a closed loop raises
            loop.call_soon_threadsafe(self._run_calls)
        except RuntimeError:
            self._calls.clear()
            self._is_scheduled = False

    def _run_calls(self) -> None:
        # Reset before the calls are taken: a call that is appended from now on schedules another run.
        self._is_scheduled = False
        calls = self._calls
        try:
            for _ in range(len(calls)):
                context, function, args = calls.popleft()
                try:
                    context.run(function, *args)
                except Exception as error:  # noqa: BLE001  as the loop does with its own callbacks
                    context.run(self._report_failure, function, error)
        finally:  # after SystemExit or KeyboardInterrupt, too: the loop may continue
            if calls and not self._is_scheduled:
                self._schedule()

    def _report_failure(self, function: Callable[..., object], error: Exception) -> None:
        message = f"a call from another thread failed: {function}"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


_wakeups: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWakeup] = WeakKeyDictionary()
_wakeups_lock = Lock()


def loop_wakeup(loop: asyncio.AbstractEventLoop) -> LoopWakeup:
    """Return the wakeup of a loop; all systems of a loop share one."""
    with _wakeups_lock:
        found = _wakeups.get(loop)
        if found is None:
            found = _wakeups[loop] = LoopWakeup(loop)
        return found
