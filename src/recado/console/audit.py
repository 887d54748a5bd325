"""The audit log: one JSON line for each administrative change, with user, address, action and object.

Bodies of requests are never written: they can contain passwords. The newest lines are also kept in memory, as
they are written, for `/api/audit`.

AU1  At most `KEPT_LINES_MAX` lines are kept, with `KEPT_MAX_BYTES` together; the oldest are dropped first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from .routes import ApiRoute

log = logging.getLogger("recado.audit")

KEPT_LINES_MAX: Final = 10_000
KEPT_MAX_BYTES: Final = 4 << 20


class AuditEntry(msgspec.Struct, omit_defaults=True):
    """A line of the log."""

    at: str
    """ISO 8601, in UTC."""
    user: str
    address: str
    action: str
    """Method and path of the route."""
    object: dict[str, str]
    """The parameters of the path."""
    details: dict[str, Any] | None = None
    """What a long operation has done."""


class AuditLog:
    """Writes to the logger `recado.audit`, which a logging configuration can send to a file of its own."""

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque()  # the oldest first
        self._kept_bytes = 0
        self._next_number = 1

    def record(
        self,
        user: str,
        address: str,
        route: ApiRoute,
        parameters: Mapping[str, str],
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Write a line. A long operation has a second one at its end, whose `details` are the outcome."""
        entry = AuditEntry(
            at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            user=user,
            address=address,
            action=f"{route.method} {route.path}",
            object=dict(parameters),
            details=None if details is None else dict(details),
        )
        line = msgspec.json.encode(entry)
        log.info("%s", line.decode())
        self._keep(line)

    def _keep(self, line: bytes) -> None:
        self._next_number += 1
        self._kept.append(line)
        self._kept_bytes += len(line)
        while len(self._kept) > KEPT_LINES_MAX or self._kept_bytes > KEPT_MAX_BYTES:
            self._kept_bytes -= len(self._kept.popleft())

    def read(self, before: int | None = None) -> Iterator[tuple[int, AuditEntry]]:
        """Iterate over the kept lines with their numbers, the newest first; only lower numbers than `before`.

        Lines are numbered from 1 since the start of the node. Lines that are recorded during the iteration are left
        out.
        """
        last = self._next_number - 1
        skipped = 0 if before is None else max(last - before + 1, 0)
        lines = list(islice(reversed(self._kept), skipped, None))
        for number, line in enumerate(lines):
            yield last - skipped - number, msgspec.json.decode(line, type=AuditEntry)
