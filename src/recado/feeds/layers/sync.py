"""SYNC: integrates a subscriber that returns. What it missed comes from an archive, then what came live
meanwhile.

It joins first. The first view that it shares with an archive has a cut: everything before the cut is for the
archive to send and to classify, everything behind it comes live and is held until then. So the two meet
without gap or double, however far the archive lags behind.

S1  Of each publisher what passes up goes on from where recovery began, without gap or double; before that come
    messages out of the holes of the vector that it began with.
S2  Nothing live passes before all that is before it has been recovered.
S3  What is held is bounded: if it is too much it is let go, and recovered from the archive too.
S4  The archive keeps nothing about who recovers: each question says all that is needed, so any archive can go
    on.
S5  The cut of the view that one returns in may be behind what the last life was given. Where the archive begins
    the recovery, what comes live is marked as uncertain until an archive has told how far earlier lives can
    have come, and up to there.
S6  What one archive has recorded as lost another may have: it is passed over only if all archives in the view
    say so, and is then a hole in the vector.
S7  Without one order for all, an archive that does not name a publisher may not have heard it yet. What comes
    of that one is uncertain too, unless it certainly began after us, when all earlier lives were over.
S8  A question keeps its number until an answer to it is taken, from any archive. So an answer is of use even if
    it takes longer than the time after which the question is repeated.
"""

from collections import deque

import msgspec

from ..block import MalformedDataError
from ..boundary import MessageBatch, RecoveryPolicy, ReportFailure, ReportRecovered
from ..layer import (
    BatchReleased,
    DeliveryStarted,
    Layer,
    MemberContext,
    MessagesLost,
    PacketReceived,
    UpEvent,
    ViewInstalled,
)
from ..packet import (
    DeliveryBound,
    DeliveryBoundRequest,
    RecoveryOffer,
    RecoveryReply,
    RecoveryRequest,
)
from ..vector import Span, Vector, clip_spans, subtract_span
from ..views import UNBOUNDED, Certainty, LostRange, MemberId
from ..wire import decode_batch
from .receive_buffer import ORDER_PREFIX, ReceiveBuffer

HeldEvent = BatchReleased | MessagesLost | ViewInstalled
SILENT_PUBLISHER_INTERVAL_S = 60.0  # seconds between questions about publishers that are silent


