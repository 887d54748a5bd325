"""How other threads have something done on a loop: it is woken once for all that they want of it meanwhile.

asyncio's own way wakes it for each call, by a byte in a pipe. That takes 5 µs; and when the loop is busy the
pipe is full after some hundreds, and a signal that comes then (SIGTERM, say) is lost, since it goes that way.

DB1  Calls are made in the loop's thread, in the order in which they came, each in the context of who wanted it.
DB2  Between two looks of the loop at its door it is rung once, however many calls come.
DB3  What a call raises is told to the loop's exception handler; the others are made even so.
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
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Weakly, or it would outlive everybody, since its doorbell does as long as it.
        self._loop = ref(loop)
        self._calls: deque[tuple[Context, Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_scheduled = False

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Soon; never if the loop is closed: nobody is there any more. From any thread."""
        self._calls.append((copy_context(), function, args))
        # Behind the append: if it was rung before, and not answered yet, this is among what is found then.
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        loop = self._loop()
        try:
            if loop is None:
                raise RuntimeError("the loop is gone")  # as one says that is closed
            loop.call_soon_threadsafe(self._run_calls)
        except RuntimeError:
            self._calls.clear()
            self._is_scheduled = False

    def _run_calls(self) -> None:
        self._is_scheduled = False  # before the first look: who comes later rings again
        calls = self._calls
        try:
            for _ in range(len(calls)):
                context, call, args = calls.popleft()
                try:
                    context.run(call, *args)
                except Exception as error:  # noqa: BLE001  as the loop does with what it calls itself
                    context.run(self._report_failure, call, error)
        finally:  # a call may end the program, and the others are still made if it goes on
            if calls and not self._is_scheduled:
                self._schedule()

    def _report_failure(self, function: Callable[..., object], error: Exception) -> None:
        message = f"a call from another thread failed: {function}"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})


_wakeups: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopWakeup] = WeakKeyDictionary()
_wakeups_lock = Lock()


def loop_wakeup(loop: asyncio.AbstractEventLoop) -> LoopWakeup:
    """The one of this loop."""
    with _wakeups_lock:
        found = _wakeups.get(loop)
        if found is None:
            found = _wakeups[loop] = LoopWakeup(loop)
        return found
