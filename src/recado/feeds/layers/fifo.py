"""FIFO: releases the messages of each publisher in order, each once.

FI1  Above FIFO, the sequences of a publisher have no gaps or duplicates; MessagesLost stands in for messages
     that no member has.
FI2  A view is installed when everything before its cut has been released; nothing after the cut is released
     before.
FI3  A gap is closed only when three conditions hold: it is older than `loss_timeout` (RB7); no program outside
     the view that might have the message was heard during that time; every member of the view then reported
     that it lacks the message. On a broker, the member's own queue must be past the message as well. Messages
     published before the feed had an archive do not wait for absent members.
FI4  A subscriber without recovery starts each publisher that it has not heard yet after the cut of its first
     view. That cut may be too low, because the other members may lag. So the subscriber releases no messages of
     such a publisher until it hears the publisher, whose report shows whether messages after the cut are older
     than the subscriber. In later views, the same applies to a publisher that is new to the subscriber if
     members have joined that may know it from before (an archive that returns knows every publisher that ever
     existed). If only other members have heard the publisher, each later view moves its start position to the
     cut until one of its messages arrives (RB4).
FI5  A subscriber with recovery closes a gap only if archives are in the view and the logs of all of them have
     passed it: otherwise an absent archive may have the message, and the subscriber waits for it.
FI6  Without MEMBERSHIP there is no view to wait for: the subscriber is live from the start (RB6).
"""

from collections import deque
from collections.abc import Mapping
from math import inf

from ..block import ALL_EMPTY_CODE, CONSTANT_CODE, KEY_INDEX
from ..boundary import (
    MessageBatch,
    PacketRoute,
    PublishRequested,
    ReportFailure,
    ReportRecovered,
)
from ..layer import (
    BatchReleased,
    DownEvent,
    FragmentReleased,
    GapFilled,
    Layer,
    MemberContext,
    MessagesLost,
    PacketReceived,
    PublisherStartSet,
    PublishFragmented,
    SendPacket,
    UpEvent,
    ViewAgreed,
    ViewChangeAbandoned,
    ViewInstalled,
)
from ..options import RecoveryPolicy
from ..packet import Data, Fragment, PublisherStatus
from ..vector import MAX_SEQUENCE_ID, Vector
from ..views import LostRange, MemberId, Role, ViewRecord
from .publisher_state import MessageGap, ReceivedItem
from .receive_buffer import ORDER_PREFIX, ReceiveBuffer, is_relevant, order_publisher_id


class SequencerLayer(Layer):
    """FIFO of a publisher: assigns the sequences."""

    def __init__(self, context: MemberContext) -> None:
        super().__init__(context)
        self.last_sequence = context.options.resume_after

    def down(self, event: DownEvent, now: float) -> None:
        member_id = self.context.member_id.incarnation
        match event:
            case PublishRequested(block):
                first = self.last_sequence + 1
                self.last_sequence += block.count
                column = block.column(KEY_INDEX)
                key = (
                    column.data.decode(errors="replace")
                    if column.mode in (CONSTANT_CODE, ALL_EMPTY_CODE)
                    else ""
                )
                self._pass_down(
                    SendPacket(Data(member_id, first, block), None, key, self.last_sequence), now
                )
            case PublishFragmented(pieces):
                self.last_sequence += 1
                for i, piece in enumerate(pieces):
                    part = Fragment(member_id, self.last_sequence, i, len(pieces), piece)
                    self._pass_down(SendPacket(part, None, "", self.last_sequence), now)
            case _:
                super().down(event, now)


