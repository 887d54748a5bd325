"""Where things are: the project's own files, and the folder that keeps what was downloaded.

The folder ignores itself (a .gitignore of its own), so that nothing downloaded can be committed.
"""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOWNLOADS = ROOT / ".cache" / "suites"
CONSTRAINTS = (ROOT / "constraints.txt", Path(__file__).parent / "constraints.txt")


class NotAvailableError(RuntimeError):
    """A suite cannot be had on this machine; the text says how to get it."""


@contextmanager
def downloads() -> Iterator[Path]:
    """The folder of downloads, ours alone for as long as something is added to it."""
    DOWNLOADS.mkdir(parents=True, exist_ok=True)
    (DOWNLOADS / ".gitignore").write_text("*\n")
    with (DOWNLOADS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield DOWNLOADS


def command(
    words: Sequence[str | Path],
    why_it_may_fail: str,
    *,
    environment: Mapping[str, str] | None = None,
) -> str:
    """The output of a command of the preparation; its failure means that a suite cannot be had."""
    try:
        done = subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except FileNotFoundError as missing:
        raise NotAvailableError(f"{why_it_may_fail}: {missing}") from missing
    if done.returncode:
        line = " ".join(map(str, words))
        raise NotAvailableError(f"{why_it_may_fail}. `{line}` said:\n{done.stdout[-2000:].strip()}")
    return done.stdout
