"""The process's limit of open files, and how many connections fit below it.

A connection is an open file. Some files must stay free: for connections that the loop accepts before any of
them is counted, for clients that are told why they are refused, and for all that is not a connection, such as
the journal. These reserves are fixed shares of a small limit, and constants below a large one.
"""

import resource
from contextlib import suppress

import msgspec

MACOS_FILES_MAX = 10_240
"""macOS accepts no more files, though it reports no hard limit."""
BACKLOG_CONNECTIONS_MAX = 128
REFUSALS_MAX = 64
OTHER_FILES_MAX = 128


class FileBudget(msgspec.Struct, frozen=True):
    """What an open file limit is spent on."""

    limit: int | None
    """None if there is no limit."""

    @property
    def backlog(self) -> int:
        """Connections that are accepted before any of them can be counted."""
        return _reserve(self.limit, 8, BACKLOG_CONNECTIONS_MAX)

    @property
    def refusals(self) -> int:
        """Connections that are accepted to be told that there are too many."""
        return _reserve(self.limit, 16, REFUSALS_MAX)

    @property
    def connections(self) -> int | None:
        """The most that can be open; None if there is no limit."""
        if self.limit is None:
            return None
        other_files = _reserve(self.limit, 8, OTHER_FILES_MAX)
        return self.limit - self.backlog - self.refusals - other_files


def _reserve(limit: int | None, divisor: int, maximum: int) -> int:
    return maximum if limit is None else min(maximum, max(limit // divisor, 1))


def current_budget() -> FileBudget:
    """The allotment of this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FileBudget(None if soft == resource.RLIM_INFINITY else soft)


def raise_file_limit() -> None:
    """Raise the soft limit as far as the system allows: the usual one is made for programs with few files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (hard, resource.RLIM_INFINITY):
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        if soft < MACOS_FILES_MAX:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (MACOS_FILES_MAX, hard))
