"""SYNC: integrates a returning subscriber. Missed messages come from an archive, then live ones follow.

The subscriber joins first. The first view that it shares with an archive has a cut: messages before the cut are
sent and classified by the archive; live messages after it are held back until then. So both parts meet without
a gap or duplicates, however far the archive lags behind.

FY1  Messages of each publisher are passed up without gaps or duplicates from where recovery began; messages
     that fill holes of the start vector come before.
FY2  No live message is passed up before everything before it has been recovered.
FY3  The buffer of held messages is bounded: on overflow they are dropped and recovered from the archive, too.
FY4  Archives keep no state about recoveries: each request is self-contained, so any archive can continue.
FY5  The last incarnation of a subscriber may have received messages after the cut of the view in which the
     subscriber returns. So with the recovery policies PESSIMISTIC and ARCHIVE, live messages are marked as
     uncertain: all of them until an archive has reported the delivery bound of earlier incarnations (SB1), then
     those up to that bound.
FY6  A message that one archive has recorded as lost may be in another one: it is skipped only if all archives
     in the view report it as lost, and is then a hole in the vector.
FY7  Without total order, an archive whose bound does not contain a publisher may not have heard it yet.
     Messages of that publisher are uncertain too, unless it certainly started later than
     `failure_timeout` after us, when all earlier incarnations had ended.
FY8  A request keeps its number until a reply to it arrives, from any archive. So a reply is useful even if it
     arrives after the request was repeated.
"""

from collections import deque
from enum import Enum

import msgspec

from ..block import MalformedDataError
from ..boundary import MessageBatch, ReportFailure, ReportRecovered
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
from ..options import RecoveryPolicy
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
SILENT_PUBLISHER_INTERVAL_S = 60.0  # between requests about silent publishers


class SyncPhase(Enum):
    """How far a subscriber has come. Its phases only go forward."""

    AWAIT_VIEW = "await view"
    """It is in no view yet."""
    AWAIT_ARCHIVE = "await archive"
    """It is in a view, but no view so far had an archive: live messages are held."""
    RECOVERING = "recovering"
    """Messages before the cut of a view with an archive are requested; live ones are held."""
    LIVE = "live"
    """Everything before was recovered, or is not wanted: live messages are passed up."""


