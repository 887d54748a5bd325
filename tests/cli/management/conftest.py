"""A broker with the management API, and a function that runs `recado` commands against it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import recado
from recado.cli import main


class Done(NamedTuple):
    """A finished command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """The cells of plain lines."""
        return [line.split("\t") for line in self.out.splitlines()]


Run = Callable[..., Done]


@pytest.fixture
def broker() -> Iterator[recado.Broker]:
    with recado.Broker(config={"management": {"port": 0}}) as running:
        yield running


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable in ("RECADO_URL", "RECADO_CONTEXT", "RECADO_PASSWORD", "RECADO_NEW_PASSWORD"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command as `recado WORDS` in this process."""

    def run_command(*words: str) -> Done:
        capsys.readouterr()
        try:
            status = main(words)
        except SystemExit as stopped:  # argparse
            status = stopped.code if isinstance(stopped.code, int) else 1
        printed = capsys.readouterr()
        return Done(status, printed.out, printed.err)

    return run_command


@pytest.fixture
def recado_on(broker: recado.Broker, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against the broker."""
    monkeypatch.setenv("RECADO_URL", f"http://guest:guest@127.0.0.1:{broker.management_port}")
    return run
