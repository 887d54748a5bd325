"""The disk of the data folder: free space, whether it can be written, and how long an fsync takes."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Final, NamedTuple

from recado.cli.management.output import format_bytes
from recado.node.settings import Settings

from .diagnosis import Finding, Severity

CHECK: Final = "disk"
SPACE_WARNING_RATIO: Final = 2
"""Warn below this multiple of the minimum of free space."""
SYNC_WARNING_S: Final = 0.02
"""A healthy hard disk needs less."""
SYNC_COUNT: Final = 20  # enough for a median
SYNC_TIME_MAX_S: Final = 2.0  # of all of them, on a slow disk
BLOCK: Final = bytes(4096)


class WriteTest(NamedTuple):
    """The times of fsyncs after small writes, and the error that ended them."""

    sync_s: tuple[float, ...] = ()
    error: OSError | None = None


class DiskFacts(NamedTuple):
    """The state of a disk. `folder` is the data folder, or its nearest existing parent if it does not exist yet."""

    folder: Path
    free_bytes: int
    total_bytes: int
    writes: WriteTest


def inspect_disk(settings: Settings) -> Iterator[Finding]:
    data = settings.node.data
    if data is None:
        found = "no data folder: everything is in memory"
        reason = "nothing survives a restart"
        yield Finding(CHECK, Severity.OK, found, reason)
        return
    try:
        facts = read_disk(Path(data))
    except OSError as error:
        found = f"{error.filename or data}: {error.strerror}"
        reason = "the broker cannot use its data folder, so it does not start"
        fixes = _fixes_of_access(Path(error.filename or data), error)
        yield Finding(CHECK, Severity.ERROR, found, reason, fixes)
        return
    yield from check_disk(facts, settings.broker.disk_free_min_bytes)


def check_disk(facts: DiskFacts, free_min_bytes: int) -> Iterator[Finding]:
    yield _check_space(facts, free_min_bytes)
    yield _check_writes(facts)


def _check_space(facts: DiskFacts, free_min_bytes: int) -> Finding:
    free, minimum = format_bytes(facts.free_bytes), format_bytes(free_min_bytes)
    found = (
        f"{facts.folder}: {free} of {format_bytes(facts.total_bytes)} are free,"
        f" the minimum is {minimum} (broker.disk_free_min_bytes)"
    )
    fixes = (
        f"du -xh {quote(str(facts.folder))} | sort -h | tail",
        "recado queues list --sort messages --reverse --limit 10",
        "recado serve --data DIR   # on another disk",
    )
    if facts.free_bytes < free_min_bytes:
        reason = "publishers are blocked until more is free"
        return Finding(CHECK, Severity.ERROR, found, reason, fixes)
    if facts.free_bytes < SPACE_WARNING_RATIO * free_min_bytes:
        reason = "publishers are blocked below the minimum"
        return Finding(CHECK, Severity.WARNING, found, reason, fixes)
    return Finding(CHECK, Severity.OK, found)


def _check_writes(facts: DiskFacts) -> Finding:
    folder, error = facts.folder, facts.writes.error
    if error is not None and error.errno == errno.ENOSPC:
        reason = "durable messages cannot be stored; publishers are blocked"
        fix = f"du -xh {quote(str(folder))} | sort -h | tail"
        return Finding(CHECK, Severity.ERROR, f"{folder}: the disk is full", reason, (fix,))
    if error is not None:
        found = f"{folder} cannot be written: {error.strerror}"
        reason = "the broker cannot store durable data, so it does not start"
        return Finding(CHECK, Severity.ERROR, found, reason, _fixes_of_access(folder, error))
    middle, longest = median(facts.writes.sync_s), max(facts.writes.sync_s)
    found = f"an fsync takes {middle * 1e3:.1f} ms (median), {longest * 1e3:.1f} ms at most"
    if middle <= SYNC_WARNING_S:
        return Finding(CHECK, Severity.OK, found)
    reason = (
        "the confirm of a persistent message waits for an fsync: a publisher that waits for each"
        f" confirm sends {1 / middle:.0f} messages a second"
    )
    fix = "recado doctor --data DIR   # on another disk, to compare"
    return Finding(CHECK, Severity.WARNING, found, reason, (fix,))


def _fixes_of_access(folder: Path, error: OSError) -> tuple[str, ...]:
    name = quote(str(folder))
    match error.errno:
        case errno.EACCES | errno.EPERM:
            return (f"sudo chown {os.getuid()} {name}", f"chmod u+rwx {name}")
        case errno.EROFS:
            return (f"sudo mount -o remount,rw $(findmnt -no TARGET --target {name})",)
        case _:
            return ()


def read_disk(data: Path) -> DiskFacts:
    """Read the state of the disk; write to it, and leave nothing behind. Raises `OSError`."""
    folder = data.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    status = os.statvfs(folder)
    return DiskFacts(
        folder,
        status.f_bavail * status.f_frsize,
        status.f_blocks * status.f_frsize,
        measure_writes(folder),
    )


def measure_writes(folder: Path) -> WriteTest:
    """Write and sync some blocks of a file without a name, which disappears when it is closed."""
    times: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            end_at = time.monotonic() + SYNC_TIME_MAX_S
            while len(times) < SYNC_COUNT and (not times or time.monotonic() < end_at):
                file.write(BLOCK)
                start = time.perf_counter()
                os.fsync(file.fileno())
                times.append(time.perf_counter() - start)
    except OSError as error:
        return WriteTest(tuple(times), error)
    return WriteTest(tuple(times))
