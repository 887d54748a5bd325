"""The programs as processes, on a feed with an archive: every published tick is recorded once."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from recado.apps.quotes.market import Market
from recado.apps.quotes.recorder import tick_columns
from recado.apps.quotes.viewer import format_tick
from workshop import peers
from workshop.time_limit import scale

RECADO = str(Path(sys.executable).with_name("recado"))
SECONDS = 60


class Desk:
    """A broker, an archive of the feed `quotes`, and a folder to run programs in."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def command(self, *words: str) -> list[str]:
        return [RECADO, *words, "--url", self.url]

    def run(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*words),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=scale(SECONDS),
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            self.command(*words), cwd=self.folder, stdout=subprocess.PIPE, text=True
        ) as program:
            try:
                yield program
            finally:
                program.kill()

    def publish(self, messages: int, *more: str) -> None:
        done = self.run("quotes", "publish", "--messages", str(messages), "--speed", "0", *more)
        assert f"published and confirmed: {messages:,}" in done.stdout


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    with peers.recado(data=tmp_path / "broker") as server:
        desk = Desk(server.url, tmp_path)
        with desk.running("feed", "archive", "quotes", "archive") as archive:
            assert archive.stdout
            assert archive.stdout.readline()  # it is a member now
            yield desk


def expected(messages: int, seed: int = 1) -> list[tuple[object, ...]]:
    return [tick_columns(tick) for tick in islice(Market(seed).ticks(), messages)]


def recorded(file: Path) -> list[tuple[object, ...]]:
    database = sqlite3.connect(file)
    rows = database.execute("SELECT * FROM tick ORDER BY publisher, sequence").fetchall()
    database.close()
    return [row[2:] for row in rows]


def count(file: Path) -> int:
    if not file.exists():
        return 0
    database = sqlite3.connect(file, timeout=scale(SECONDS))
    try:
        (number,) = database.execute("SELECT count(*) FROM tick").fetchone()
    except sqlite3.OperationalError:
        return 0  # it was just made, and has no tables yet
    finally:
        database.close()
    return int(number)


def until_count(file: Path, least: int, writer: subprocess.Popen[str]) -> None:
    """Look at the file until it has so many; another process writes it, and cannot tell us."""
    deadline = time.monotonic() + scale(SECONDS)
    while count(file) < least:
        assert writer.poll() is None, f"it ended with {writer.returncode}, and says why above"
        assert time.monotonic() < deadline, f"{count(file)} of {least} ticks after {SECONDS} s"
        time.sleep(0.02)  # between two looks


def test_a_latecomer_gets_everything_that_was_before(desk: Desk) -> None:
    desk.publish(3_000)
    done = desk.run("quotes", "catchup", "--once")
    lines = [format_tick(tick) for tick in islice(Market(1).ticks(), 3_000)]
    assert done.stdout.splitlines() == lines
    assert "ticks: 3,000" in done.stderr


def test_a_recorder_goes_on_where_it_ended(desk: Desk) -> None:
    file = desk.folder / "ticks.db"
    desk.publish(2_000)
    first = desk.run("quotes", "record", "ticks.db", "--messages", "2000")
    assert "recorded: 2,000, total: 2,000" in first.stdout
    desk.publish(1_500, "--seed", "2")
    second = desk.run("quotes", "record", "ticks.db", "--messages", "1500")
    assert "ticks.db has 2,000 ticks; continuing from there" in second.stdout
    assert "recorded: 1,500, total: 3,500" in second.stdout
    assert sorted(map(repr, recorded(file))) == sorted(
        map(repr, expected(2_000) + expected(1_500, seed=2))
    )


def test_a_recorder_that_is_killed_again_and_again_has_each_tick_once(desk: Desk) -> None:
    file = desk.folder / "ticks.db"
    publishing = ("--messages", "20000", "--speed", "100", "--body", "compact")
    with desk.running("quotes", "publish", *publishing) as publisher:
        for _ in range(3):
            with desk.running("quotes", "record", "ticks.db") as recorder:
                until_count(file, min(count(file) + 2_000, 20_000), recorder)
                recorder.send_signal(signal.SIGKILL)
        assert publisher.wait(scale(SECONDS)) == 0
    with desk.running("quotes", "record", "ticks.db") as recorder:
        assert recorder.stdout
        assert recorder.stdout.readline()  # it minds signals now; all may be recorded already
        until_count(file, 20_000, recorder)
        recorder.send_signal(signal.SIGTERM)
        assert recorder.wait(scale(SECONDS)) == 0
    assert recorded(file) == expected(20_000)


def test_a_watcher_sees_what_it_selects(desk: Desk) -> None:
    wanted = "--only", "PETR4", "--selector", "json.kind = 'trade'"
    with (
        desk.running("quotes", "publish", "--speed", "600"),
        desk.running("quotes", "watch", "--json", "--messages", "5", *wanted) as watcher,
    ):
        assert watcher.stdout
        lines = [json.loads(watcher.stdout.readline()) for _ in range(5)]
    assert {line["symbol"] for line in lines} == {"PETR4"}
    assert {line["kind"] for line in lines} == {"trade"}
    assert {line["certainty"] for line in lines} == {"live"}


def test_a_selector_that_is_wrong_is_told_with_its_place(desk: Desk) -> None:
    done = desk.run("quotes", "watch", "--selector", "json.price >", status=2)
    assert done.stderr.startswith("recado: ")
    assert "json.price >" in done.stderr


def test_without_a_broker_one_line_says_so(tmp_path: Path) -> None:
    (port,) = peers.free_ports(1)
    desk = Desk(f"amqp://127.0.0.1:{port}", tmp_path)
    done = desk.run("quotes", "watch", status=1)
    (line,) = done.stderr.splitlines()
    assert line.startswith("recado: ")


def test_a_database_that_is_none_is_refused(desk: Desk) -> None:
    (desk.folder / "ticks.db").write_text("these are no ticks" * 100)
    done = desk.run("quotes", "record", "ticks.db", status=1)
    assert "ticks.db: file is not a database" in done.stderr


def test_a_verb_that_does_not_exist() -> None:
    done = subprocess.run([RECADO, "quotes", "sell"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "recado: unknown command 'quotes sell'; `recado quotes --help` lists all\n"
    )


def test_a_missing_verb() -> None:
    done = subprocess.run([RECADO, "quotes"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(f"\n  {verb} " in done.stderr for verb in ("publish", "watch", "record", "catchup"))
