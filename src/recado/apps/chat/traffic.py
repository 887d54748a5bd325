"""The record of AMQP operations that a user's own actions cause, for the drawer of the page."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

import msgspec

KEPT_MAX_COUNT: Final = 200
REFERENCE_URL: Final = "https://www.rabbitmq.com/amqp-0-9-1-reference#"


class TrafficEntry(msgspec.Struct, frozen=True):
    """One operation on the broker."""

    time: int
    operation: str
    """A method of AMQP, such as `queue.bind`."""
    object: str
    arguments: str
    page: str
    """The page that explains the operation."""


class Traffic:
    """The last operations of one user."""

    def __init__(self) -> None:
        self.entries: deque[TrafficEntry] = deque(maxlen=KEPT_MAX_COUNT)
        self.is_watched = False
        """Whether a browser shows them. Only then deliveries and acks are recorded."""
        self._unsent: list[TrafficEntry] = []

    def record(self, operation: str, object_: str, arguments: str = "") -> None:
        entry = TrafficEntry(
            round(time.time() * 1000), operation, object_, arguments, REFERENCE_URL + operation
        )
        self.entries.append(entry)
        if self.is_watched:
            self._unsent.append(entry)

    def take_unsent(self) -> list[TrafficEntry]:
        """Return the entries since the last call, at most as many as are kept."""
        unsent, self._unsent = self._unsent[-KEPT_MAX_COUNT:], []
        return unsent
