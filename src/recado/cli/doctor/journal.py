"""The journals of the data folder: every record is verified, as by `recado journal check`."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Final, NamedTuple

from recado.cli import describe_os_error
from recado.cli.journal import check_journals, find_journals
from recado.cli.management.output import format_bytes, plural
from recado.journal.check import SegmentReport
from recado.journal.disk import LOCK_FILE
from recado.journal.record import JournalError

from .diagnosis import Finding, Severity

CHECK: Final = "journal"
TIME_MAX_S: Final = 30.0
"""After this time no further file is verified; `recado journal check` verifies all. The first file always is."""


class FolderLock(NamedTuple):
    """Whether a broker has locked the data folder, and its process id, 0 if that is unknown."""

    is_held: bool
    pid: int = 0


class VerifiedFiles(NamedTuple):
    """The result of verifying the files of all journals, and the bytes for which there was no time."""

    reports: Sequence[tuple[Path, SegmentReport]]
    left_bytes: int = 0


def read_lock(data: Path) -> FolderLock:
    """Return whether a broker uses the folder, without creating a file.

    The shared lock is released at once, because a broker cannot start while it is held.
    """
    try:
        descriptor = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # there is no folder, or it cannot be read: the check of the disk reports that
        return FolderLock(False)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return FolderLock(True, _read_pid(data / LOCK_FILE))
    finally:
        os.close(descriptor)
    return FolderLock(False)


def _read_pid(file: Path) -> int:
    try:
        return int(file.read_bytes()[:20])
    except (OSError, ValueError):
        return 0


def inspect_journal(data: Path, lock: FolderLock) -> Iterator[Finding]:
    if lock.is_held:
        yield describe_running(lock)
        return
    folders = find_journals(data)
    if not folders:
        yield Finding(CHECK, Severity.OK, f"{data} has no journal yet")
        return
    try:
        verified = verify(folders)
    except (OSError, JournalError) as error:
        problem = describe_os_error(error) if isinstance(error, OSError) else f"{data}: {error}"
        reason = "the broker cannot read the journal, so it does not start"
        yield Finding(CHECK, Severity.ERROR, problem, reason, (_check_command(data),))
        return
    # A broker may have started meanwhile, and the records that it is writing look damaged.
    lock = read_lock(data)
    yield describe_running(lock) if lock.is_held else check_reports(data, verified)


def describe_running(lock: FolderLock) -> Finding:
    process = f" (process {lock.pid})" if lock.pid else ""
    found = f"not verified: a broker is using the data folder{process}"
    return Finding(CHECK, Severity.OK, found, "the journal can be verified while no broker runs")


def check_reports(data: Path, verified: VerifiedFiles) -> Finding:
    damaged = [(folder, report) for folder, report in verified.reports if report.damages]
    done_bytes = sum(report.size for _, report in verified.reports)
    if damaged:
        folder, report = damaged[0]
        damage = report.damages[0]
        offset = damage.position - report.base
        found = (
            f"{plural(len(damaged), 'damaged file')}; the first is {folder / report.file}, at byte"
            f" {offset:,}: {damage.reason}"
        )
        reason = "the broker does not start, because confirmed messages would be missing"
        fixes = (f"{_check_command(data)} --repair   # copy the folder first",)
        return Finding(CHECK, Severity.ERROR, found, reason, fixes)
    count = sum(report.record_count for _, report in verified.reports)
    found = f"{plural(count, 'record')} in {format_bytes(done_bytes)} are intact"
    if not verified.left_bytes:
        return Finding(CHECK, Severity.OK, found)
    found += f"; {format_bytes(verified.left_bytes)} were not verified, after {TIME_MAX_S:g} s"
    reason = "the rest takes longer than a quick check should"
    return Finding(CHECK, Severity.WARNING, found, reason, (_check_command(data),))


def _check_command(data: Path) -> str:
    return f"recado journal check --data {quote(str(data))}"


def verify(folders: list[Path], time_max_s: float = TIME_MAX_S) -> VerifiedFiles:
    """Verify the journals file by file until the time is over. Raises `OSError` and `JournalError`."""
    left_bytes = sum(file.stat().st_size for folder in folders for file in folder.iterdir())
    end_at = time.monotonic() + time_max_s
    reports: list[tuple[Path, SegmentReport]] = []
    checks = check_journals(folders)
    for folder, report in checks:
        reports.append((folder, report))
        left_bytes -= report.size + report.unfinished_bytes
        if time.monotonic() >= end_at:
            checks.close()
            return VerifiedFiles(reports, left_bytes)
    return VerifiedFiles(reports)
