"""Spark's progress entries as a report, and its displays."""

from __future__ import annotations

import io
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from recado.pipeline.progress import (
    ProgressJsonLines,
    ProgressLines,
    ProgressTracker,
    compute_lag,
    count_batch_rows,
    render_table,
)
from recado.pipeline.report import RowCounter


def told(batch: int, rows: int, *, at: int = 0, late: int = 0, done: bool = True) -> dict[str, Any]:
    duration = {"triggerExecution": 1500, **({"addBatch": 1000} if done else {})}
    return {
        "timestamp": f"2027-01-15T10:00:{at or batch:02d}.000Z",
        "batchId": batch,
        "durationMs": duration,
        "sources": [
            {
                "numInputRows": rows,
                "processedRowsPerSecond": rows / 1.5,
                "endOffset": {"archive": "a", "next": 40},
                "latestOffset": {"archive": "a", "next": 100},
            }
        ],
        "stateOperators": [
            {
                "numRowsDroppedByWatermark": late,
                "customMetrics": {"numDroppedDuplicateRows": 2 * late},
            },
            {"numRowsDroppedByWatermark": 0},
        ],
    }


def test_a_report_of_two_batches() -> None:
    tally = RowCounter()
    following = ProgressTracker("quotes", ["archive"], tally)
    first = told(0, 30, late=1)
    assert following.is_new(first)
    following.update(first)
    assert not following.is_new(first)
    following.update(told(0, 0, at=1, done=False))  # nothing to do
    tally.add_written("out", 25)
    tally.add_dead_letters("step 1 (translate)", 5)
    tally.add_dead_letters("step 2 (filter)", 0)
    report = following.update(told(1, 10, at=2, late=2))
    assert (report.batch, report.batches, report.rows, report.late) == (1, 2, 40, 3)
    assert report.duplicates == 6
    assert (report.batch_seconds, report.sources["archive"].lag) == (1.5, 60)
    assert report.dead == {"step 1 (translate)": 5}
    assert report.text().splitlines() == [
        "quotes: 2 batches, 0.0 s",
        "  from archive: 40 rows, lag 60",
        "  into out: 25 rows",
        "  dead letters of step 1 (translate): 5",
        "  dropped as late: 3 rows",
        "  dropped as duplicates: 6 rows",
    ]
    lines, out = io.StringIO(), io.StringIO()
    shown = ProgressLines(lines)
    shown.show(report)
    shown.show(report)
    assert (
        lines.getvalue() == "batch 1: archive 40 rows, 7 rows/s, lag 60; 1.50 s; 5 dead letters\n"
    )
    ProgressJsonLines(out).show(report)
    assert json.loads(out.getvalue())["sinks"] == {"out": 25}
    console = Console(width=80, file=io.StringIO())
    with console.capture() as capture:
        console.print(render_table(report))
    assert "dropped as late" in capture.get()


@given(st.one_of(st.none(), st.text(), st.integers(), st.dictionaries(st.text(), st.integers())))
def test_offsets_of_any_kind(offset: object) -> None:
    lag = compute_lag(offset, '{"next": 100}')
    assert lag is None or lag >= 0


def test_rows_are_counted_once_however_often_spark_reads_them() -> None:
    archive = {"numInputRows": 200, "endOffset": '{"archive": "a", "next": 140}'}
    assert count_batch_rows(archive | {"startOffset": '{"archive": "a", "next": 40}'}) == 100
    assert count_batch_rows(archive | {"startOffset": None}) == 140
    assert count_batch_rows(archive | {"startOffset": {"archive": "b", "next": 40}}) == 200
    assert (
        count_batch_rows(archive | {"startOffset": {"archive": "a", "next": 40}, "numInputRows": 7})
        == 7
    )
    assert count_batch_rows({"numInputRows": 3, "startOffset": 1, "endOffset": 2}) == 3


def test_lag() -> None:
    assert compute_lag({"next": 3}, '{"next": 10}') == 7
    assert compute_lag({"next": 30}, {"next": 10}) == 0
    assert compute_lag(4, 9) == 5
    assert compute_lag({"logOffset": 0}, {"logOffset": 1}) is None
