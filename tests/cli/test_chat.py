"""`recado chat`: from its first line to its end, and what it says if it cannot start."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from recado.cli import main

TIMEOUT_S = 60.0


def test_it_announces_its_address_and_stops_at_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "recado", "chat", "--port", "0", "--data", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
            assert found is not None
            with urllib.request.urlopen(found.group(), timeout=TIMEOUT_S) as page:
                assert b"<!doctype html>" in page.read()
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert (process.returncode, errors.splitlines()[-1]) == (0, "recado: stopped")
    assert {"archive", "broker", "chat.sqlite"} <= {each.name for each in tmp_path.iterdir()}


def test_a_port_in_use_and_a_missing_broker_are_errors_of_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main(["chat", "--port", port]) == 1
        taken.close()
        assert main(["chat", "--port", "0", "--url", f"amqp://127.0.0.1:{port}"]) == 1
    assert main(["chat", "--port", "0", "--url", "http://example.com"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("recado: ") for line in lines)
    assert f"127.0.0.1:{port}: address already in use: choose another port with --port" in lines[0]
    assert port in lines[1]
    assert "amqps://" in lines[2]


def test_an_impossible_port_is_an_error_of_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["chat", "--port", "99999"])
    assert "argument --port: 99999 is not between 0 and 65535" in capsys.readouterr().err