class SyncLayer(Layer):
    def __init__(self, context: MemberContext, receive_buffer: ReceiveBuffer) -> None:
        super().__init__(context)
        self.receive_buffer = receive_buffer
        self._started_at = 0.0
        self._is_live = False
        self._has_joined = False
        self._has_archive_cut = False  # in a view with an archive
        self._recovery_target: dict[bytes, int] = {}
        self._recovered: dict[bytes, int] | None = None
        self._holes: dict[bytes, list[Span]] = {}  # of the vector that it began with
        self._reported_missing: dict[bytes, dict[MemberId, int]] = {}
        """Of whom archives lack what comes next: which, and up to where (S6)."""
        self._held: deque[HeldEvent] = deque()
        self._held_bytes = 0
        self._archive: MemberId | None = None
        self._offset = 0
        self._request_number = 0  # of the question; a repetition has the same (S8)
        self._attempt = 0
        self._next_request: float | None = None
        self._last_reply_at = 0.0  # when an archive was last heard
        self._delivery_bound: dict[bytes, int] | None = (
            None  # of what earlier lives can have been given
        )
        self._unnamed_publishers: set[bytes] = (
            set()
        )  # of whom something came, and no archive has told (S7)
        self._marks_uncertain = context.options.recovery in (
            RecoveryPolicy.PESSIMISTIC,
            RecoveryPolicy.ARCHIVE,
        )
        self._next_bound_request: float | None = None
        self._bound_requests = 0
        self._bound_request_interval = context.options.retry_interval

    def start(self, now: float) -> None:
        self._started_at = now

    def adjust_for_stall(self, seconds: float) -> None:
        self._started_at -= seconds

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case ViewInstalled(record) if not self._has_joined:
                self._handle_first_view(event, now)
            case ViewInstalled(record) if (
                not (self._is_live or self._has_archive_cut) and record.view.archive_members()
            ):
                self._handle_archive_view(event)
            case BatchReleased() | MessagesLost() | ViewInstalled():
                if self._is_live:
                    self._deliver_live(event, now)
                else:
                    self._hold(event)
            case PacketReceived(_, sender, RecoveryReply() as answer):
                if not self._is_live and answer.request_number == self._request_number:
                    self._request_number += 1
                    self._archive = sender
                    self._handle_reply(sender, answer, now)
            case PacketReceived(_, _, DeliveryBound(vector)):
                self._delivery_bound = vector
                self._unnamed_publishers -= vector.keys()
                if UNBOUNDED not in vector.values() and not self._unnamed_publishers:
                    self._next_bound_request = None
            case PacketReceived(_, sender, RecoveryOffer(start)):
                if self._waits_for_offer():
                    self._start_delivery(start, now)
                    self._request_number += 1
                    self._archive = sender
                    self._request_recovery(now)
            case _:
                self._pass_up(event, now)

    # --- joining ---

    def _handle_first_view(self, event: ViewInstalled, now: float) -> None:
        self._has_joined = True
        options = self.context.options
        cut = _remove_orders(event.record.cut)
        if options.recovery is RecoveryPolicy.NONE:
            self._start_delivery(Vector(cut), now)
            self._is_live = True
            self.context.effects.append(ReportRecovered(Vector(cut)))
            self._pass_up(event, now)
            return
        self._recovery_target = cut
        self._last_reply_at = now
        self._next_bound_request = now if self._marks_uncertain else None
        self._hold(event)
        self._has_archive_cut = bool(event.record.view.archive_members())
        if options.recovery is RecoveryPolicy.VECTOR:
            self._start_delivery(options.start_vector, now)
        # An archive that begins by itself is given a little time to do so.
        patient = options.recovery is RecoveryPolicy.ARCHIVE
        self._next_request = now + 5 * options.retry_interval if patient else now

    def _handle_archive_view(self, event: ViewInstalled) -> None:
        """What came so far came without an archive. It is before this cut, so the archive has it or will."""
        self._has_archive_cut = True
        self._recovery_target = _remove_orders(event.record.cut)
        self._held = deque(held for held in self._held if isinstance(held, ViewInstalled))
        self._held_bytes = 0
        self._hold(event)

    def _waits_for_offer(self) -> bool:
        archive = self.context.options.recovery is RecoveryPolicy.ARCHIVE
        return archive and self._has_joined and not self._is_live and self._recovered is None

    def _start_delivery(self, start: Vector, now: float) -> None:
        self._recovered = dict(start)
        self._holes = {publisher: list(spans) for publisher, spans in start.holes.items()}
        self._pass_up(DeliveryStarted(start), now)

    # --- asking ---

    def _request_recovery(self, now: float) -> None:
        options = self.context.options
        self._next_request = now + 5 * options.retry_interval
        archives = self._archive_members()
        if not archives or not self._has_archive_cut:
            return
        if self.context.is_inbox_full:  # by us, not by the archive, so its time does not run
            self._next_request, self._last_reply_at = now + options.retry_interval / 10, now
            return
        if self._archive not in archives:
            self._archive = archives[self._attempt % len(archives)]
            self._offset = 0
        after = None if self._recovered is None else Vector(self._recovered, self._holes)
        self.send(RecoveryRequest(self._request_number, after, self._offset), self._archive, now)

    def _request_bound(self, now: float) -> None:
        archives = self._archive_members()
        if archives:
            self.send(DeliveryBoundRequest(), archives[self._bound_requests % len(archives)], now)
        self._bound_requests += 1
        longest = (
            10 * self.context.options.retry_interval
            if self._delivery_bound is None
            else SILENT_PUBLISHER_INTERVAL_S
        )
        self._bound_request_interval = min(2 * self._bound_request_interval, longest)
        self._next_bound_request = now + self._bound_request_interval

    def tick(self, now: float) -> None:
        if self._next_bound_request is not None and now >= self._next_bound_request:
            self._request_bound(now)
        if self._is_live or self._next_request is None or now < self._next_request:
            return
        options = self.context.options
        if now - self._last_reply_at >= options.recovery_timeout:
            self._handle_timeout(now)
            return
        if now - self._last_reply_at >= 10 * options.retry_interval:
            self._attempt += 1
            self._archive = None
        self._request_recovery(now)

    def _handle_timeout(self, now: float) -> None:
        options = self.context.options
        if options.live_without_archive:
            if self._recovered is None:
                self._start_delivery(Vector(self._recovery_target), now)
            for publisher, last in self._recovery_target.items():
                self._skip(publisher, last, now)
            self._finish_if_complete(now)
            return
        self._next_request = None
        self.context.has_failed = True
        reason = (
            f"no archive of the feed has answered for {options.recovery_timeout:g} s: start one, or subscribe "
            "without recovery"
        )
        self.context.effects.append(ReportFailure(reason, is_recovery=True))

    def deadline(self) -> float | None:
        if self._is_live or self._next_request is None:
            return self._next_bound_request
        return (
            self._next_request
            if self._next_bound_request is None
            else min(self._next_request, self._next_bound_request)
        )

    # --- taking ---

    def _handle_reply(self, sender: MemberId, answer: RecoveryReply, now: float) -> None:
        self._last_reply_at = now
        if self._recovered is None:
            self._start_delivery(answer.start or Vector(), now)
        for part in answer.batches:
            try:
                self._deliver_recovered(sender, decode_batch(part), now)
            except MalformedDataError:
                self.context.malformed_count += 1
                return
        self._offset = answer.offset
        if answer.has_more:
            self._request_recovery(now)
            return
        self._close_reached(sender, answer.reached, now)
        self._next_request = now + self.context.options.retry_interval
        if self._switch_archive(sender):
            self._request_recovery(now)
            return
        self._finish_if_complete(now)

    def _deliver_recovered(self, sender: MemberId, batch: MessageBatch, now: float) -> None:
        assert self._recovered is not None
        publisher = batch.publisher
        for part in self._take_from_holes(batch):
            self._pass_up(BatchReleased(part), now)
        last = min(batch.last, self._recovery_target.get(publisher, 0))
        if last <= self._recovered.get(publisher, 0) or last < batch.first:
            return
        if not self._skip_if_lost(sender, publisher, batch.first - 1, now):
            return
        self._pass_up(BatchReleased(batch.clip(self._recovered.get(publisher, 0) + 1, last)), now)
        self._recovered[publisher] = last
        self._reported_missing.pop(publisher, None)

    def _take_from_holes(self, batch: MessageBatch) -> list[MessageBatch]:
        """The parts of it that were passed over before we began."""
        publisher = batch.publisher
        spans = self._holes.get(publisher)
        if spans is None:
            return []
        parts = [batch.clip(*span) for span in clip_spans(spans, batch.first, batch.last)]
        self._holes[publisher] = subtract_span(spans, batch.first, batch.last)
        if not self._holes[publisher]:
            del self._holes[publisher]
        return parts

    def _close_reached(self, sender: MemberId, reached: dict[bytes, int], now: float) -> None:
        """The archive has told all that it has up to `reached`: what is still missing it does not have."""
        for publisher, wanted in self._recovery_target.items():
            self._skip_if_lost(sender, publisher, min(wanted, reached.get(publisher, 0)), now)

    def _skip_if_lost(self, sender: MemberId, publisher: bytes, last: int, now: float) -> bool:
        """An archive lacks what comes next, up to `last`: it is passed over as far as all archives do (S6).
        Whether that is all of it."""
        assert self._recovered is not None
        if last <= self._recovered.get(publisher, 0):
            return True
        denied = self._reported_missing.setdefault(publisher, {})
        denied[sender] = last
        agreed = min((denied.get(each, 0) for each in self._archive_members()), default=0)
        self._skip(publisher, agreed, now)
        return self._recovered.get(publisher, 0) >= last

    def _skip(self, publisher: bytes, last: int, now: float) -> None:
        assert self._recovered is not None
        done = self._recovered.get(publisher, 0)
        if last > done:
            self._pass_up(MessagesLost(LostRange(publisher, done + 1, last)), now)
            self._recovered[publisher] = last
            self._reported_missing.pop(publisher, None)

    def _archive_members(self) -> list[MemberId]:
        return (
            self.context.agreed_view.archive_members()
            if self.context.agreed_view is not None
            else []
        )

    def _switch_archive(self, sender: MemberId) -> bool:
        """Whether there is an archive that may have what this one lacks; it is asked next."""
        for denied in self._reported_missing.values():
            for archive in self._archive_members():
                if sender in denied and archive not in denied:
                    self._archive, self._offset = archive, 0
                    return True
        return False

    def _finish_if_complete(self, now: float) -> None:
        done = self._recovered
        assert done is not None
        if any(done.get(publisher, 0) < last for publisher, last in self._recovery_target.items()):
            return
        self._is_live = True
        self._next_request = None
        self.context.effects.append(ReportRecovered(Vector(done, self._holes)))
        while self._held:
            self._deliver_live(self._held.popleft(), now)
        self._held_bytes = 0

    # --- what comes live ---

    def _hold(self, event: HeldEvent) -> None:
        self._held.append(event)
        if isinstance(event, BatchReleased):
            self._held_bytes += 200 + len(event.batch.block.data)
        if self._held_bytes > self.context.options.buffer_bytes:
            for held in self._held:
                if isinstance(held, BatchReleased):
                    self._recovery_target[held.batch.publisher] = held.batch.last
                elif isinstance(held, MessagesLost):
                    self._recovery_target[held.lost.publisher] = held.lost.last
            self._held = deque(held for held in self._held if isinstance(held, ViewInstalled))
            self._held_bytes = 0

    def _deliver_live(self, event: HeldEvent, now: float) -> None:
        """Live, except for what the application's own vector had already."""
        assert self._recovered is not None
        if isinstance(event, BatchReleased):
            batch = event.batch
            for hole in self._take_from_holes(batch):
                for part in self._mark_uncertain(hole, now):
                    self._pass_up(BatchReleased(part), now)
            done = self._recovered.get(batch.publisher)
            if done is not None and batch.first <= done:
                if batch.last <= done:
                    return
                batch = batch.clip(done + 1, batch.last)
            for part in self._mark_uncertain(batch, now):
                self._pass_up(BatchReleased(part), now)
            return
        if isinstance(event, MessagesLost):
            lost = event.lost
            done = self._recovered.get(lost.publisher, 0)
            if lost.last <= done:
                return
            event = MessagesLost(LostRange(lost.publisher, max(lost.first, done + 1), lost.last))
        self._pass_up(event, now)

    def _mark_uncertain(self, batch: MessageBatch, now: float) -> list[MessageBatch]:
        """S5."""
        if not self._marks_uncertain:
            return [batch]
        last = min(batch.last, self._max_delivered_earlier(batch.publisher, now))
        if last < batch.first:
            return [batch]
        doubtful = batch.clip(batch.first, last)
        marked = [msgspec.structs.replace(doubtful, certainty=Certainty.UNCERTAIN)]
        return [*marked, batch.clip(last + 1, batch.last)] if last < batch.last else marked

    def _max_delivered_earlier(self, publisher: bytes, now: float) -> int:
        """What earlier lives can have been given of it."""
        if self._delivery_bound is None:
            return UNBOUNDED
        named = self._delivery_bound.get(publisher)
        if named is not None:
            return named
        if self.context.options.has_total_order or self._started_after_us(publisher):
            return 0
        if publisher not in self._unnamed_publishers:
            self._unnamed_publishers.add(publisher)
            self._bound_request_interval = self.context.options.retry_interval
            self._next_bound_request = now
        return UNBOUNDED

    def _started_after_us(self, publisher: bytes) -> bool:
        """What was under way when it told its age makes it look younger than it is."""
        state = self.receive_buffer.publishers[publisher]
        is_later = state.started_at > self._started_at + self.context.options.failure_timeout
        return is_later and self.receive_buffer.is_age_reliable(publisher)


def _remove_orders(cut: Vector) -> dict[bytes, int]:
    return {p: s for p, s in cut.items() if not p.startswith(ORDER_PREFIX)}
