"""Pipelines under kill -9, in short: five kills. `./dev bench pipeline-crash` has fifty."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import recado.feeds
from bench import pipeline_crash
from bench.aims import load_aims
from bench.book import Book
from bench.pipeline_crash import dealt, failpoints
from bench.pipeline_crash.failpoints import LAKE, DoomedFeedWriter, sink_doom
from bench.pipeline_crash.judge import Arrived, Kind, Violation, judge
from bench.pipeline_crash.listener import listening
from bench.pipeline_crash.routes import (
    ANEW,
    CATALOGUED,
    FEWER,
    KEPT,
    QUEUES,
    ROUTES,
    SOURCES,
    TARGETS,
    WINDOWS,
    Generation,
    Layout,
    Query,
    iceberg_table,
)
from bench.pipeline_crash.siege import Outcome, besiege, judged, place_of, table
from bench.pipeline_crash.victim import Kill, Victim
from bench.scenario import Side
from recado.pipeline.feed.options import FeedWriteOptions
from recado.pipeline.feed.writer import FeedStreamWriter, StagedFile
from recado.pipeline.lake.iceberg import open_catalogue
from recado.pipeline.lake.options import IcebergSourceOptions
from workshop.peers import Server

SEED = 7
# One of each kind, but that the driver's death comes with a restored checkpoint. That of workers waits until
# all queries work again: those before it have had their effect. Those of the whole job are the last: each incarnation
# takes longer to start than all else, and so the second only has to begin, and the third to finish.
KILLS = [Kill.SPOOL, Kill.SINK, Kill.WORKER, Kill.LAKE, Kill.RESTORE]


# It runs beside no other Spark: pytest.mark.spark
@pytest.mark.spark
@pytest.mark.searching
@pytest.mark.timeout(1200)
def test_what_is_promised_holds_through_five_kills_and_what_is_not_is_seen(tmp_path: Path) -> None:
    """Routes whose mechanisms are off are in the same siege: on them it must find repeats."""
    outcome = besiege(tmp_path, KILLS, SEED, print, FEWER)
    assert [str(each) for each in outcome.violations][:20] == []
    assert outcome.unseen == []
    assert outcome.own_deaths == []
    assert outcome.counts["sent"] > 10
    assert outcome.counts["queries that failed"] > 0
    assert outcome.counts["tasks tried again"] > 0
    assert all(outcome.counts[f"{kind.value} kills"] == 1 for kind in KILLS)
    assert outcome.counts["checkpoints restored"] == 1
    assert outcome.counts["checkpoints refused"] == 1


def kinds(arrived: Arrived, sent: int, *, once: bool = True) -> list[Kind]:
    return [each.kind for each in judge(arrived, sent, once=once)]


def test_the_judge() -> None:
    assert kinds(Arrived("r", [0, 1, 2]), 3) == []
    assert kinds(Arrived("r", [2, 0, 1]), 3) == []
    assert kinds(Arrived("r", [0, 2]), 3) == [Kind.LOST]
    assert kinds(Arrived("r", [0, 1, 2, 3]), 3) == [Kind.PHANTOM]
    assert kinds(Arrived("r", [0, 1, 1]), 2) == [Kind.TWICE]
    assert kinds(Arrived("r", [0, 1, 1]), 2, once=False) == []
    assert kinds(Arrived("r", [0, 0], ["a", "a"]), 1, once=False) == []
    assert kinds(Arrived("r", [0, 0], ["a", "b"]), 1, once=False) == [Kind.STRANGE]
    assert kinds(Arrived("r", [0, 1], ["a", "a"]), 2, once=False) == [Kind.STRANGE]
    assert str(Violation(Kind.LOST, "r", "message 3")) == "lost on r: message 3"
    assert Arrived("r", [0, 1, 1]).repeats == 1


def test_kills_are_of_each_kind() -> None:
    kills = dealt(60, Random(1))
    assert Counter(kills) == dict.fromkeys(Kill, 10)
    assert kills != dealt(60, Random(2))


def test_every_source_and_target_is_judged() -> None:
    assert {route.source for route in ROUTES if route.source} == {each.name for each in SOURCES}
    ends = {(route.broker, route.queue) for route in ROUTES if route.queue}
    targets = TARGETS.values()
    assert ends == {(target.broker, queue) for target in targets for queue in target.queues}
    assert set(WINDOWS) <= {queue for _, queue in ends}
    assert all(queue.broker for queue in QUEUES)
    whole, part = Layout({}), Layout({}, FEWER)
    assert (whole.sources, whole.targets) == ([*SOURCES], TARGETS)
    assert whole.queries == [*Query]
    assert whole.sinks == [*(target.exchange for target in TARGETS.values()), KEPT]
    assert (len(part.sources), part.targets) == (3, TARGETS)
    assert part.queries == [Query.LAKE, *part.targets, Query.RESTORED_DELTA]
    assert {route.once for route in FEWER} == {True, False}


def test_a_listener_has_all_that_was_published_doubles_too(
    recado_server: Server, tmp_path: Path
) -> None:
    routes = tuple(route for route in ROUTES if route.feed)
    layout = Layout({"recado": recado_server.url}, routes)
    with listening(tmp_path / "heard", layout) as listener:
        for _ in range(2):  # each by a publisher of its own
            with recado.feeds.connect_blocking(recado_server.url) as link:
                link.feed(ANEW).publish_many([b"0", b"1"], message_ids=["id-0", "id-1"])
        with recado.feeds.connect_blocking(recado_server.url) as link:
            link.feed(KEPT).publish(b"7")
        assert sorted(listener.heard(ANEW)) == [(0, "id-0")] * 2 + [(1, "id-1")] * 2
        assert listener.heard(KEPT) == [(7, "")]


def test_an_iceberg_table_is_read_as_its_catalogue_has_it(tmp_path: Path) -> None:
    rows = pa.table({"source": ["archive", "archive"], "number": [1, 2]})
    options = IcebergSourceOptions(table=iceberg_table(CATALOGUED), warehouse=str(tmp_path))
    with closing(open_catalogue(options)) as catalogue:
        catalogue.create_namespace("siege")
        made = catalogue.create_table(options.table, rows.schema)
        made.append(rows)
        made.append(rows.slice(1))
    assert sorted(table(CATALOGUED, tmp_path).column("number").to_pylist()) == [1, 2, 2]


def test_a_checkpoint_and_its_table_are_begun_anew_together(tmp_path: Path) -> None:
    now = Generation(tmp_path, Query.RESTORED_DELTA)
    before = (now.checkpoint, now.table, now.backup)
    now.begin_next()
    again = Generation(tmp_path, Query.RESTORED_DELTA)
    after = (again.checkpoint, again.table, again.backup)
    assert [each.name for each in (*before, *after)] == ["0"] * 3 + ["1"] * 3
    assert place_of(Query.RESTORED_DELTA.value, tmp_path) == again.table


def test_an_older_checkpoint_is_restored(tmp_path: Path) -> None:
    victim = Victim(tmp_path, Layout({}))
    now = Generation(tmp_path, Query.RESTORED_PARQUET)
    victim._back_up()
    victim._restore()
    assert victim.restored == 0
    for number in (0, 1):  # only the first is in the backup
        for log in ("offsets", "commits"):
            (now.checkpoint / log).mkdir(parents=True, exist_ok=True)
            (now.checkpoint / log / str(number)).touch()
        victim._back_up()
        assert victim._is_past_backups() == (number == 1)
    victim._restore()
    assert victim.restored == 1
    assert [each.name for each in (now.checkpoint / "commits").iterdir()] == ["0"]


def test_a_feed_s_sink_dies_when_rows_are_published_and_spark_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setenv(failpoints.FOLDER, str(tmp_path))
    monkeypatch.setattr(FeedStreamWriter, "commit", lambda *_: done.append("published"))
    monkeypatch.setattr(failpoints, "die", lambda: done.append("dead"))
    options = FeedWriteOptions(url="amqp://localhost", feed=KEPT, id_columns="none")
    writer = DoomedFeedWriter.of(FeedStreamWriter(options, {"body": "binary"}, tmp_path))
    writer.commit([StagedFile("file", 3)], 1)
    assert done == ["published"]
    (tmp_path / sink_doom(KEPT)).touch()
    writer.commit([StagedFile("file", 0)], 2)
    assert done == ["published"] * 2
    writer.commit([StagedFile("file", 3)], 3)
    assert done == [*["published"] * 3, "dead"]


def test_repeats_are_a_fault_where_once_is_promised_and_must_be_seen_elsewhere(
    tmp_path: Path,
) -> None:
    twice, once = [0, 0, 1], [0, 1]
    arrived = {
        route: Arrived(route.name, once if route.once or route is ROUTES[-1] else twice)
        for route in ROUTES
    }
    victim = Victim(tmp_path, Layout({}))
    outcome = judged(arrived, 2, victim)
    assert outcome.violations == []
    assert outcome.unseen == [ROUTES[-1].name]
    arrived[ROUTES[0]] = Arrived(ROUTES[0].name, twice)
    (found,) = judged(arrived, 2, victim).violations
    assert (found.kind, found.route) == (Kind.TWICE, ROUTES[0].name)


def test_one_fault_counts_and_so_do_deaths_and_a_control_that_sees_nothing() -> None:
    lost = Violation(Kind.LOST, "archive-lake", "message 1")
    counts = Counter({"driver kills": 2, "sink kills": 3})
    book = Book()
    outcome = Outcome([lost], ["archive-narrow"], ["status 1: oh"] * 2, counts)
    pipeline_crash.enter(outcome, 3, book)
    figures = {"lost": 1, "twice": 0, "died": 2, "unseen": 1, "kills": 5}
    for name, expected in figures.items():
        assert [each.value for each in book.samples(name, Side.RECADO)] == [expected] * 3


def test_only_the_dead_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = Victim(tmp_path, Layout({}))
    monkeypatch.setattr(Victim, "_wait", lambda _, reached, __: reached() or pytest.fail("alive"))
    claimed = tmp_path / f"{LAKE}.{os.getpid()}"
    claimed.touch()
    with pytest.raises(pytest.fail.Exception):
        victim.kill(Kill.LAKE, Random(1))
    assert not victim.deaths
    victim._process = dead = subprocess.Popen(["true"])
    dead.wait()
    claimed.rename(tmp_path / f"{LAKE}.{dead.pid}")
    victim.kill(Kill.LAKE, Random(1))
    assert victim.deaths == {Kill.LAKE: 1}
    assert not list(tmp_path.glob(f"{LAKE}.*"))


def test_a_job_that_dies_and_was_not_killed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three incarnations the first is killed at its moment, the second fails, and so does the third at its end."""
    incarnations = iter(
        [
            f"import os; os.rename('{LAKE}', f'{LAKE}.{{os.getpid()}}'); os.kill(os.getpid(), 9)",
            "raise SystemExit('oh')",
            "open('diary', 'w').write('finished\\n'); raise SystemExit('at the end')",
        ]
    )
    begin = subprocess.Popen

    def begin_next(_: object, **options: Any) -> subprocess.Popen[bytes]:
        return begin([sys.executable, "-c", next(incarnations)], cwd=tmp_path, **options)

    (tmp_path / LAKE).touch()
    monkeypatch.setattr(subprocess, "Popen", begin_next)
    with Victim(tmp_path, Layout({})) as victim:
        victim.kill(Kill.LAKE, Random(1))
        assert victim.own_deaths == []
        victim.finish()
    assert victim.own_deaths == ["status 1: oh\n", "status 1: oh\nat the end\n"]


def test_every_figure_has_its_aim() -> None:
    aims = load_aims("pipeline-crash", pipeline_crash.SCENARIOS)
    assert set(aims) == {each.name for each in pipeline_crash.SCENARIOS}
    assert set(pipeline_crash.VIOLATIONS) == set(Kind)
