"""The sequence of the demo, and the checks of its result.

    1  a broker starts, with an archive of the feed `quotes`
    2  a market publishes a morning; a recorder writes every tick to a database
    3  Spark starts and computes bars from the archive; the market continues with live ticks
    4  the recorder is killed with kill -9, and restarted a little later
    5  the market ends; the recorder must have every tick once, and the bars of the stream must equal those
       of a batch

`DemoResult.problems` has the failed checks.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from recado.feeds.archive.errors import ArchiveError
from recado.feeds.archive.follower import ArchiveFollower
from recado.pipeline import preview, spark_session, start
from recado.pipeline.builtin import bars, metrics
from recado.pipeline.report import PipelineReport, SourceReport
from recado.pipeline.status import now_ms, publish_run

from .environment import STEP_TIMEOUT_S, DemoEnvironment
from .market_publisher import MarketPublisher
from .monitor import DemoDisplay, Monitor, Sample, read_progress

if TYPE_CHECKING:
    import pyarrow as pa

SPARK_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
RECORDER_DOWNTIME_S: Final = 3.0
POLL_INTERVAL_S: Final = 0.1
BAR_KEYS: Final = ("symbol", "start")


@dataclass(frozen=True)
class DemoSettings:
    """The number of ticks before and after Spark starts; `speed` is market seconds per real second."""

    morning: int = 20_000
    live: int = 15_000
    speed: float = 60.0

    @property
    def ticks(self) -> int:
        return self.morning + self.live


@dataclass(frozen=True)
class DemoResult:
    """The figures of a run, for the report."""

    ticks: int
    seconds: float
    recorded: int
    killed_at: int
    """Ticks in the database when the recorder was killed."""
    bar_count: int
    """The number of one-second bars that the stream wrote."""
    minutes: pa.Table
    """One-minute bars, combined from the one-second bars."""
    counters: pa.Table
    """The broker's metrics over time."""
    samples: Sequence[Sample]
    events: Sequence[tuple[float, str]]
    problems: Sequence[str]


class DemoTimeoutError(Exception):
    """A step of the demo took too long."""


def run_demo(
    environment: DemoEnvironment, settings: DemoSettings, display: DemoDisplay
) -> DemoResult:
    """Run the scenario; the caller stops the environment. Raises DemoTimeoutError or DemoError."""
    archive_count = ArchiveCount(environment.archive)
    with Monitor(display, archive_count, lambda: environment.recorded_count) as monitor:
        monitor.say(f"broker listening on {environment.broker.url}, archiving the feed quotes")
        monitor.say(
            f"web console at {environment.console_url} (user guest, password guest),"
            f" management API at {environment.management_url}, metrics at {environment.metrics_url}"
        )
        process_id = environment.start_recorder()
        monitor.say(
            f"recorder started (process {process_id}), writing every tick to {environment.database}"
        )
        market = environment.start_market(
            morning=settings.morning, live=settings.live, speed=settings.speed
        )
        monitor.say(f"market publishes a morning of {settings.morning:,} ticks")
        with redirect_stderr(environment.folder / "spark.log"):
            spark = spark_session("recado demo", settings=SPARK_SETTINGS)
        monitor.say(
            f"Spark {spark.version} started, computing bars; the market continues", "Spark started"
        )
        lake = str(environment.folder / "bars")
        pipeline = bars.bars_pipeline(
            str(environment.archive), lake, str(environment.folder / "state")
        )
        with publish_progress(monitor, pipeline.name, environment.broker.url):
            query = monitor.query = start(pipeline, spark)
            try:
                market.open()
                killed_at = kill_and_restart_recorder(
                    environment,
                    settings,
                    monitor,
                    partial(check_failures, environment, market, query),
                )
                wait_until(lambda: has_market_ended(market, settings.ticks), "the market to end")
                monitor.say(f"market ended: {settings.ticks:,} ticks confirmed", "market ended")
                wait_until(
                    lambda: has_caught_up(query, settings.ticks), "the stream to read all ticks"
                )
                query.processAllAvailable()  # write the bars that the last ticks close
                wait_until(environment.has_recorder_finished, "the recorder to store all ticks")
                monitor.say(f"recorder has {environment.recorded_count:,} ticks, each once")
            except BaseException:
                with suppress(Exception):  # Ctrl-C may have ended Spark as well
                    query.stop()
                raise
            query.stop()
        table = spark.read.parquet(lake).cache()
        written, minutes = table.toArrow(), bars.widen_bars(table).toArrow()
        monitor.say(
            f"stream wrote {written.num_rows:,} bars; computing them again as a batch to compare"
        )
        problems = list(find_differences(written, preview(pipeline, spark)["bars"].toArrow()))
        if environment.recorded_count != settings.ticks:
            problems.append(
                f"the recorder has {environment.recorded_count:,} of {settings.ticks:,} ticks"
            )
        rows = spark.read.format("recado").option("path", str(environment.counters)).load()
        counted = metrics.compute_metrics(rows, "3 seconds").toArrow()
        spark.stop()
        seconds = monitor.seconds
    return DemoResult(
        ticks=settings.ticks,
        seconds=seconds,
        recorded=environment.recorded_count,
        killed_at=killed_at,
        bar_count=written.num_rows,
        minutes=minutes,
        counters=counted,
        samples=monitor.samples,
        events=monitor.events,
        problems=problems,
    )


