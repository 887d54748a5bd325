"""`recado doctor` in this process, on a machine whose Java answers quickly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from recado.cli import main


class Found(NamedTuple):
    """The findings of one check, and the exit status of the command."""

    status: int
    findings: list[dict[str, Any]]

    @property
    def only(self) -> dict[str, Any]:
        (finding,) = self.findings
        return finding

    @property
    def severities(self) -> list[str]:
        return [finding["severity"] for finding in self.findings]


Diagnose = Callable[..., Found]


def write_java(folder: Path, version: str) -> None:
    """Write a program that says which version it is."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_java(tmp_path / "java", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))


@pytest.fixture
def diagnose(capsys: pytest.CaptureFixture[str]) -> Diagnose:
    """Run the command, and return the findings of one check."""

    def run(check: str, *flags: str) -> Found:
        capsys.readouterr()
        status = main(["doctor", "--json", "--port", "0", *flags])
        printed = json.loads(capsys.readouterr().out)
        findings = printed["findings"]
        errors = [each for each in findings if each["severity"] == "error"]
        assert (len(errors), status) == (printed["errors"], 1 if errors else 0)
        return Found(status, [each for each in findings if each["check"] == check])

    return run
