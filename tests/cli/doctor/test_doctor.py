"""The whole command: output, exit status, and that it changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import recado
from recado.cli import main

from .conftest import Diagnose

CHECKS = [
    "configuration",
    "ports",
    "disk",
    "open files",
    "clock",
    "certificate",
    "java",
    "packages",
]


def test_plain_lines(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "recado", "doctor", "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert [row[1] for row in rows] == CHECKS
    assert {row[0] for row in rows} <= {"ok", "warning"}
    assert done.stderr == ""


def test_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["doctor", "--port", "0", "--connections", "100000000"]) == 1
    printed = capsys.readouterr().out
    assert "\nerror    open files     limits of open files: soft " in printed
    assert "\n                        fix: ulimit -n 100000320   # as root" in printed
    assert "\n                        or:  systemctl edit recado   # [Service]" in printed
    assert "1 error, " in printed.splitlines()[-1]
    wrapped = [line for line in printed.splitlines() if "fix:" not in line and "or: " not in line]
    assert max(map(len, wrapped)) <= 80, "only commands are not wrapped"


def test_a_wrong_configuration(diagnose: Diagnose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECADO_SERVER_FRAME_MAX", "1")
    found = diagnose("configuration")
    assert found.severities == ["error"]
    assert "server.frame_max" in found.only["found"]


def test_a_configuration_file(diagnose: Diagnose, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[server]\nmax_connections = 7\n")
    found = diagnose("configuration", "--config", "other.toml")
    assert found.severities == ["ok"]
    assert "other.toml" in found.only["found"]


def test_nothing_is_changed(tmp_path: Path, diagnose: Diagnose) -> None:
    data = tmp_path / "data"
    with recado.Broker(data=data):
        pass

    def state() -> dict[Path, tuple[int, int, int]]:
        states = {path: path.lstat() for path in (tmp_path, *tmp_path.rglob("*"))}
        return {
            # A file without a name changes the time of its folder on some systems.
            path: (each.st_ino, each.st_size, 0 if path.is_dir() else each.st_mtime_ns)
            for path, each in states.items()
        }

    before = state()
    assert diagnose("journal", "--data", str(data)).severities == ["ok"]
    assert diagnose("disk", "--data", str(tmp_path / "new" / "data")).severities == ["ok", "ok"]
    assert state() == before


def test_a_broker_that_runs(tmp_path: Path, diagnose: Diagnose) -> None:
    data = tmp_path / "data"
    with recado.Broker(data=data) as broker:
        flags = ("--data", str(data), "--port", str(broker.port))
        ports = diagnose("ports", *flags)
        journal = diagnose("journal", *flags)
    assert ports.severities == journal.severities == ["ok"]
    assert "in use by the broker on the data folder" in ports.only["found"]
    assert "not verified: a broker is using" in journal.only["found"]
