"""The tutorial of quotes runs: its commands, in their order, say what the page says they do."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from workshop import peers
from workshop.time_limit import scale

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quotes.md"
RECADO = str(Path(sys.executable).with_name("recado"))
SECONDS = 60


def steps() -> Iterator[tuple[list[str], list[str]]]:
    """The words of each command, and the lines that the page shows below it."""
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = step.splitlines()
            yield shlex.split(command), lines


def test_the_commands_of_the_page_say_what_it_shows(tmp_path: Path) -> None:
    (serve, _), (archive, _), *others = steps()
    assert serve == ["recado", "serve", "--data", "market"]
    with ExitStack() as stack:
        server = stack.enter_context(peers.recado(data=tmp_path / "market"))
        where = ["--url", server.url]
        keeping = stack.enter_context(
            subprocess.Popen(
                [RECADO, *archive[1:], *where], cwd=tmp_path, stdout=subprocess.PIPE, text=True
            )
        )
        stack.callback(keeping.terminate)
        assert keeping.stdout
        assert keeping.stdout.readline()
        for words, lines in others:
            done = subprocess.run(
                [RECADO, *words[1:], *where],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=scale(SECONDS),
                check=True,
            )
            said = done.stdout.splitlines()
            assert [line for line in lines if line in said] == lines
