"""The report of the demo: differences, tables and pages; foreign folders are left alone."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recado.apps.demo import report
from recado.apps.demo.environment import DemoEnvironment, DemoError, prepare_folder
from recado.apps.demo.monitor import DemoLines, Sample, read_progress
from recado.apps.demo.scenario import DemoResult, find_differences, wait_until

TEN = datetime(2026, 3, 2, 10, tzinfo=UTC)


def bar(symbol: str, minute: int, **changes: Any) -> dict[str, Any]:
    price = 10.0 + len(symbol) + 0.05 * ((minute * 7) % 5)
    return {
        "symbol": symbol,
        "start": TEN + timedelta(minutes=minute),
        "end": TEN + timedelta(minutes=minute + 1),
        "open": price,
        "high": price + 0.1,
        "low": price - 0.1,
        "close": price + 0.02 * (minute % 3 - 1),
        "volume": 100 * (minute + 1),
        "trades": minute + 1,
        "vwap": price + 0.001,
        "volatility": 0.001 * (minute % 4),
        **changes,
    }


def outcome(*problems: str) -> DemoResult:
    names = ("PETR4", "VALE3", "ITUB4X", "BBAS3XY", "WEGE3")
    minutes = pa.Table.from_pylist([bar(name, each) for name in names for each in range(20)])
    looks = [
        {
            "start": TEN + timedelta(seconds=3 * each),
            "published_per_second": None if each == 4 else 10.0 * each,
            "delivered_per_second": 20.0 * each,
            "acknowledged_per_second": 15.0 * each,
            "memory_used": 1e8 + 1e6 * each,
            "processors": 0.1 * (each % 4),
        }
        for each in range(12)
    ]
    moments = [
        Sample(each / 2, 500 * each, 450 * each, each < 40, 400 * each, 800.0, 1.5)
        for each in range(80)
    ]
    happened = [
        (8.0, "Spark started"),
        (20.0, "kill -9"),
        (23.0, "recorder restarted"),
        (35.0, "market ended"),
    ]
    return DemoResult(
        ticks=35_000,
        seconds=40.0,
        recorded=35_000,
        killed_at=21_000,
        bar_count=3_500,
        minutes=minutes,
        counters=pa.Table.from_pylist(looks),
        samples=moments,
        events=happened,
        problems=problems,
    )


def test_the_page_and_its_pictures(tmp_path: Path) -> None:
    page = report.write_page(outcome(), tmp_path / "report")
    text = page.read_text()
    for picture in ("bars", "timeline", "counters"):
        assert f'src="{picture}.png"' in text
        assert (tmp_path / "report" / f"{picture}.png").stat().st_size > 10_000
    assert "every bar of the stream equals" in text
    assert "FAILED" not in text
    assert (
        '<p class="bad">FAILED: a &lt;bar&gt;'
        in report.write_page(outcome("a <bar>"), tmp_path).read_text()
    )


def test_the_table_has_the_newest_minute_of_each_symbol() -> None:
    head, *rows = report.format_bars(outcome().minutes)
    assert head.split()[:2] == ["symbol", "start"]
    assert [row.split()[0] for row in rows] == ["BBAS3XY", "ITUB4X", "PETR4", "VALE3", "WEGE3"]
    assert {row.split()[1] for row in rows} == {"10:19"}


def test_differences_are_found() -> None:
    batch = pa.Table.from_pylist([bar("A", each) for each in range(5)])
    assert find_differences(batch.slice(0, 4), batch) == []  # the last is still open
    (missing,) = find_differences(
        pa.Table.from_pylist([bar("A", each) for each in (0, 1, 3)]), batch
    )
    assert missing.startswith("the stream has no bar")
    wrong = pa.Table.from_pylist([bar("A", 0), bar("A", 1, volume=1)])
    assert len(find_differences(wrong, batch)) == 1
    summed = pa.Table.from_pylist([bar("A", 0, vwap=bar("A", 0)["vwap"] * (1 + 1e-15))])
    assert find_differences(summed, batch) == []
    assert find_differences(pa.Table.from_pylist([bar("B", 0)]), batch)


def test_folders(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "new")
    (tmp_path / "new" / "old.txt").touch()
    prepare_folder(tmp_path / "new")
    assert not (tmp_path / "new" / "old.txt").exists()
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "theirs").touch()
    with pytest.raises(DemoError, match="choose another"):
        prepare_folder(tmp_path / "others")


def test_lines_now_and_then() -> None:
    said: list[str] = []
    lines = DemoLines(said.append)
    for moment in outcome().samples:
        lines.show(moment)
    assert 10 <= len(said) <= 15
    assert "lag 0" in said[0]
    assert "killed" in said[-1]


def test_the_progress_of_a_query() -> None:
    class Query:
        lastProgress = {  # noqa: N815, RUF012 - as Spark has it
            "sources": [{"startOffset": '{"next": 100}', "endOffset": {"next": 400}}],
            "batchDuration": 1500,
        }

    assert read_progress(Query()) == (400, 200.0, 1.5)
    assert read_progress(None) == (0, 0.0, 0.0)


def test_what_has_failed_is_not_waited_for(tmp_path: Path) -> None:
    stage = DemoEnvironment(tmp_path)
    stage._recorder = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.exit('no room')"], stderr=subprocess.PIPE, text=True
    )
    stage._recorder.wait()
    with pytest.raises(DemoError, match="the recorder failed: no room"):
        wait_until(lambda: False, "the end", stage.check_recorder)
