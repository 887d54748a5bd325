"""The outbox of a bridge: frames to send, until the broker has confirmed them. It does not know the channel.

OB1  A frame is either waiting, or published in one message, or settled and forgotten.
OB2  Frames for one key wait in the order of posting. When the channel is lost, the published frames wait again,
     in their order and before all others.
OB3  `held_bytes` is the size of all frames in the outbox, and never above the limit.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from recado.actors.remote.errors import LimitExceededError

from .frame_batch import decode_batch, encode_batch, fit_batch

OutboxEntry: TypeAlias = tuple[str, bytes]
"""The routing key, and the frame."""

ENTRY_OVERHEAD_BYTES: Final = 200  # approximate memory of an entry besides its frame


class OutboxMessage(NamedTuple):
    """A message with one or more frames."""

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
        """Frames that are not published."""
        self._waiting: dict[str, list[bytes]] = {}  # by routing key
        self._published: dict[int, OutboxMessage] = {}  # by publish number on the channel, in order

    def __len__(self) -> int:
        published = sum(message.frame_count for message in self._published.values())
        return published + self.waiting_count

    @property
    def is_empty(self) -> bool:
        return not self.held_bytes

    @property
    def has_space(self) -> bool:
        """Whether it is at most half full."""
        return self.held_bytes <= self._max_bytes // 2

    def put(self, key: str, frame: bytes) -> None:
        """Add a frame. Raises LimitExceededError."""
        held_bytes = self.held_bytes + len(frame) + ENTRY_OVERHEAD_BYTES
        if held_bytes > self._max_bytes:
            raise LimitExceededError(
                f"the outbox is full: {self.held_bytes} bytes wait for the broker",
                "Raise send_buffer_bytes, or send less while the broker is slow or away",
            )
        self.held_bytes = held_bytes
        self.waiting_count += 1
        self._waiting.setdefault(key, []).append(frame)

    def next_message(self) -> OutboxMessage:
        """Return a message with the first frames that wait for one key, as many as fit. At least one waits."""
        key, frames = next(iter(self._waiting.items()))
        count, size = fit_batch(frames)
        body = encode_batch(frames[:count])
        return OutboxMessage(key, body, count, size + ENTRY_OVERHEAD_BYTES * count)

    def mark_published(self, number: int, message: OutboxMessage) -> None:
        """The message of `next_message` was published, with this number on the channel."""
        frames = self._waiting[message.key]
        if len(frames) == message.frame_count:
            del self._waiting[message.key]
        else:
            del frames[: message.frame_count]
        self.waiting_count -= message.frame_count
        self._published[number] = message

    def mark_settled(self, numbers: range) -> list[OutboxMessage]:
        """Remove and return the messages with these numbers, which the broker has confirmed or rejected."""
        settled = [message for number in numbers if (message := self._published.pop(number, None))]
        self.held_bytes -= sum(message.held_bytes for message in settled)
        return settled

    def take_returned(self, key: str, body: bytes) -> tuple[int, OutboxMessage] | None:
        """Remove and return a message that the broker has returned, with its number.

        None if it is not in the outbox, or was settled. The broker returns messages in the order of publishing,
        so the search ends early.
        """
        for number, message in self._published.items():
            if message.body == body and message.key == key:
                self.mark_settled(range(number, number + 1))
                return number, message
        return None

    def requeue_published(self) -> None:
        """The channel is lost: whether the published frames arrived is unknown, so they wait again (OB2)."""
        entries = self._entries()
        self._clear()
        self.waiting_count = len(entries)
        for key, frame in entries:
            self._waiting.setdefault(key, []).append(frame)

    def take_all(self) -> list[OutboxEntry]:
        """Empty the outbox, and return everything that was in it."""
        entries = self._entries()
        self._clear()
        self.held_bytes = 0
        return entries

    def _clear(self) -> None:
        self._published.clear()
        self._waiting.clear()
        self.waiting_count = 0

    def _entries(self) -> list[OutboxEntry]:
        published = [entry for message in self._published.values() for entry in message.entries()]
        waiting = [(key, frame) for key, frames in self._waiting.items() for frame in frames]
        return published + waiting

    def check(self) -> None:
        """Assert OB1 to OB3, for tests."""
        entries = self._entries()
        assert all(self._waiting.values())
        assert len(entries) == len(self)
        size = sum(len(frame) + ENTRY_OVERHEAD_BYTES for _, frame in entries)
        assert self.held_bytes == size <= self._max_bytes
        assert list(self._published) == sorted(self._published)
