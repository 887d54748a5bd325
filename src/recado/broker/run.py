"""A run: consecutive messages that are alike, kept and moved as one.

Message i of a run is `head + tails[i]`: raw header and body frames, as the publisher sent them (see
`recado.amqp.runs`). Everything else about it (where it came from, when it expires, whether it was delivered
before) is said once for all of them.

Each message has a *place*, a number given by its queue when it enters. A message that is returned goes back to
its place. A run of n messages holds the places first, first + step, …: dealing a run to k consumers gives each
every k-th message.
"""

from collections.abc import Iterable

import msgspec

from recado.amqp.facts import Facts
from recado.amqp.frames import body_size_of, on_channel, within

_TAIL_OVERHEAD = 48  # of a bytes object, and its place in a list


class Origin:
    """Exchange and routing key, as text and as the end of a deliver frame.

    | … tag u64 | redelivered u8 | exchange shortstr | routing key shortstr | 0xCE |
    """

    __slots__ = ("again", "exchange", "first_time", "routing_key")

    def __init__(self, exchange: str, routing_key: str) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        names = b"".join(
            len(name).to_bytes(1, "big") + name
            for name in (exchange.encode(), routing_key.encode())
        )
        self.first_time = b"\x00" + names + b"\xce"
        self.again = b"\x01" + names + b"\xce"


class Run(msgspec.Struct, eq=False):
    origin: Origin
    facts: Facts
    channel: int
    """The number written in the frames."""
    frame_max: int
    """No frame here is larger."""
    head: bytes
    tails: list[bytes]
    owned: bool
    """The list of tails is nobody else's."""
    first: int = 0
    step: int = 1
    taken: int = 0
    """How many tails have left already; they are the first."""
    redelivered: bool = False
    expires: int | None = None
    kept: bool = False
    """The keeper has them, and must be told when they are settled."""
    returns: int = 0
    """How often each of them came back, in a queue that counts it."""
    letter: bool = False
    """They died in another queue: nobody published them here."""

    def __len__(self) -> int:
        return len(self.tails) - self.taken

    def _like(self, tails: list[bytes], first: int, step: int) -> "Run":
        return Run(
            self.origin,
            self.facts,
            self.channel,
            self.frame_max,
            self.head,
            tails,
            True,
            first,
            step,
            0,
            self.redelivered,
            self.expires,
            self.kept,
            self.returns,
            self.letter,
        )

    def for_another_queue(self) -> "Run":
        """The same messages, none of them taken yet, for a further receiver."""
        return Run(
            self.origin,
            self.facts,
            self.channel,
            self.frame_max,
            self.head,
            self.tails,
            False,
            letter=self.letter,
        )

    def take(self, count: int) -> "Run":
        """The first `count` messages, which leave this run; the run itself if that is all."""
        at = self.taken
        if count >= len(self.tails) - at:
            if at:
                self.tails = self.tails[at:]
                self.taken = 0
                self.owned = True
            return self
        part = self._like(self.tails[at : at + count], self.first, self.step)
        self.first += count * self.step
        at += count
        if at < 1024:
            self.taken = at
        else:  # let go of what has left, now and then
            self.tails = self.tails[at:]
            self.taken = 0
            self.owned = True
        return part

    def deal(self, hands: int) -> "list[Run]":
        """All messages, dealt out in turn; for a run of which nothing was taken yet."""
        return [
            self._like(self.tails[i::hands], self.first + i * self.step, self.step * hands)
            for i in range(hands)
        ]

    def slice(self, low: int, high: int) -> "Run":
        """Some of the messages, which stay here too."""
        return self._like(self.tails[low:high], self.first + low * self.step, self.step)

    def pick(self, places: Iterable[int]) -> "Run":
        """Some of the messages, which stay here too; the run does not know where they were."""
        tails = self.tails
        return self._like([tails[place] for place in places], self.first, self.step)

    def follows(self, other: "Run") -> bool:
        """Whether this run can be appended to another that waits in the same queue."""
        return (
            self.origin is other.origin
            and self.facts is other.facts
            and self.channel == other.channel
            and self.frame_max == other.frame_max
            and self.expires == other.expires
            and self.kept == other.kept
            and self.redelivered == other.redelivered
            and self.returns == other.returns
            and other.owned
            and len(other.tails) < 4096
            and self.first == other.first + len(other)
            and self.head == other.head
        )

    def body_sizes(self) -> list[int]:
        """The bytes of each body."""
        if self.head:
            return [body_size_of(self.head)] * len(self)
        return [body_size_of(tail) for tail in self.tails[self.taken :]]

    def weight(self) -> int:
        """The memory that the messages take, about."""
        count = len(self)
        if self.head or count == 1:
            return (len(self.tails[self.taken]) + _TAIL_OVERHEAD) * count
        return sum(map(len, self.tails[self.taken :])) + _TAIL_OVERHEAD * count

    def contents(self) -> list[bytes]:
        """Each message's header and body frames."""
        return [self.head + tail for tail in self.tails[self.taken :]]

    def fitted(self, channel: int, frame_max: int) -> tuple[bytes, list[bytes]]:
        """(head, tails) for another channel, and for a receiver that takes frames up to `frame_max`."""
        if frame_max < self.frame_max:
            return b"", [within(content, channel, frame_max) for content in self.contents()]
        if self.head:  # alike to the byte: only the common head names the channel
            return on_channel(self.head, channel), self.tails
        return b"", [on_channel(tail, channel) for tail in self.tails]


def joined(runs: Iterable[Run]) -> list[Run]:
    """The same messages in order of place, in as few runs as may be; for runs without gaps, just returned."""
    found: list[Run] = []
    end = -1
    for run in sorted(runs, key=_first):
        if run.first == end:
            last = found[-1]
            if not last.owned and len(last.tails) < 16:
                last.tails = last.tails[:]
                last.owned = True
            if run.follows(last):
                last.tails += run.tails
                last.step = 1  # a single message may have been one of every second
                end += len(run.tails)
                continue
        found.append(run)
        end = run.first + len(run.tails)
    return found


def _first(run: Run) -> int:
    return run.first
