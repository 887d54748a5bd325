"""A run: consecutive messages of one route with equal traits, stored and moved as one object.

Other modules call such messages *like messages*. Message i of a run is `prefix + payloads[i]`: raw header
and body frames as the publisher sent them (see `recado.amqp.runs`). All other attributes (origin, expiry,
redelivery) are common to the messages of the run.

Each message has a *position*, a number that its queue assigns when it enters. A requeued message returns to
its position. A run of n messages has the positions `first_position`, `first_position + stride`, …:
splitting a run among k consumers gives each of them every k-th message.
"""

from collections.abc import Iterable

import msgspec

from recado.amqp.frames import (
    extract_body_start,
    extract_properties,
    move_to_channel,
    read_body_size,
    read_body_sizes,
    resize_frames,
)
from recado.amqp.traits import MessageTraits

COPIED_PAYLOADS_MAX = 16
"""A shared list of fewer payloads is copied, so that following runs can be appended to it."""
_APPENDABLE_PAYLOADS_MAX = 4096  # to bound the cost of operations on one run
_TAKEN_PAYLOADS_MAX = 1024  # stay in memory until they are dropped together
_PAYLOAD_OVERHEAD_BYTES = 48  # of a bytes object and its list entry


class Origin:
    """Exchange and routing key, as text, as short strings, and as the end of a deliver frame.

    | … tag u64 | redelivered u8 | exchange shortstr | routing key shortstr | 0xCE |
    """

    __slots__ = ("exchange", "first_delivery_end", "names", "redelivery_end", "routing_key")

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.names = b"".join(
            len(name).to_bytes(1, "big") + name
            for name in (exchange.encode(), routing_key.encode())
        )
        """Exchange and routing key as short strings."""
        self.first_delivery_end = b"\x00" + self.names + b"\xce"
        self.redelivery_end = b"\x01" + self.names + b"\xce"


