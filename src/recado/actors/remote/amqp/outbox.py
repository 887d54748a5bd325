"""What a bridge was given to send, until the broker has it. No channel is known here.

OB1  A frame is in exactly one place: waiting, out on the channel in one message, or settled and forgotten.
OB2  What waits for one key is in the order of posting. When the channel is lost, what was out waits again, in
     its order and before all others.
OB3  `held` is the size of everything that is here, and never above the limit.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from recado.actors.remote.faults import Full

from .parcel import fitting, unwrap, wrap

Entry: TypeAlias = tuple[str, bytes]
"""The routing key, and the frame."""

WEIGHT: Final = 200  # bytes, about, that an entry takes beside its frame


class Sent(NamedTuple):
    """One message, and how many frames are in it."""

    key: str
    body: bytes
    frames: int
    held: int

    def entries(self) -> list[Entry]:
        return [(self.key, frame) for frame in unwrap(self.body)]


class Outbox:
    __slots__ = ("_limit", "_out", "_waiting", "held", "waits")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0
        self.waits = 0
        """Frames that are not out."""
        self._waiting: dict[str, list[bytes]] = {}  # by their keys
        self._out: dict[int, Sent] = {}  # by their numbers on the channel, in order

    def __len__(self) -> int:
        return sum(sent.frames for sent in self._out.values()) + self.waits

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
        self.waits += 1
        self._waiting.setdefault(key, []).append(frame)

    def next(self) -> Sent:
        """A message of the first frames that wait for one key, as many as fit. One waits at least."""
        key, frames = next(iter(self._waiting.items()))
        count, size = fitting(frames)
        return Sent(key, wrap(frames[:count]), count, size + WEIGHT * count)

    def out(self, number: int, sent: Sent) -> None:
        """The next message was published, under this number of the channel."""
        frames = self._waiting[sent.key]
        if len(frames) == sent.frames:
            del self._waiting[sent.key]
        else:
            del frames[: sent.frames]
        self.waits -= sent.frames
        self._out[number] = sent

    def settled(self, numbers: range) -> list[Sent]:
        """The broker has said what becomes of these: nothing more is owed to them."""
        settled = [sent for number in numbers if (sent := self._out.pop(number, None))]
        self.held -= sum(sent.held for sent in settled)
        return settled

    def returned(self, key: str, body: bytes) -> tuple[int, Sent] | None:
        """The broker gave this back: its number, and what it is. None if it is none of ours, or was settled.

        It gives back in the order of publishing, so the one that is meant is among the first.
        """
        for number, sent in self._out.items():
            if sent.body == body and sent.key == key:
                self.settled(range(number, number + 1))
                return number, sent
        return None

    def lost(self) -> None:
        """The channel is gone, and nobody knows what became of what was out."""
        entries = self._entries()
        self._clear()
        self.waits = len(entries)
        for key, frame in entries:
            self._waiting.setdefault(key, []).append(frame)

    def drop(self) -> list[Entry]:
        """Everything, for good."""
        entries = self._entries()
        self._clear()
        self.held = 0
        return entries

    def _clear(self) -> None:
        self._out.clear()
        self._waiting.clear()
        self.waits = 0

    def _entries(self) -> list[Entry]:
        out = [entry for sent in self._out.values() for entry in sent.entries()]
        return out + [(key, frame) for key, frames in self._waiting.items() for frame in frames]

    def check(self) -> None:
        """OB1 to OB3, for tests."""
        entries = self._entries()
        assert all(self._waiting.values())
        assert len(entries) == len(self)
        assert self.held == sum(len(frame) + WEIGHT for _, frame in entries) <= self._limit
        assert list(self._out) == sorted(self._out)
