"""The clock: whether it is synchronised, and whether it is behind the newest file of the journal."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Sequence
from enum import IntFlag
from pathlib import Path
from typing import Final

from .diagnosis import Finding, Severity

CHECK: Final = "clock"
TOLERANCE_S: Final = 60.0
"""A file system of another machine may have a clock that differs a little."""
SYNC_FIXES: Final = ("timedatectl set-ntp true", "apt install chrony")


class ClockStatus(IntFlag):
    """A bit of the field `status` of struct timex."""

    UNSYNCHRONISED = 0x40


class Timex(ctypes.Structure):
    """The beginning of struct timex of adjtimex(2); nothing is changed if `modes` is 0."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("error_max", ctypes.c_long),
        ("error_estimate", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 64),
    )


def inspect_clock(journals: Sequence[Path]) -> Iterator[Finding]:
    yield check_synchronisation(read_synchronisation())
    newest = find_newest_time(journals)
    if newest is not None:
        yield check_newest_file(newest, time.time())


def check_synchronisation(is_synchronised: bool | None) -> Finding:
    if is_synchronised is None:
        return Finding(CHECK, Severity.OK, "whether it is synchronised is unknown on this system")
    if is_synchronised:
        return Finding(CHECK, Severity.OK, "synchronised")
    reason = (
        "timestamps, times to live, retention of streams and the expiry of certificates and tokens"
        " are wrong if the clock drifts"
    )
    return Finding(CHECK, Severity.WARNING, "not synchronised", reason, SYNC_FIXES)


def check_newest_file(newest: float, now: float) -> Finding:
    """Compare the modification time of the newest file of the journal with the clock."""
    behind = newest - now
    if behind <= TOLERANCE_S:
        return Finding(CHECK, Severity.OK, "not behind the newest file of the journal")
    written = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(newest))
    found = f"{behind:,.0f} s behind the newest file of the journal, which is from {written}"
    reason = "stored messages would expire that much too late"
    return Finding(CHECK, Severity.ERROR, found, reason, SYNC_FIXES)


def read_synchronisation() -> bool | None:
    """Return whether the kernel considers the clock synchronised; None if it does not tell."""
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except (OSError, AttributeError):  # not Linux
        return None
    state = Timex()
    if adjtimex(ctypes.byref(state)) < 0:
        return None
    return not state.status & ClockStatus.UNSYNCHRONISED


def find_newest_time(folders: Sequence[Path]) -> float | None:
    """Return the latest modification time of a file in these folders; None if there is no file."""
    times = [
        file.stat().st_mtime for folder in folders for file in folder.iterdir() if file.is_file()
    ]
    return max(times, default=None)
