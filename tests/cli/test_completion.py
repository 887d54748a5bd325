"""Completion: candidates, and the scripts in the shells that they are for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import recado
from recado.cli import main
from recado.cli.completion import SCRIPTS, find_candidates
from tests.tmux import start_tmux
from workshop import system
from workshop.time_limit import scale

TIME_LIMIT_S = 60.0


def test_commands_verbs_and_flags() -> None:
    assert {"serve", "queues", "feed"} <= set(find_candidates([], ""))
    assert "complete" not in find_candidates([], ""), "it is for the scripts only"
    assert "purge" in find_candidates(["queues"], "")
    assert "--dry-run" in find_candidates(["queues", "purge"], "--")
    assert "--management-port" in find_candidates(["serve"], "-")
    assert find_candidates(["nonsense"], "") == []
    assert find_candidates(["queues", "declare"], "") == [], "a new name"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return "http://guest:guest@127.0.0.1:1"


def test_names_of_objects(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        monkeypatch.setenv("RECADO_URL", f"http://guest:guest@127.0.0.1:{broker.management_port}")
        assert main(["queues", "declare", "jobs"]) == 0
        assert find_candidates(["queues", "show"], "") == ["jobs"]
        assert find_candidates(["queues", "move", "jobs", "--to"], "") == ["jobs"]
        assert find_candidates(["get"], "") == ["jobs"]
        assert find_candidates(["queues", "list", "-V"], "") == ["/"]
        assert "amq.topic" in find_candidates(["bindings", "delete"], "")
        assert find_candidates(["queues", "show", "--url", url], "") == [], "it does not answer"


def test_names_of_contexts(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["context", "set", "dev", url]) == 0
    capsys.readouterr()
    assert main(["complete", "queues", "list", "--context", "d"]) == 0
    assert capsys.readouterr().out == "dev\n"
    for words in (["context", "use"], ["context", "delete"], ["migrate", "--from"]):
        assert find_candidates(words, "") == ["dev"]
    assert find_candidates(["context", "set", "dev"], "") == []


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "--help"]) == 0
    assert "completions/recado.fish" in capsys.readouterr().out
    assert main(["completion", "tcsh"]) == 2


SHELLS = {
    "bash": (
        None,
        'source "$SCRIPT"; COMP_WORDS=(recado queues pu); COMP_CWORD=2; _recado; echo "${COMPREPLY[@]}"',
    ),
    # Outside the line editor `compadd` is not available, so it is replaced by one that prints.
    "zsh": (
        system.ZSH,
        """
        compdef() { :; }
        compadd() { shift; print -r -- "$@"; }
        source "$SCRIPT"; words=(recado queues pu); CURRENT=3; _recado
        """,
    ),
    "fish": (system.FISH, 'source "$SCRIPT"; complete --do-complete "recado queues pu"'),
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables of a shell whose `recado` is the one of this tree."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command = folder / "recado"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m recado "$@"\n')
    command.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "SCRIPT": str(tmp_path / "script"),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / ".config"),
        "PS1": "$ ",
    }


def path_of_shell(program: system.Program | None) -> str:
    return "/bin/bash" if program is None else system.need(program)[0]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_scripts(shell: str, tmp_path: Path, environment: dict[str, str]) -> None:
    program, code = SHELLS[shell]
    path = path_of_shell(program)
    (tmp_path / "script").write_text(SCRIPTS[shell])
    done = subprocess.run(
        [path, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=scale(TIME_LIMIT_S),
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == ("purge", "")


# How a shell is started, where its script is installed, and what it needs in its first line.
INSTALLED = {
    "bash": ("--norc --noprofile -i", "recado.bash", 'source "$HOME/recado.bash"'),
    "zsh": (
        "-f -i",
        "functions/_recado",
        'fpath=("$HOME/functions" $fpath); autoload -Uz compinit; compinit -u -D',
    ),
    # Suggestions would show a candidate before the key is handled.
    "fish": (
        "-i",
        ".config/fish/completions/recado.fish",
        "set fish_autosuggestion_enabled 0",
    ),
}


@pytest.mark.parametrize("shell", INSTALLED)
def test_the_tab_key(shell: str, tmp_path: Path, environment: dict[str, str]) -> None:
    """In the shell itself, with the script where the usage says: the first press has to complete."""
    flags, place, first_line = INSTALLED[shell]
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_text(SCRIPTS[shell])
    (tmp_path / "topology.json").write_text("{}")
    with start_tmux(environment) as terminal:
        terminal.open(f"{path_of_shell(SHELLS[shell][0])} {flags}")
        terminal.type(f"{first_line} && echo rea''dy")
        terminal.press("Enter")
        terminal.wait_for("ready\n")
        terminal.type(f"cd {tmp_path}")
        terminal.press("Enter")
        terminal.type("recado queues pu")
        terminal.press("Tab")
        terminal.wait_for("recado queues purge")
        terminal.type("--dr")
        terminal.press("Tab")
        terminal.wait_for("recado queues purge --dry-run")
        terminal.press("C-u")  # a key, not a signal, which could arrive too early
        terminal.type("recado definitions import top")
        terminal.press("Tab")
        terminal.wait_for("recado definitions import topology.json")
