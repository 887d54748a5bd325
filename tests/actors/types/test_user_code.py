"""Runs mypy on programs that use actors, correctly and incorrectly, and compares its output with the comments
beside each line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from textwrap import dedent

import pytest

from .user_code import BAD, EXCHANGE, GOOD, NOT_SEEN

PROGRAMS = {**GOOD, **BAD, **NOT_SEEN}
EXPECTED = re.compile(r"# (R|E): (.+)$")
SAID = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): (?P<kind>error|note): (?P<text>.*)$")
REVEALED = re.compile(r'Revealed type is "(.*)"$')
CODE = re.compile(r"\[([a-z-]+)\]$")
# Modules in front of names: a reader of user code does not see them.
MODULES = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])")

Remarks = dict[int, set[tuple[str, str]]]


def written(text: str) -> Remarks:
    """What is expected, by line."""
    remarks: Remarks = defaultdict(set)
    for number, line in enumerate(text.splitlines(), 1):
        if found := EXPECTED.search(line):
            remarks[number].add((found[1], found[2]))
    return dict(remarks)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Remarks]:
    """Of all programs at once: most of the time mypy reads recado itself."""
    folder = tmp_path_factory.mktemp("users")
    for name, text in PROGRAMS.items():
        (folder / f"{name}.py").write_text(EXCHANGE + dedent(text))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--no-pretty"]
    command += ["--cache-dir", str(folder / "cache"), "--no-error-summary"]
    files = [f"{name}.py" for name in PROGRAMS]
    done = subprocess.run(
        [*command, *files], cwd=folder, capture_output=True, text=True, check=False
    )
    assert not done.stderr, done.stderr
    remarks: dict[str, Remarks] = {name: {} for name in PROGRAMS}
    for line in done.stdout.splitlines():
        found = SAID.match(line)
        assert found, line
        if (remark := understood(found["kind"], found["text"])) is not None:
            of_program = remarks[found["file"].removesuffix(".py")]
            of_program.setdefault(int(found["line"]), set()).add(remark)
    return remarks


def understood(kind: str, text: str) -> tuple[str, str] | None:
    if kind == "error":
        code = CODE.search(text)
        assert code, text
        return "E", code[1]
    revealed = REVEALED.match(text)
    return ("R", MODULES.sub("", revealed[1])) if revealed else None


@pytest.mark.parametrize("name", PROGRAMS)
def test_mypy_says_what_is_written(name: str, said: Mapping[str, Remarks]) -> None:
    assert said[name] == written(EXCHANGE + dedent(PROGRAMS[name]))


@pytest.mark.parametrize("name", BAD)
def test_every_wrong_program_has_its_errors(name: str) -> None:
    remarks = written(BAD[name])
    assert remarks
    assert all(kind == "E" for each in remarks.values() for kind, _ in each)
