"""What a bridge was given to send, until the broker has it. No channel is known here.

OB1  An entry is in exactly one place: waiting, out on the channel, or settled and forgotten.
OB2  What waits is in the order of posting. When the channel is lost, what was out waits again, in its order and
     before all others.
OB3  `held` is the size of everything that is here, and never above the limit.
"""

from __future__ import annotations

from collections import deque
from itertools import chain, takewhile
from typing import Final, TypeAlias

from recado.actors.remote.faults import Full

Entry: TypeAlias = tuple[str, bytes]
"""The routing key, and the frame."""

WEIGHT: Final = 200  # bytes, about, that an entry takes beside its frame


class Outbox:
    __slots__ = ("_limit", "_out", "held", "waiting")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0
        self.waiting: deque[Entry] = deque()
        self._out: dict[int, Entry] = {}  # by their numbers on the channel, in order

    def __len__(self) -> int:
        return len(self._out) + len(self.waiting)

    @property
    def is_empty(self) -> bool:
        return not self.held

    @property
    def has_room(self) -> bool:
        return self.held <= self._limit // 2

    def put(self, key: str, frame: bytes) -> None:
        """It waits. Raises `Full`."""
        held = self.held + len(frame) + WEIGHT
        if held > self._limit:
            raise Full(f"{self.held} bytes wait for the broker already")
        self.held = held
        self.waiting.append((key, frame))

    def next(self) -> tuple[str, list[bytes]]:
        """The first frames that wait, and their key, as many as have the same. At least one waits."""
        waiting = self.waiting
        key, first = waiting[0]
        if len(waiting) == 1:
            return key, [first]
        return key, [frame for _, frame in takewhile(lambda entry: entry[0] == key, waiting)]

    def out(self, numbers: range) -> None:
        """So many were published, as these numbers of the channel."""
        out, waiting = self._out, self.waiting
        for number in numbers:
            out[number] = waiting.popleft()

    def settled(self, numbers: range) -> list[Entry]:
        """The broker has said what becomes of these: nothing more is owed to them."""
        settled = [entry for number in numbers if (entry := self._out.pop(number, None))]
        for _, frame in settled:
            self.held -= len(frame) + WEIGHT
        return settled

    def returned(self, key: str, frame: bytes) -> int:
        """The broker gave this back: its number. 0 if it is none of ours, or was settled before.

        It gives back in the order of publishing, so the one that is meant is among the first.
        """
        for number, entry in self._out.items():
            if entry == (key, frame):
                self.settled(range(number, number + 1))
                return number
        return 0

    def lost(self) -> None:
        """The channel is gone, and nobody knows what became of what was out."""
        self.waiting.extendleft(reversed(self._out.values()))
        self._out.clear()

    def drop(self) -> list[Entry]:
        """Everything, for good."""
        entries = list(chain(self._out.values(), self.waiting))
        self._out.clear()
        self.waiting.clear()
        self.held = 0
        return entries

    def check(self) -> None:
        """OB1 to OB3, for tests."""
        entries = [*self._out.values(), *self.waiting]
        assert self.held == sum(len(frame) + WEIGHT for _, frame in entries) <= self._limit
        assert list(self._out) == sorted(self._out)
