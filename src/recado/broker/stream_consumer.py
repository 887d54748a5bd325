"""A consumer of a stream: where it is, and how its deliveries are written."""

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from recado.amqp.frames import header_end

from .arguments import ConsumerSettings
from .consumer import DEAL_BYTES, LARGE, Consumer
from .queue import Queue
from .run import Run
from .stream_offsets import render_alike, stamp

if TYPE_CHECKING:
    from .channel import Channel

_u64 = Struct(">Q").pack


class StreamConsumer(Consumer):
    __slots__ = ("next",)

    def __init__(
        self,
        channel: "Channel",
        queue: Queue,
        tag: str,
        settings: ConsumerSettings,
        *,
        no_ack: bool,
        exclusive: bool,
        limit: int,
    ) -> None:
        super().__init__(
            channel, queue, tag, settings, no_ack=no_ack, exclusive=exclusive, limit=limit
        )
        self.next = 0  # the offset that is to be delivered next

    def give(self, run: Run, room: int) -> int:
        """Deliver what comes next for it of a run that has it: as much as has room, and is a good write.

        Gives the bytes that this took, or could have taken in the time.
        """
        low = max(self.next - run.first, 0)
        high = min(len(run), low + DEAL_BYTES // (len(run.tails[low]) + 64) + 1)
        selection = self.settings.selection
        if selection is None:
            part = run.slice(low, min(high, low + room))
            self.next = part.first + len(part)
            cost = part.weight()
            self.deliver(part)
            return cost
        places, end, cost = selection.choose(run, low, high, room)
        self.next = run.first + end
        if places:
            part = run.pick(places)
            cost += part.weight()
            self.deliver(part, [run.first + place for place in places])
        return cost

    def deliver(self, run: Run, offsets: Sequence[int] | None = None) -> None:
        """Write the messages, which have these offsets, or count up from that of the first."""
        channel, count = self.channel, len(run.tails)
        first = self._write(run, offsets or range(run.first, run.first + count))
        run.tails = [
            b""
        ] * count  # nothing returns to a stream: only the tags have to be remembered
        channel.unacked.add(first, run, self)
        channel.outstanding += count
        if channel.limit:
            channel.served(self)
        self.outstanding += count
        self.queue.unacked += count

    def _write(self, run: Run, offsets: Sequence[int]) -> int:
        """Gives the tag of the first."""
        channel, outlet = self.channel, self.channel.outlet
        head, tails = run.head, run.tails
        if run.channel != channel.number or outlet.frame_max < run.frame_max:
            head, tails = run.fitted(channel.number, outlet.frame_max)
        end = run.origin.first_time
        prefix = self._prefixes.get(len(end)) or self._prefix(len(end))
        first = channel.next_tag
        channel.next_tag = first + len(tails)
        if head and len(tails[0]) < LARGE:
            before, after = _parted(head)
            outlet.write(render_alike(prefix, end + before, after, first, offsets, tails))
            return first
        header, before, after = b"", b"", b""
        for i, tail in enumerate(tails):
            start, body = (head, tail) if head else _divided(tail)
            if start != header:
                header = start
                before, after = _parted(start)
                before = end + before
            written = prefix + _u64(first + i) + before + _u64(offsets[i]) + after
            if len(body) < LARGE:
                outlet.write(written + body)
            else:
                outlet.write(written)
                outlet.write(body)
        return first


def _divided(content: bytes) -> tuple[bytes, bytes]:
    at = header_end(content)
    return content[:at], content[at:]


def _parted(head: bytes) -> tuple[bytes, bytes]:
    """A header frame, and what may follow it, before and after the offset."""
    header, rest = _divided(head)
    before, after = stamp(header)
    return before, after + rest
