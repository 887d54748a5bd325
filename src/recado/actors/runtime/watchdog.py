"""A watchdog that warns when a handler blocks the event loop.

A handler that computes or waits without `await` stops every actor, timer and connection of its loop. The loop
sets a beat twice a second. A thread looks at the beats: if the last one is older than BLOCKED_S, it reads the
stack of the loop's thread, and logs the actor whose handler runs there and the line it is at. So a handler
that never ends is reported, too, and actors pay nothing for it. There is one watchdog for each loop, shared by
its systems; it ends with the last of them, or with its loop.

Only the time counts in which the handlers of one actor run: not that before, in which other code was late, the
loop was not run or the process was stopped. A handler in a debugger is not reported. A single call of C code
that keeps the lock of the interpreter is not seen either: no thread runs meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import CodeType, FrameType
from typing import Final

from .cell import Cell

BEAT_INTERVAL_S: Final = 0.5
BLOCKED_S: Final = 1.0
REPEAT_FACTOR: Final = 4.0
"""One long block is reported again after 4, 16, 64 … seconds."""

log = logging.getLogger("recado.actors")

_DEBUGGER: Final = "bdb"  # pdb and what is built on it; others stop the watchdog as well

_RUNNERS: Final[frozenset[CodeType]] = frozenset(
    {Cell.run_turn.__code__, Cell.run_as_task.__code__}
)


class Watchdog:
    """Watches the loop of the thread that makes it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._systems = 0
        self._beat_at = time.monotonic()
        self._beat_timer: asyncio.TimerHandle | None = None
        self._ended = threading.Event()

    def add_system(self) -> None:
        """A system of the loop was opened."""
        self._systems += 1
        if self._systems == 1:
            self._beat()
            threading.Thread(target=self._watch, name="recado watchdog", daemon=True).start()

    def remove_system(self) -> None:
        """A system of the loop was closed."""
        self._systems -= 1
        if not self._systems:
            self._ended.set()
            _watchdogs.pop(self._loop, None)
            if self._beat_timer is not None:
                self._beat_timer.cancel()

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._beat_timer = self._loop.call_later(BEAT_INTERVAL_S, self._beat)

    def _watch(self) -> None:
        limit_s = BLOCKED_S
        looked_at = counted_from = time.monotonic()
        blocking: Cell | None = None
        while not self._ended.wait(BEAT_INTERVAL_S / 2):
            before, looked_at = looked_at, time.monotonic()
            if self._loop.is_closed():  # its systems were never closed
                _watchdogs.pop(self._loop, None)
                return
            late_s = looked_at - self._beat_at - BEAT_INTERVAL_S
            top = sys._current_frames().get(self._thread_id) if late_s > 0 else None
            cell = _running_cell(top)
            if top is None or cell is None or cell.system._loop is not self._loop:
                blocking, limit_s = None, BLOCKED_S
                continue
            if cell is not blocking:  # its handler began after the last look
                blocking, counted_from, limit_s = cell, before, BLOCKED_S
            if looked_at - before > BEAT_INTERVAL_S:
                counted_from = looked_at  # the whole process was stopped
            blocked_s = min(late_s, looked_at - counted_from)
            if blocked_s >= limit_s:
                limit_s *= REPEAT_FACTOR
                _warn(cell, top, blocked_s)


def _warn(cell: Cell, top: FrameType, blocked_s: float) -> None:
    log.warning(
        "handler blocks the event loop (actor=%s blocked_s=%.1f at=%s:%d in %s): "
        "await instead, or spawn the actor with a dispatcher that has threads",
        cell.ref, blocked_s, top.f_code.co_filename, top.f_lineno, top.f_code.co_name,
    )  # fmt: skip


def _running_cell(frame: FrameType | None) -> Cell | None:
    """The actor whose handler is on the stack, if there is one that is not stopped in a debugger."""
    while frame is not None:
        if frame.f_globals.get("__name__") == _DEBUGGER:
            return None
        if frame.f_code in _RUNNERS:
            cell = frame.f_locals["self"]
            assert isinstance(cell, Cell)
            return cell
        frame = frame.f_back
    return None


_watchdogs: dict[asyncio.AbstractEventLoop, Watchdog] = {}


def watchdog(loop: asyncio.AbstractEventLoop) -> Watchdog:
    """The watchdog of this loop. Call it in the loop's thread."""
    found = _watchdogs.get(loop)
    if found is None:
        found = _watchdogs[loop] = Watchdog(loop)
    return found
