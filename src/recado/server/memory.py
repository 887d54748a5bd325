"""How much memory there is, and how much of it is ours."""

import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_STATM = Path("/proc/self/statm")
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def available() -> int:
    """Bytes that this process could use: the machine's, or its container's."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE
    try:
        return min(total, int(_CGROUP_LIMIT.read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return total


def used() -> int:
    """Resident bytes of this process; 0 where the system does not tell."""
    try:
        return int(_STATM.read_text().split()[1]) * _PAGE
    except OSError:
        return 0
