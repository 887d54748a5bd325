"""`recado --help`: groups, `serve` first, and every verb."""

from __future__ import annotations

import importlib

import pytest

from recado.cli import EXIT_INTERRUPTED, GROUPS, MANAGEMENT_COMMANDS, main
from recado.cli.management.command import Resource


def test_the_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["usage: recado COMMAND [options]", "", "Run a broker:"]
    assert lines[3].startswith("  serve ")
    titles = [line.removesuffix(":") for line in lines if line.endswith(":") and line[0] != " "]
    assert titles == list(GROUPS)
    assert max(map(len, lines)) <= 120


def test_the_verbs_of_resources() -> None:
    """The help names the verbs that there are, in the same order."""
    listed = {
        name: verbs.split("|") if verbs else []
        for group in GROUPS.values()
        for name, _, verbs in (words.partition(" ") for words in group)
    }
    found = {}
    for name in sorted(MANAGEMENT_COMMANDS):
        command = importlib.import_module(f"recado.cli.management.{name}").COMMAND
        if isinstance(command, Resource):
            found[name] = list(command.verbs)
    assert found.keys() >= {"queues", "streams", "policies"}
    assert found == {name: listed[name] for name in found}


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["queue", "list"], "recado queues"),
        (["list", "queues"], "recado queues list"),
        (["create", "exchange", "e"], "recado exchanges declare"),
        (["queues", "ls"], "recado queues list"),
        (["queues", "purgee"], "recado queues purge"),
        (["queues", "get"], "recado get"),
        (["context", "rm", "dev"], "recado context delete"),
        (["definitions", "chek"], "recado definitions check"),
    ],
)
def test_an_unknown_command(
    words: list[str], suggestion: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"did you mean `{suggestion}`?" in line


def test_nothing_is_similar(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["xyz"]) == 2
    assert capsys.readouterr().err == "recado: unknown command 'xyz'; `recado --help` lists all\n"


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["help"], ["help", "queues"], ["help", "config"], ["help", "journal"]):
        assert main(words) == 0
        assert capsys.readouterr().out.startswith(f"usage: {' '.join(['recado', *words[1:]])} ")
    with pytest.raises(SystemExit):
        main(["help", "queues", "purge"])
    assert capsys.readouterr().out.startswith("usage: recado queues purge ")


@pytest.mark.parametrize(("command", "status"), [("users", EXIT_INTERRUPTED), ("tap", 0)])
def test_ctrl_c(command: str, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the end of commands that follow something, and otherwise no success."""

    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("recado.cli.management.run_management", interrupt)
    assert main([command]) == status


def test_ctrl_c_in_a_migration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("recado.cli.migration.migrate.migrate", interrupt)
    servers = ("--from", "http://127.0.0.1:1", "--to", "http://127.0.0.1:2")
    assert main(["migrate", *servers]) == EXIT_INTERRUPTED
    assert "nothing is lost, run the same command again" in capsys.readouterr().err
