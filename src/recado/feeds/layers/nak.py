"""NAK: detects gaps and requests the missing messages from their publisher.

NA1  Without total order (UDP), a gap is requested from its publisher as long as it lasts; after three attempts
     PULL requests it, too. On a broker publishers do not resend, and only PULL fills gaps.
NA2  On a broker, the missing message may still be in the member's own queue, which may be long. If a gap lasts,
     the member broadcasts a request as a marker and waits until that packet arrives in its own queue. If the
     message was in the queue before the marker, it has arrived by then.
NA3  The retransmit buffer of a publisher is bounded, and so is the data that one request causes. For messages
     that are no longer buffered it sends Unavailable.

A gap is detected when a later message arrives, or when a publisher, an archive or a view mentions a message
that has not been received.
"""

from collections import deque
from math import inf

from ..boundary import MessageRange, PacketRoute
from ..layer import DownEvent, Layer, MemberContext, PacketReceived, SendPacket, UpEvent
from ..packet import (
    HEADER_BYTES,
    MAX_RANGES,
    Data,
    DurableReport,
    Fragment,
    Nak,
    PublisherStatus,
    Unavailable,
)
from ..vector import MAX_SEQUENCE_ID
from ..views import MemberId
from .publisher_state import MessageGap
from .receive_buffer import ORDER_PREFIX, ReceiveBuffer, is_relevant

RANGE_BYTES = 40  # maximum in a packet; the array header takes a few more


class NakPublisherLayer(Layer):
    """NAK of a publisher: buffers recent broadcasts and retransmits them on request."""

    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        # First, last, size in bytes, event.
        self._recent: deque[tuple[int, int, int, SendPacket]] = deque()
        self._recent_bytes = 0

    def down(self, event: DownEvent, now: float) -> None:
        if isinstance(event, SendPacket) and not self.context.options.has_total_order:
            match event.packet:
                case Data(_, first, block):
                    self._remember(first, event.last_sequence, len(block.data), event)
                case Fragment(_, sequence, _, _, data):
                    self._remember(sequence, sequence, len(data), event)
                case _:
                    pass
        self._pass_down(event, now)

    def _remember(self, first: int, last: int, size: int, event: SendPacket) -> None:
        self._recent.append((first, last, size, event))
        self._recent_bytes += size
        while self._recent_bytes > self.context.options.retransmit_bytes and len(self._recent) > 1:
            self._recent_bytes -= self._recent.popleft()[2]

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case PacketReceived(PacketRoute.BROADCAST, _, Nak(ranges)):
                member_id = self.context.member_id.incarnation
                ours = [each for each in ranges if each.publisher == member_id]
                self._retransmit([each for each in ours if each.first <= each.last], now)
            case _:
                self._pass_up(event, now)

    def _retransmit(self, ranges: list[MessageRange], now: float) -> None:
        """Retransmit each packet once, however often it is requested: a small request must not cause the whole
        buffer to be sent many times."""
        wanted = deque(sorted((each.first, each.last) for each in ranges))
        oldest = self._recent[0][0] if self._recent else MAX_SEQUENCE_ID
        if wanted and wanted[0][0] < oldest:
            last = max(last for first, last in wanted if first < oldest)
            lack = Unavailable(
                self.context.member_id.incarnation, wanted[0][0], min(last, oldest - 1)
            )
            self.send(lack, None, now)
        last_wanted = 0
        for first, last, _, event in self._recent:
            while wanted and wanted[0][0] <= last:
                last_wanted = max(last_wanted, wanted.popleft()[1])
            if first <= last_wanted:
                self._pass_down(event, now)
            elif not wanted:
                break


