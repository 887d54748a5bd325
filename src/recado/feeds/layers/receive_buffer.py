"""The receive buffer: messages received from each publisher, and which of them may be released.

RB1  `receive` and `release` return, per publisher, every sequence from its start position, once and in order.
RB2  Nothing is released beyond the limit: no message between a promise and its view (FM3), then the messages
     before the cut.
RB3  The buffer is bounded in bytes. When an item exceeds the limit, held items of its publisher are dropped, those
     with the highest sequences first, and are missing again.
RB4  With `started_at`, only messages published from then on are of interest, and the cut of a view may be far
     behind that. So no message of a publisher is released until the publisher itself is heard; until then it is
     *unsynced*. Its start position is then:
       - younger than this member: sequence 1, or the cut;
       - older, on a transport without retransmission: its first message that arrives;
       - older, on other transports: after the last sequence that it had published when this member started, or
         the earliest later one that its reports contain;
       - silent: after the messages that other members have. This is an assumption until a message of the
         publisher arrives: each later view moves it to its cut, and reports from outside the view open no gap.
     A report of a publisher's age may have been delayed for as long as a broker was stopped, which makes the
     publisher look younger. So it counts as younger only if its first report is heard, or if reports arrive at
     the pace at which they are sent (`PublisherState.is_age_reliable`). A publisher that falls silent before
     that starts with its first message that arrived.
RB5  The number of publishers is limited, so that vectors fit in packets and in memory. At the limit, silent
     publishers without messages are forgotten; if there are none, new publishers are rejected.
RB6  Without views a publisher starts with its first message that arrives; reports about a publisher without
     messages are ignored, because they may overtake its messages.
RB7  The age of a gap counts from when its first message became known to exist, so consecutive gaps wait
     concurrently.

FIFO fills and drains the buffer. NAK and PULL look up the missing messages in it, MEMBERSHIP the received ones.
A fragmented message counts as received when its last fragment has arrived; until then the position of the
publisher is (sequence, fragment index).
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf

from ..boundary import MessageBatch, MessageRange
from ..layer import FragmentReleased, MemberContext
from ..options import FeedOptions
from ..vector import MAX_PUBLISHERS, Span
from ..views import LostRange, ViewId
from .publisher_state import (
    MessageGap,
    PublisherState,
    ReceivedItem,
    buffered_size,
    last_in_span,
)

ORDER_PREFIX = b"order"
MAX_ORDER_PUBLISHERS = 64  # besides all publishers: ordering continues at the limit
IDLE_PUBLISHER_TIMEOUT_S = 60.0  # a living publisher reports more often
MIN_PUBLISHERS = 1_024
VECTOR_ENTRY_BYTES = 32  # maximum in a packet
# In heartbeat intervals: long enough to hear one heartbeat of every publisher, unless it gets lost.
LISTEN_HEARTBEAT_FACTOR = 1.2


def order_publisher_id(view: ViewId) -> bytes:
    """Return the id of the pseudo publisher that broadcasts the total order of a view."""
    return ORDER_PREFIX + view.number.to_bytes(8)[-6:] + view.coordinator[:5]


def is_relevant(context: MemberContext, publisher: bytes) -> bool:
    """Return whether packets of this publisher matter: all do, except orders of views other than the present
    and the next one."""
    if not publisher.startswith(ORDER_PREFIX):
        return True
    view = context.agreed_view
    return publisher in (
        order_publisher_id(context.installed_view_id),
        view and order_publisher_id(view.id),
    )


def max_publishers(options: FeedOptions) -> int:
    """Return the limit of publishers (RB5). A broker accepts packets of any size; on UDP an acknowledgement,
    which has two vectors, must fit in one packet."""
    if options.has_total_order:
        return MAX_PUBLISHERS
    return max(
        MIN_PUBLISHERS, min(MAX_PUBLISHERS, options.max_packet_bytes // (2 * VECTOR_ENTRY_BYTES))
    )


class ReceiveBuffer:
    def __init__(
        self,
        max_bytes: int,
        max_publishers: int = MAX_PUBLISHERS,
        *,
        has_total_order: bool = False,
        heartbeat_interval: float = 0.5,
    ) -> None:
        self.has_total_order = has_total_order
        """Nothing is retransmitted: a message that arrives has just been published."""
        self.publishers: dict[bytes, PublisherState] = {}
        self.gaps: dict[bytes, MessageGap] = {}
        self.release_limit: dict[bytes, int] | None = {}
        """Last sequence of each publisher that may be released; None: no limit."""
        self.is_frozen = False
        """Between a promise and its view, or its abandonment (FM3)."""
        self.is_unstarted = True
        """Before the first view: the first message of a publisher defines its start."""
        self.has_views = True
        """False: the stack has no MEMBERSHIP (RB6)."""
        self.started_at: float | None = None
        """When this member started, if earlier messages are of no interest."""
        self.unsynced: set[bytes] = set()
        """Publishers whose start position is not known yet (RB4)."""
        self.heard_before_view: set[bytes] = set()
        """Before the first view: publishers that had been heard when we last replied PREPARED. The cut of the
        first view includes our messages of them, so it is not too low."""
        self.unsynced_since: dict[bytes, float] = {}
        """For unsynced publishers: since when messages of them wait here, or are known to exist elsewhere."""
        self._assumed_starts: dict[bytes, int] = {}
        """Start positions of publishers that were never heard (RB4)."""
        self.max_publishers = max_publishers
        self.rejected_count = 0
        """Number of packets from publishers beyond the limit (RB5)."""
        self._heartbeat_interval = heartbeat_interval
        self._max_transit_s = (
            LISTEN_HEARTBEAT_FACTOR - 1
        ) * heartbeat_interval  # assumed maximum delay of a packet
        self._last_idle_scan = -inf  # for idle publishers that can be forgotten
        self._max_bytes = max_bytes
        self._held_bytes = 0

    # --- starting, freezing ---

    def start(self, vector: Mapping[bytes, int], now: float) -> None:
        """Start all publishers after this vector: later messages are gaps until they arrive, earlier ones are
        ignored."""
        self.is_unstarted = False
        candidates = dict.fromkeys((*self.publishers, *vector))
        # Publishers that other members know have precedence.
        if len(candidates) > self.max_publishers:
            candidates = dict.fromkeys(vector)
            for publisher in [p for p in self.publishers if p not in vector]:
                self._forget(publisher)
        for publisher in candidates:
            if not self.has_room_for(publisher, now):
                continue
            state = self._get_or_add(publisher, 1, now)
            state.next, state.next_fragment = vector.get(publisher, 0) + 1, 0
            self._skip(publisher, state.next - 1, now)

    def start_without_views(self) -> None:
        """Start each publisher with its first message that arrives (RB6)."""
        self.is_unstarted = self.has_views = False
        self.release_limit = None

    def adjust_for_stall(self, seconds: float) -> None:
        """Account for a stall. Publishers have aged meanwhile and our clock did not advance, so all instants that are
        compared with their ages move back."""
        if self.started_at is not None:
            self.started_at -= seconds
        for state in self.publishers.values():
            state.started_at -= seconds
            state.earlier_reports = [(at - seconds, last) for at, last in state.earlier_reports]

    def skip_history(self, now: float) -> None:
        """Ignore everything that was published before now (RB4)."""
        self.started_at = now

    def lift_limit(self) -> None:
        """Release messages without a limit: the view is installed."""
        self.release_limit = None

    def freeze(self) -> None:
        """Release nothing until `unfreeze`."""
        self.is_frozen = True
        self.release_limit = {p: state.next - 1 for p, state in self.publishers.items()}
        if self.is_unstarted:
            self.heard_before_view = {
                p for p, state in self.publishers.items() if self._has_start_info(state)
            }

    def unfreeze(self, limit: dict[bytes, int] | None) -> None:
        """Release messages again, up to this limit."""
        self.is_frozen = False
        self.release_limit = limit

    def received_sequences(self) -> dict[bytes, int]:
        """Return the last sequence before the first gap of each synced publisher, released or held."""
        synced = [(p, state) for p, state in self.publishers.items() if p not in self.unsynced]
        return {p: sequence for p, state in synced if (sequence := state.last_contiguous())}

    def released_sequences(self) -> dict[bytes, int]:
        """Return the last sequence of each publisher that was released or skipped."""
        return {p: state.next - 1 for p, state in self.publishers.items() if state.next > 1}

    def highest_known_sequences(self) -> dict[bytes, int]:
        """Return the highest known sequence of each publisher."""
        return {p: max(state.highest_known, state.next - 1) for p, state in self.publishers.items()}

    def has_reached(self, cut: Mapping[bytes, int]) -> bool:
        """Return whether everything before the cut was released; publishers beyond our limit are ignored."""
        publishers = self.publishers
        return all(
            p not in publishers or publishers[p].next > sequence for p, sequence in cut.items()
        )

    def has_room_for(self, publisher: bytes, now: float) -> bool:
        """Return whether the publisher is tracked, or there is room for it (RB5)."""
        if publisher in self.publishers:
            return True
        limit = (
            self.max_publishers + MAX_ORDER_PUBLISHERS
            if publisher.startswith(ORDER_PREFIX)
            else self.max_publishers
        )
        if len(self.publishers) >= limit and now >= self._last_idle_scan + 1.0:
            self._last_idle_scan = now  # at most once per second: rejected packets must stay cheap
            for each in [
                p
                for p, state in self.publishers.items()
                if state.is_idle(now - IDLE_PUBLISHER_TIMEOUT_S)
            ]:
                self._forget(each)
        if len(self.publishers) < limit:
            return True
        self.rejected_count += 1
        return False

    # --- queries of the layers ---

    @property
    def skips_history(self) -> bool:
        """Whether messages published before this member started are of no interest (RB4)."""
        return self.started_at is not None

    def is_tracked(self, publisher: bytes) -> bool:
        return publisher in self.publishers

    def is_unsynced(self, publisher: bytes) -> bool:
        """Return whether the start position of this publisher is not known yet (RB4)."""
        return publisher in self.unsynced

    def next_sequence(self, publisher: bytes) -> int | None:
        """Return the next sequence to be released; None if the publisher is not tracked."""
        state = self.publishers.get(publisher)
        return None if state is None else state.next

    def states(self) -> list[tuple[bytes, PublisherState]]:
        """Return the states of all publishers, without those of total orders."""
        return [(p, s) for p, s in self.publishers.items() if not p.startswith(ORDER_PREFIX)]

    def unsynced_in(self, cut: Mapping[bytes, int], is_first_view: bool) -> list[bytes]:
        """Return the publishers whose start positions a view has to set (FI4). In our first view those are all
        that had not been heard before, in a later one those of the cut that are not synced."""
        if is_first_view:
            candidates: Iterable[bytes] = self.publishers
            known: Collection[bytes] = self.heard_before_view
        else:
            candidates, known = cut, self.publishers.keys() - self.unsynced
        return [p for p in candidates if p not in known and not p.startswith(ORDER_PREFIX)]

    def startable(self) -> list[bytes]:
        """Return the unsynced publishers whose start position can be chosen now, sorted."""
        return sorted(filter(self.can_start_with, self.unsynced))

    def overdue(self, now: float, timeout: float) -> list[bytes]:
        """Return the unsynced publishers whose messages have waited for this many seconds."""
        return [p for p, since in self.unsynced_since.items() if now >= since + timeout]

    def is_silent(self, publisher: bytes, now: float, timeout: float) -> bool:
        return now - self.publishers[publisher].heard_at >= timeout

    def surely_started_after(self, publisher: bytes, instant: float) -> bool:
        """Return whether a publisher certainly started later than `instant`. A delayed report makes it look
        younger than it is, so only a reliable age counts."""
        state = self.publishers[publisher]
        return state.started_at > instant and self.is_age_reliable(publisher)

    def first_missing_range(self, publisher: bytes) -> tuple[int, int]:
        return next(self.publishers[publisher].missing_ranges())

    # --- reports about gaps ---

    def note_lacked(
        self, publisher: bytes, spans: list[Span], member: bytes, reported_at: float
    ) -> None:
        """Note that a member has reported to lack these messages, if the first missing one is among them."""
        gap = self.gaps.get(publisher)
        if gap is not None and last_in_span(spans, gap.first_missing):
            gap.lacked_by[member] = (spans, reported_at)

    def note_lost(self, publisher: bytes, spans: list[Span], archive: bytes) -> None:
        """Note that the log of an archive has passed these messages, if the first missing one is among them."""
        gap = self.gaps.get(publisher)
        if gap is not None and last_in_span(spans, gap.first_missing):
            gap.lost_in_archives[archive] = spans

    def note_queue_past(self, publisher: bytes, first_missing: int) -> None:
        """Note that our own queue has passed a gap: the message is not in it (NA2)."""
        gap = self.gaps.get(publisher)
        if gap is not None and gap.first_missing == first_missing:
            gap.is_queue_past = True

    def request_pull(self, publisher: bytes) -> None:
        """Leave the gap of this publisher, if there is one, to PULL."""
        gap = self.gaps.get(publisher)
        if gap is not None:
            gap.needs_pull = True

    # --- receiving ---

    def note_known(self, publisher: bytes, last: int, now: float) -> None:
        """Note that this publisher has published up to `last`, as reported by any source."""
        if self._is_ignored(publisher) or not self.has_room_for(publisher, now):
            return
        state = self._get_or_add(publisher, last + 1 if self.is_unstarted else 1, now)
        if last > state.highest_known:
            state.highest_known = last
            self._update_gap(publisher, state, now)
        if publisher in self.unsynced and last >= state.next:
            self.unsynced_since.setdefault(publisher, now)

    def note_mentioned(self, publisher: bytes, last: int, now: float) -> bool:
        """Note that another member of the view has released messages up to `last`; return whether there is room
        for the publisher (RB5). A new publisher is unsynced until it is heard (RB4)."""
        if not self.has_room_for(publisher, now):
            return False
        self._note_new_publisher(publisher)
        self.note_known(publisher, last, now)
        return True

    def note_status(
        self,
        publisher: bytes,
        last: int,
        age: float,
        now: float,
        earlier: Sequence[tuple[float, int]] = (),
    ) -> None:
        """Note a status report of the publisher itself, with its age and earlier reports."""
        if self._is_ignored(publisher) or not self.has_room_for(publisher, now):
            return
        self._note_new_publisher(publisher)
        self.note_known(publisher, last, now)
        state = self.publishers[publisher]
        if self.is_unstarted and self.started_at is not None and not self._has_start_info(state):
            self._skip(publisher, last, now)
        state.note_age(age, now, self._max_transit_s)
        state.heard_at = state.status_at = now
        state.earlier_reports = earlier if self.is_unstarted or publisher in self.unsynced else ()

    def _is_ignored(self, publisher: bytes) -> bool:
        """Return whether reports about this publisher are ignored (RB6)."""
        return not self.has_views and publisher not in self.publishers

    def _has_start_info(self, state: PublisherState) -> bool:
        """Return whether the publisher has reported its last sequence or, with total order, need not."""
        return self.has_total_order or state.status_at > -inf

    def _note_new_publisher(self, publisher: bytes) -> None:
        """Mark a new publisher as unsynced, if it may be older than us."""
        cautious = self.started_at is not None and not self.is_unstarted
        if cautious and publisher not in self.publishers and not publisher.startswith(ORDER_PREFIX):
            self.unsynced.add(publisher)

    def mark_unsynced(self, publisher: bytes, last: int, now: float) -> None:
        """Mark a publisher as unsynced that other members have up to `last`, and that we have not heard."""
        self.unsynced.add(publisher)
        self._skip(publisher, last, now)
        if self.publishers[publisher].positions:
            self.unsynced_since.setdefault(publisher, now)

    def can_start_with(self, publisher: bytes) -> bool:
        """Return whether the start position of an unsynced publisher can be chosen (RB4). A publisher that
        other members know is not new, so with total order its first message suffices."""
        state = self.publishers[publisher]
        if state.status_at == -inf:
            return self.has_total_order and state.next > 1 and bool(state.positions)
        if self._is_older_than_us(state) or self.is_age_reliable(publisher):
            return True
        return self._start_of_older(state) == state.next - 1  # its age makes no difference

    def choose_start(self, publisher: bytes) -> int:
        """Return the sequence after which to start an unsynced publisher that was heard, or has not reported in
        time."""
        state = self.publishers[publisher]
        if self.is_age_reliable(publisher) and not self._is_older_than_us(state):
            return state.next - 1
        return self._start_of_older(state)

    def _start_of_older(self, state: PublisherState) -> int:
        assert self.started_at is not None
        if self.has_total_order or not self._is_older_than_us(state):
            last = state.positions[0][0] - 1 if state.positions else state.highest_known
        else:
            # Slightly later: a delayed report makes it look younger.
            started_at = self.started_at + self._max_transit_s
            last = next(
                (sequence for at, sequence in state.earlier_reports if at >= started_at),
                state.highest_known,
            )
        return max(last, state.next - 1)

    def _is_older_than_us(self, state: PublisherState) -> bool:
        """Return whether the publisher is certainly older than us: no delay makes it look older than it is."""
        assert self.started_at is not None
        return state.status_at > -inf and state.started_at < self.started_at

    def is_age_reliable(self, publisher: bytes) -> bool:
        """Return whether the start time of this publisher is known."""
        return self.publishers[publisher].is_age_reliable(self._heartbeat_interval)

    def start_with(self, publisher: bytes, last: int, now: float) -> None:
        """Start an unsynced publisher after this sequence."""
        state = self.publishers[publisher]
        if last and state.status_at == -inf and not state.positions:
            self._assumed_starts[publisher] = last
        self.unsynced.discard(publisher)
        self.unsynced_since.pop(publisher, None)
        self._skip(publisher, last, now)

    def has_assumed_start(self, publisher: bytes) -> bool:
        """Return whether the start position is only known from other members, and no message has arrived."""
        last = self._assumed_starts.get(publisher)
        if last is None:
            return False
        state = self.publishers[publisher]
        if state.status_at == -inf and state.next == last + 1 and not state.positions:
            return True
        del self._assumed_starts[publisher]
        return False

    def move_assumed_starts(self, cut: Mapping[bytes, int], now: float) -> list[tuple[bytes, int]]:
        """Move assumed start positions forward to the cut of a view; return those that moved."""
        moved = []
        for publisher in [p for p in list(self._assumed_starts) if self.has_assumed_start(p)]:
            last = cut.get(publisher, 0)
            if last > self._assumed_starts[publisher]:
                self._assumed_starts[publisher] = last
                self._skip(publisher, last, now)
                moved.append((publisher, last))
        return moved

    def receive(self, item: ReceivedItem, now: float) -> list[ReceivedItem]:
        """Add a received item; return the items that may be released now."""
        publisher = item.publisher
        first = item.first if isinstance(item, MessageBatch) else item.sequence
        last = item.last if isinstance(item, MessageBatch) else item.sequence
        state = self.publishers.get(publisher)
        if state is None:
            if not self.has_room_for(publisher, now):
                return []
            self._note_new_publisher(publisher)
            state = self._get_or_add(publisher, self._first_expected(item), now)
        state.heard_at = now
        if last > state.highest_known:
            state.highest_known = last
        if (
            isinstance(item, MessageBatch)
            and first == state.next
            and not state.held
            and self.release_limit is None
            and publisher not in self.unsynced
        ):
            state.next, state.next_fragment = last + 1, 0
            state.contiguous_end = (state.next, 0)
            if publisher in self.gaps or state.highest_known > last:
                self._update_gap(publisher, state, now)
            return [item]
        if publisher in self.unsynced:
            self.unsynced_since.setdefault(publisher, now)
        self._insert(state, item)
        return self.release(publisher, now)

    def _first_expected(self, item: ReceivedItem) -> int:
        """Return the sequence at which to start the publisher of this item, its first one that arrives."""
        if self.has_views and not self.is_unstarted:
            return 1
        if isinstance(item, MessageBatch):
            return item.first
        # Fragments that a broker sent before we joined are not sent again.
        is_incomplete = self.has_total_order and not self.has_views and item.index > 0
        return item.sequence + is_incomplete

    def release(self, publisher: bytes, now: float) -> list[ReceivedItem]:
        """Return the items of this publisher that may be released now."""
        state = self.publishers[publisher]
        limit = None if self.release_limit is None else self.release_limit.get(publisher, 0)
        ready: list[ReceivedItem] = []
        while state.positions and publisher not in self.unsynced:
            position = state.positions[0]
            if position > (state.next, state.next_fragment) or (
                limit is not None and state.next > limit
            ):
                break
            item = state.held[position]
            if isinstance(item, FragmentReleased):
                self._remove_held(state, 0)
                if position == (state.next, state.next_fragment):
                    ready.append(item)
                    is_complete = item.index + 1 == item.count
                    state.next, state.next_fragment = (
                        (state.next + 1, 0)
                        if is_complete
                        else (state.next, state.next_fragment + 1)
                    )
                continue
            last = item.last if limit is None else min(item.last, limit)
            if last >= state.next:
                ready.append(item.clip(state.next, last))
                state.next, state.next_fragment = last + 1, 0
            if state.next > item.last:
                self._remove_held(state, 0)
        self._update_gap(publisher, state, now)
        return ready

    def close_gap(self, publisher: bytes, last: int, now: float) -> LostRange | None:
        """Skip missing messages up to `last`, as far as the limit allows; return the lost range, or None."""
        state = self.publishers[publisher]
        if self.release_limit is not None:
            last = min(last, self.release_limit.get(publisher, 0))
        first = state.last_contiguous() + 1
        if last < first:
            return None
        if state.next < first:  # received messages before the gap are not released yet
            return None
        self._skip(publisher, last, now)
        return LostRange(publisher, first, last)

    def skip_foreign_orders(self, cut: Mapping[bytes, int], own: bytes, now: float) -> None:
        """Forget orders of earlier views, and skip positions of orders of views that we were not in."""
        for publisher in list(self.publishers):
            if publisher.startswith(ORDER_PREFIX) and publisher != own:
                self._forget(publisher)
        for publisher, sequence in cut.items():
            foreign = publisher.startswith(ORDER_PREFIX) and publisher != own
            if foreign and self.has_room_for(publisher, now):
                self._skip(publisher, sequence, now)

    def find_held(self, publisher: bytes, first: int, last: int) -> list[MessageBatch]:
        """Return the held messages within first..last."""
        state = self.publishers.get(publisher)
        if state is None:
            return []
        items = [state.held[position] for position in state.positions]
        return [
            item.clip(first, last)
            for item in items
            if isinstance(item, MessageBatch) and item.first <= last and item.last >= first
        ]

    # --- internals ---

    def _get_or_add(self, publisher: bytes, next_: int, now: float) -> PublisherState:
        state = self.publishers.get(publisher)
        if state is None:
            state = self.publishers[publisher] = PublisherState(next_, now)
        return state

    def _forget(self, publisher: bytes) -> None:
        state = self.publishers.pop(publisher)
        self.gaps.pop(publisher, None)
        self.unsynced.discard(publisher)
        self.unsynced_since.pop(publisher, None)
        self._assumed_starts.pop(publisher, None)
        self._held_bytes -= sum(map(buffered_size, state.held.values()))

    def _skip(self, publisher: bytes, last: int, now: float) -> None:
        state = self._get_or_add(publisher, 1, now)
        if last >= state.next:
            state.next, state.next_fragment = last + 1, 0
        state.highest_known = max(state.highest_known, last)
        while state.positions and self._item_end(state, 0) < state.next:
            self._remove_held(state, 0)
        state.recompute_contiguous()
        self._update_gap(publisher, state, now)

    def _item_end(self, state: PublisherState, i: int) -> int:
        item = state.held[state.positions[i]]
        return item.last if isinstance(item, MessageBatch) else item.sequence

    def _insert(self, state: PublisherState, item: ReceivedItem) -> None:
        if isinstance(item, MessageBatch):
            position, end = (item.first, 0), item.last
        else:
            position, end = (item.sequence, item.index), item.sequence
        if end < state.next or (
            isinstance(item, FragmentReleased) and position < (state.next, state.next_fragment)
        ):
            return
        old = state.held.get(position)
        if old is not None:
            if isinstance(old, MessageBatch) and (
                isinstance(item, FragmentReleased) or old.last >= item.last
            ):
                return
            self._remove_held(state, bisect_left(state.positions, position))
        state.held[position] = item
        insort(state.positions, position)
        self._held_bytes += buffered_size(item)
        if position <= state.contiguous_end:
            state.extend_contiguous(item)
        if self._held_bytes > self._max_bytes:
            while self._held_bytes > self._max_bytes and state.positions:
                self._remove_held(state, len(state.positions) - 1)
            state.recompute_contiguous()

    def _remove_held(self, state: PublisherState, i: int) -> None:
        position = state.positions.pop(i)
        self._held_bytes -= buffered_size(state.held.pop(position))

    def _update_gap(self, publisher: bytes, state: PublisherState, now: float) -> None:
        """Update `gaps`. Before the start nothing is missing: the first view defines the start positions."""
        if state.contiguous_end < (state.next, state.next_fragment):
            state.contiguous_end = (state.next, state.next_fragment)
        at = state.last_contiguous() + 1
        if self.is_unstarted or publisher in self.unsynced or at > state.highest_known:
            self.gaps.pop(publisher, None)
            state.reports.clear()
            return
        gap, since = self.gaps.get(publisher), state.known_since(at, now)
        if gap is None or gap.first_missing != at:
            self.gaps[publisher] = following = MessageGap(at, since)
            if gap is not None:
                following.inherit(gap)

    def is_gap_inner(self, publisher: bytes) -> bool:
        """Return whether a message after the gap has arrived."""
        state = self.publishers[publisher]
        return bool(state.positions) and state.positions[-1] > state.contiguous_end

    def missing_ranges(self, publisher: bytes, max_ranges: int) -> list[MessageRange]:
        ranges = []
        for first, last in self.publishers[publisher].missing_ranges():
            ranges.append(MessageRange(publisher, first, last))
            if len(ranges) == max_ranges:
                break
        return ranges

    def check(self) -> None:
        """Assert RB1–RB3 and RB5, as far as they are visible at rest."""
        total = 0
        assert sum(not p.startswith(ORDER_PREFIX) for p in self.publishers) <= self.max_publishers
        assert self.publishers.keys() >= self.unsynced >= self.unsynced_since.keys()
        for publisher, state in self.publishers.items():
            assert state.positions == sorted(state.held)
            total += sum(map(buffered_size, state.held.values()))
            assert (publisher in self.gaps) == (
                not (self.is_unstarted or publisher in self.unsynced)
                and state.last_contiguous() < state.highest_known
            ), "a gap is noted while there is one"
        assert total == self._held_bytes <= self._max_bytes
