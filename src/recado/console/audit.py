"""The audit log: one JSON line for each administrative change, with user, address, action and object.

Bodies of requests are never written: they can contain passwords.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from .routes import ApiRoute

log = logging.getLogger("recado.audit")


class AuditLog:
    """Writes to the logger `recado.audit`, which a logging configuration can send to a file of its own."""

    def record(
        self,
        user: str,
        address: str,
        route: ApiRoute,
        parameters: Mapping[str, str],
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Write a line. A long operation has a second one at its end, whose `details` are the outcome."""
        entry = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "user": user,
            "address": address,
            "action": f"{route.method} {route.path}",
            "object": dict(parameters),
        }
        if details is not None:
            entry["details"] = dict(details)
        log.info("%s", msgspec.json.encode(entry).decode())
