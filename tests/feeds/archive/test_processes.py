"""Real processes: one writes, seals and collects as fast as it can, others read beside it, and it is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from recado.feeds.archive.archive import Archive, SnapshotExpiredError
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.boundary import ArchiveQuery
from recado.feeds.vector import Vector

from .making import Row, batch, rows_in, rows_of
from .writer import KEPT, PUBLISHERS

pytestmark = pytest.mark.searching
ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def writing(folder: Path, grace: float = 60.0) -> Iterator[subprocess.Popen[str]]:
    """A writer that is killed with -9 in the end, if it has not been before."""
    command = [sys.executable, "-m", "tests.feeds.archive.writer", str(folder), str(grace)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def durable(process: subprocess.Popen[str]) -> int:
    """What the next line says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("durable "), f"the writer has ended: {process.wait()}"
    return int(line.split()[1])


def rest(process: subprocess.Popen[str], known: int) -> int:
    """What the last whole line says."""
    assert process.stdout is not None
    lines = process.stdout.read().split("\n")[:-1]
    return int(lines[-1].split()[1]) if lines else known


def check_rows(rows: list[Row]) -> None:
    """Of each publisher consecutive messages, each once, and what is in them is right."""
    for who in PUBLISHERS:
        mine = [row for row in rows if row[0] == who.to_bytes(16, "big")]
        if mine:
            assert mine == rows_of([batch(who, mine[0][1], len(mine))])
    assert {row[0] for row in rows} <= {who.to_bytes(16, "big") for who in PUBLISHERS}


def test_others_read_while_it_writes_seals_and_collects(tmp_path: Path) -> None:
    with writing(tmp_path) as process:
        known = durable(process)
        firsts: set[int] = set()
        while len(firsts) < 8:
            with Archive.open(tmp_path) as archive:
                rows = rows_in(archive)
                assert archive.first_offset + len(rows) == archive.end_offset >= known
                assert [each.column("offset")[0].as_py() for each in archive.batches()][:1] in (
                    [],
                    [archive.first_offset],
                )
                check_rows(rows)
                firsts.add(archive.first_offset)
            known = durable(process)


def first_in(folder: Path) -> int:
    """The first row that an archive has now."""
    with Archive.open(folder) as archive:
        return archive.first_offset


def test_a_snapshot_outlives_what_is_collected_for_the_grace_period(tmp_path: Path) -> None:
    with writing(tmp_path) as process:
        while durable(process) < 500:
            pass
        with Archive.open(tmp_path) as archive:
            before = rows_in(archive)
            while first_in(tmp_path) == archive.first_offset:  # until something is collected
                durable(process)
            assert rows_in(archive) == before


def test_without_a_grace_period_an_old_snapshot_says_so(tmp_path: Path) -> None:
    with writing(tmp_path, grace=0) as process:
        expired = durable(process) < 0
        while not expired:
            with Archive.open(tmp_path) as archive:
                known = durable(process)
                while durable(process) < known + 2 * KEPT:
                    pass
                try:
                    check_rows(rows_in(archive))
                except SnapshotExpiredError as error:
                    expired = "open it again" in str(error)


def test_kill_at_any_moment_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    random = Random(4)
    known = 0
    for _ in range(6):
        with writing(tmp_path) as process:
            durable(process)
            until = time.monotonic() + 0.3 * random.random()
            while time.monotonic() < until:
                known = durable(process)
            process.kill()
            known = rest(process, known)
        with Archive.open(tmp_path) as archive:  # before anybody has recovered it
            check_rows(rows_in(archive))
            assert archive.end_offset <= archive.first_offset + len(rows_in(archive))
        with ArchiveStore(tmp_path, "f") as store, Archive.open(tmp_path) as archive:
            rows = rows_in(archive)
            assert (
                archive.first_offset + len(rows) == archive.end_offset == store.next_offset >= known
            )
            check_rows(rows)
            assert list(archive.verify()) == []
            found = store.query(ArchiveQuery(Vector(), limit_bytes=1 << 30))
            assert rows_of(found.batches) == rows
            named = {each.path for each in archive.manifest.files}
            named |= {each.path for each in archive.manifest.retired}
            on_disk = {
                path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.parquet*")
            }
            assert on_disk == named
