"""A finding: the result of one check, why it matters, and the commands that fix it."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Severity(Enum):
    """How much a finding matters: an error prevents the broker from working as it is configured."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(NamedTuple):
    """The result of one check. The fixes are alternatives: one of them is enough."""

    check: str
    severity: Severity
    found: str
    reason: str = ""
    fixes: tuple[str, ...] = ()
