"""How much memory there is, and how much of it is ours."""

# ruff: noqa: PTH123 - pathlib would be imported for two reads, at 4 ms of the start

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_STATM = "/proc/self/statm"
_CGROUP_LIMIT = "/sys/fs/cgroup/memory.max"


def total_bytes() -> int:
    """Bytes that this process could use: the machine's, or its container's."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE_BYTES
    try:
        with open(_CGROUP_LIMIT) as file:
            return min(total, int(file.read()))
    except (OSError, ValueError):  # no container, or "max"
        return total


def resident_bytes() -> int:
    """Resident bytes of this process; 0 where the system does not tell."""
    try:
        with open(_STATM) as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0
