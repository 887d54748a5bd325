"""Message history: the components that a message has passed, in a header.

    recado.history    a list of tables {component, at}, oldest first; `at` is in milliseconds since 1970

Only the newest entries are kept, so a message that circulates does not grow without limit.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ..message import Message
from ..step import FlowStep, Outputs

HISTORY_HEADER: Final = "recado.history"
MAX_HISTORY_COUNT: Final = 32


class HistoryEntry(msgspec.Struct, frozen=True):
    """A component, and when it saw the message."""

    component: str
    at: datetime


class MessageHistory(FlowStep):
    """Add this component to the history of each message; `history_of` reads it."""

    def __init__(
        self,
        component: str,
        *,
        entries_max: int = MAX_HISTORY_COUNT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._component = component
        self._entries_max = entries_max
        self._clock = clock

    def process(self, message: Message[Any]) -> Outputs:
        earlier = message.headers.get(HISTORY_HEADER)
        entries = earlier if isinstance(earlier, list) else []
        entry = {"component": self._component, "at": round(self._clock() * 1000)}
        kept = [*entries, entry][-self._entries_max :]
        return (message.with_headers({HISTORY_HEADER: kept}),)


def history_of(message: Message[Any]) -> list[HistoryEntry]:
    """Return the components that the message has passed, oldest first. Entries of other forms are left out."""
    entries = message.headers.get(HISTORY_HEADER)
    if not isinstance(entries, list):
        return []
    found = []
    for entry in entries:
        match entry:
            case {"component": str(component), "at": int(milliseconds)}:
                try:
                    found.append(
                        HistoryEntry(component, datetime.fromtimestamp(milliseconds / 1000, UTC))
                    )
                except (OverflowError, ValueError, OSError):
                    continue
            case _:
                continue
    return found
