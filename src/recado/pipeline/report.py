"""The report of a run: rows read and written, dead letters, duration.

The field names are the keys of `status.json` in the checkpoint and of `recado pipeline run --json`.
"""

from __future__ import annotations

import msgspec


class SourceReport(msgspec.Struct):
    """The figures of one source."""

    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None
    """Available rows that were not read yet; None if the source does not report it."""


class PipelineReport(msgspec.Struct):
    """The figures of a run so far."""

    pipeline: str
    batch: int = -1
    """The number of the last batch; -1 before the first."""
    batches: int = 0
    batch_seconds: float = 0.0
    seconds: float = 0.0
    sources: dict[str, SourceReport] = {}
    sinks: dict[str, int] = {}
    """Rows written by this run, by sink."""
    dead: dict[str, int] = {}
    """Dead letters of this run, by the label of the step."""
    late: int = 0
    """Rows that Spark dropped because their time was before the watermark."""
    duplicates: int = 0
    """Rows that the step `deduplicate` of a stream dropped. In a batch they are not counted."""

    @property
    def rows(self) -> int:
        """Rows read from all sources."""
        return sum(source.rows for source in self.sources.values())

    def text(self) -> str:
        """Return the report as text, with a line for each source and sink."""
        batches = f"{self.batches} batch{'' if self.batches == 1 else 'es'}"
        lines = [f"{self.pipeline}: {batches}, {self.seconds:.1f} s"]
        for name, source in self.sources.items():
            lag = "" if source.lag is None else f", lag {source.lag}"
            lines.append(f"  from {name}: {source.rows} rows{lag}")
        lines += [f"  into {name}: {rows} rows" for name, rows in self.sinks.items()]
        lines += [f"  dead letters of {step}: {rows}" for step, rows in self.dead.items()]
        if self.late:
            lines.append(f"  dropped as late: {self.late} rows")
        if self.duplicates:
            lines.append(f"  dropped as duplicates: {self.duplicates} rows")
        return "\n".join(lines)


class RowCounter:
    """Counts the rows written by the batches of one run, in the thread in which Spark calls `foreachBatch`."""

    def __init__(self) -> None:
        self.sinks: dict[str, int] = {}
        self.dead: dict[str, int] = {}

    def add_written(self, sink: str, rows: int) -> None:
        """Count rows written to a sink."""
        self.sinks[sink] = self.sinks.get(sink, 0) + rows

    def add_dead_letters(self, step: str, rows: int) -> None:
        """Count dead letters of a step."""
        if rows:
            self.dead[step] = self.dead.get(step, 0) + rows
