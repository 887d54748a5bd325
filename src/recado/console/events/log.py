"""The newest events, rendered once, for all readers: a ring of bounded size.

    number    … | 41 | 42 | 43 | 44 |             `end` is 45, the number of the next event
    keys      … | k  | k  | k  | k  |             which users may see an event; the newest 65,536
    payloads        |    | p  | p  |              its bytes; the newest 8,192, and at most 2 MiB; `first` is 43

A reader is a position in the log, so a reader that does not read costs no memory. If the log has dropped the
payloads of a reader's next events, their keys still tell how many of them it would have seen.

EL1  Payloads exist for all numbers from `first` up to `end`, and their size is `size`.
EL2  A number is never used twice, also after `clear`, which leaves a gap so that no old position is at the end.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .types import EventType

PAYLOADS_MAX_COUNT: Final = 8_192
PAYLOADS_MAX_BYTES: Final = 2 * 1024 * 1024
KEYS_MAX_COUNT: Final = 65_536
_EVENT_ID: Final = re.compile(r"([0-9a-f]{1,32})-([0-9]{1,18})")


class EventKey(NamedTuple):
    """What decides whether a user sees an event: its type, and the vhost and user it belongs to, if any."""

    type: EventType
    vhost: str | None = None
    user: str = ""


class EventLog:
    """The newest events; `epoch` tells the ids of this process from those of an earlier one."""

    def __init__(self, epoch: str) -> None:
        self.epoch = epoch
        self.first = self.end = 1
        self.size = 0
        self._keys: list[EventKey | None] = []
        self._payloads: list[bytes] = []

    def append(self, key: EventKey, event: bytes) -> None:
        """Add an event, given without its id, and drop the oldest ones beyond the limits."""
        if not self._keys:
            self._keys = [None] * KEYS_MAX_COUNT
            self._payloads = [b""] * PAYLOADS_MAX_COUNT
        if self.end - self.first == PAYLOADS_MAX_COUNT:
            self._drop_first()
        payload = b"id: " + self.id_at(self.end + 1) + b"\n" + event
        self._keys[self.end % KEYS_MAX_COUNT] = key
        self._payloads[self.end % PAYLOADS_MAX_COUNT] = payload
        self.end += 1
        self.size += len(payload)
        while self.size > PAYLOADS_MAX_BYTES:
            self._drop_first()

    def _drop_first(self) -> None:
        index = self.first % PAYLOADS_MAX_COUNT
        self.size -= len(self._payloads[index])
        self._payloads[index] = b""
        self.first += 1

    def key_at(self, number: int) -> EventKey | None:
        """Return the key of an event, None if it is not known any more."""
        if self.end - number > KEYS_MAX_COUNT or not self._keys:
            return None
        return self._keys[number % KEYS_MAX_COUNT]

    def payload_at(self, number: int) -> bytes:
        """Return the bytes of an event from `first` on."""
        assert self.first <= number < self.end
        return self._payloads[number % PAYLOADS_MAX_COUNT]

    def id_at(self, position: int) -> bytes:
        """Return the id with which a client continues at a position."""
        return f"{self.epoch}-{position}".encode()

    def position_of(self, event_id: str) -> int | None:
        """Return the position of an id; None if it is not of this process."""
        match = _EVENT_ID.fullmatch(event_id)
        return int(match[2]) if match is not None and match[1] == self.epoch else None

    def clear(self) -> None:
        """Drop everything; changes from now on may be missed (EL2)."""
        self.end += 1
        self.first, self.size = self.end, 0
        self._keys, self._payloads = [], []

    def check(self) -> None:
        payloads = sum(
            len(self._payloads[number % PAYLOADS_MAX_COUNT])
            for number in range(self.first, self.end)
        )
        assert payloads == self.size, "EL1"
        assert self.end - self.first <= PAYLOADS_MAX_COUNT, "EL1"


def render(event_type: EventType, data: bytes, event_id: bytes = b"") -> bytes:
    """Return an event as it is sent. JSON has no line breaks, so its data is one line."""
    head = b"id: " + event_id + b"\n" if event_id else b""
    return head + b"event: " + event_type.name.encode() + b"\ndata: " + data + b"\n\n"
