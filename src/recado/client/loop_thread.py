"""A thread with an event loop in it, for the blocking client: others hand it work, or wait for its answers."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .errors import ConnectionClosed

T = TypeVar("T")


class LoopThread:
    """A thread with an event loop in it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self.loop.run_forever, name="recado client", daemon=True
        )
        self._lock = threading.Lock()
        self._work: list[Callable[[], object]] = []
        self._thread.start()

    def soon(self, work: Callable[[], object]) -> None:
        """Done in the loop's thread, in the order of these calls; waking it for each would take 5 µs."""
        with self._lock:
            self._work.append(work)
            if len(self._work) == 1:
                self.loop.call_soon_threadsafe(self._do)

    def _do(self) -> None:
        with self._lock:
            work, self._work = self._work, []
        for each in work:
            each()

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "a hook must not wait: the thread that it is called in does the work"
            )
        if self.loop.is_closed():
            work.close()
            raise ConnectionClosed
        running = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return running.result(timeout)
        except BaseException:  # a time-out or an interrupt as well: nobody waits any more
            running.cancel()
            raise

    def stop(self) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.close()
