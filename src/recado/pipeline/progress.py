"""How far a stream is: what Spark tells of each batch, as a report, and how that is shown.

Spark's own progress has it all: rows, rows per second, the time of a batch, and for each source where it has
come to and what there is. Nothing is measured twice here.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

import msgspec

from .report import Came, Report, Tally

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_PLACE: Final = "next"  # in the offsets of our sources: that of the next row


class Watcher(Protocol):
    """Is told what has happened so far, after each batch."""

    def told(self, report: Report) -> None: ...


class Following:
    """Makes reports of what Spark tells of a query."""

    def __init__(self, pipeline: str, sources: Sequence[str], tally: Tally) -> None:
        self._tally = tally
        self._names = tuple(sources)
        self._heard = ""
        self.report = Report(pipeline, sources={name: Came() for name in sources})

    def is_news(self, progress: Mapping[str, Any]) -> bool:
        """Whether it is from after all that was heard."""
        return str(progress["timestamp"]) > self._heard

    def hear(self, progress: Mapping[str, Any]) -> Report:
        """One more batch is done, or nothing was to be done."""
        self._heard = str(progress["timestamp"])
        report = self.report
        number = int(progress["batchId"])
        seconds = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000
        is_new = number != report.batch and "addBatch" in progress.get("durationMs", {})
        if is_new:
            report.batch = number
            report.batches += 1
            report.batch_seconds = seconds
        for name, source in zip(self._names, progress.get("sources", []), strict=False):
            came = report.sources[name]
            rows = rows_of(source)
            if is_new:
                came.rows += rows
            came.rows_per_second = rows / seconds if seconds else 0.0
            came.lag = lag_of(source.get("endOffset"), source.get("latestOffset"))
        for operator in progress.get("stateOperators", []) if is_new else []:
            report.late += int(operator.get("numRowsDroppedByWatermark", 0))
        return self.counted()

    def counted(self) -> Report:
        """With what the sinks have got by now."""
        self.report.sinks = dict(self._tally.sinks)
        self.report.dead = dict(self._tally.dead)
        return self.report


def rows_of(source: Mapping[str, Any]) -> int:
    """How many rows a batch had of a source.

    Spark counts them as often as it reads them, and a pipeline with several outcomes does that for each. So
    where offsets are places in the same archive or spool there are no more rows than between them; a selector
    may have left less. Of the first batch Spark tells no beginning.
    """
    counted = int(source.get("numInputRows", 0))
    start, end = _known(source.get("startOffset")), _known(source.get("endOffset"))
    match start, end:
        case None, {"next": int(behind)}:
            return min(counted, behind)
        case {"next": int(first)}, {"next": int(behind)} if _whose(start) == _whose(end):
            return min(counted, max(0, behind - first))
        case _:
            return counted


def _whose(offset: Any) -> tuple[object, object]:
    return offset.get("archive"), offset.get("spool")


def lag_of(end: object, latest: object) -> int | None:
    """How many rows are left to be read; None if these offsets do not tell."""
    known = [_place(each) for each in (end, latest)]
    if known[0] is None or known[1] is None:
        return None
    return max(0, known[1] - known[0])


def _place(offset: object) -> int | None:
    offset = _known(offset)
    if isinstance(offset, dict):
        offset = offset.get(_PLACE)
    return offset if isinstance(offset, int) else None


def _known(offset: object) -> object:
    """As Spark tells it: as JSON, or as the text of that."""
    if isinstance(offset, str):
        try:
            return json.loads(offset)
        except ValueError:
            return None
    return offset


# --- showing it ----------------------------------------------------------------------------------


@contextmanager
def watcher(*, as_json: bool) -> Iterator[Watcher]:
    """A table in a terminal, if rich is there; lines of JSON for programs; else a line now and then."""
    if as_json:
        yield JsonLines(sys.stdout)
        return
    try:
        from rich.console import Console
    except ImportError:
        yield Lines(sys.stderr)
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Lines(sys.stderr)
        return
    with Table(console) as table:
        yield table


class JsonLines:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def told(self, report: Report) -> None:
        self._out.write(msgspec.json.encode(report).decode() + "\n")
        self._out.flush()


class Lines:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = -1

    def told(self, report: Report) -> None:
        if report.batch != self._last:
            self._last = report.batch
            self._out.write(line(report) + "\n")
            self._out.flush()


def line(report: Report) -> str:
    """`batch 3: quotes 1200 rows, 800 rows/s, 40 to come; 0.31 s; 2 dead letters`."""
    told = []
    for name, came in report.sources.items():
        lag = "" if came.lag is None else f", {came.lag} to come"
        told.append(f"{name} {came.rows} rows, {came.rows_per_second:.0f} rows/s{lag}")
    told.append(f"{report.batch_seconds:.2f} s")
    if report.dead:
        told.append(f"{sum(report.dead.values())} dead letters")
    return f"batch {report.batch}: " + "; ".join(told)


class Table:
    """A table that is drawn again with each batch."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Table:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def told(self, report: Report) -> None:
        self._live.update(drawn(report), refresh=True)


def drawn(report: Report) -> RenderableType:
    from rich.table import Table as Drawing

    drawing = Drawing(
        title=f"{report.pipeline}: batch {report.batch}, {report.batch_seconds:.2f} s"
    )
    for title in ("", "rows", "rows/s", "to come"):
        drawing.add_column(title, justify="left" if not title else "right")
    for name, came in report.sources.items():
        lag = "" if came.lag is None else f"{came.lag:,}"
        drawing.add_row(f"from {name}", f"{came.rows:,}", f"{came.rows_per_second:,.0f}", lag)
    for name, rows in report.sinks.items():
        drawing.add_row(f"into {name}", f"{rows:,}", "", "")
    for step, rows in report.dead.items():
        drawing.add_row(f"dead letters of {step}", f"{rows:,}", "", "", style="yellow")
    if report.late:
        drawing.add_row("too late for their window", f"{report.late:,}", "", "", style="yellow")
    return drawing
