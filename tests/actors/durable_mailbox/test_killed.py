"""A process with a durable mailbox is killed with -9 repeatedly: no message is lost, few are repeated."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from .mail_incarnation import ATTEMPTS, POISON

ROOT = Path(__file__).resolve().parents[3]
KILLS = 8


def begin(folder: Path, first: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "tests.actors.durable_mailbox.mail_incarnation",
        str(folder),
        str(first),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def killed_after(folder: Path, first: int, messages: int) -> list[int]:
    """The numbers that were reported safe in an incarnation that is killed after so many of them, if not before."""
    with begin(folder, first) as process:
        assert process.stdout is not None
        safe: list[int] = []
        for line in process.stdout:
            if line.endswith("\n"):
                safe.append(int(line.split()[1]))
            if len(safe) == messages:
                process.send_signal(signal.SIGKILL)
        process.wait()
    return safe


@pytest.mark.searching
def test_what_was_safe_is_handled_and_only_what_was_in_a_handler_is_repeated(
    tmp_path: Path,
) -> None:
    random = Random(5)
    safe: list[int] = []
    for _ in range(KILLS):
        # What it heard nothing of, the other node sends again; what had arrived is known, and dropped.
        safe += killed_after(tmp_path, (safe[-1] if safe else POISON) + 1, random.randint(1, 400))
    assert safe == sorted(set(safe))
    with begin(tmp_path, 0) as process:
        assert process.wait() == 0
    handled = [int(line) for line in (tmp_path / "handled").read_text().split()]
    times = Counter(handled)
    assert set(safe) <= set(handled)
    assert list(times) == sorted(times), "out of order"
    assert sum(times.values()) - len(times) <= KILLS, "more than one repeat for a kill"


def test_a_message_that_kills_the_process_does_so_a_bounded_number_of_times(tmp_path: Path) -> None:
    for _ in range(ATTEMPTS):
        assert killed_after(tmp_path, POISON, -1) is not None
    safe = killed_after(tmp_path, POISON + 1, 200)
    with begin(tmp_path, 0) as process:
        assert process.wait() == 0
    times = Counter((tmp_path / "handled").read_text().split())
    assert times[str(POISON)] == ATTEMPTS
    assert {str(number) for number in safe} <= set(times)
