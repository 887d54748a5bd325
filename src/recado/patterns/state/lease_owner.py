"""Names of the owners of leases, which tell whether the process of an owner is still there.

A lease expires some seconds after its owner was killed. A process on the same machine need not wait so long,
because the name of the owner contains its process:

    boot id / namespace of process ids / process id / start time in ticks / random token

Where `/proc` has no such values, an owner is never known to be dead, and its leases expire.
"""

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

_PROC = Path("/proc")
_UNKNOWN = "-"
_STATE_INDEX, _START_TIME_INDEX = 0, 19  # in the fields behind the program's name, see proc(5)
_ENDED_STATES = ("Z", "X")


def new_owner() -> str:
    """Return the name of a new owner in this process."""
    pid = os.getpid()
    return f"{_surroundings()}/{pid}/{_start_time(pid) or _UNKNOWN}/{token_hex(8)}"


def is_dead(owner: str) -> bool:
    """Whether the process of an owner ran on this machine and has ended."""
    surroundings, _, process = owner.partition("/")
    namespace, _, process = process.partition("/")
    if f"{surroundings}/{namespace}" != _surroundings() or _UNKNOWN in (surroundings, namespace):
        return False
    pid, _, process = process.partition("/")
    started, _, _ = process.partition("/")
    return started != _UNKNOWN and _start_time(int(pid)) != started


def _surroundings() -> str:
    """Return the boot of this machine and the namespace of its process ids."""
    boot = namespace = _UNKNOWN
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        namespace = str((_PROC / "self/ns/pid").stat().st_ino)
    return f"{boot}/{namespace}"


def _start_time(pid: int) -> str | None:
    """Return when a process started, in ticks since the boot; None if it does not run."""
    try:
        fields = (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[_STATE_INDEX] in _ENDED_STATES else fields[_START_TIME_INDEX]
