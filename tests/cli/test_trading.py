"""`recado trading …`: output as text and JSON, and errors."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recado.apps.trading.figures import TransportKind
from recado.apps.trading.measurement import AskTiming, RunSummary
from recado.cli import main
from recado.cli.trading import build_parser, create_plan
from tests.apps.trading.stage import archive_of, asks_of, run_of
from workshop.time_limit import scale

SECONDS = 60


def test_report_of_an_archive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = run_of("b", transport=TransportKind.TCP, broker=None)
    told: list[AskTiming | RunSummary] = [
        *asks_of("a", 30),
        run_of("a"),
        *asks_of("b", 30, 500_000),
        other,
    ]
    archive_of(tmp_path / "archive", told)
    assert main(["trading", "report", str(tmp_path / "archive")]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Table 7.1: no latency added")
    assert "Carmo 2012" in text
    plots = str(tmp_path / "plots")
    assert main(["trading", "report", str(tmp_path / "archive"), "--json", "--plots", plots]) == 0
    said = capsys.readouterr()
    (table,) = json.loads(said.out)["tables"]
    assert [line["series"] for line in table["lines"]] == ["tcp", *["amqp, recado"] * 2]
    assert said.err.splitlines() == [f"{plots}/figure-7.2.png"]


def test_report_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trading", "report", "/nowhere"]) == 1
    assert "no archive in /nowhere" in capsys.readouterr().err
    archive_of(tmp_path, asks_of("a", 3))
    assert main(["trading", "report", str(tmp_path)]) == 1
    assert "has no finished run" in capsys.readouterr().err


def test_report_of_an_archive_with_a_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive_of(tmp_path, [*asks_of("a", 29), run_of("a")])
    assert main(["trading", "report", str(tmp_path)]) == 1
    assert "of the 30 asks of run a the archive has 29" in capsys.readouterr().err


def test_the_words_of_run() -> None:
    words = "--clients 1,80 --transport amqp --latency 0ms,1.5ms --asks 800 --broker recado --broker x=amqp://y"
    plan = create_plan(build_parser("run").parse_args(words.split()))
    assert (plan.clients, plan.latencies_us, plan.asks, plan.runs) == ([1, 80], [0, 1500], 800, 3)
    assert plan.brokers == {"recado": None, "x": "amqp://y"}
    assert len(plan) == 3 * 2 * 2 * 2
    quick = create_plan(build_parser("run").parse_args(["--quick"]))
    assert (quick.asks, quick.runs, len(quick)) == (4800, 1, 16)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["run", "--clients", "1,x"], "'x' is not a number above 0"),
        (["run", "--latency", "2"], "not a duration such as 500us, 2ms or 1s"),
        (["run", "--transport", "udp"], "'udp' is neither tcp nor amqp"),
        (["run", "--broker", "rabbit"], "expected recado or NAME=amqp://…"),
        (["network", "localhost"], "expected HOST:PORT"),
    ],
)
def test_words_that_are_no_values(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["trading", *words])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err


def test_asks_that_cannot_be_shared(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trading", "run", "--clients", "7"]) == 2
    assert "30000 asks cannot be divided evenly among 7 clients" in capsys.readouterr().err


def test_a_verb_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trading", "buy"]) == 2
    assert "unknown command 'trading buy'" in capsys.readouterr().err
    assert main(["trading"]) == 2
    listed = capsys.readouterr().err
    assert all(f"  {verb} " in listed for verb in ("run", "report", "serve", "trade", "network"))


def test_a_network_process_makes_round_trips_longer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = [f"127.0.0.1:{server.getsockname()[1]}", "--latency", "50ms"]
        with subprocess.Popen(
            [sys.executable, "-m", "recado", "trading", "network", *words], stdout=subprocess.PIPE
        ) as way:
            try:
                assert way.stdout is not None
                port = json.loads(way.stdout.readline())["port"]
                with socket.create_connection(("127.0.0.1", port), SECONDS) as near:
                    far, _ = server.accept()
                    with far:
                        far.settimeout(scale(SECONDS))
                        begun = time.perf_counter()
                        near.sendall(b"there")
                        assert far.recv(5) == b"there"
                        far.sendall(b"back")
                        assert near.recv(4) == b"back"
                        assert time.perf_counter() - begun >= 0.05
            finally:
                way.terminate()
            assert way.wait(scale(SECONDS)) == 0


def test_run_and_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = str(tmp_path / "archive")
    run = ["trading", "run", "--clients", "2", "--transport", "tcp", "--asks", "60", "--runs", "1"]
    assert main([*run, "--archive", archive, "--json"]) == 0
    (told,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (told["transport"], told["clients"], told["asks"]) == ("tcp", 2, 60)
    assert main([*run, "--archive", archive]) == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == ["run 1 of 1: tcp, 0 ms, 2 clients"]
    assert said.out.startswith("runs: 1; `recado trading report ")
    assert main(["trading", "report", archive, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 1


def test_an_exchange_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trading", "trade", "--transport", "tcp"]) == 2
    assert "--url tcp://HOST:PORT" in capsys.readouterr().err
    assert main(["trading", "trade", "--transport", "amqp", "--clients", "7"]) == 2
    assert "cannot be divided evenly" in capsys.readouterr().err
    assert main(["trading", "serve", "--transport", "amqp", "--url", "amqp://127.0.0.1:1"]) == 1
    assert "connection to 127.0.0.1:1 refused" in capsys.readouterr().err