class NakMemberLayer(Layer):
    def __init__(self, context: MemberContext, receive_buffer: ReceiveBuffer) -> None:
        super().__init__(context)
        self.receive_buffer = receive_buffer
        self._next_request: float | None = None
        self._last_message_at = 0.0  # last broadcast with messages

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case PacketReceived(PacketRoute.BROADCAST):
                self._receive_broadcast(event, now)
            case PacketReceived(_, sender, DurableReport(_, vector)):
                if not self.receive_buffer.is_unstarted:
                    for publisher, last in vector.items():
                        if self._may_be_missing(publisher, sender):
                            self.receive_buffer.note_known(publisher, last, now)
                self._pass_up(event, now)
            case _:
                self._pass_up(event, now)

    def _receive_broadcast(self, event: PacketReceived, now: float) -> None:
        match event.packet:
            case Data() | Fragment():
                self._last_message_at = now
                self._pass_up(event, now)
            case PublisherStatus(publisher, last, age_ms, earlier):
                if is_relevant(self.context, publisher):
                    reports = [(now - ago_ms / 1000, sequence) for ago_ms, sequence in earlier]
                    self.receive_buffer.note_status(publisher, last, age_ms / 1000, now, reports)
                    self._pass_up(event, now)
            case Unavailable(publisher, first, last):
                # The report holds for good: time infinity is later than any timeout.
                self.receive_buffer.note_lacked(publisher, [(first, last)], publisher, inf)
            case Nak(ranges):
                if event.sender == self.context.member_id:  # our own marker (NA2)
                    for each in ranges:
                        self.receive_buffer.note_queue_past(each.publisher, each.first)
            case _:
                self._pass_up(event, now)

    def _may_be_missing(self, publisher: bytes, sender: MemberId) -> bool:
        """Return whether messages that an archive has of this publisher may be missing here. An archive outside
        the view may have messages from before our start (RB4); the cut of the view that it joins covers them.
        """
        receive_buffer = self.receive_buffer
        if not receive_buffer.skips_history:
            return True
        if not receive_buffer.is_tracked(publisher):
            return False
        return (
            not receive_buffer.has_assumed_start(publisher)
            or sender in self.context.other_members()
        )

    def tick(self, now: float) -> None:
        due = self.deadline()
        if due is None or now < due:
            return
        options = self.context.options
        ranges: list[MessageRange] = []
        for publisher, gap in self.receive_buffer.gaps.items():
            gap.attempts += 1
            if self._needs_pull(publisher, gap, now):
                gap.needs_pull = True
            if options.has_total_order:
                is_old = now - gap.known_at >= options.loss_timeout / 2
                if is_old and not gap.is_queue_past and gap.attempts % 5 == 0:
                    ranges += self.receive_buffer.missing_ranges(publisher, 1)
            elif gap.attempts <= 3 or gap.attempts % 5 == 0:
                ranges += self.receive_buffer.missing_ranges(publisher, 64)
        if ranges:
            # FRAG is above and does not split it, so each request has to fit.
            max_ranges = (options.max_packet_bytes - HEADER_BYTES) // RANGE_BYTES - 1
            requested = ranges[:MAX_RANGES]
            for i in range(0, len(requested), max_ranges):
                self.send(Nak(requested[i : i + max_ranges]), None, now)
        self._next_request = now + options.retry_interval if self.receive_buffer.gaps else None

    def _needs_pull(self, publisher: bytes, gap: MessageGap, now: float) -> bool:
        options = self.context.options
        if not options.has_total_order:
            return publisher.startswith(ORDER_PREFIX) or gap.attempts > 3
        # A message that was only mentioned is probably on its way in our own queue, which may be long.
        is_quiet = now - self._last_message_at >= options.failure_timeout / 2
        return (
            self.receive_buffer.is_gap_inner(publisher)
            or is_quiet
            or now - gap.known_at >= options.loss_timeout / 2
        )

    def deadline(self) -> float | None:
        gaps = self.receive_buffer.gaps
        if self._next_request is None and gaps:
            # Delayed slightly: on most networks a missing packet has only been overtaken.
            self._next_request = (
                min(gap.known_at for gap in gaps.values()) + self.context.options.retry_interval / 4
            )
        return self._next_request
