"""A consumer of a stream: where it is, and how its deliveries are written."""

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from recado.amqp.frames import find_header_end

from .arguments import ConsumerSettings
from .consumer import DISPATCH_BYTES, LARGE_PAYLOAD_BYTES, Consumer
from .queue import Queue
from .run import Run
from .stream_offset_header import render_deliveries, split_header

if TYPE_CHECKING:
    from .channel import Channel

_u64 = Struct(">Q").pack


class StreamConsumer(Consumer):
    __slots__ = ("next_offset",)

    def __init__(
        self,
        channel: "Channel",
        queue: Queue,
        tag: str,
        settings: ConsumerSettings,
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
    ) -> None:
        super().__init__(
            channel, queue, tag, settings, no_ack=no_ack, exclusive=exclusive, prefetch=prefetch
        )
        self.next_offset = 0  # the offset that is to be delivered next

    def deliver_next(self, run: Run, credit: int) -> int:
        """Deliver what comes next for it of a run that has it: as much as has room, and is a good write.

        Gives the bytes that this took, or could have taken in the time.
        """
        low = max(self.next_offset - run.first_position, 0)
        high = min(len(run), low + DISPATCH_BYTES // (len(run.payloads[low]) + 64) + 1)
        selection = self.settings.message_filter
        if selection is None:
            part = run.slice(low, min(high, low + credit))
            self.next_offset = part.first_position + len(part)
            cost = part.memory_bytes()
            self.deliver(part)
            return cost
        indexes, end, cost = selection.select(run, low, high, credit)
        self.next_offset = run.first_position + end
        if indexes:
            part = run.pick(indexes)
            cost += part.memory_bytes()
            self.deliver(part, [run.first_position + place for place in indexes])
        return cost

    def deliver(self, run: Run, offsets: Sequence[int] | None = None) -> None:
        """Write the messages, which have these offsets, or count up from that of the first."""
        channel, count = self.channel, len(run.payloads)
        first = self._write(run, offsets or range(run.first_position, run.first_position + count))
        run.payloads = [
            b""
        ] * count  # nothing returns to a stream: only the tags have to be remembered
        channel.unacked.add(first, run, self)
        channel.in_flight += count
        if channel.global_prefetch:
            channel.rotate_consumer(self)
        self.in_flight += count
        self.queue.unacked += count

    def _write(self, run: Run, offsets: Sequence[int]) -> int:
        """Gives the tag of the first."""
        channel, connection = self.channel, self.channel.connection
        prefix, payloads = run.prefix, run.payloads
        if run.channel != channel.number or connection.frame_max < run.frame_max:
            prefix, payloads = run.fit_frames(channel.number, connection.frame_max)
        deliver_end = run.origin.first_delivery_end
        frame_start = self._frame_starts.get(len(deliver_end)) or self._frame_start(
            len(deliver_end)
        )
        first = channel.next_tag
        channel.next_tag = first + len(payloads)
        if prefix and len(payloads[0]) < LARGE_PAYLOAD_BYTES:
            before, after = _split_at_offset(prefix)
            connection.write(
                render_deliveries(
                    frame_start, deliver_end + before, after, first, offsets, payloads
                )
            )
            return first
        header, before, after = b"", b"", b""
        for i, tail in enumerate(payloads):
            start, body = (prefix, tail) if prefix else _split_header(tail)
            if start != header:
                header = start
                before, after = _split_at_offset(start)
                before = deliver_end + before
            written = frame_start + _u64(first + i) + before + _u64(offsets[i]) + after
            if len(body) < LARGE_PAYLOAD_BYTES:
                connection.write(written + body)
            else:
                connection.write(written)
                connection.write(body)
        return first


def _split_header(content: bytes) -> tuple[bytes, bytes]:
    at = find_header_end(content)
    return content[:at], content[at:]


def _split_at_offset(head: bytes) -> tuple[bytes, bytes]:
    """A header frame, and what may follow it, before and after the offset."""
    header, rest = _split_header(head)
    before, after = split_header(header)
    return before, after + rest
