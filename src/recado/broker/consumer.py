"""A consumer: its credit, and how deliveries are rendered for it."""

from typing import TYPE_CHECKING, Protocol

from recado.amqp.errors import ChannelLevelError
from recado.amqp.frames import DELIVER_METHOD_IDS
from recado.amqp.runs import render_deliveries

from .arguments import ConsumerSettings
from .delivery_count import add_delivery_count
from .run import Run

if TYPE_CHECKING:
    from .channel import Channel
    from .queue import Queue

UNLIMITED_COUNT = 1 << 30
DISPATCH_BYTES = 256 * 1024
DELIVERY_OVERHEAD_BYTES = 64  # of a message as delivered, besides its payload; an estimate
"""Rendered per write, so that backpressure takes effect before everything is written."""
LARGE_PAYLOAD_BYTES = 4096  # from this size on, copying a body twice costs more than a second write


class PeerConnection(Protocol):
    """The connection of a client, as the broker uses it."""

    frame_max: int
    congested: bool  # the peer reads too slowly: deliver nothing
    supports_cancel_notify: bool  # the client wants to be notified when its consumers are cancelled
    # The output contains messages whose delivery the journal must record before the peer sees them.
    awaits_journal: bool

    def write(self, data: bytes) -> None: ...

    def close_channel(self, number: int, error: ChannelLevelError, now: int) -> None:
        """Close a channel for an error that none of its own methods caused, and tell the peer why."""


class Consumer:
    __slots__ = (
        "_frame_starts",
        "_method_start",
        "channel",
        "exclusive",
        "in_flight",
        "is_awake",
        "no_ack",
        "prefetch",
        "queue",
        "settings",
        "tag",
    )

    def __init__(
        self,
        channel: "Channel",
        queue: "Queue",
        tag: str,
        settings: ConsumerSettings,
        *,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.settings = settings
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch  # 0: unlimited
        self.in_flight = 0
        self.is_awake = False  # in the queue's consumer ring
        name = tag.encode()
        self._method_start = DELIVER_METHOD_IDS + bytes((len(name),)) + name
        self._frame_starts: dict[int, bytes] = {}

    def credit(self) -> int:
        """Return how many more messages the consumer may receive now."""
        channel = self.channel
        if channel.connection.congested:
            return 0
        channel_credit = (
            channel.global_prefetch - channel.in_flight
            if channel.global_prefetch
            else UNLIMITED_COUNT
        )
        if self.no_ack:  # not counted by the global prefetch, but stopped when that is reached
            return UNLIMITED_COUNT if channel_credit > 0 else 0
        return (
            min(self.prefetch - self.in_flight, channel_credit) if self.prefetch else channel_credit
        )

    def deliver(self, run: Run) -> None:
        """Write the messages to the peer; unless the consumer auto-acks, record them as unsettled."""
        channel = self.channel
        connection = channel.connection
        rendered = add_delivery_count(run) if run.delivery_count else run
        prefix, payloads = rendered.prefix, rendered.payloads
        if run.channel != channel.number or connection.frame_max < run.frame_max:
            prefix, payloads = rendered.fit_frames(channel.number, connection.frame_max)
        deliver_end = (
            run.origin.redelivery_end if run.redelivered else run.origin.first_delivery_end
        )
        frame_start = self._frame_starts.get(len(deliver_end)) or self._frame_start(
            len(deliver_end)
        )
        count = len(payloads)
        first_tag = channel.next_tag
        channel.next_tag = first_tag + count
        if len(payloads[0]) < LARGE_PAYLOAD_BYTES:
            if count == 1:
                connection.write(
                    frame_start + first_tag.to_bytes(8, "big") + deliver_end + prefix + payloads[0]
                )
            else:
                connection.write(
                    render_deliveries(frame_start, deliver_end + prefix, first_tag, payloads)
                )
        else:
            for tag, payload in enumerate(payloads, first_tag):
                connection.write(frame_start + tag.to_bytes(8, "big") + deliver_end + prefix)
                connection.write(payload)
        if not self.no_ack:
            channel.unacked.add(first_tag, run, self)
            channel.in_flight += count
            if channel.global_prefetch:
                channel.rotate_consumer(self)
            self.in_flight += count
            queue = self.queue
            queue.unacked += count
            queue.delivered_count += count
            if run.redelivered:
                queue.redelivered_count += count
                channel.redelivered_count += count
            if run.stored:
                connection.awaits_journal = True
                queue.record_delivery(run)
            for observer in queue.observers:
                observer.delivered(queue, run, connection, self, is_settled=False)
        elif not self.settings.wire_tap:
            queue = self.queue
            queue.delivered_no_ack_count += count
            channel.delivered_no_ack_count += count
            if run.redelivered:
                queue.redelivered_count += count
                channel.redelivered_count += count
            if run.stored:
                connection.awaits_journal = True
                queue.settle(run)
            for observer in queue.observers:
                observer.delivered(queue, run, connection, self, is_settled=True)

    def deliver_copy(self, run: Run) -> None:
        """Deliver copies to a wire tap, which never acks; it misses messages while the peer is congested."""
        if not self.channel.connection.congested:
            self.deliver(run)

    def release(self, count: int) -> None:
        """Account for settled messages."""
        self.in_flight -= count
        self.channel.in_flight -= count
        self.queue.unacked -= count

    def _frame_start(self, end_bytes: int) -> bytes:
        """Return the start of a deliver frame, up to the delivery tag.

        `end_bytes` is the number of bytes after the tag, with the end byte.
        """
        length = len(self._method_start) + 8 + end_bytes - 1
        frame_header = b"\x01" + self.channel.number.to_bytes(2, "big") + length.to_bytes(4, "big")
        self._frame_starts[end_bytes] = frame_header + self._method_start
        return self._frame_starts[end_bytes]
