"""A watchdog that logs handlers which block the event loop.

A handler that computes or blocks without `await` stops every actor, timer and connection of its loop. The loop
records a heartbeat every BEAT_INTERVAL_S, and a thread checks it twice per interval. While a heartbeat is late,
each check reads the stack of the loop's thread. If all checks during BLOCKED_S found a handler of the same actor
there, the thread logs the actor and the line that the handler has reached. So a handler that never ends is
reported, too, and there is no cost per message. All systems of a loop share one watchdog, which ends with the
last of them, or with the loop.

A check cannot tell the handlers of one actor apart, so several in a row count as one. The reported time begins
when the heartbeat was due, or at the last check that did not find the actor, if that was later. So it excludes
delays by earlier callbacks, and the time in which the loop was not running or the process was stopped. A handler
that is stopped in a debugger is not reported. A single call of C code that holds the GIL cannot be noticed,
because no thread runs meanwhile.
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

_DEBUGGER: Final = "bdb"  # pdb and debuggers built on it; others stop the watchdog thread, too

_RUNNERS: Final[frozenset[CodeType]] = frozenset(
    {Cell.run_turn.__code__, Cell.run_as_task.__code__}
)


class Watchdog:
    """Watches the loop of the thread that creates it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread_id = threading.get_ident()
        self._systems = 0
        self._beat_at = time.monotonic()
        self._beat_timer: asyncio.TimerHandle | None = None
        self._ended = threading.Event()

    def add_system(self) -> None:
        """Count a system that was opened; the first one starts the thread."""
        self._systems += 1
        if self._systems == 1:
            self._beat()
            threading.Thread(target=self._watch, name="recado watchdog", daemon=True).start()

    def remove_system(self) -> None:
        """Count a system that was closed; the last one ends the thread."""
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
        checked_at = counted_from = time.monotonic()
        blocking: Cell | None = None
        while not self._ended.wait(BEAT_INTERVAL_S / 2):
            before, checked_at = checked_at, time.monotonic()
            if self._loop.is_closed():  # its systems were never closed
                _watchdogs.pop(self._loop, None)
                return
            late_s = checked_at - self._beat_at - BEAT_INTERVAL_S
            top = sys._current_frames().get(self._thread_id) if late_s > 0 else None
            cell = _running_cell(top)
            if top is None or cell is None or cell.system._loop is not self._loop:
                blocking, limit_s = None, BLOCKED_S
                continue
            if cell is not blocking:  # the previous check did not find this actor
                blocking, counted_from, limit_s = cell, before, BLOCKED_S
            if checked_at - before > BEAT_INTERVAL_S:
                counted_from = checked_at  # the whole process was stopped
            blocked_s = min(late_s, checked_at - counted_from)
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
    """Return the cell whose handler is on the stack; None if there is none, or it is stopped in a debugger."""
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
    """Return the watchdog of a loop. Call it on the loop's thread."""
    found = _watchdogs.get(loop)
    if found is None:
        found = _watchdogs[loop] = Watchdog(loop)
    return found
