"""`recado --help`: groups, `serve` first, and every verb."""

from __future__ import annotations

import importlib

import pytest

from recado.cli import GROUPS, MANAGEMENT_COMMANDS, main
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
