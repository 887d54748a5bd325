"""TOTAL: all members of a view deliver the messages of all publishers in the same order.

The oldest member of the view is the sequencer. For each batch that it releases, it broadcasts a position: the
publisher and the range of sequences that all members deliver next. It sends the positions as the messages of a
pseudo publisher for this view (`order_publisher_id`), so that FIFO, NAK and PULL deliver them to all members,
and the cut of the next view contains how many there were.

TO1  Two members that go from one view to the same next view deliver the same messages in it, in the same order.
TO2  Messages before a cut that have no position are delivered at the cut, by publisher and sequence.
TO3  No member waits for a position longer than the view lasts.
TO4  A position shows that its messages exist. A member that lacks them has a gap, which NAK and PULL fill or
     FIFO closes, even if the publisher has failed and no other packet mentions them. Positions of a publisher
     beyond the member's limit (RB5) are ignored.
"""

from collections import deque
from struct import Struct as Layout

from ..block import BODY_INDEX, Block
from ..boundary import MessageBatch
from ..layer import (
    BatchReleased,
    GapFilled,
    Layer,
    MemberContext,
    MessagesLost,
    PublisherStartSet,
    SendPacket,
    UpEvent,
    ViewInstalled,
)
from ..packet import Data, PublisherStatus
from ..vector import MAX_SEQUENCE_ID
from ..views import NO_VIEW, LostRange, View
from .receive_buffer import ORDER_PREFIX, ReceiveBuffer, order_publisher_id

_POSITION_LAYOUT = Layout("<16sQI")  # | publisher 16 bytes | first sequence u64 | count u32 |
MAX_POSITION_MESSAGES = 2**32 - 1
Ordered = BatchReleased | MessagesLost


class TotalLayer(Layer):
    def __init__(self, context: MemberContext, receive_buffer: ReceiveBuffer) -> None:
        super().__init__(context)
        self.receive_buffer = receive_buffer
        self._pending: dict[bytes, deque[Ordered]] = {}
        self._positions: deque[tuple[bytes, int, int]] = deque()  # publisher, first, last
        self._absent_up_to: dict[bytes, int] = {}  # by publisher: messages up to here never come
        self._order_id = order_publisher_id(NO_VIEW)
        self._is_sequencer = False  # we assign positions
        self._last_position = 0
        self._next_status: float | None = None

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case BatchReleased(batch) if batch.publisher.startswith(ORDER_PREFIX):
                if batch.publisher == self._order_id:
                    self._receive_positions(batch, now)
                    self._deliver_ordered(now)
            case MessagesLost(lost) if lost.publisher.startswith(ORDER_PREFIX):
                pass
            case BatchReleased(batch):
                self._pending.setdefault(batch.publisher, deque()).append(event)
                self._assign_position(batch.publisher, batch.first, batch.count, now)
                self._deliver_ordered(now)
            case MessagesLost(lost):
                self._pending.setdefault(lost.publisher, deque()).append(event)
                self._assign_position(lost.publisher, lost.first, lost.last - lost.first + 1, now)
                self._deliver_ordered(now)
            case PublisherStartSet(publisher, last):
                self._absent_up_to[publisher] = last
                self._pass_up(event, now)
                self._deliver_ordered(now)
            case ViewInstalled(record):
                self._switch_view(record.view, now)
                self._pass_up(event, now)
            case _:
                self._pass_up(event, now)

    # --- assigning positions ---

    def _assign_position(self, publisher: bytes, first: int, count: int, now: float) -> None:
        if not self._is_sequencer:
            return
        self._last_position += 1
        # A lost range may have more messages than a position can count: the rest is delivered with the next
        # messages of its publisher, or at the cut.
        block = Block.build(
            [_POSITION_LAYOUT.pack(publisher, first, min(count, MAX_POSITION_MESSAGES))]
        )
        self._pass_down(SendPacket(Data(self._order_id, self._last_position, block)), now)
        # Pass the position to our own FIFO as well: the network may lose our own broadcast.
        self._pass_down(GapFilled(MessageBatch(self._order_id, self._last_position, block)), now)

    def tick(self, now: float) -> None:
        if self._next_status is not None and now >= self._next_status:
            self._next_status = now + self.context.options.heartbeat_interval
            if self._last_position:
                self.send(PublisherStatus(self._order_id, self._last_position, 0), None, now)

    def deadline(self) -> float | None:
        return self._next_status

    # --- delivering in order ---

    def _receive_positions(self, batch: MessageBatch, now: float) -> None:
        for body in batch.block.values(BODY_INDEX):
            position = _unpack_position(body)
            if position is None:
                self.context.malformed_count += 1
                continue
            publisher, _, last = position
            if self.receive_buffer.note_mentioned(publisher, last, now):  # TO4
                self._positions.append(position)

    def _deliver_ordered(self, now: float) -> None:
        while self._positions:
            publisher, _, last = self._positions[0]
            if last <= self._absent_up_to.get(publisher, 0):
                self._positions.popleft()
                continue
            pending = self._pending.get(publisher)
            if not pending:
                return
            event = pending.popleft()
            start, end = _sequence_range(event)
            if end > last:  # the sequencer had other batch boundaries
                pending.appendleft(_clip_event(event, last + 1, end))
                event, end = _clip_event(event, start, last), last
            if end == last:
                self._positions.popleft()
            else:
                self._positions[0] = (publisher, end + 1, last)
            self._pass_up(event, now)

    def _switch_view(self, view: View, now: float) -> None:
        """All messages before the cut and all positions are here: deliver the rest by publisher id."""
        for publisher in sorted(self._pending):
            for event in self._pending[publisher]:
                self._pass_up(event, now)
        self._pending = {}
        self._positions.clear()
        self._order_id = order_publisher_id(view.id)
        self._is_sequencer = view.entries[0].member == self.context.member_id
        self._last_position = 0
        self._next_status = (
            now + self.context.options.heartbeat_interval if self._is_sequencer else None
        )


def _unpack_position(body: bytes) -> tuple[bytes, int, int] | None:
    """Return publisher, first and last sequence of a position; None if it is malformed."""
    if len(body) != _POSITION_LAYOUT.size:
        return None
    publisher, first, count = _POSITION_LAYOUT.unpack(body)
    last = first + count - 1
    valid = 1 <= first <= last <= MAX_SEQUENCE_ID and not publisher.startswith(ORDER_PREFIX)
    return (publisher, first, last) if valid else None


def _sequence_range(event: Ordered) -> tuple[int, int]:
    if isinstance(event, BatchReleased):
        return event.batch.first, event.batch.last
    return event.lost.first, event.lost.last


def _clip_event(event: Ordered, first: int, last: int) -> Ordered:
    if isinstance(event, BatchReleased):
        return BatchReleased(event.batch.clip(first, last))
    return MessagesLost(LostRange(event.lost.publisher, first, last))
