"""Bars of a market, against DuckDB on the same messages, as a batch and as a stream with late trades."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas
import pytest

from recado.apps.quotes.market import Market
from recado.apps.quotes.tick import Side, Tick, Trade, encode_json, tick_key
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.views import NO_VIEW
from recado.pipeline import preview
from recado.pipeline.builtin import bars
from recado.pipeline.runner import run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TICKS = 6_000
NOON = 1_772_452_800_000_000  # a time at which the market below is not yet
CLOSING = Trade("PETR4", NOON, 10.0, 100, Side.BUY)
KEYS = ["symbol", "start"]
EXPECTED = """
    WITH trades AS (
        SELECT publisher, "sequence", body ->> 'symbol' AS symbol, (body ->> 'at')::BIGINT AS moment,
            (body ->> 'price')::DOUBLE AS price, (body ->> 'size')::BIGINT AS size
        FROM (SELECT publisher, "sequence", decode(body)::JSON AS body FROM archived WHERE routing_key <> 'X')
        WHERE body ->> 'kind' = 'trade'
    ), stepped AS (
        SELECT *, moment // {width} AS bar,
            ln(price / lag(price) OVER neighbours) AS step
        FROM trades
        WINDOW neighbours AS (PARTITION BY symbol, moment // {width} ORDER BY moment, publisher, "sequence")
    )
    SELECT symbol, make_timestamp(bar * {width}) AS start,
        first(price ORDER BY moment, publisher, "sequence") AS open, max(price) AS high, min(price) AS low,
        last(price ORDER BY moment, publisher, "sequence") AS close, sum(size)::BIGINT AS volume,
        count(*) AS trades, sum(price * size) / sum(size) AS vwap,
        sqrt(sum(coalesce(step * step, 0))) AS volatility
    FROM stepped GROUP BY ALL ORDER BY symbol, start
"""


def archived(folder: Path, batches: list[list[tuple[str, bytes]]]) -> None:
    """An archive of these messages, by two publishers in turn, half of it in files."""
    with ArchiveStore(folder, "quotes") as store:
        sequences = [0, 0]
        for number, messages in enumerate(batches):
            who = number % 2
            block = Block.build(
                [body for _, body in messages],
                timestamps=[1_800_000_000_000_000] * len(messages),
                keys=[key.encode() for key, _ in messages],
            )
            store.append([MessageBatch(bytes([who] * 16), sequences[who] + 1, block, NO_VIEW)])
            sequences[who] += len(messages)
            if number == len(batches) // 2:
                store.seal()


def told(ticks: list[Tick]) -> list[tuple[str, bytes]]:
    return [(tick_key(tick), encode_json(tick)) for tick in ticks]


def expected(folder: Path, microseconds: int) -> pandas.DataFrame:
    with Archive.open(folder) as archive:
        archived = pandas.concat(  # noqa: F841 - DuckDB finds it by its name
            batch.to_pandas()
            for batch in archive.batches(columns=["publisher", "sequence", "routing_key", "body"])
        )
    found: Any = duckdb.sql(EXPECTED.format(width=microseconds))
    return found.df()


def ordered(table: pa.Table) -> pandas.DataFrame:
    frame = table.to_pandas().sort_values(KEYS).reset_index(drop=True)
    for name in ("start", "end"):
        frame[name] = frame[name].dt.tz_localize(None)
    return frame


def assert_same(found: pandas.DataFrame, wanted: pandas.DataFrame) -> None:
    pandas.testing.assert_frame_equal(
        found[wanted.columns], wanted, check_dtype=False, rtol=1e-9, atol=1e-12
    )


def test_bars_in_batch_and_in_streaming(spark: SparkSession, tmp_path: Path) -> None:
    """Of a market with poison in it, which goes to the dead letters."""
    folder, lake = tmp_path / "archive", str(tmp_path / "bars")
    ticks = list(islice(Market(7).ticks(), TICKS))
    messages = [told(ticks[start : start + 1_000]) for start in range(0, TICKS, 1_000)]
    poison = [b"no JSON", b'{"kind":"trade","symbol":"X","at":1772445700000000}', b"\xff", b"[1]"]
    messages[3] += [("X", body) for body in poison]
    archived(folder, messages)
    pipeline = bars.bars_pipeline(
        str(folder), lake, str(tmp_path / "state"), late="1 minute", trigger="available-now"
    )

    batch = preview(pipeline, spark)["bars"].cache()
    seconds = ordered(batch.toArrow())
    assert_same(seconds, expected(folder, 1_000_000))
    minutes = expected(folder, 60_000_000)
    assert_same(ordered(bars.widen_bars(batch).toArrow()), minutes)
    batch.unpersist()

    report = run(pipeline, spark)
    assert sum(report.dead.values()) == len(poison)
    assert report.rows == TICKS + len(
        poison
    )  # though the source is read for bars and for dead letters
    assert report.late == 0
    streamed = ordered(spark.read.parquet(lake).toArrow())
    newest = max(tick.at for tick in ticks if isinstance(tick, Trade)) // 1_000
    closed = pandas.Timestamp(newest - 61_000, unit="ms")  # those that began later are still open
    assert_same(streamed, seconds[seconds["start"] <= closed].reset_index(drop=True))
    dead = spark.read.parquet(f"{lake}-dead").collect()
    assert sorted(bytes(row["body"]) for row in dead) == sorted(poison)

    append_late_and_closing(folder)
    again = run(pipeline, spark)
    assert (again.late, again.rows) == (1, 2)
    streamed = ordered(spark.read.parquet(lake).toArrow())
    assert_same(streamed, seconds)  # each once, and without the one that came too late
    with_late = ordered(preview(pipeline, spark)["bars"].toArrow())
    assert_same(with_late, expected(folder, 1_000_000))
    assert with_late["trades"].sum() == seconds["trades"].sum() + 2


def test_bars_of_a_minute_in_streaming(spark: SparkSession, tmp_path: Path) -> None:
    """Of a stream that ends, and begins again, in the middle of a minute."""
    folder, lake = tmp_path / "archive", str(tmp_path / "bars")
    ticks = list(islice(Market(7).ticks(), TICKS))
    half = TICKS // 2
    assert ticks[half - 1].at // 60_000_000 == ticks[half].at // 60_000_000
    archived(folder, [told(ticks[:half])])
    pipeline = bars.bars_pipeline(
        str(folder), lake, str(tmp_path / "state"), width=bars.ONE_MINUTE, trigger="available-now"
    )
    run(pipeline, spark)
    append(folder, [*ticks[half:], CLOSING])
    assert run(pipeline, spark).late == 0
    streamed = ordered(spark.read.parquet(lake).toArrow())
    minutes = expected(folder, 60_000_000)
    closed = minutes["start"] < pandas.Timestamp(NOON, unit="us")
    assert_same(streamed, minutes[closed].reset_index(drop=True))
    assert set(streamed["width"]) == {"1 minute"}
    assert set(streamed["end"] - streamed["start"]) == {pandas.Timedelta(minutes=1)}


def append_late_and_closing(folder: Path) -> None:
    """A trade of the first minute when that is long over, and one of noon, which closes all that is open."""
    late = Trade("PETR4", 1_772_445_600_000_000 + 1_000, 11.0, 500, Side.SELL)
    append(folder, [late, CLOSING])


def append(folder: Path, ticks: list[Tick]) -> None:
    """By a third publisher."""
    messages = told(ticks)
    with ArchiveStore(folder, "quotes") as store:
        block = Block.build(
            [body for _, body in messages],
            timestamps=[1_800_000_000_000_000] * len(messages),
            keys=[key.encode() for key, _ in messages],
        )
        store.append([MessageBatch(bytes([9] * 16), 1, block, NO_VIEW)])
