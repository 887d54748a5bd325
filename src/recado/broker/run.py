"""A run: consecutive messages that are alike, kept and moved as one.

Message i of a run is `head + tails[i]`: raw header and body frames, as the publisher sent them (see
`recado.amqp_transport.runs`). Everything else about it (where it came from, when it expires, whether it was delivered
before) is said once for all of them.

Each message has a *place*, a number given by its queue when it enters. A message that is returned goes back to
its place. A run of n messages holds the places first, first + step, …: dealing a run to k consumers gives each
every k-th message.
"""

from collections.abc import Iterable

import msgspec

from recado.amqp.frames import move_to_channel, read_body_size, resize_frames
from recado.amqp.traits import MessageTraits

_PAYLOAD_OVERHEAD_BYTES = 48  # of a bytes object, and its place in a list


class Origin:
    """Exchange and routing key, as text and as the end of a deliver frame.

    | … tag u64 | redelivered u8 | exchange shortstr | routing key shortstr | 0xCE |
    """

    __slots__ = ("exchange", "first_delivery_end", "redelivery_end", "routing_key")

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        names = b"".join(
            len(name).to_bytes(1, "big") + name
            for name in (exchange.encode(), routing_key.encode())
        )
        self.first_delivery_end = b"\x00" + names + b"\xce"
        self.redelivery_end = b"\x01" + names + b"\xce"


class Run(msgspec.Struct, eq=False):
    origin: Origin
    traits: MessageTraits
    channel: int
    """The number written in the frames."""
    frame_max: int
    """No frame here is larger."""
    prefix: bytes
    payloads: list[bytes]
    owns_payloads: bool
    """The list of tails is nobody else's."""
    first_position: int = 0
    stride: int = 1
    taken_count: int = 0
    """How many tails have left already; they are the first."""
    redelivered: bool = False
    expires_at: int | None = None
    stored: bool = False
    """The keeper has them, and must be told when they are settled."""
    delivery_count: int = 0
    """How often each of them came back, in a queue that counts it."""
    is_dead_letter: bool = False
    """They died in another queue: nobody published them here."""

    def __len__(self) -> int:
        return len(self.payloads) - self.taken_count

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
            self.is_dead_letter,
        )

    def copy_for_queue(self) -> "Run":
        """The same messages, none of them taken yet, for a further receiver."""
        return Run(
            self.origin,
            self.traits,
            self.channel,
            self.frame_max,
            self.prefix,
            self.payloads,
            False,
            is_dead_letter=self.is_dead_letter,
        )

    def take(self, count: int) -> "Run":
        """The first `count` messages, which leave this run; the run itself if that is all."""
        at = self.taken_count
        if count >= len(self.payloads) - at:
            if at:
                self.payloads = self.payloads[at:]
                self.taken_count = 0
                self.owns_payloads = True
            return self
        part = self._copy_with(self.payloads[at : at + count], self.first_position, self.stride)
        self.first_position += count * self.stride
        at += count
        if at < 1024:
            self.taken_count = at
        else:  # let go of what has left, now and then
            self.payloads = self.payloads[at:]
            self.taken_count = 0
            self.owns_payloads = True
        return part

    def split_round_robin(self, count: int) -> "list[Run]":
        """All messages, dealt out in turn; for a run of which nothing was taken yet."""
        return [
            self._copy_with(
                self.payloads[i::count], self.first_position + i * self.stride, self.stride * count
            )
            for i in range(count)
        ]

    def slice(self, low: int, high: int) -> "Run":
        """Some of the messages, which stay here too."""
        return self._copy_with(
            self.payloads[low:high], self.first_position + low * self.stride, self.stride
        )

    def pick(self, indexes: Iterable[int]) -> "Run":
        """Some of the messages, which stay here too; the run does not know where they were."""
        tails = self.payloads
        return self._copy_with(
            [tails[place] for place in indexes], self.first_position, self.stride
        )

    def can_extend(self, other: "Run") -> bool:
        """Whether this run can be appended to another that waits in the same queue."""
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
            and len(other.payloads) < 4096
            and self.first_position == other.first_position + len(other)
            and self.prefix == other.prefix
        )

    def body_sizes(self) -> list[int]:
        """The bytes of each body."""
        if self.prefix:
            return [read_body_size(self.prefix)] * len(self)
        return [read_body_size(tail) for tail in self.payloads[self.taken_count :]]

    def memory_bytes(self) -> int:
        """The memory that the messages take, about."""
        count = len(self)
        if self.prefix or count == 1:
            return (len(self.payloads[self.taken_count]) + _PAYLOAD_OVERHEAD_BYTES) * count
        return sum(map(len, self.payloads[self.taken_count :])) + _PAYLOAD_OVERHEAD_BYTES * count

    def contents(self) -> list[bytes]:
        """Each message's header and body frames."""
        return [self.prefix + tail for tail in self.payloads[self.taken_count :]]

    def fit_frames(self, channel: int, frame_max: int) -> tuple[bytes, list[bytes]]:
        """(head, tails) for another channel, and for a receiver that takes frames up to `frame_max`."""
        if frame_max < self.frame_max:
            return b"", [resize_frames(content, channel, frame_max) for content in self.contents()]
        if self.prefix:  # alike to the byte: only the common head names the channel
            return move_to_channel(self.prefix, channel), self.payloads
        return b"", [move_to_channel(tail, channel) for tail in self.payloads]


def merge_adjacent(runs: Iterable[Run]) -> list[Run]:
    """The same messages in order of place, in as few runs as may be; for runs without gaps, just returned."""
    merged: list[Run] = []
    end = -1
    for run in sorted(runs, key=_first_position):
        if run.first_position == end:
            last = merged[-1]
            if not last.owns_payloads and len(last.payloads) < 16:
                last.payloads = last.payloads[:]
                last.owns_payloads = True
            if run.can_extend(last):
                last.payloads += run.payloads
                last.stride = 1  # a single message may have been one of every second
                end += len(run.payloads)
                continue
        merged.append(run)
        end = run.first_position + len(run.payloads)
    return merged


def _first_position(run: Run) -> int:
    return run.first_position