class FifoLayer(Layer):
    def __init__(
        self, context: MemberContext, receive_buffer: ReceiveBuffer, start_vector: Vector | None
    ) -> None:
        super().__init__(context)
        self.receive_buffer = receive_buffer
        self._pending_view: ViewRecord | None = None
        self._last_tick = 0.0
        self._ready: deque[ReceivedItem | LostRange | PublisherStartSet] = deque()
        self._is_passing_up = False
        self._always_alone = True  # in every view so far
        self._last_members: set[MemberId] = set()  # members of the last view
        # unsynced publishers that joining members may know from before our start (FI4)
        self._known_to_joiners: set[bytes] = set()
        self._before_first_archive: Mapping[bytes, int] = {}
        """In the first archive of a feed, until its first view: the messages published before it joined."""
        if start_vector is not None:
            receive_buffer.start(start_vector, 0.0)
            receive_buffer.lift_limit()
        if "MEMBERSHIP" not in context.layer_names:
            receive_buffer.start_without_views()

    def start(self, now: float) -> None:
        if not self.receive_buffer.has_views:
            self.context.effects.append(ReportRecovered(Vector()))
        elif (
            self.context.role is Role.SUBSCRIBER
            and self.context.options.recovery is RecoveryPolicy.NONE
        ):
            self.receive_buffer.skip_history(now)

    def adjust_for_stall(self, seconds: float) -> None:
        self.receive_buffer.adjust_for_stall(seconds)

    def up(self, event: UpEvent, now: float) -> None:
        match event:
            case PacketReceived(PacketRoute.BROADCAST):
                self._receive_broadcast(event, now)
            case ViewAgreed(record):
                self._pass_up(event, now)
                self._begin_view(record, now)
            case ViewChangeAbandoned():
                if not self.receive_buffer.is_unstarted:
                    pending = self._pending_view
                    self.receive_buffer.unfreeze(None if pending is None else dict(pending.cut))
                    self._release_all(now)
                    self._pass_up_ready(now)
            case _:
                self._pass_up(event, now)

    def _receive_broadcast(self, event: PacketReceived, now: float) -> None:
        match event.packet:
            case Data(publisher, first, block):
                self._accept(MessageBatch(publisher, first, block), now)
            case Fragment(publisher, sequence, index, count, data):
                self._accept(FragmentReleased(publisher, sequence, index, count, data), now)
            case PublisherStatus(publisher) if self.receive_buffer.is_unsynced(publisher):
                if self.receive_buffer.can_start_with(publisher):
                    self._start_unsynced(publisher, now)
                    self._pass_up_ready(now)
            case PublisherStatus():
                pass
            case _:
                self._pass_up(event, now)

    def down(self, event: DownEvent, now: float) -> None:
        if isinstance(event, GapFilled):
            self._accept(event.batch, now)
        else:
            self._pass_down(event, now)

    def _begin_view(self, record: ViewRecord, now: float) -> None:
        """Release the messages before the cut of a view that was agreed."""
        receive_buffer = self.receive_buffer
        is_first = receive_buffer.is_unstarted
        if is_first:
            # A new archive copies everything: from other archives, or else from the buffers of members.
            is_archive = self.context.role is Role.ARCHIVE
            receive_buffer.start(Vector() if is_archive else record.cut, now)
            if record.view.archive_members() == [self.context.member_id]:
                self._before_first_archive = record.cut
        receive_buffer.skip_foreign_orders(
            record.cut, order_publisher_id(self.context.installed_view_id), now
        )
        if receive_buffer.skips_history:
            self._set_starts(record, is_first, now)
        for publisher, sequence in record.cut.items():
            receive_buffer.note_known(publisher, sequence, now)
        receive_buffer.unfreeze(dict(record.cut))
        self._pending_view = record
        self._release_all(now)
        self._pass_up_ready(now)

    def _set_starts(self, record: ViewRecord, is_first: bool, now: float) -> None:
        """Set the start positions of publishers in the cut (FI4). In our first view all start after the cut."""
        receive_buffer = self.receive_buffer
        self._ready += [
            PublisherStartSet(*moved)
            for moved in receive_buffer.move_assumed_starts(record.cut, now)
        ]
        was_alone = self._always_alone
        joined = set(record.view.members()) - self._last_members
        self._last_members = set(record.view.members())
        self._always_alone = self._always_alone and len(record.view.entries) == 1
        for publisher in receive_buffer.unsynced_in(record.cut, is_first):
            if publisher in self._known_to_joiners:
                continue
            last = record.cut.last_of(publisher)
            next_ = receive_buffer.next_sequence(publisher)
            if next_ is None and not was_alone:
                # Unknown to the members of the last view: new, unless a joining member knows it from before.
                if joined and receive_buffer.has_room_for(publisher, now):
                    self._known_to_joiners.add(publisher)
                    receive_buffer.mark_unsynced(publisher, 0, now)
            elif next_ == 1 and not was_alone:
                # We hold messages of it, and no earlier one is known: the same distinction.
                if joined:
                    self._known_to_joiners.add(publisher)
                else:
                    self._start_with(publisher, 0, now)
            elif receive_buffer.has_room_for(publisher, now):
                # Other members have its earlier messages: start after the cut.
                if next_ is None or next_ <= last:
                    self._ready.append(PublisherStartSet(publisher, last))
                receive_buffer.mark_unsynced(publisher, last, now)

    def _start_unsynced(self, publisher: bytes, now: float) -> None:
        """Choose the start position of an unsynced publisher that was heard, or that did not report its age in
        time."""
        receive_buffer = self.receive_buffer
        last = receive_buffer.choose_start(publisher)
        self._start_with(publisher, last, now)
        self._ready += receive_buffer.release(publisher, now)

    def _start_with(self, publisher: bytes, last: int, now: float) -> None:
        self._known_to_joiners.discard(publisher)
        self.receive_buffer.start_with(publisher, last, now)
        if last:
            self._ready.append(PublisherStartSet(publisher, last))

    def _accept(self, item: ReceivedItem, now: float) -> None:
        if not is_relevant(self.context, item.publisher):
            return
        receive_buffer, publisher = self.receive_buffer, item.publisher
        self._ready += receive_buffer.receive(item, now)
        if receive_buffer.is_unsynced(publisher) and receive_buffer.can_start_with(publisher):
            self._start_unsynced(publisher, now)
        self._pass_up_ready(now)

    def _release_all(self, now: float) -> None:
        for publisher in list(self.receive_buffer.publishers):
            self._ready += self.receive_buffer.release(publisher, now)

    def _pass_up_ready(self, now: float) -> None:
        """Pass up whatever is ready, in order. Events from layers above that arrive meanwhile are queued (FI1,
        FI2)."""
        if self._is_passing_up:
            return
        self._is_passing_up = True
        while True:
            if self._ready:
                self._pass_up(self._to_event(self._ready.popleft()), now)
            elif (record := self._installable_view()) is not None:
                self._pending_view, self._before_first_archive = None, {}
                self.context.installed_view_id = record.view.id
                self.receive_buffer.lift_limit()
                self._pass_up(ViewInstalled(record), now)
                for publisher in self.receive_buffer.startable():
                    self._start_unsynced(publisher, now)
                self._release_all(now)
            else:
                break
        self._is_passing_up = False

    def _installable_view(self) -> ViewRecord | None:
        """Return the pending view if it can be installed. After a promise to the next view it cannot (FM3):
        messages received since would be released, and no cut covers them. It is installed if the promise is
        abandoned, or never."""
        record, receive_buffer = self._pending_view, self.receive_buffer
        if record is None or receive_buffer.is_frozen or not receive_buffer.has_reached(record.cut):
            return None
        return record

    def _to_event(self, item: ReceivedItem | LostRange | PublisherStartSet) -> UpEvent:
        match item:
            case MessageBatch(publisher, first, block):
                return BatchReleased(
                    MessageBatch(publisher, first, block, self.context.installed_view_id)
                )
            case LostRange():
                return MessagesLost(item)
            case FragmentReleased() | PublisherStartSet():
                return item

    def tick(self, now: float) -> None:
        self._last_tick = now
        for publisher in self.receive_buffer.overdue(now, self.context.options.failure_timeout):
            self._start_unsynced(publisher, now)
        for publisher in list(self.receive_buffer.gaps):
            while self._close_gap(publisher, now):
                pass
        self._pass_up_ready(now)

    def _close_gap(self, publisher: bytes, now: float) -> bool:
        """Skip the first gap of this publisher if that is allowed (FI3, FI5); return whether it was."""
        gap = self.receive_buffer.gaps.get(publisher)
        if gap is None:
            return False
        limit = MAX_SEQUENCE_ID
        if now < self._closable_at(gap):
            limit = self._before_first_archive.get(publisher, 0)
            if gap.first_missing > limit:
                return False
        last = min(limit, self._missing_everywhere(publisher, now))
        if last and self._must_ask_archives(publisher):
            last = min([last, *self._archives_past(gap)])
            if not last and self._has_timed_out(gap, now):
                self._fail(publisher, gap)
        lost = self.receive_buffer.close_gap(publisher, last, now) if last else None
        if lost is None:
            return False
        self._ready.append(lost)
        self._ready += self.receive_buffer.release(publisher, now)
        if gap.needs_pull:
            self.receive_buffer.request_pull(publisher)  # members were asked for the next gap, too
        return True

    def _must_ask_archives(self, publisher: bytes) -> bool:
        """FI5. Without PULL there are no reports of archives."""
        context, options = self.context, self.context.options
        recovers = context.role is Role.SUBSCRIBER and options.recovery is not RecoveryPolicy.NONE
        if not recovers or options.live_without_archive or publisher.startswith(ORDER_PREFIX):
            return False
        return "PULL" in context.layer_names

    def _archives_past(self, gap: MessageGap) -> list[int]:
        """Return up to where each archive of the view reports the messages as lost; 0 for one that does not."""
        archives = self.context.archive_members()
        return [gap.lost_up_to(archive.incarnation) for archive in archives] or [0]

    def _has_timed_out(self, gap: MessageGap, now: float) -> bool:
        timeout = self.context.options.gap_timeout
        return timeout is not None and now >= gap.known_at + timeout

    def _fail(self, publisher: bytes, gap: MessageGap) -> None:
        self.context.has_failed = True
        reason = (
            f"message {gap.first_missing} of publisher {publisher.hex()} is missing: no reachable "
            "member has it, and no archive has reported it as lost for "
            f"{self.context.options.gap_timeout:g} s (gap_timeout); start the archives, then "
            "subscribe again"
        )
        self.context.effects.append(ReportFailure(reason, is_recovery=True))

    def _closable_at(self, gap: MessageGap) -> float:
        """Return when the gap may be closed at the earliest (FI3)."""
        return max(gap.known_at, self.context.outsider_heard_at) + self.context.options.loss_timeout

    def _missing_everywhere(self, publisher: bytes, now: float) -> int:
        """Return the last sequence up to which all members that could have the missing messages have reported
        that they lack them; 0 if not all have. Reports from before the loss timeout do not count: a message
        that is on its way to us may have been on its way to the reporting members, too."""
        context, gap = self.context, self.receive_buffer.gaps[publisher]
        asked = (
            [m.incarnation for m in context.other_members()]
            if "PULL" in context.layer_names
            else []
        )
        is_silent = self.receive_buffer.is_silent(publisher, now, context.options.failure_timeout)
        if not context.options.has_total_order and not is_silent:
            asked.append(publisher)
        closable_at = self._closable_at(gap)
        has_timed_out = now >= closable_at
        if has_timed_out and context.options.has_total_order and not gap.is_queue_past:
            return 0
        oldest_report = closable_at if has_timed_out else -inf
        reports = [gap.lacked_up_to(member) for member in asked]
        if any(not last or reported_at < oldest_report for last, reported_at in reports):
            return 0
        _, last = self.receive_buffer.first_missing_range(publisher)
        return min([last, *(reported for reported, _ in reports)])

    def deadline(self) -> float | None:
        gaps, waiting, options = (
            self.receive_buffer.gaps,
            self.receive_buffer.unsynced_since,
            self.context.options,
        )
        due = min(waiting.values()) + options.failure_timeout if waiting else inf
        if gaps:
            closing = (
                -inf if self._before_first_archive else min(map(self._closable_at, gaps.values()))
            )
            due = min(due, max(closing, self._last_tick + options.retry_interval))
        return due if due < inf else None