class Run(msgspec.Struct, eq=False):
    """Consecutive messages of one route with equal traits; see the module."""

    origin: Origin
    traits: MessageTraits
    channel: int
    """The channel number in the frames."""
    frame_max: int
    """The maximum frame size in the run."""
    prefix: bytes
    payloads: list[bytes]
    owns_payloads: bool
    """Whether no other run shares the list of payloads."""
    first_position: int = 0
    stride: int = 1
    taken_count: int = 0
    """The number of payloads, from the start, that have left the run."""
    redelivered: bool = False
    expires_at: int | None = None
    stored: bool = False
    """The store has the messages and must be notified when they are settled."""
    delivery_count: int = 0
    """How often the messages were redelivered, in a queue that counts it."""
    is_forwarded: bool = False
    """The broker forwards the messages, for instance as dead letters; no client publishes them now."""

    def __len__(self) -> int:
        return len(self.payloads) - self.taken_count

    @property
    def end_position(self) -> int:
        """The position after the last message of a run without gaps."""
        return self.first_position + len(self)

    def _copy_with(self, payloads: list[bytes], first_position: int, stride: int) -> "Run":
        return Run(
            self.origin,
            self.traits,
            self.channel,
            self.frame_max,
            self.prefix,
            payloads,
            True,
            first_position,
            stride,
            0,
            self.redelivered,
            self.expires_at,
            self.stored,
            self.delivery_count,
            self.is_forwarded,
        )

    def copy_for_queue(self) -> "Run":
        """Return the same messages for a further queue; none may have been taken yet."""
        return Run(
            self.origin,
            self.traits,
            self.channel,
            self.frame_max,
            self.prefix,
            self.payloads,
            False,
            is_forwarded=self.is_forwarded,
        )

    def take(self, count: int) -> "Run":
        """Remove and return the first `count` messages; return the run itself if these are all."""
        at = self.taken_count
        if count >= len(self.payloads) - at:
            if at:
                self.drop_taken()
            return self
        part = self._copy_with(self.payloads[at : at + count], self.first_position, self.stride)
        self.first_position += count * self.stride
        self.taken_count = at + count
        if self.taken_count >= _TAKEN_PAYLOADS_MAX:
            self.drop_taken()
        return part

    def split_round_robin(self, count: int) -> "list[Run]":
        """Split all messages in round-robin order; none may have been taken yet."""
        return [
            self._copy_with(
                self.payloads[i::count], self.first_position + i * self.stride, self.stride * count
            )
            for i in range(count)
        ]

    def slice(self, low: int, high: int) -> "Run":
        """Return a part of the messages as a run; they stay in this one too."""
        return self._copy_with(
            self.payloads[low:high], self.first_position + low * self.stride, self.stride
        )

    def copy_range(self, start: int, end: int) -> "Run":
        """Return the messages at positions [start, end) of a run without gaps; they stay in this one too."""
        at = self.taken_count - self.first_position
        return self._copy_with(self.payloads[start + at : end + at], start, self.stride)

    def pick(self, indexes: Iterable[int]) -> "Run":
        """Return the messages at these indexes as a run, without their positions.

        They stay in this run too.
        """
        payloads = self.payloads
        return self._copy_with(
            [payloads[index] for index in indexes], self.first_position, self.stride
        )

    def drop_taken(self) -> None:
        """Free the payloads that were taken, by copying the list of the others."""
        self.payloads = self.payloads[self.taken_count :]
        self.taken_count = 0
        self.owns_payloads = True

    def extend(self, other: "Run") -> None:
        """Append the messages of another run, for which `other.can_follow(self)` is true."""
        self.payloads += (
            other.payloads[other.taken_count :] if other.taken_count else other.payloads
        )

    def can_follow(self, other: "Run") -> bool:
        """Whether this run can be appended to another one of the same queue."""
        return (
            self.origin is other.origin
            and self.traits is other.traits
            and self.channel == other.channel
            and self.frame_max == other.frame_max
            and self.expires_at == other.expires_at
            and self.stored == other.stored
            and self.redelivered == other.redelivered
            and self.delivery_count == other.delivery_count
            and other.owns_payloads
            and len(other.payloads) < _APPENDABLE_PAYLOADS_MAX
            and self.first_position == other.first_position + len(other)
            and self.prefix == other.prefix
        )

    def body_sizes(self) -> list[int]:
        """Return the size of each body."""
        if self.prefix:
            return [read_body_size(self.prefix)] * len(self)
        return read_body_sizes(self.payloads[self.taken_count :])

    def memory_bytes(self) -> int:
        """Return the approximate memory of the messages."""
        count = len(self)
        if self.prefix or count == 1:
            return (len(self.payloads[self.taken_count]) + _PAYLOAD_OVERHEAD_BYTES) * count
        return sum(map(len, self.payloads[self.taken_count :])) + _PAYLOAD_OVERHEAD_BYTES * count

    def contents(self) -> list[bytes]:
        """Return the header and body frames of each message."""
        return [self.prefix + payload for payload in self.payloads[self.taken_count :]]

    def read_start(self, index: int, body_max: int) -> tuple[bytes, bytes, int]:
        """Return the encoded properties, up to `body_max` bytes of the body, and its size, of one message.

        `index` counts the payloads that were not taken. A long body is not copied.
        """
        payload = self.payloads[self.taken_count + index]
        content = self.prefix + payload[: body_max + 1] if self.prefix else payload
        return (
            extract_properties(content),
            extract_body_start(content, body_max),
            read_body_size(content),
        )

    def fit_frames(self, channel: int, frame_max: int) -> tuple[bytes, list[bytes]]:
        """Return (prefix, payloads) for another channel and maximum frame size."""
        if frame_max < self.frame_max:
            return b"", [resize_frames(content, channel, frame_max) for content in self.contents()]
        # The frame headers, with the channel number, are all in the common prefix, if there is one.
        if self.prefix:
            return move_to_channel(self.prefix, channel), self.payloads
        return b"", [move_to_channel(payload, channel) for payload in self.payloads]


def merge_adjacent(runs: Iterable[Run]) -> list[Run]:
    """Merge requeued runs without gaps into as few runs as possible, in order of position."""
    merged: list[Run] = []
    end = -1
    for run in sorted(runs, key=first_position):
        if run.first_position == end:
            last = merged[-1]
            if not last.owns_payloads and len(last.payloads) < COPIED_PAYLOADS_MAX:
                last.drop_taken()  # copies the list
            if run.can_follow(last):
                last.extend(run)
                last.stride = 1  # a single message may have come from a run with a larger stride
                end += len(run.payloads)
                continue
        merged.append(run)
        end = run.first_position + len(run.payloads)
    return merged


def first_position(run: Run) -> int:
    """Return the position of the first message, as a key to sort by."""
    return run.first_position
