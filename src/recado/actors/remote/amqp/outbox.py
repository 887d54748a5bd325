"""What a bridge was given to send, until the broker has it. No channel is known here.

OB1  A frame is in exactly one place: waiting, out on the channel in one message, or settled and forgotten.
OB2  What waits for one key is in the order of posting. When the channel is lost, what was out waits again, in
     its order and before all others.
OB3  `held` is the size of everything that is here, and never above the limit.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from recado.actors.remote.errors import LimitExceededError

from .frame_batch import decode_batch, encode_batch, fit_batch

OutboxEntry: TypeAlias = tuple[str, bytes]
"""The routing key, and the frame."""

ENTRY_OVERHEAD_BYTES: Final = 200  # bytes, about, that an entry takes beside its frame


class OutboxMessage(NamedTuple):
    """One message, and how many frames are in it."""

    key: str
    body: bytes
    frame_count: int
    held_bytes: int

    def entries(self) -> list[OutboxEntry]:
        return [(self.key, frame) for frame in decode_batch(self.body)]


class BridgeOutbox:
    __slots__ = ("_max_bytes", "_published", "_waiting", "held_bytes", "waiting_count")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.held_bytes = 0
        self.waiting_count = 0
        """Frames that are not out."""
        self._waiting: dict[str, list[bytes]] = {}  # by their keys
        self._published: dict[int, OutboxMessage] = {}  # by their numbers on the channel, in order

    def __len__(self) -> int:
        return sum(sent.frame_count for sent in self._published.values()) + self.waiting_count

    @property
    def is_empty(self) -> bool:
        return not self.held_bytes

    @property
    def has_room(self) -> bool:
        return self.held_bytes <= self._max_bytes // 2

    def put(self, key: str, frame: bytes) -> None:
        """It waits. Raises `LimitExceededError`."""
        held = self.held_bytes + len(frame) + ENTRY_OVERHEAD_BYTES
        if held > self._max_bytes:
            raise LimitExceededError(f"{self.held_bytes} bytes wait for the broker already")
        self.held_bytes = held
        self.waiting_count += 1
        self._waiting.setdefault(key, []).append(frame)

    def next_message(self) -> OutboxMessage:
        """A message of the first frames that wait for one key, as many as fit. One waits at least."""
        key, frames = next(iter(self._waiting.items()))
        count, size = fit_batch(frames)
        return OutboxMessage(
            key, encode_batch(frames[:count]), count, size + ENTRY_OVERHEAD_BYTES * count
        )

    def mark_published(self, number: int, message: OutboxMessage) -> None:
        """The next message was published, under this number of the channel."""
        frames = self._waiting[message.key]
        if len(frames) == message.frame_count:
            del self._waiting[message.key]
        else:
            del frames[: message.frame_count]
        self.waiting_count -= message.frame_count
        self._published[number] = message

    def mark_settled(self, numbers: range) -> list[OutboxMessage]:
        """The broker has said what becomes of these: nothing more is owed to them."""
        settled = [sent for number in numbers if (sent := self._published.pop(number, None))]
        self.held_bytes -= sum(sent.held_bytes for sent in settled)
        return settled

    def take_returned(self, key: str, body: bytes) -> tuple[int, OutboxMessage] | None:
        """The broker gave this back: its number, and what it is. None if it is none of ours, or was settled.

        It gives back in the order of publishing, so the one that is meant is among the first.
        """
        for number, sent in self._published.items():
            if sent.body == body and sent.key == key:
                self.mark_settled(range(number, number + 1))
                return number, sent
        return None

    def requeue_published(self) -> None:
        """The channel is gone, and nobody knows what became of what was out."""
        entries = self._entries()
        self._clear()
        self.waiting_count = len(entries)
        for key, frame in entries:
            self._waiting.setdefault(key, []).append(frame)

    def take_all(self) -> list[OutboxEntry]:
        """Everything, for good."""
        entries = self._entries()
        self._clear()
        self.held_bytes = 0
        return entries

    def _clear(self) -> None:
        self._published.clear()
        self._waiting.clear()
        self.waiting_count = 0

    def _entries(self) -> list[OutboxEntry]:
        out = [entry for sent in self._published.values() for entry in sent.entries()]
        return out + [(key, frame) for key, frames in self._waiting.items() for frame in frames]

    def check(self) -> None:
        """OB1 to OB3, for tests."""
        entries = self._entries()
        assert all(self._waiting.values())
        assert len(entries) == len(self)
        assert (
            self.held_bytes
            == sum(len(frame) + ENTRY_OVERHEAD_BYTES for _, frame in entries)
            <= self._max_bytes
        )
        assert list(self._published) == sorted(self._published)
