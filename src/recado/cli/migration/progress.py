"""Progress of a migration on standard error: a bar in a terminal, otherwise a line per queue."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, TextIO

from recado.cli.management.output import plural
from recado.cli.progress import StatusLine, format_bar
from recado.cli.terminal import escape_unprintable

if TYPE_CHECKING:
    from .plan import QueueJob
    from .transfer import TransferResult

REDRAW_INTERVAL_S: Final = 0.1


class MigrationProgress:
    """Counts moved messages; the total is an estimate while clients still publish."""

    def __init__(self, messages: int, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._messages = messages
        self._moved = 0
        self._job: QueueJob | None = None
        self._started_at = time.monotonic()
        self._drawn_at = 0.0
        self._line = StatusLine(self._stream)

    def start(self, job: QueueJob) -> None:
        self._job = job
        self._draw()

    def advance(self, count: int) -> None:
        self._moved += count
        if time.monotonic() - self._drawn_at >= REDRAW_INTERVAL_S:
            self._draw()

    def finish(self, job: QueueJob, result: TransferResult) -> None:
        self._line.clear()
        left = f", {result.left:,} arrived meanwhile" if result.left else ""
        verb = "copied" if job.is_stream else "moved"
        line = f"{job}: {verb} {plural(result.moved, 'message')}{left}"
        print(escape_unprintable(line), file=self._stream, flush=True)

    def end(self) -> None:
        self._line.clear()

    def _draw(self) -> None:
        if self._job is None:
            return
        now = time.monotonic()
        self._drawn_at = now
        rate = self._moved / max(now - self._started_at, REDRAW_INTERVAL_S)
        bar = format_bar(self._moved / self._messages if self._messages else 1.0)
        counts = f"{self._moved:,} of {self._messages:,}  {rate:,.0f}/s"
        self._line.show(f"{bar}  {counts}  {self._job.name}")
