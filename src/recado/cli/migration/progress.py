"""Progress of a migration on standard error: a bar in a terminal, otherwise a line per queue."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, TextIO

from recado.cli.management.output import plural
from recado.cli.terminal import escape_unprintable, width_of

if TYPE_CHECKING:
    from .plan import QueueJob
    from .transfer import TransferResult

BAR_WIDTH_COUNT: Final = 30
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
        self._is_bar = self._stream.isatty()

    def start(self, job: QueueJob) -> None:
        self._job = job
        self._draw()

    def advance(self, count: int) -> None:
        self._moved += count
        if time.monotonic() - self._drawn_at >= REDRAW_INTERVAL_S:
            self._draw()

    def finish(self, job: QueueJob, result: TransferResult) -> None:
        self._clear()
        left = f", {result.left:,} arrived meanwhile" if result.left else ""
        verb = "copied" if job.is_stream else "moved"
        line = f"{job}: {verb} {plural(result.moved, 'message')}{left}"
        print(escape_unprintable(line), file=self._stream, flush=True)

    def end(self) -> None:
        self._clear()

    def _draw(self) -> None:
        if not self._is_bar or self._job is None:
            return
        now = time.monotonic()
        self._drawn_at = now
        share = min(self._moved / self._messages, 1.0) if self._messages else 1.0
        rate = self._moved / max(now - self._started_at, REDRAW_INTERVAL_S)
        bar = "#" * round(BAR_WIDTH_COUNT * share)
        line = (
            f"[{bar:{BAR_WIDTH_COUNT}}] {share:4.0%}  {self._moved:,} of {self._messages:,}"
            f"  {rate:,.0f}/s  {escape_unprintable(self._job.name)}"
        )
        self._stream.write(f"\r{line[: width_of(self._stream) - 1]}\x1b[K")
        self._stream.flush()

    def _clear(self) -> None:
        if self._is_bar:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
