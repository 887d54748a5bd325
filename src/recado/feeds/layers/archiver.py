"""ARCHIVER: stores all messages that pass, and sends them to members that missed them.

AR1  Stored messages of a publisher have no gap; a LostRange stands in for messages that no member has.
AR2  Only durable messages are reported as durable, with the view that the archive had agreed to.
AR3  Every view to which the archive was invited is recorded before its members receive anything from the
     archive.
AR4  The number of pending reads is bounded; a member that gets no answer asks again.

An archive learns that it lacks messages from the durable reports of other archives, and FIFO, NAK and PULL fill
the gap like any other: so archives repair each other. Every few seconds they also request ranges that they have
recorded as lost; messages that another archive still has are stored, each range after a FoundRange record.
Messages that an archive's store can no longer read are recorded as lost, too. In the same interval archives
compare their records of views.
"""

from collections.abc import Sequence

from ..block import MalformedDataError
from ..boundary import (
    ARCHIVES,
    MEMBERS,
    ArchiveDamaged,
    ArchiveEntry,
    ArchiveQuery,
    ArchiveRead,
    ArchiveState,
    EntriesStored,
    MessageBatch,
    MessageRange,
    PacketRoute,
    ReadArchive,
    StoreEntries,
)
from ..delivery_records import DeliveryRecords, DeliveryStatus, acknowledgement_weight
from ..layer import (
    BatchReleased,
    DownEvent,
    Layer,
    MemberContext,
    MessagesLost,
    PacketReceived,
    UpEvent,
    ViewAgreed,
    ViewInstalled,
)
from ..packet import (
    MAX_BATCHES,
    MAX_RECORDS,
    Acknowledgement,
    DeliveryBound,
    DeliveryBoundRequest,
    DurableReport,
    EncodedBatch,
    Prepare,
    PullReply,
    PullRequest,
    RecordsReply,
    RecordsSummary,
    RecoveryOffer,
    RecoveryReply,
    RecoveryRequest,
)
from ..vector import (
    MAX_SEQUENCE_ID,
    Span,
    Vector,
    clip_spans,
    merge_spans,
    subtract_span,
    update_bounded,
)
from ..views import (
    AcknowledgementRecord,
    ArchiveRecord,
    Certainty,
    FoundRange,
    LostRange,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
    ViewStability,
    is_plausible_view_number,
)
from ..wire import decode_batch, encode_batch
from .pull import MAX_PULL_RANGES
from .receive_buffer import ReceiveBuffer
from .retransmit_buffer import find_missing
from .stability import StabilityTracker
from .uniform import MAX_TRACKED_ARCHIVES

MAX_PENDING_READS = 1_000
COMPARE_INTERVAL_COUNT = 10  # heartbeats between comparisons


class PendingRead:
    """A request of a member that waits for the store."""

    __slots__ = ("offset", "ranges", "request_number", "sender", "start", "status")

    def __init__(self, sender: MemberId, number: int, ranges: list[MessageRange]) -> None:
        self.sender = sender
        self.request_number = number
        self.ranges = ranges
        self.start = Vector()
        self.status: DeliveryStatus | None = None
        self.offset = 0


