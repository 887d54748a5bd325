"""MEMBERSHIP: members send heartbeats; a silent member is excluded; all members agree on each view.

A view change, called a round, has three steps. The coordinator, the oldest living member, sends PREPARE: every
invited member stops delivering. Each of them replies PREPARED with the last sequences that it has received; by
this reply it has *promised* itself to the round. VIEW then lists the members and the cut: for each publisher,
the highest sequence that any of them has received. Each member releases the messages before the cut as soon as
it has them, and then installs the view. No member waits for another one to do so.

`failure_detector` sends the heartbeats and decides which members are alive; this module makes the views.

PREPARE, PREPARED and VIEW contain only differences from the view that the coordinator and the receiver are in;
a receiver in another view is sent the complete packet.

FM1  View numbers grow, for each member and along every chain of views.
FM2  A member has promised itself to one round at a time, the highest that invited it, and accepts the VIEW of
     that round only. After it has abandoned the promise, it does not accept that VIEW either, because it has
     delivered more than it had reported.
FM3  Between the promise and the view, or its abandonment, nothing is delivered.
FM4  The oldest member that a member hears is its coordinator. A member outside the core takes over only after
     all older ones had time to do so. After a partition, the oldest coordinator merges the groups into one
     view: members that hear an older coordinator than their own introduce themselves to it.
FM5  A member that did not reply is excluded, and invited again only after a while, or when it has come to
     another view by itself; so a member that cannot reply blocks no view.
FM6  A view is complete only if all invited members are in it, none of them hears another member, and one that
     hears all members and newcomers has listened for `failure_timeout`. While a view with an archive is not
     complete, another one follows.
FM7  Silence counts only while a member listens: `now` leaves stalls out, and after a stall a member has not
     listened for long. A member that is new in a view, or has just become its coordinator, listens for
     `failure_timeout` before it considers others failed. One that heard nothing at all, not even publishers,
     may have been disconnected, and has not listened.
FM8  A subscriber without recovery starts after all messages that were published before it. Where publishers
     resend messages, it keeps quiet until it has heard the last sequence of each: messages published after it
     joined are then certainly later.
FM9  Every coordinator in reach hears every living member: a newcomer calls the core, a coordinator calls all
     members, and a member that hears the coordinator of another view introduces itself. So a coordinator that
     has listened for `failure_timeout` knows all members. A subscriber that is alone in its view and hears an
     older coordinator calls that one only; its views are not complete meanwhile.
FM10  Waiting members do not slow down the member that they wait for: requests are repeated with exponential
      backoff, a coordinator calls all members at most once per `heartbeat_interval`, and a round continues
      while replies arrive. So an overloaded machine delays joining and does not prevent it.
"""

from collections.abc import Iterable
from itertools import islice

from ..boundary import MEMBERS, LeaveRequested
from ..layer import (
    DownEvent,
    Layer,
    MemberContext,
    PacketReceived,
    UpEvent,
    ViewAgreed,
    ViewChangeAbandoned,
)
from ..packet import (
    Heartbeat,
    MembersRequest,
    NewView,
    OutsiderReport,
    Prepare,
    Prepared,
    ViewDelta,
)
from ..vector import Vector, raise_entries
from ..views import (
    NO_VIEW,
    MemberId,
    Role,
    View,
    ViewEntry,
    ViewId,
    ViewRecord,
    is_plausible_view_number,
)
from .agreed_view import AgreedView, merge_full_vectors
from .failure_detector import FailureDetector, PeerState, member_fraction
from .receive_buffer import MAX_ORDER_PUBLISHERS, ReceiveBuffer

MAX_COUNTED_FAILURES = 4  # each doubles the pause between rounds


class RetryTimer:
    """Exponential backoff for repeated requests, which would slow down an overloaded receiver even more."""

    __slots__ = ("due_at", "interval")

    def __init__(self, pause: float, now: float) -> None:
        self.interval = pause
        self.due_at = now + pause

    def is_due(self, now: float) -> bool:
        if now < self.due_at:
            return False
        self.interval *= 2
        self.due_at = now + self.interval
        return True