class SyncLayer(Layer):
    def __init__(self, context: MemberContext, receive_buffer: ReceiveBuffer) -> None:
        super().__init__(context)
        self.receive_buffer = receive_buffer
        self._started_at = 0.0
        self._phase = SyncPhase.AWAIT_VIEW
        self._recovery_target: dict[bytes, int] = {}
        """Last sequence of each publisher that is recovered from an archive; later ones come live."""
        self._recovered: dict[bytes, int] | None = None
        """Last sequence passed up of each publisher; None until the start vector is known. The application
        passes it (VECTOR), an archive offers it (ARCHIVE) or sends it with its first reply."""
        self._holes: dict[bytes, list[Span]] = {}  # of the start vector
        self._reported_missing: dict[bytes, dict[MemberId, int]] = {}
        """Archives that lack the next messages of a publisher, and up to where (FY6)."""
        self._held: deque[HeldEvent] = deque()
        self._held_bytes = 0
        self._archive: MemberId | None = None
        self._offset = 0
        self._request_number = 0  # a repeated request has the same number (FY8)
        self._attempt = 0
        self._next_request: float | None = None
        self._last_reply_at = 0.0  # last reply of any archive
        self._delivery_bound: dict[bytes, int] | None = None
        """Last sequences that earlier incarnations can have received, by an archive's report (FY5)."""
        self._unnamed_publishers: set[bytes] = set()
        """Publishers with messages that the bound does not contain (FY7)."""
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
            case ViewInstalled() if self._phase is SyncPhase.AWAIT_VIEW:
                self._handle_first_view(event, now)
            case ViewInstalled(record) if (
                self._phase is SyncPhase.AWAIT_ARCHIVE and record.view.archive_members()
            ):
                self._handle_archive_view(event)
            case BatchReleased() | MessagesLost() | ViewInstalled():
                if self._phase is SyncPhase.LIVE:
                    self._deliver_live(event, now)
                else:
                    self._hold(event)
            case PacketReceived(_, sender, RecoveryReply() as reply):
                is_expected = reply.request_number == self._request_number
                if self._phase is not SyncPhase.LIVE and is_expected:
                    self._request_number += 1
                    self._archive = sender
                    self._handle_reply(sender, reply, now)
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
        options = self.context.options
        cut = _remove_orders(event.record.cut)
        if options.recovery is RecoveryPolicy.NONE:
            self._start_delivery(Vector(cut), now)
            self._phase = SyncPhase.LIVE
            self.context.effects.append(ReportRecovered(Vector(cut)))
            self._pass_up(event, now)
            return
        self._recovery_target = cut
        self._last_reply_at = now
        self._next_bound_request = now if self._marks_uncertain else None
        has_archive = bool(event.record.view.archive_members())
        self._phase = SyncPhase.RECOVERING if has_archive else SyncPhase.AWAIT_ARCHIVE
        self._hold(event)
        if options.recovery is RecoveryPolicy.VECTOR:
            self._start_delivery(options.start_vector, now)
        # With RecoveryPolicy.ARCHIVE the archive is given some time to start.
        awaits_offer = options.recovery is RecoveryPolicy.ARCHIVE
        self._next_request = now + 5 * options.retry_interval if awaits_offer else now

    def _handle_archive_view(self, event: ViewInstalled) -> None:
        """Start recovery in the first view with an archive. The held messages are dropped: they are before this
        cut, so an archive has them or will have them."""
        self._phase = SyncPhase.RECOVERING
        self._recovery_target = _remove_orders(event.record.cut)
        self._held = deque(held for held in self._held if isinstance(held, ViewInstalled))
        self._held_bytes = 0
        self._hold(event)

    def _waits_for_offer(self) -> bool:
        if self.context.options.recovery is not RecoveryPolicy.ARCHIVE:
            return False
        is_recovering = self._phase in (SyncPhase.AWAIT_ARCHIVE, SyncPhase.RECOVERING)
        return is_recovering and self._recovered is None

    def _start_delivery(self, start: Vector, now: float) -> None:
        self._recovered = dict(start)
        self._holes = {publisher: list(spans) for publisher, spans in start.holes.items()}
        self._pass_up(DeliveryStarted(start), now)

    # --- requesting ---

    def _request_recovery(self, now: float) -> None:
        options = self.context.options
        self._next_request = now + 5 * options.retry_interval
        archives = self.context.archive_members()
        if not archives or self._phase is not SyncPhase.RECOVERING:
            return
        if self.context.is_inbox_full:  # our own backpressure: the archive's timeout does not run
            self._next_request, self._last_reply_at = now + options.retry_interval / 10, now
            return
        if self._archive not in archives:
            self._archive = archives[self._attempt % len(archives)]
            self._offset = 0
        after = None if self._recovered is None else Vector(self._recovered, self._holes)
        self.send(RecoveryRequest(self._request_number, after, self._offset), self._archive, now)

    def _request_bound(self, now: float) -> None:
        archives = self.context.archive_members()
        if archives:
            self.send(DeliveryBoundRequest(), archives[self._bound_requests % len(archives)], now)
        self._bound_requests += 1
        longest_interval = (
            10 * self.context.options.retry_interval
            if self._delivery_bound is None
            else SILENT_PUBLISHER_INTERVAL_S
        )
        self._bound_request_interval = min(2 * self._bound_request_interval, longest_interval)
        self._next_bound_request = now + self._bound_request_interval

    def tick(self, now: float) -> None:
        if self._next_bound_request is not None and now >= self._next_bound_request:
            self._request_bound(now)
        if self._phase is SyncPhase.LIVE or self._next_request is None or now < self._next_request:
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
            f"no archive of the feed has answered for {options.recovery_timeout:g} s "
            "(recovery_timeout): start one, or subscribe without recovery"
        )
        self.context.effects.append(ReportFailure(reason, is_recovery=True))

    def deadline(self) -> float | None:
        if self._phase is SyncPhase.LIVE or self._next_request is None:
            return self._next_bound_request
        return (
            self._next_request
            if self._next_bound_request is None
            else min(self._next_request, self._next_bound_request)
        )

    # --- recovering ---

    def _handle_reply(self, sender: MemberId, reply: RecoveryReply, now: float) -> None:
        self._last_reply_at = now
        if self._recovered is None:
            self._start_delivery(reply.start or Vector(), now)
        for encoded in reply.batches:
            try:
                self._deliver_recovered(sender, decode_batch(encoded), now)
            except MalformedDataError:
                self.context.malformed_count += 1
                return
        self._offset = reply.offset
        if reply.has_more:
            self._request_recovery(now)
            return
        self._close_reached(sender, reply.reached, now)
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
        """Return the parts of the batch that fill holes of the start vector."""
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
        """Note that the archive has sent all its messages up to `reached`: it lacks those still missing."""
        for publisher, target in self._recovery_target.items():
            self._skip_if_lost(sender, publisher, min(target, reached.get(publisher, 0)), now)

    def _skip_if_lost(self, sender: MemberId, publisher: bytes, last: int, now: float) -> bool:
        """Note that an archive lacks the next messages, up to `last`; skip them as far as all archives do
        (FY6). Return whether that is all of them."""
        assert self._recovered is not None
        if last <= self._recovered.get(publisher, 0):
            return True
        reported_by = self._reported_missing.setdefault(publisher, {})
        reported_by[sender] = last
        agreed = min(
            (reported_by.get(each, 0) for each in self.context.archive_members()), default=0
        )
        self._skip(publisher, agreed, now)
        return self._recovered.get(publisher, 0) >= last

    def _skip(self, publisher: bytes, last: int, now: float) -> None:
        assert self._recovered is not None
        recovered = self._recovered.get(publisher, 0)
        if last > recovered:
            self._pass_up(MessagesLost(LostRange(publisher, recovered + 1, last)), now)
            self._recovered[publisher] = last
            self._reported_missing.pop(publisher, None)

    def _switch_archive(self, sender: MemberId) -> bool:
        """Choose an archive that may have what this one lacks; return whether there is one."""
        for reported_by in self._reported_missing.values():
            for archive in self.context.archive_members():
                if sender in reported_by and archive not in reported_by:
                    self._archive, self._offset = archive, 0
                    return True
        return False

    def _finish_if_complete(self, now: float) -> None:
        recovered = self._recovered
        assert recovered is not None
        if any(
            recovered.get(publisher, 0) < last for publisher, last in self._recovery_target.items()
        ):
            return
        self._phase = SyncPhase.LIVE
        self._next_request = None
        self.context.effects.append(ReportRecovered(Vector(recovered, self._holes)))
        while self._held:
            self._deliver_live(self._held.popleft(), now)
        self._held_bytes = 0

    # --- live messages ---

    def _hold(self, event: HeldEvent) -> None:
        self._held.append(event)
        if isinstance(event, BatchReleased):
            # 200: estimated memory of a batch beyond its data
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
        """Pass live events up, without messages that the application's own vector contains."""
        assert self._recovered is not None
        if isinstance(event, BatchReleased):
            batch = event.batch
            for hole in self._take_from_holes(batch):
                for part in self._mark_uncertain(hole, now):
                    self._pass_up(BatchReleased(part), now)
            recovered = self._recovered.get(batch.publisher)
            if recovered is not None and batch.first <= recovered:
                if batch.last <= recovered:
                    return
                batch = batch.clip(recovered + 1, batch.last)
            for part in self._mark_uncertain(batch, now):
                self._pass_up(BatchReleased(part), now)
            return
        if isinstance(event, MessagesLost):
            lost = event.lost
            recovered = self._recovered.get(lost.publisher, 0)
            if lost.last <= recovered:
                return
            event = MessagesLost(
                LostRange(lost.publisher, max(lost.first, recovered + 1), lost.last)
            )
        self._pass_up(event, now)

    def _mark_uncertain(self, batch: MessageBatch, now: float) -> list[MessageBatch]:
        """Return the batch in parts: messages up to the delivery bound are marked as uncertain (FY5)."""
        if not self._marks_uncertain:
            return [batch]
        last = min(batch.last, self._max_delivered_earlier(batch.publisher, now))
        if last < batch.first:
            return [batch]
        uncertain = batch.clip(batch.first, last)
        marked = [msgspec.structs.replace(uncertain, certainty=Certainty.UNCERTAIN)]
        return [*marked, batch.clip(last + 1, batch.last)] if last < batch.last else marked

    def _max_delivered_earlier(self, publisher: bytes, now: float) -> int:
        """Return up to which sequence earlier incarnations may have received messages of this publisher."""
        if self._delivery_bound is None:
            return UNBOUNDED
        bound = self._delivery_bound.get(publisher)
        if bound is not None:
            return bound
        if self.context.options.has_total_order or self._started_after_us(publisher):
            return 0
        if publisher not in self._unnamed_publishers:
            self._unnamed_publishers.add(publisher)
            self._bound_request_interval = self.context.options.retry_interval
            self._next_bound_request = now
        return UNBOUNDED

    def _started_after_us(self, publisher: bytes) -> bool:
        """Return whether the publisher certainly started later than `failure_timeout` after us, when our earlier
        incarnations had ended (FY7)."""
        instant = self._started_at + self.context.options.failure_timeout
        return self.receive_buffer.surely_started_after(publisher, instant)


def _remove_orders(cut: Vector) -> dict[bytes, int]:
    return {p: s for p, s in cut.items() if not p.startswith(ORDER_PREFIX)}
