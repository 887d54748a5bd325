"""A consumer of a stream: its offset, and how its deliveries are rendered."""

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from recado.amqp.frames import find_header_end

from .arguments import ConsumerSettings
from .consumer import DELIVERY_OVERHEAD_BYTES, DISPATCH_BYTES, LARGE_PAYLOAD_BYTES, Consumer
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
        self.next_offset = 0  # offset of the next delivery

    def deliver_next(self, run: Run, credit: int) -> int:
        """Deliver the next messages of a run, limited by credit and by the size of a write.

        Returns the cost in bytes: those rendered, plus those that could have been rendered while the filter
        was evaluated.
        """
        low = max(self.next_offset - run.first_position, 0)
        message_bytes = len(run.payloads[low]) + DELIVERY_OVERHEAD_BYTES
        high = min(len(run), low + DISPATCH_BYTES // message_bytes + 1)
        message_filter = self.settings.message_filter
        if message_filter is None:
            part = run.slice(low, min(high, low + credit))
            self.next_offset = part.first_position + len(part)
            cost = part.memory_bytes()
            self.deliver(part)
            return cost
        indexes, end, cost = message_filter.select(run, low, high, credit)
        self.next_offset = run.first_position + end
        if indexes:
            part = run.pick(indexes)
            cost += part.memory_bytes()
            self.deliver(part, [run.first_position + index for index in indexes])
        return cost

    def deliver(self, run: Run, offsets: Sequence[int] | None = None) -> None:
        """Write the messages, with these offsets or with consecutive ones from the first."""
        channel, count = self.channel, len(run.payloads)
        first = self._write(run, offsets or range(run.first_position, run.first_position + count))
        run.payloads = [b""] * count  # streams requeue nothing: only the tags are needed
        channel.unacked.add(first, run, self)
        channel.in_flight += count
        if channel.global_prefetch:
            channel.rotate_consumer(self)
        self.in_flight += count
        self.queue.unacked += count
        self.queue.delivered_count += count

    def _write(self, run: Run, offsets: Sequence[int]) -> int:
        """Write the messages; return the tag of the first."""
        channel, connection = self.channel, self.channel.connection
        prefix, payloads = run.prefix, run.payloads
        if run.channel != channel.number or connection.frame_max < run.frame_max:
            prefix, payloads = run.fit_frames(channel.number, connection.frame_max)
        deliver_end = run.origin.first_delivery_end  # streams mark no message as redelivered
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
        for i, payload in enumerate(payloads):
            start, body = (prefix, payload) if prefix else _split_header(payload)
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


def _split_at_offset(prefix: bytes) -> tuple[bytes, bytes]:
    """Return a header frame, with the frames that follow it, split before and after the offset."""
    header, remainder = _split_header(prefix)
    before, after = split_header(header)
    return before, after + remainder
