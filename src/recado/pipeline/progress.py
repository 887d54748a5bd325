"""The progress of a stream: convert Spark's progress entries to reports, and display them.

Spark's progress has all the figures: rows, rows per second, batch duration, and for each source its end
offset and the latest available offset. Nothing is measured again here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

from .report import PipelineReport, RowCounter, SourceReport

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_NEXT_KEY: Final = "next"  # the offsets of recado's sources have the next row under this key


class ProgressTracker:
    """Builds the report of a run from the progress entries of its query."""

    def __init__(self, pipeline: str, sources: Sequence[str], counter: RowCounter) -> None:
        self._counter = counter
        self._names = tuple(sources)
        self._last_timestamp = ""
        self.report = PipelineReport(pipeline, sources={name: SourceReport() for name in sources})

    def is_new(self, progress: Mapping[str, Any]) -> bool:
        """Whether an entry is later than all entries processed so far."""
        return str(progress["timestamp"]) > self._last_timestamp

    def update(self, progress: Mapping[str, Any]) -> PipelineReport:
        """Add an entry (of a finished batch, or of an idle trigger) and return the report."""
        self._last_timestamp = str(progress["timestamp"])
        report = self.report
        number = int(progress["batchId"])
        seconds = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000
        is_new = number != report.batch and "addBatch" in progress.get("durationMs", {})
        if is_new:
            report.batch = number
            report.batches += 1
            report.batch_seconds = seconds
        for name, source in zip(self._names, progress.get("sources", []), strict=False):
            source_report = report.sources[name]
            rows = count_batch_rows(source)
            if is_new:
                source_report.rows += rows
            source_report.rows_per_second = rows / seconds if seconds else 0.0
            source_report.lag = compute_lag(source.get("endOffset"), source.get("latestOffset"))
        for operator in progress.get("stateOperators", []) if is_new else []:
            report.late += int(operator.get("numRowsDroppedByWatermark", 0))
            metrics = operator.get("customMetrics", {})
            report.duplicates += int(metrics.get("numDroppedDuplicateRows", 0))
        return self.with_sink_counts()

    def with_sink_counts(self) -> PipelineReport:
        """Return the report with the current row counts of the sinks."""
        self.report.sinks = dict(self._counter.sinks)
        self.report.dead = dict(self._counter.dead)
        return self.report


def count_batch_rows(source: Mapping[str, Any]) -> int:
    """Return the number of rows that a batch read from a source.

    Spark counts a row each time it reads it, and a pipeline with several outputs reads it once for each. So
    the count is limited to the distance of the offsets, if both are in the same archive or spool. The distance
    alone would be too large if a selector dropped rows. For the first batch Spark reports no start offset.
    """
    counted = int(source.get("numInputRows", 0))
    start, end = _parse_offset(source.get("startOffset")), _parse_offset(source.get("endOffset"))
    match start, end:
        case None, {"next": int(end_row)}:
            return min(counted, end_row)
        case {"next": int(first)}, {"next": int(end_row)} if _offset_owner(start) == _offset_owner(
            end
        ):
            return min(counted, max(0, end_row - first))
        case _:
            return counted


def _offset_owner(offset: Any) -> tuple[object, object]:
    """The archive or spool that an offset belongs to."""
    return offset.get("archive"), offset.get("spool")


def compute_lag(end: object, latest: object) -> int | None:
    """Return the number of rows left to read, or None if the offsets do not tell."""
    known = [_next_row(each) for each in (end, latest)]
    if known[0] is None or known[1] is None:
        return None
    return max(0, known[1] - known[0])


def _next_row(offset: object) -> int | None:
    """The next row of an offset of a recado source; None for other sources."""
    offset = _parse_offset(offset)
    if isinstance(offset, dict):
        offset = offset.get(_NEXT_KEY)
    return offset if isinstance(offset, int) else None


def _parse_offset(offset: object) -> object:
    """Parse an offset, which Spark reports as JSON or as a string of JSON."""
    if isinstance(offset, str):
        try:
            return json.loads(offset)
        except ValueError:
            return None
    return offset


# --- display -------------------------------------------------------------------------------------


@contextmanager
def open_progress_display(*, as_json: bool) -> Iterator[Callable[[PipelineReport], None]]:
    """Yield a function that shows reports: as a table in a terminal, as JSON lines, or as plain lines."""
    if as_json:
        yield ProgressJsonLines(sys.stdout).show
        return
    try:
        from rich.console import Console
    except ImportError:
        yield ProgressLines(sys.stderr).show
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield ProgressLines(sys.stderr).show
        return
    with ProgressTable(console) as table:
        yield table.show


class ProgressJsonLines:
    """Writes each report as a line of JSON."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, report: PipelineReport) -> None:
        self._out.write(msgspec.json.encode(report).decode() + "\n")
        self._out.flush()


class ProgressLines:
    """Writes one line per batch."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last_batch = -1

    def show(self, report: PipelineReport) -> None:
        if report.batch != self._last_batch:
            self._last_batch = report.batch
            self._out.write(format_progress_line(report) + "\n")
            self._out.flush()


def format_progress_line(report: PipelineReport) -> str:
    """Return a line such as `batch 3: quotes 1200 rows, 800 rows/s, lag 40; 0.31 s; 2 dead letters`."""
    parts = []
    for name, source_report in report.sources.items():
        lag = "" if source_report.lag is None else f", lag {source_report.lag}"
        parts.append(
            f"{name} {source_report.rows} rows, {source_report.rows_per_second:.0f} rows/s{lag}"
        )
    parts.append(f"{report.batch_seconds:.2f} s")
    if report.dead:
        parts.append(f"{sum(report.dead.values())} dead letters")
    return f"batch {report.batch}: " + "; ".join(parts)


class ProgressTable:
    """A table in the terminal, redrawn for each batch."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> ProgressTable:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def show(self, report: PipelineReport) -> None:
        self._live.update(render_table(report), refresh=True)


def render_table(report: PipelineReport) -> RenderableType:
    from rich.table import Table

    table = Table(title=f"{report.pipeline}: batch {report.batch}, {report.batch_seconds:.2f} s")
    for title in ("", "rows", "rows/s", "lag"):
        table.add_column(title, justify="left" if not title else "right")
    for name, source_report in report.sources.items():
        lag = "" if source_report.lag is None else f"{source_report.lag:,}"
        table.add_row(
            f"from {name}", f"{source_report.rows:,}", f"{source_report.rows_per_second:,.0f}", lag
        )
    for name, rows in report.sinks.items():
        table.add_row(f"into {name}", f"{rows:,}", "", "")
    for step, rows in report.dead.items():
        table.add_row(f"dead letters of {step}", f"{rows:,}", "", "", style="yellow")
    if report.late:
        table.add_row("dropped as late", f"{report.late:,}", "", "", style="yellow")
    if report.duplicates:
        table.add_row("dropped as duplicates", f"{report.duplicates:,}", "", "", style="yellow")
    return table
