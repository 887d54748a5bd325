"""`recado config show`, and errors of the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from recado import __version__
from recado.cli import main
from recado.server.passwords import hash_password

HASH = hash_password("secret")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_shows_each_value_and_its_origin(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "recado.toml").write_text("[server]\nheartbeat = 7\n")
    monkeypatch.setenv("RECADO_SERVER_CHANNEL_MAX", "9")
    assert main(["config", "show", "--port", "0"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["server.port", "0", "--port"] in lines
    assert ["server.channel_max", "9", "RECADO_SERVER_CHANNEL_MAX"] in lines
    assert ["server.heartbeat", "7", "recado.toml"] in lines
    assert ["server.host", '"127.0.0.1"', "default"] in lines


def test_another_file_can_be_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "recado.toml").write_text("[server]\nheartbeat = 7\n")
    (folder / "other.toml").write_text("[server]\nheartbeat = 8\n")
    assert main(["config", "show", "--config", "other.toml"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["server.heartbeat", "8", "other.toml"] in lines


def test_it_has_a_form_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["server.port"] == {"value": 5672, "origin": "default"}


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_it_never_shows_a_secret(
    folder: Path, capsys: pytest.CaptureFixture[str], form: list[str]
) -> None:
    (folder / "recado.toml").write_text(
        f"[access.users.ana]\npassword = 'pssst'\n[access.users.rui]\npassword_hash = '{HASH}'\n"
        "[actors]\nbroker = 'amqp://ana:pssst@example.org/'\n"
    )
    assert main(["config", "show", *form]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"access\.users\.ana\.password\b[^a-z]+(value[^a-z]+)?hidden", shown)
    assert re.search(r"access\.users\.rui\.password_hash\b[^a-z]+(value[^a-z]+)?hidden", shown)
    assert "amqp://(hidden)@example.org/" in shown
    assert "pssst" not in shown
    assert HASH not in shown


@pytest.mark.parametrize("command", [["serve"], ["config", "show"]])
def test_a_mistake_is_one_line_and_status_2(
    folder: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    (folder / "recado.toml").write_text("[server]\nprot = 7\n")
    assert main(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("recado: 'server.prot' in ")


def test_it_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"recado {__version__}\n"


def test_it_tells_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for question, verb in ((["--help"], "  serve "), (["config", "--help"], "  show ")):
        assert main(question) == 0
        assert verb in capsys.readouterr().out
    for mistake, answer in (
        ([], "usage: recado COMMAND"),
        (["config"], "usage: recado config VERB"),
        (["server", "--port", "0"], "did you mean `recado serve`?"),
    ):
        assert main(mistake) == 2
        assert answer in capsys.readouterr().err
