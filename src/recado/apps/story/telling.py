"""The story: who starts when, who is killed, and whether all came out right.

    1  a node starts, with an archive of the feed `quotes`
    2  a market publishes a morning; a recorder writes every tick to a database
    3  Spark starts, and makes bars of what is in the archive and of what comes, for now the market goes on
    4  the recorder is killed by kill -9, and begins again a little later
    5  the market ends; the recorder has every tick once, and the stream's bars are those that a batch makes

The last is checked, and not only told: `Outcome.problems` says what is wrong.
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
from recado.feeds.archive.following import Follower
from recado.pipeline.running import start
from recado.pipeline.session import spark_session
from recado.pipeline.shipped import bars, metrics
from recado.pipeline.steps import frames

from .market import Market
from .stage import PATIENCE, Stage
from .watching import Display, Moment, Watch, progress_of

if TYPE_CHECKING:
    import pyarrow as pa

SPARK: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
AWAY: Final = 3.0  # seconds that the recorder is dead
POLL: Final = 0.1
KEYS: Final = ("symbol", "start")


@dataclass(frozen=True)
class Script:
    """How much of a market: before Spark looks, and while it does; `speed` seconds of it in one of ours."""

    morning: int = 20_000
    live: int = 15_000
    speed: float = 60.0

    @property
    def ticks(self) -> int:
        return self.morning + self.live


@dataclass(frozen=True)
class Outcome:
    ticks: int
    seconds: float
    recorded: int
    killed_at: int
    """Ticks in the database when its writer was killed."""
    seconds_bars: int
    """That the stream wrote, each of a second."""
    minutes: pa.Table
    """The bars of a minute that those make."""
    counters: pa.Table
    """Of the node, over time."""
    moments: Sequence[Moment]
    happened: Sequence[tuple[float, str]]
    problems: Sequence[str]


class TooSlow(Exception):
    """Something did not happen in the time that it may take."""


def tell(stage: Stage, script: Script, display: Display) -> Outcome:
    """All of it, but for the end of the node."""
    archived = Archived(stage.archive)
    with Watch(display, archived, lambda: stage.recorded) as watch:
        watch.say(f"a node listens on {stage.broker.url}, with an archive of the feed quotes")
        watch.say(f"a recorder (process {stage.record()}) writes every tick to {stage.database}")
        market = stage.market(morning=script.morning, live=script.live, speed=script.speed)
        watch.say(f"a market publishes the {script.morning:,} ticks of a morning")
        with noise_to(stage.folder / "spark.log"):
            spark = spark_session("recado story", settings=SPARK)
        watch.say(
            f"Spark {spark.version} makes bars of them, and the market goes on", "Spark is up"
        )
        lake = str(stage.folder / "bars")
        pipeline = bars.pipeline(str(stage.archive), lake, str(stage.folder / "state"))
        query = watch.query = start(pipeline, spark)
        try:
            market.open()
            killed_at = kill_and_return(
                stage, script, watch, partial(raise_what_failed, stage, market, query)
            )
            until(lambda: is_over(market, script.ticks), "the market ends")
            watch.say(f"the market has ended; {script.ticks:,} ticks are confirmed", "market ends")
            until(lambda: caught_up(query, script.ticks), "the stream has read all of them")
            query.processAllAvailable()  # and told the bars that this closes
            until(stage.has_recorded, "the recorder has all of them")
            watch.say(f"the recorder has {stage.recorded:,} ticks, each once")
        except BaseException:
            with suppress(Exception):  # Ctrl-C may have ended Spark as well
                query.stop()
            raise
        query.stop()
        table = spark.read.parquet(lake).cache()
        written, minutes = table.toArrow(), bars.wider(table).toArrow()
        watch.say(
            f"the stream wrote {written.num_rows:,} bars; a batch makes them once more, to compare"
        )
        problems = list(differences(written, frames(pipeline, spark)["bars"].toArrow()))
        if stage.recorded != script.ticks:
            problems.append(f"the recorder has {stage.recorded:,} of {script.ticks:,} ticks")
        rows = spark.read.format("recado").option("path", str(stage.counters)).load()
        counted = metrics.metrics(rows, "3 seconds").toArrow()
        spark.stop()
        seconds = watch.seconds
    return Outcome(
        ticks=script.ticks,
        seconds=seconds,
        recorded=stage.recorded,
        killed_at=killed_at,
        seconds_bars=written.num_rows,
        minutes=minutes,
        counters=counted,
        moments=watch.moments,
        happened=watch.happened,
        problems=problems,
    )


@contextmanager
def noise_to(log: Path) -> Iterator[None]:
    """What processes that are started meanwhile say on standard error, as long as they live; Spark says
    much."""
    sys.stderr.flush()
    kept = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def raise_what_failed(stage: Stage, market: Market, query: Any) -> None:
    """Nobody has to wait for what has failed."""
    stage.check_recorder()
    is_over(market, 0)
    caught_up(query, 0)


def kill_and_return(
    stage: Stage, script: Script, watch: Watch, check: Callable[[], None] = lambda: None
) -> int:
    """The recorder dies in the middle of its work, and another life of it goes on from there."""
    least = script.morning + script.live // 10
    until(lambda: stage.recorded >= least, "the recorder is in the middle of its work", check)
    stage.kill()
    watch.is_recording = False
    killed_at = stage.recorded
    watch.say(f"kill -9: the recorder is dead, with {killed_at:,} ticks in its database", "kill -9")
    time.sleep(AWAY)  # that it is away for a while is the point
    number = stage.record(script.ticks - killed_at)
    watch.is_recording = True
    watch.say(
        f"it is back (process {number}), and gets from the archive what it missed", "it is back"
    )
    return killed_at


class Archived:
    """How many ticks an archive has; it may not have begun."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._follower: Follower | None = None

    def __call__(self) -> int:
        try:
            if self._follower is None:
                self._follower = Follower(self._folder)
            else:
                self._follower.look()
        except ArchiveError:
            return 0
        return self._follower.end


def until(
    happened: Callable[[], bool], what: str, check: Callable[[], None] = lambda: None
) -> None:
    """Raises TooSlow, or what `check` raises."""
    deadline = time.monotonic() + PATIENCE
    while not happened():
        check()
        if time.monotonic() > deadline:
            raise TooSlow(f"it takes too long until {what}")
        time.sleep(POLL)


def is_over(market: Market, ticks: int) -> bool:
    if market.failure is not None:
        raise market.failure
    return market.confirmed == ticks


def caught_up(query: Any, ticks: int) -> bool:
    if query.exception() is not None:
        raise query.exception()
    return progress_of(query)[0] >= ticks


def differences(stream: pa.Table, batch: pa.Table) -> list[str]:
    """What the stream's bars are not; the last are still open, so a batch has more."""
    expected = {tuple(row[key] for key in KEYS): row for row in batch.to_pylist()}
    found = []
    for row in stream.to_pylist():
        other = expected.pop(tuple(row[key] for key in KEYS), None)
        if other is None or any(not alike(row[name], other[name]) for name in other):
            found.append(f"the stream's bar {row} is {other} in a batch")
    last = max(row["end"] for row in stream.to_pylist()) if stream.num_rows else None
    for row in expected.values():
        if last is not None and row["end"] < last:
            found.append(f"the stream has no bar {row}")
    return found[:3]


def alike(one: object, other: object) -> bool:
    """Sums depend on the order of what is added, in their last digits."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-9 * max(abs(one), abs(other), 1e-6)
    return one == other
