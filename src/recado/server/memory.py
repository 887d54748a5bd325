"""The memory of the machine, and the memory that this process uses."""

# ruff: noqa: PTH123 - importing pathlib for two reads would add 4 ms to the start of the process

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = "/proc/self/statm"
_CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"


def total_bytes() -> int:
    """Return the memory of the machine, or the limit of its container (cgroup v2) if that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    try:
        with open(_CGROUP_LIMIT) as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):  # no cgroup, or "max"
        return total


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        with open(_STATM) as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
