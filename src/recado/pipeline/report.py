"""What a pipeline has done: rows in and out, dead letters, time. As values, for people and for programs."""

from __future__ import annotations

import msgspec


class SourceReport(msgspec.Struct):
    """Of one source."""

    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None
    """How many rows there are that were not read yet, if the source can tell."""


class PipelineReport(msgspec.Struct):
    """Of a run so far; the last one is that of the run."""

    pipeline: str
    batch: int = -1
    """The number of the last batch."""
    batches: int = 0
    batch_seconds: float = 0.0
    seconds: float = 0.0
    sources: dict[str, SourceReport] = {}
    sinks: dict[str, int] = {}
    """Rows that were written, by this run."""
    dead: dict[str, int] = {}
    """Dead letters, by the step that could not handle them."""
    late: int = 0
    """Rows that came so late that their window was given out already."""

    @property
    def rows(self) -> int:
        return sum(source.rows for source in self.sources.values())

    def text(self) -> str:
        """For people: a line for each source and sink."""
        batches = f"{self.batches} batch{'' if self.batches == 1 else 'es'}"
        lines = [f"{self.pipeline}: {batches}, {self.seconds:.1f} s"]
        for name, came in self.sources.items():
            lag = "" if came.lag is None else f", {came.lag} to come"
            lines.append(f"  from {name}: {came.rows} rows{lag}")
        lines += [f"  into {name}: {rows} rows" for name, rows in self.sinks.items()]
        lines += [f"  dead letters of {step}: {rows}" for step, rows in self.dead.items()]
        if self.late:
            lines.append(f"  too late for their window: {self.late} rows")
        return "\n".join(lines)


class RowCounter:
    """Counts what is written; each batch adds to it, in whatever thread Spark runs it."""

    def __init__(self) -> None:
        self.sinks: dict[str, int] = {}
        self.dead: dict[str, int] = {}

    def add_written(self, sink: str, rows: int) -> None:
        self.sinks[sink] = self.sinks.get(sink, 0) + rows

    def add_dead_letters(self, step: str, rows: int) -> None:
        if rows:
            self.dead[step] = self.dead.get(step, 0) + rows
