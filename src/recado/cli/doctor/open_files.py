"""The limit of open files, and whether it allows the expected connections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from recado.node.settings import Settings
from recado.server.open_files import (
    BACKLOG_CONNECTIONS_MAX,
    OTHER_FILES_MAX,
    REFUSALS_MAX,
    FileBudget,
)

from .diagnosis import Finding, Severity

CHECK: Final = "open files"
EXPECTED_CONNECTIONS_COUNT: Final = 1_000
"""Connections that are assumed if neither --connections nor server.max_connections says how many to expect."""
RESERVED_FILES_COUNT: Final = BACKLOG_CONNECTIONS_MAX + REFUSALS_MAX + OTHER_FILES_MAX


def inspect_open_files(settings: Settings, connections: int | None) -> Iterator[Finding]:
    """Check the limits of this process; `connections` is the expectation of the flag."""
    soft, hard = read_limits()
    expected = connections or settings.server.max_connections
    yield check_open_files(soft, hard, expected)


def check_open_files(soft: int | None, hard: int | None, expected: int | None) -> Finding:
    """Compare the limits, None if unlimited, with the connections that a user expects, None if unknown."""
    allowed = FileBudget(hard).connections
    limits = f"limits of open files: soft {_format(soft)}, hard {_format(hard)}"
    wanted = EXPECTED_CONNECTIONS_COUNT if expected is None else expected
    if allowed is None:
        return Finding(CHECK, Severity.OK, f"{limits}; connections are not limited")
    found = f"{limits}; they allow {allowed:,} connections"
    if allowed >= wanted:
        return Finding(CHECK, Severity.OK, found, "the broker raises the soft limit at its start")
    needed = wanted + RESERVED_FILES_COUNT
    reason = f"{wanted:,} connections are expected; the others would be refused"
    fixes = (
        f"ulimit -n {needed}   # as root, in the shell that starts the broker",
        f"systemctl edit recado   # [Service] LimitNOFILE={needed}",
    )
    severity = Severity.WARNING if expected is None else Severity.ERROR
    return Finding(CHECK, severity, found, reason, fixes)


def _format(limit: int | None) -> str:
    return "unlimited" if limit is None else f"{limit:,}"


def read_limits() -> tuple[int | None, int | None]:
    """Return the soft and the hard limit, None if unlimited."""
    import resource

    soft, hard = (
        None if each == resource.RLIM_INFINITY else each
        for each in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    return soft, hard