class ViewRound:
    """A view change that we coordinate."""

    __slots__ = ("id", "invited", "last_reply_at", "replies", "retry", "started_at")

    def __init__(self, id_: ViewId, invited: Iterable[MemberId], pause: float, now: float) -> None:
        self.id = id_
        self.invited = dict.fromkeys(invited)
        self.started_at = now
        self.last_reply_at = now  # when the last reply arrived
        self.retry = RetryTimer(pause, now)
        self.replies: dict[MemberId, Prepared] = {}


class ViewPromise:
    """Our reply to another coordinator's view change, until the view arrives."""

    __slots__ = ("coordinator", "invited_count", "reply", "retry", "started_at")

    def __init__(
        self, coordinator: MemberId, reply: Prepared, count: int, pause: float, now: float
    ) -> None:
        self.coordinator = coordinator
        self.reply = reply
        self.invited_count = count  # number of invited members
        self.started_at = now
        self.retry = RetryTimer(pause, now)


class MembershipLayer(Layer):
    def __init__(self, context: MemberContext, receive_buffer: ReceiveBuffer, last: ViewId) -> None:
        super().__init__(context)
        self.receive_buffer = receive_buffer
        self.detector = FailureDetector(context, self.send, last)
        self._promised_round = last
        """The highest round that we have promised ourselves to (FM2)."""
        self._promise: ViewPromise | None = None
        self._round: ViewRound | None = None
        self._last_decided: NewView | None = None
        self._view_agreed_at = 0.0
        self._is_view_complete = False
        self._always_alone = True  # in every view so far
        self._next_round = 0.0
        self._next_completion = 0.0
        self._failed_rounds = 0  # consecutive rounds that most members did not answer

    def start(self, now: float) -> None:
        has_retransmission = not self.context.options.has_total_order
        self.detector.start(self.receive_buffer.skips_history and has_retransmission, now)

    def adjust_for_stall(self, seconds: float) -> None:
        self.detector.adjust_for_stall(seconds)

    # --- receiving ---

    def up(self, event: UpEvent, now: float) -> None:
        if not isinstance(event, PacketReceived):
            self._pass_up(event, now)
            return
        self.detector.note_packet(event.sender, now)
        match event.packet:
            case Heartbeat(_, view) | Prepare(view) if not is_plausible_view_number(
                view.number, self.detector.max_view_number
            ):
                self.context.malformed_count += 1
            case Heartbeat() as heartbeat:
                if self.detector.handle_heartbeat(event.sender, heartbeat, now):
                    self._start_round_if_needed(now)
            case Prepare() as prepare:
                self.detector.postpone_listening(now)
                invited = self._resolve_invited(prepare)
                self._handle_prepare(event.sender, prepare, invited, now)
                full_prepare = Prepare(prepare.round_id, invited)
                self._pass_up(PacketReceived(event.route, event.sender, full_prepare), now)
            case Prepared() as reply:
                self._handle_prepared(event.sender, reply, now)
            case NewView() as new:
                self.detector.postpone_listening(now)
                self._accept_view(new, now)
            case ViewDelta() as delta:
                self.detector.postpone_listening(now)
                if (
                    self.detector.agreed_view is not None
                    and self.detector.agreed_view.id == delta.base_view
                ):
                    self._accept_view(self.detector.agreed_view.apply_delta(delta), now)
            case MembersRequest():
                self._send_members(event.sender, now)
            case _:
                self._pass_up(event, now)

    def down(self, event: DownEvent, now: float) -> None:
        if isinstance(event, LeaveRequested):
            self.detector.leave(now)
        self._pass_down(event, now)

    def _send_members(self, sender: MemberId, now: float) -> None:
        if self.detector.agreed_view is not None and self.detector.is_coordinator:
            view, since_views = (
                self.detector.agreed_view.view,
                self.detector.agreed_view.since_views,
            )
            self.send(NewView(view, since_views, {}, [], self._is_view_complete), sender, now)

    # --- promising ---

    def _resolve_invited(self, prepare: Prepare) -> list[MemberId]:
        """Return the invited members; empty if we are not in the base view: then we are sent the complete
        packet."""
        if prepare.base_view == NO_VIEW:
            return prepare.added
        if (
            self.detector.agreed_view is not None
            and self.detector.agreed_view.id == prepare.base_view
        ):
            return self.detector.agreed_view.resolve_invited(prepare)
        return []

    def _handle_prepare(
        self, sender: MemberId, prepare: Prepare, invited: list[MemberId], now: float
    ) -> None:
        round_ = prepare.round_id
        self.detector.note_view_number(round_.number)
        promise = self._promise
        if promise is not None and promise.reply.round_id == round_:
            if sender != self.context.member_id and self.context.member_id in invited:
                self.send(promise.reply, promise.coordinator, now)
        elif self.context.member_id in invited and round_ > self._promised_round:
            if sender != self.context.member_id:
                self._round = None
            self._promise_round(sender, round_, invited, prepare.base_view, now)

    def _promise_round(
        self,
        coordinator: MemberId,
        round_: ViewId,
        invited: list[MemberId],
        base_view: ViewId,
        now: float,
    ) -> None:
        """Stop delivering and report the messages that we have."""
        self._promised_round = round_
        self.receive_buffer.freeze()
        vector = self.receive_buffer.received_sequences()
        if base_view != NO_VIEW:
            assert self.detector.agreed_view is not None
            vector = self.detector.agreed_view.subtract_cut(vector)
        context = self.context
        # A subscriber that was always alone does not report its last view: no archive was in it.
        is_unseen = self._always_alone and context.role is not Role.ARCHIVE
        view = NO_VIEW if is_unseen else self.detector.view_id
        outsiders = self.detector.report_outsiders(invited, now)
        reply = Prepared(
            round_, context.role, view, self.detector.since_view, vector, outsiders, base_view
        )
        self._promise = ViewPromise(
            coordinator, reply, len(invited), self._retry_interval(len(invited)), now
        )
        if coordinator == context.member_id:
            self._handle_prepared(coordinator, reply, now)
        else:
            self.send(reply, coordinator, now)

    def _abandon_promise(self, now: float) -> None:
        self._promise = None
        self._pass_up(ViewChangeAbandoned(), now)

    def _accept_view(self, new: NewView, now: float) -> None:
        view, promise = new.view, self._promise
        rank = next(
            (i for i, s in enumerate(view.entries) if s.member == self.context.member_id), None
        )
        if rank is None:
            if view.entries and view.id.number > self.detector.view_id.number:
                self.detector.introduce(view.entries[0].member, now)
            return
        if (
            promise is None
            or promise.reply.round_id != view.id
            or len(new.since_views) != len(view.entries)
        ):
            return
        self._promise = None
        self._view_agreed_at = now
        self._is_view_complete = new.is_complete
        self._always_alone = self._always_alone and len(view.entries) == 1
        self.context.agreed_view = view
        self.detector.enter_view(AgreedView(new), rank, now)
        record = ViewRecord(
            view, Vector(new.cut), tuple(new.previous_views), complete=new.is_complete
        )
        self._pass_up(ViewAgreed(record), now)

    # --- coordinating ---

    def _start_round_if_needed(self, now: float) -> None:
        """Start a view change if the view is not as it should be and we are responsible."""
        options = self.context.options
        if self._round is not None or self._promise is not None or now < self._round_allowed_at:
            return
        if self.detector.view_id == NO_VIEW:  # hear other listening newcomers first
            earliest = max(
                self.detector.started_at + 2 * options.heartbeat_interval,
                self.detector.listen_started + 2 * options.retry_interval,
            )
            if not self.detector.listens_to_coordinators or now < earliest:
                return
        living = self.detector.living(now)
        if any(self.detector.is_older(member, peer) for member, peer in living.items()):
            return
        failed = self.detector.monitored - living.keys()
        is_view_fresh = (
            now
            < self._view_agreed_at + 2 * options.view_change_timeout * self.context.interval_factor
        )
        wanted, is_astray = [], False
        for member, peer in living.items():
            if peer.invite_after <= now:
                is_in_view = self.detector.is_in_view(member)
                is_astray = is_astray or (
                    peer.view_id != self.detector.view_id and not (is_in_view and is_view_fresh)
                )
                if not is_in_view:
                    wanted.append(member)
        view = self.context.agreed_view
        if view is None or is_astray or failed or self._needs_completion(view, living, now):
            remaining = [m for m in view.members() if m not in failed] if view is not None else []
            postponed = {m for m, peer in living.items() if peer.invite_after > now}
            member_id = self.context.member_id
            self._start_round(
                [
                    member_id,
                    *(m for m in (*remaining, *wanted) if m != member_id and m not in postponed),
                ],
                now,
            )

    def _needs_completion(self, view: View, living: dict[MemberId, PeerState], now: float) -> bool:
        """Return whether archives would learn from another view that all absent members are silent."""
        if self._is_view_complete or now < self._next_completion or not view.archive_members():
            return False
        return self.detector.has_listened(now) and all(map(self.detector.is_in_view, living))

    def _start_round(self, invited: list[MemberId], now: float) -> None:
        self.detector.max_view_number += 1
        round_ = ViewId(self.detector.max_view_number, self.context.member_id.incarnation)
        self._round = ViewRound(round_, invited, self._retry_interval(len(invited)), now)
        full_prepare = Prepare(round_, invited)
        base_view = NO_VIEW
        if self.context.options.has_total_order and self._has_archive():
            self.send(Prepare(round_, []), None, now)
        short_prepare = (
            None
            if self.detector.agreed_view is None
            else self.detector.agreed_view.build_prepare(round_, invited)
        )
        if short_prepare is None or 2 * len(short_prepare.added) > len(invited):
            self.send(full_prepare, MEMBERS, now)
        else:
            base_view = short_prepare.base_view
            self.send(short_prepare, MEMBERS, now)
            for member in short_prepare.added:
                self.send(full_prepare, member, now)
        self._promise_round(self.context.member_id, round_, invited, base_view, now)

    def _has_archive(self) -> bool:
        view = self.context.agreed_view
        return (
            self.context.role is Role.ARCHIVE
            or self.detector.has_archive()
            or (view is not None and bool(view.archive_members()))
        )

    def _handle_prepared(self, sender: MemberId, reply: Prepared, now: float) -> None:
        round_ = self._round
        if round_ is None or reply.round_id != round_.id:
            decided = self._last_decided
            if decided is not None and reply.round_id == decided.view.id:
                self.send(decided, sender, now)
        elif sender in round_.invited and reply.base_view in (NO_VIEW, self._base_view()):
            if sender not in round_.replies:
                round_.last_reply_at = now
            round_.replies[sender] = reply
            if len(round_.replies) == len(round_.invited):
                self._decide_view(round_, now)

    def _base_view(self) -> ViewId:
        return NO_VIEW if self.detector.agreed_view is None else self.detector.agreed_view.id

    def _decide_view(self, round_: ViewRound, now: float) -> None:
        failure_timeout = self.context.options.failure_timeout * self.context.interval_factor
        self._round = None
        self._next_round = now + self._round_pause(round_)
        self._next_completion = now + failure_timeout if self.detector.has_listened(now) else 0.0
        for member in round_.invited:
            if member not in round_.replies:
                self.detector.postpone_invitation(member, now + 2 * failure_timeout)
        decided = self._last_decided = self._build_view(round_)
        outside_base = [m for m, reply in round_.replies.items() if reply.base_view == NO_VIEW]
        if self.detector.agreed_view is None or 2 * len(outside_base) > len(round_.replies):
            self.send(decided, MEMBERS, now)
        else:
            self.send(self.detector.agreed_view.build_delta(decided), MEMBERS, now)
            for member in outside_base:
                self.send(decided, member, now)
        self._accept_view(decided, now)

    def _round_pause(self, round_: ViewRound) -> float:
        """Return the seconds until the next round: newcomers are collected meanwhile. If most members did not
        reply, they may have promised themselves to a competing coordinator: back off with jitter."""
        if 2 * len(round_.replies) > len(round_.invited):
            self._failed_rounds = 0
        else:
            self._failed_rounds = min(self._failed_rounds + 1, MAX_COUNTED_FAILURES)
        pause = self.context.options.retry_interval * self.detector.interval_factor_for(
            len(round_.invited)
        )
        return pause * (
            2**self._failed_rounds * (0.5 + member_fraction(self.context.member_id))
            if self._failed_rounds
            else 1.0
        )

    def _build_view(self, round_: ViewRound) -> NewView:
        replies, number = round_.replies, round_.id.number
        cut: dict[bytes, int] = {}
        if self.detector.agreed_view is not None:
            cut = self.detector.agreed_view.merge_received(
                a for a in replies.values() if a.base_view != NO_VIEW
            )
        raise_entries(
            cut, merge_full_vectors(a for a in replies.values() if a.base_view == NO_VIEW)
        )
        # Merged groups may have more publishers together than the limit; the oldest member's come first.
        cut = dict(islice(cut.items(), self.receive_buffer.max_publishers + MAX_ORDER_PUBLISHERS))
        members = sorted(replies, key=lambda m: (replies[m].since_view or number, m))
        entries = tuple(ViewEntry(member, replies[member].role) for member in members)
        since_views = [replies[member].since_view or number for member in members]
        previous = sorted({a.view_id for a in replies.values()} - {NO_VIEW})
        reports = {reply.outsiders for reply in replies.values()}
        complete = (
            len(replies) == len(round_.invited)
            and OutsiderReport.HEARD not in reports
            and OutsiderReport.NONE in reports
        )
        return NewView(View(round_.id, entries), since_views, cut, previous, complete)

    # --- time ---

    def tick(self, now: float) -> None:
        self.detector.tick(now)
        promise, round_ = self._promise, self._round
        if round_ is not None:
            if now >= self._round_deadline(round_):
                self._decide_view(round_, now)
            elif round_.retry.is_due(now):
                prepare = Prepare(round_.id, list(round_.invited))
                for member in round_.invited:
                    if member not in round_.replies:
                        self.send(prepare, member, now)
        elif promise is not None:
            if now >= self._promise_deadline(promise):
                self._abandon_promise(now)
            elif promise.retry.is_due(now):
                self.send(promise.reply, promise.coordinator, now)
        self.detector.forget_silent_peers(now)
        self._start_round_if_needed(now)

    @property
    def _round_allowed_at(self) -> float:
        """When the next round may start at the earliest."""
        return max(self._next_round, self.detector.collecting_until)

    def _round_deadline(self, round_: ViewRound) -> float:
        """Return when to decide without the missing replies. While replies still arrive, the machine or the
        network is slow: restarting the round would not be faster. The limit is shorter than the one of
        `_promise_deadline`."""
        timeout = self.context.options.view_change_timeout * self.detector.interval_factor_for(
            len(round_.invited)
        )
        return min(round_.last_reply_at + timeout, round_.started_at + 2.5 * timeout)

    def _promise_deadline(self, promise: ViewPromise) -> float:
        """Return when to abandon a promise: later than the coordinator decides, or its view would come too
        late."""
        return (
            promise.started_at
            + 3
            * self.context.options.view_change_timeout
            * self.detector.interval_factor_for(promise.invited_count)
        )

    def _retry_interval(self, count: int) -> float:
        """Return the seconds before a request is repeated in a round of this many members."""
        return self.context.options.retry_interval * self.detector.interval_factor_for(count)

    def deadline(self) -> float | None:
        due = self.detector.deadline()
        if self._round is not None:
            due = min(due, self._round.retry.due_at, self._round_deadline(self._round))
        elif self._promise is not None:
            due = min(due, self._promise.retry.due_at, self._promise_deadline(self._promise))
        elif self._round_allowed_at > self.detector.last_active:
            due = min(due, self._round_allowed_at)
        return due
