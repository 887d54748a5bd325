"""The open file limit of the process, and how many connections it allows.

Each connection is an open file. Some files are reserved:
- `backlog`: asyncio accepts up to this many connections in a row before the server can count the first of them;
- `refusals`: connections beyond the limit, which get connection.close with the reason;
- other files, such as those of the journal.
Each reserve is a fraction of the limit, but at most a constant.
"""

import resource
from contextlib import suppress

import msgspec

MACOS_FILES_MAX = 10_240
"""macOS accepts no higher limit, though it reports none."""
BACKLOG_CONNECTIONS_MAX = 128
REFUSALS_MAX = 64
OTHER_FILES_MAX = 128


class FileBudget(msgspec.Struct, frozen=True):
    """How a limit of open files is divided."""

    limit: int | None
    """None if unlimited."""

    @property
    def backlog(self) -> int:
        """Connections that the loop may accept before any of them is counted."""
        return _reserve(self.limit, 8, BACKLOG_CONNECTIONS_MAX)

    @property
    def refusals(self) -> int:
        """Connections that are accepted beyond the limit only to send them the reason of the refusal."""
        return _reserve(self.limit, 16, REFUSALS_MAX)

    @property
    def connections(self) -> int | None:
        """The maximum of open connections; None if unlimited."""
        if self.limit is None:
            return None
        other_files = _reserve(self.limit, 8, OTHER_FILES_MAX)
        return self.limit - self.backlog - self.refusals - other_files


def _reserve(limit: int | None, divisor: int, maximum: int) -> int:
    return maximum if limit is None else min(maximum, max(limit // divisor, 1))


def current_budget() -> FileBudget:
    """Return the budget of this process."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FileBudget(None if soft == resource.RLIM_INFINITY else soft)


def raise_file_limit() -> None:
    """Raise the soft limit of this process as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft in (hard, resource.RLIM_INFINITY):
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        if soft < MACOS_FILES_MAX:
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (MACOS_FILES_MAX, hard))