class ArchiverLayer(Layer):
    def __init__(
        self, context: MemberContext, receive_buffer: ReceiveBuffer, stored: ArchiveState
    ) -> None:
        super().__init__(context)
        self.receive_buffer = receive_buffer
        self.records = DeliveryRecords([*stored.views, *stored.stability, *stored.acknowledgements])
        self.durable = stored.vector
        self.stability = StabilityTracker(context, receive_buffer, self.records)
        # Durable messages of the other archives, by archive name.
        self._durable_elsewhere: dict[str, dict[bytes, int]] = {}
        self._lost_spans: dict[bytes, list[Span]] = {}
        for lost in stored.lost:
            self._add_lost(lost)
        self._reported_durable: dict[bytes, int] = {}
        self._pending_reads: dict[int, PendingRead] = {}
        self._last_query_number = 0
        self._heartbeat_count = 0
        self._next_heartbeat = 0.0

    # --- storing ---

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case BatchReleased(batch):
                self._record_stability(self.stability.note_stored(batch.publisher, now), now)
                self._store_entries([batch])
            case MessagesLost(lost):
                self._add_lost(lost)
                self._store_entries([lost])
            case ViewAgreed(record):
                self._add_records([record])
                self._record_stability(self.stability.note_view(record.view.id, now), now)
                self._send_summary(now)
                self._request_lost(now)
                self._pass_up(event, now)
            case ViewInstalled(record):
                self._pass_up(event, now)
                self._offer_recovery(record, now)
            case PacketReceived(route, sender):
                self._receive(event, route, sender, now)
            case _:
                self._pass_up(event, now)

    def _receive(
        self, event: PacketReceived, route: PacketRoute, sender: MemberId, now: float
    ) -> None:
        match event.packet:
            case Prepare(round_, invited):
                if self.context.member_id in invited and round_ not in self.records.view_records:
                    self._add_records([self._provisional_record(round_, invited)])
                if route is PacketRoute.BROADCAST:
                    self._record_stability(self.stability.note_prepare_marker(round_), now)
            case Acknowledgement(view, start, vector, final):
                self._add_records([AcknowledgementRecord(sender, view, start, vector, final)])
            case PullRequest(number, ranges):
                self._read_store(
                    PendingRead(sender, number, ranges), ArchiveQuery(Vector(), tuple(ranges))
                )
            case PullReply(_, batches):
                for part in batches:
                    if part.publisher in self._lost_spans:
                        self._store_found(part)
            case RecoveryRequest():
                self._start_recovery_read(sender, event.packet, now)
            case DeliveryBoundRequest():
                self._send_delivery_bound(sender, now)
            case DurableReport(_, vector):
                if (
                    sender.name in self._durable_elsewhere
                    or len(self._durable_elsewhere) < MAX_TRACKED_ARCHIVES
                ):
                    update_bounded(self._durable_elsewhere.setdefault(sender.name, {}), vector)
            case RecordsSummary():
                self._answer_summary(sender, event.packet, now)
            case RecordsReply(records):
                self._add_records([record for record in records if self._is_plausible(record)])
            case _:
                self._pass_up(event, now)

    def _provisional_record(self, round_: ViewId, invited: list[MemberId]) -> ViewRecord:
        """Return a record of a view that may never be agreed, or whose VIEW may not reach us (AR3)."""
        entries = tuple(ViewEntry(member, Role.SUBSCRIBER) for member in invited)
        return ViewRecord(View(round_, entries), Vector(), (), provisional=True)

    def _is_plausible(self, record: ArchiveRecord) -> bool:
        """Return whether a record of another archive may be stored. Records of losses are rejected: an archive
        would no longer accept messages that it has recorded as lost, so each archive detects losses itself."""
        known = self.context.installed_view_id.number
        match record:
            case ViewRecord(view):
                return is_plausible_view_number(view.id.number, known)
            case ViewStability(id_) | AcknowledgementRecord(_, id_):
                return is_plausible_view_number(id_.number, known)
            case LostRange() | FoundRange():
                return False

    def _add_records(self, records: Sequence[ArchiveRecord]) -> None:
        news = [record for record in records if self.records.add(record)]
        if news:
            self._store_entries(news)

    def _record_stability(self, found: Sequence[ArchiveRecord], now: float) -> None:
        """Record delivery bounds, and send changed ones to the other archives at once: an archive that got the
        old bound from us does not watch it (SB3)."""
        settled = self.records.stability
        before = {id_: settled[id_] for id_ in _stability_view_ids(found) if id_ in settled}
        self._add_records(found)
        changed: list[ArchiveRecord] = [
            settled[id_] for id_, old in before.items() if settled[id_] != old
        ]
        if changed and len(self.context.archive_members()) > 1:
            self.send(RecordsReply(changed[-MAX_RECORDS:]), ARCHIVES, now)

    def _store_entries(self, entries: Sequence[ArchiveEntry]) -> None:
        self.context.effects.append(StoreEntries(list(entries)))

    def down(self, event: DownEvent, now: float) -> None:
        match event:
            case EntriesStored(vector):
                self.durable = vector
                if "UNIFORM" in self.context.layer_names:
                    self._report_durable(now)
            case ArchiveRead():
                self._handle_read(event, now)
            case ArchiveDamaged(lost):
                for each in lost:
                    self._add_lost(each)
                self._store_entries(lost)
            case _:
                self._pass_down(event, now)

    # --- reporting ---

    def _report_durable(self, now: float) -> None:
        news = {p: s for p, s in self.durable.items() if self._reported_durable.get(p) != s}
        if news and self.context.agreed_view is not None:
            self._reported_durable.update(news)
            self.send(DurableReport(self.context.agreed_view.id, news), MEMBERS, now)

    def tick(self, now: float) -> None:
        if now < self._next_heartbeat:
            return
        self._next_heartbeat = now + self.context.options.heartbeat_interval
        self._heartbeat_count += 1
        if self._heartbeat_count % round(2 * self.context.interval_factor) == 0:
            self._reported_durable = {}  # report everything again: packets may have been lost
        self._report_durable(now)
        self._record_stability(self.stability.tick(now), now)
        if self._heartbeat_count % COMPARE_INTERVAL_COUNT == 0:
            self._send_summary(now)
            self._request_lost(now)

    def deadline(self) -> float | None:
        return self._next_heartbeat

    def _send_summary(self, now: float) -> None:
        view, records = self.context.agreed_view, self.records
        if view is None or len(view.archive_members()) < 2:
            return
        views = [id_ for id_, record in records.view_records.items() if not record.provisional]
        checksums = list(records.stability_checksums.items())
        acks = [(member, _bounded_weight(ack)) for member, ack in records.acknowledgements.items()]
        self.send(RecordsSummary(views, checksums, acks[-MAX_RECORDS:]), ARCHIVES, now)

    def _answer_summary(self, sender: MemberId, known: RecordsSummary, now: float) -> None:
        views, records = set(known.view_ids), self.records
        checksums, acks = dict(known.stability_checksums), dict(known.acknowledgement_weights)
        news: list[ArchiveRecord] = [
            record
            for id_, record in records.view_records.items()
            if id_ not in views and not record.provisional
        ]
        # Two archives whose bounds differ send each other theirs, and both merge them.
        news += [
            records.stability[id_]
            for id_, checksum in records.stability_checksums.items()
            if checksums.get(id_) != checksum
        ]
        news += [
            ack
            for member, ack in records.acknowledgements.items()
            if acks.get(member, -1) < _bounded_weight(ack)
        ]
        if news:
            self.send(RecordsReply(news[:MAX_RECORDS]), sender, now)

    # --- repairing ---

    def _add_lost(self, lost: LostRange) -> None:
        spans = [*self._lost_spans.get(lost.publisher, ()), (lost.first, lost.last)]
        self._lost_spans[lost.publisher] = merge_spans(spans)

    def _request_lost(self, now: float) -> None:
        """Request lost messages from another archive, which may have been absent when they were recorded as
        lost."""
        archives = [
            one for one in self.context.other_members() if one in self.context.archive_members()
        ]
        ranges = [MessageRange(p, *span) for p, spans in self._lost_spans.items() for span in spans]
        if archives and ranges:
            turn = self._heartbeat_count // COMPARE_INTERVAL_COUNT
            start = turn // len(archives) * MAX_PULL_RANGES % len(ranges)
            requested = ranges[start : start + MAX_PULL_RANGES]
            self.send(PullRequest(0, requested), archives[turn % len(archives)], now)

    def _store_found(self, part: EncodedBatch) -> None:
        """Store messages that were recorded as lost. They are appended to the log, after a FoundRange record,
        so that existing offsets do not change."""
        try:
            batch = decode_batch(part)
        except MalformedDataError:
            self.context.malformed_count += 1
            return
        spans = self._lost_spans[batch.publisher]
        for first, last in clip_spans(spans, batch.first, batch.last):
            self._store_entries([FoundRange(batch.publisher, first, last), batch.clip(first, last)])
            spans = subtract_span(spans, first, last)
        self._lost_spans[batch.publisher] = spans
        if not spans:
            del self._lost_spans[batch.publisher]

    def _offer_recovery(self, record: ViewRecord, now: float) -> None:
        """The oldest archive starts the recovery of subscribers that have returned."""
        archives = record.view.archive_members()
        if not archives or archives[0] != self.context.member_id:
            return
        before = [
            self.records.view_records[id_]
            for id_ in record.previous_views
            if id_ in self.records.view_records
        ]
        known = {member for old in before for member in old.view.members()}
        for entry in record.view.entries:
            if entry.role is Role.SUBSCRIBER and entry.member not in known:
                start = self.records.last_acknowledged(entry.member.name, entry.member)
                self.send(RecoveryOffer(start), entry.member, now)

    # --- answering ---

    def _send_delivery_bound(self, sender: MemberId, now: float) -> None:
        if self.records.has_seen(sender):
            self._record_stability(self.stability.tick(now), now)
            bound = self.records.delivery_status(sender.name, sender).delivery_bound()
            if bound is not None:
                named = dict.fromkeys(self.stability.publishers_with_known_age(), 0)
                self.send(DeliveryBound(named | dict(bound)), sender, now)

    def _start_recovery_read(self, sender: MemberId, request: RecoveryRequest, now: float) -> None:
        if not self.records.has_seen(sender):
            return
        self._record_stability(self.stability.tick(now), now)
        read = PendingRead(sender, request.request_number, [])
        name, after = sender.name, request.after
        read.start = self.records.last_acknowledged(name, sender) if after is None else after
        read.status = self.records.delivery_status(name, sender)
        read.offset = request.offset
        limit = 1024 * 1024 if self.context.options.max_packet_bytes > 65_536 else 256 * 1024
        self._read_store(read, ArchiveQuery(read.start, (), request.offset, limit))

    def _read_store(self, read: PendingRead, query: ArchiveQuery) -> None:
        self._last_query_number += 1
        self._pending_reads[self._last_query_number] = read
        if len(self._pending_reads) > MAX_PENDING_READS:
            del self._pending_reads[next(iter(self._pending_reads))]
        self.context.effects.append(ReadArchive(self._last_query_number, query))

    def _handle_read(self, result: ArchiveRead, now: float) -> None:
        read = self._pending_reads.pop(result.query_number, None)
        if read is None:
            return
        if read.status is None:
            self._send_pull_reply(read, result, now)
        else:
            self._send_recovery_reply(read, read.status, result, now)

    def _send_pull_reply(self, read: PendingRead, result: ArchiveRead, now: float) -> None:
        batches = [encode_batch(batch) for batch in result.batches[:MAX_BATCHES]]
        missing = [] if result.has_more else self._find_missing(read.ranges, result)
        passed = [_clip_to_reached(gap, result.reached) for gap in missing]
        lost = [each for each in passed if each is not None]
        self.send(PullReply(read.request_number, batches, missing, lost), read.sender, now)

    def _send_recovery_reply(
        self, read: PendingRead, status: DeliveryStatus, result: ArchiveRead, now: float
    ) -> None:
        limit = self._uniform_limit(read.sender)
        reached = result.reached if limit is None else result.reached.intersect(limit)
        batches: list[EncodedBatch] = []
        is_whole = True  # the reply contains everything that was read
        for batch in result.batches:
            last = batch.last if limit is None else min(batch.last, limit.get(batch.publisher, 0))
            is_whole = is_whole and last == batch.last
            if last < batch.first:
                continue
            batches += _classify_batch(batch.clip(batch.first, last), status)
            if len(batches) > MAX_BATCHES:
                del batches[MAX_BATCHES:]
                # Messages that do not fit must not count as reached: the subscriber would consider them lost.
                last_sequences = {part.publisher: part.first + part.count - 1 for part in batches}
                reached, is_whole = read.start.merge(last_sequences), False
                break
        reply = RecoveryReply(
            read.request_number,
            read.start,
            batches,
            result.offset if is_whole else read.offset,
            result.has_more and is_whole,
            dict(reached),
        )
        self.send(reply, read.sender, now)

    def _find_missing(self, ranges: list[MessageRange], result: ArchiveRead) -> list[MessageRange]:
        missing: list[MessageRange] = []
        for wanted in ranges:
            here = [batch for batch in result.batches if batch.publisher == wanted.publisher]
            missing += find_missing(wanted, sorted(here, key=lambda batch: batch.first))
        return missing

    def _uniform_limit(self, member: MemberId) -> dict[bytes, int] | None:
        """For UNIFORM: return the sequences that enough archives have, for a recovering member; None without
        UNIFORM. The member has not begun a view yet: UNIFORM requires the copies of its first view, or of the
        next one, if archives failed with the first."""
        if "UNIFORM" not in self.context.layer_names:
            return None
        views = self.records.views_of(member)[:2]
        if not views:  # it was only invited, as far as is known here
            return {}
        archives = [
            one
            for name, one in self._durable_elsewhere.items()
            if name != self.context.member_id.name
        ]
        stable: list[dict[bytes, int]] = [dict(self.durable), *archives]
        copies = min(map(self.context.required_copies, views))
        publishers = dict.fromkeys(publisher for one in stable for publisher in one)
        limit = {}
        for publisher in publishers:
            ranked = sorted((one.get(publisher, 0) for one in stable), reverse=True)
            limit[publisher] = ranked[copies - 1] if len(ranked) >= copies else 0
        return limit


def _clip_to_reached(gap: MessageRange, reached: Vector) -> MessageRange | None:
    """Return the part of a gap that a log with the vector `reached` has passed."""
    last = min(gap.last, reached.last_of(gap.publisher))
    return MessageRange(gap.publisher, gap.first, last) if gap.first <= last else None


def _stability_view_ids(records: Sequence[ArchiveRecord]) -> list[ViewId]:
    return [record.view_id for record in records if isinstance(record, ViewStability)]


def _bounded_weight(ack: AcknowledgementRecord) -> int:
    return min(acknowledgement_weight(ack), MAX_SEQUENCE_ID)


def _classify_batch(batch: MessageBatch, status: DeliveryStatus) -> list[EncodedBatch]:
    parts = []
    for first, last, certainty in status.split(batch.publisher, batch.first, batch.last):
        # If the application's own vector requests messages that were delivered, they are sent as uncertain.
        requested = Certainty.UNCERTAIN if certainty is Certainty.DELIVERED else certainty
        part = batch.clip(first, last)
        parts.append(
            encode_batch(MessageBatch(part.publisher, part.first, part.block, part.view, requested))
        )
    return parts