@contextmanager
def redirect_stderr(log: Path) -> Iterator[None]:
    """Redirect standard error to a log, for processes started within the block; Spark prints a lot."""
    sys.stderr.flush()
    saved = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def check_failures(environment: DemoEnvironment, market: MarketPublisher, query: Any) -> None:
    """Raise the error of a part that has failed, instead of waiting for it."""
    environment.check_recorder()
    # The results are not used: both raise the error of their part.
    has_market_ended(market, 0)
    has_caught_up(query, 0)


def kill_and_restart_recorder(
    environment: DemoEnvironment,
    settings: DemoSettings,
    monitor: Monitor,
    check: Callable[[], None] = lambda: None,
) -> int:
    """Kill the recorder in the middle of its work and restart it later; return its tick count at the kill."""
    least = settings.morning + settings.live // 10
    wait_until(
        lambda: environment.recorded_count >= least,
        "the recorder to store the first live ticks",
        check,
    )
    environment.kill_recorder()
    monitor.is_recording = False
    killed_at = environment.recorded_count
    monitor.say(f"kill -9: recorder killed with {killed_at:,} ticks in its database", "kill -9")
    time.sleep(RECORDER_DOWNTIME_S)  # ticks published meanwhile must come from the archive
    process_id = environment.start_recorder(settings.ticks - killed_at)
    monitor.is_recording = True
    monitor.say(
        f"recorder restarted (process {process_id}), fetching missed ticks from the archive",
        "recorder restarted",
    )
    return killed_at


class ArchiveCount:
    """Returns the number of ticks in an archive, which may not exist yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._archive: ArchiveFollower | None = None

    def __call__(self) -> int:
        try:
            if self._archive is None:
                self._archive = ArchiveFollower(self._folder)
            else:
                self._archive.refresh()
        except ArchiveError:
            return 0
        return self._archive.end_offset


def wait_until(
    condition: Callable[[], bool], what: str, check: Callable[[], None] = lambda: None
) -> None:
    """Poll until the condition holds. Raises DemoTimeoutError, or the error of `check`."""
    deadline = time.monotonic() + STEP_TIMEOUT_S
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise DemoTimeoutError(f"timed out after {STEP_TIMEOUT_S:.0f} s waiting for {what}")
        time.sleep(POLL_INTERVAL_S)


def has_market_ended(market: MarketPublisher, ticks: int) -> bool:
    if market.failure is not None:
        raise market.failure
    return market.confirmed == ticks


def has_caught_up(query: Any, ticks: int) -> bool:
    if query.exception() is not None:
        raise query.exception()
    return read_progress(query)[0] >= ticks


@contextmanager
def publish_progress(monitor: Monitor, pipeline: str, url: str) -> Iterator[None]:
    """Publish the progress of the stream to the broker, so that the web console shows the pipeline."""
    with publish_run(pipeline, url) as status:

        def update(sample: Sample) -> None:
            progress = monitor.query.lastProgress
            batch = progress["batchId"] if progress else -1
            source = SourceReport(sample.computed, sample.rate, sample.lag)
            report = PipelineReport(
                pipeline, batch, batch + 1, sample.batch_seconds, sources={"quotes": source}
            )
            status.update(report, now_ms())

        monitor.on_progress = update
        try:
            yield
        finally:
            monitor.on_progress = lambda _: None
        status.finish(now_ms(), was_stopped=False)


def find_differences(stream: pa.Table, batch: pa.Table) -> list[str]:
    """Return up to three differences between the bars of the stream and those of a batch.

    The batch also has the newest bars, which the stream has not written because more ticks may come.
    """
    expected = {tuple(row[key] for key in BAR_KEYS): row for row in batch.to_pylist()}
    found = []
    for row in stream.to_pylist():
        other = expected.pop(tuple(row[key] for key in BAR_KEYS), None)
        if other is None or any(not is_close(row[name], other[name]) for name in other):
            found.append(f"the stream's bar {row} is {other} in a batch")
    last = max(row["end"] for row in stream.to_pylist()) if stream.num_rows else None
    for row in expected.values():
        if last is not None and row["end"] < last:
            found.append(f"the stream has no bar {row}")
    return found[:3]


def is_close(one: object, other: object) -> bool:
    """Compare values; sums may differ in the last digits, because the order of addition differs."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-9 * max(abs(one), abs(other), 1e-6)
    return one == other
