"""Processes, memory and processor time of a broker, read from /proc.

RabbitMQ is a virtual machine with several helper processes, so memory is summed over a process and all its
descendants. The load generator itself reads the processor time at the start and end of its measurement: see
loadgen/meter.c.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

PROC = Path("/proc")

# Enough for 10,000 connections and the files of the peer. With a much larger limit the virtual machine of the
# peer would allocate larger tables.
OPEN_FILES = 32_768


def family(pid: int) -> list[int]:
    """Return the process and its present descendants."""
    found = [pid]
    for member in found:
        found += children(member)
    return found


def children(pid: int) -> list[int]:
    try:
        lists = [task.joinpath("children").read_text() for task in tasks(pid)]
    except (FileNotFoundError, ProcessLookupError):
        return []  # it ended meanwhile
    return [int(child) for line in lists for child in line.split()]


def tasks(pid: int) -> list[Path]:
    return list((PROC / str(pid) / "task").iterdir())


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process and its descendants, in millions of bytes."""
    return sum(resident_bytes(member) for member in family(pid)) / 1e6


def resident_bytes(pid: int) -> int:
    try:
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended meanwhile
    return pages * resource.getpagesize()


def peak_megabytes(pid: int) -> float:
    """Return the peak resident memory of one process, in millions of bytes."""
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == "VmHWM":
            return int(value.split()[0]) * 1024 / 1e6
    raise ProcessLookupError(f"process {pid} has ended")


def allow_many_open_files() -> None:
    """Raise the limit of this process, which the load generator and both brokers inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ceiling = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < ceiling:
        resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, hard))


def processor_seconds(pid: int) -> float:
    """Return the user and system time of a process and its descendants."""
    return sum(ticks(member) for member in family(pid)) / os.sysconf("SC_CLK_TCK")


def ticks(pid: int) -> int:
    """| pid | (name) | state | … | utime, the 14th | stime | …: a name may contain spaces."""
    try:
        words = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended meanwhile
    return int(words[11]) + int(words[12])
