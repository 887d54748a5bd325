"""The results of the archived runs, computed from the archive of the feed with pyarrow.

A percentile is interpolated linearly between the two nearest asks (`linear` of pyarrow, as `percentile` of
Spark). With 30,000 asks, other definitions of a percentile deviate by less than the difference between two
neighbouring asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from recado.feeds.archive.archive import Archive

from .figures import Figures, TransportKind
from .measurement import ASK_KEY, RUN_KEY, RunSummary, decode_run

QUANTILES: Final = [0.25, 0.5, 0.75, 0.95]
SCHEMA: Final = pa.schema(
    [
        ("run", pa.string()),
        ("client", pa.int64()),
        ("number", pa.int64()),
        ("began", pa.int64()),
        ("nanoseconds", pa.int64()),
    ]
)


@dataclass(frozen=True)
class RunResult:
    run: RunSummary
    figures: Figures


@dataclass(frozen=True, order=True)
class Series:
    """The identity of a line in a plot: a transport, and the broker that it uses."""

    transport: str
    broker: str

    @classmethod
    def of(cls, run: RunSummary) -> Series:
        return cls(run.transport.value, run.broker or "")

    @property
    def label(self) -> str:
        return f"{self.transport}, {self.broker}" if self.broker else self.transport

    @property
    def is_point_to_point(self) -> bool:
        return self.transport == TransportKind.TCP.value


@dataclass(frozen=True)
class IncompleteRun:
    """A run whose asks are not all in the archive, or some of them twice."""

    run: RunSummary
    archived_count: int
    distinct_count: int

    def __str__(self) -> str:
        duplicates = self.archived_count - self.distinct_count
        text = f"of the {self.run.asks} asks of run {self.run.run} the archive has {self.archived_count}"
        return f"{text}, {duplicates} of them twice" if duplicates else text


def load_complete_runs(folder: Path | str) -> list[RunResult]:
    """Return all complete runs, in the order in which they were stored."""
    return [each for each in load_runs(folder) if isinstance(each, RunResult)]


def load_runs(folder: Path | str) -> list[RunResult | IncompleteRun]:
    """Return all finished runs, in the order in which they were stored."""
    runs: list[RunSummary] = []
    asked: list[pa.Table] = []
    with Archive.open(folder) as archive:
        for batch in archive.batches(columns=["routing_key", "body"]):
            key, body = batch.column("routing_key"), batch.column("body")
            runs += map(decode_run, body.filter(pc.equal(key, RUN_KEY)).to_pylist())
            asked += parse_asks(body.filter(pc.equal(key, ASK_KEY)))
    return list(compute_results(runs, asked))


def parse_asks(bodies: pa.Array) -> Iterable[pa.Table]:
    if not len(bodies):
        return
    lines = BytesIO(b"\n".join(bodies.to_pylist()))
    explicit = pj.ParseOptions(explicit_schema=SCHEMA, unexpected_field_behavior="ignore")
    yield pj.read_json(lines, parse_options=explicit)


def compute_results(
    runs: Sequence[RunSummary], ask_tables: Sequence[pa.Table]
) -> Iterable[RunResult | IncompleteRun]:
    table = pa.concat_tables([SCHEMA.empty_table(), *ask_tables])
    table = table.sort_by("run")
    ask_counts = count_by_run(table)
    distinct_counts = count_by_run(table.group_by(["run", "client", "number"]).aggregate([]))
    first, start = {}, 0
    for name in sorted(ask_counts):
        first[name] = start
        start += ask_counts[name]
    for run in runs:
        count = ask_counts.get(run.run, 0)
        if not count == distinct_counts.get(run.run, 0) == run.asks:
            yield IncompleteRun(run, count, distinct_counts.get(run.run, 0))
        else:
            yield RunResult(run, compute_figures(table.slice(first[run.run], count)))


def count_by_run(table: pa.Table) -> dict[str, int]:
    """Return the number of rows of each run."""
    names = table.column("run").combine_chunks()
    return {each["values"]: each["counts"] for each in pc.value_counts(names).to_pylist()}


def compute_figures(asks: pa.Table) -> Figures:
    """Compute the figures of the asks of one run."""
    began, durations = asks.column("began"), asks.column("nanoseconds")
    ended = pc.max(pc.add(began, durations)).as_py()
    seconds = (ended - pc.min(began).as_py()) / 1e9
    mean = pc.mean(durations).as_py() / 1e3
    quantiles = pc.quantile(durations, q=QUANTILES, interpolation="linear").to_pylist()
    p25, p50, p75, p95 = (each / 1e3 for each in quantiles)
    return Figures(len(durations) / seconds, mean, p25, p50, p75, p95, seconds)


BestRuns = dict[tuple[Series, int], RunResult]


def best_by_latency(results: Iterable[RunResult]) -> dict[int, BestRuns]:
    """Select for each latency, series and number of clients the run with the lowest mean, as in the
    dissertation.

    Runs with fewer asks than another one, such as those of a quick benchmark, are not selected.
    """
    found: dict[int, BestRuns] = {}
    for each in results:
        best = found.setdefault(each.run.latency_us, {})
        key = Series.of(each.run), each.run.clients
        if key not in best or rank(each) < rank(best[key]):
            best[key] = each
    return dict(sorted(found.items()))


def rank(each: RunResult) -> tuple[int, float]:
    return -each.run.asks, each.figures.mean
