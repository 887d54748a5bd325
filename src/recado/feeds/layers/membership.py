"""MEMBERSHIP: members send heartbeats; a silent member is excluded; all members agree on each view.

A view change has three steps. The coordinator, the oldest living member, sends PREPARE: every member stops
delivering. Each member replies PREPARED with the messages that it has received. VIEW then lists the members and
the cut, the maximum of what any of them has received. Each member releases the messages before the cut as soon
as it has them, and is in the view. No member waits for another one to do so.

Heartbeats go through the coordinator, so that their number grows linearly with the group:

    the core        the coordinator and the next DEPUTY_COUNT members by age hear each other every
                    `heartbeat_interval`
    other members   send theirs to the coordinator: archives every `heartbeat_interval`, subscribers less often
                    the larger the group is (`_interval_factor_for`)
    coordinator     is heard by the core every `heartbeat_interval`, by all members as often as it hears them
    newcomers       call the core every `heartbeat_interval`; the coordinator answers and invites them to the
                    next view. A newcomer that gets no answer listens to such calls itself, and so becomes the
                    first coordinator

PREPARE, PREPARED and VIEW contain only differences from the view that the coordinator and the receiver are in;
a receiver in another view is sent the complete packet.

MB1  View numbers grow, for each member and along every chain of views.
MB2  A member has promised itself to one round at a time, the highest that invited it, and accepts the VIEW of
     that round only; and none after it abandoned the promise, because by then it has delivered more than it had
     reported.
MB3  Between the promise and the view, or its abandonment, nothing is delivered.
MB4  The oldest member that a member hears is its coordinator. A member outside the core takes over only after
     all older ones had time to do so. After a partition, the oldest coordinator merges the groups into one
     view: members that hear an older coordinator than their own introduce themselves to it.
MB5  A member that did not reply is excluded, and invited again only after a while, or when it has come to
     another view by itself; so a member that cannot reply blocks no view.
MB6  A view is complete only if all invited members are in it, none of them hears another member, and one that
     hears all members and newcomers has listened for `failure_timeout`. While a view with an archive is not
     complete, another one follows.
MB7  Silence counts only while a member listens: `now` leaves stalls out, and after a stall a member has not
     listened for long. A member that is new in a view, or has just become its coordinator, listens for
     `failure_timeout` before it considers others failed. One that heard nothing at all, not even publishers,
     may have been disconnected, and has not listened.
MB8  A subscriber without recovery starts after all messages that were published before it. Where publishers
     resend messages, it keeps quiet until it has heard the last sequence of each: messages published after it
     joined are then certainly later.
MB9  Every coordinator in reach hears every living member: a newcomer calls the core, a coordinator calls all
     members, and a member that hears the coordinator of another view introduces itself. So a coordinator that
     has listened for `failure_timeout` knows all members. A subscriber that is alone in its view and hears an
     older coordinator calls that one only; its views are not complete meanwhile.
MB10  Waiting members do not slow down the member that they wait for: requests are repeated with exponential
      backoff, a coordinator calls all members at most once per `heartbeat_interval`, and a round continues
      while replies arrive. So an overloaded machine delays joining and does not prevent it.
"""

from collections.abc import Iterable
from itertools import islice
from math import log2
from zlib import crc32

from ..boundary import COORDINATORS, MEMBERS, LeaveRequested, ListenToCoordinators
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
    MAX_MEMBERS,
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
from .receive_buffer import LISTEN_HEARTBEAT_FACTOR, MAX_ORDER_PUBLISHERS, ReceiveBuffer

MAX_COUNTED_FAILURES = 4  # each doubles the pause between rounds
DEPUTY_COUNT = 4  # they detect the failure of the coordinator; more than fail at once by chance


class PeerState:
    """Another member, as it was last heard."""

    __slots__ = (
        "failure_timeout",
        "heard_at",
        "invite_after",
        "is_coordinator",
        "is_leaving",
        "role",
        "since_view",
        "view_id",
        "was_answered",
    )

    def __init__(self, heartbeat: Heartbeat, now: float, limit: float) -> None:
        self.invite_after = 0.0  # do not invite it before
        self.was_answered = False  # we have answered it as its coordinator
        self.failure_timeout = limit  # seconds of silence after which it counts as failed
        self.view_id = heartbeat.view_id
        self.update(heartbeat, now)

    def is_unchanged(self, heartbeat: Heartbeat) -> bool:
        return (
            self.view_id == heartbeat.view_id
            and self.since_view == heartbeat.since_view
            and self.is_leaving == heartbeat.is_leaving
            and self.is_coordinator == heartbeat.is_coordinator
        )

    def update(self, heartbeat: Heartbeat, now: float) -> None:
        if heartbeat.view_id != self.view_id:
            self.invite_after = 0.0
        self.role = heartbeat.role
        self.view_id = heartbeat.view_id
        self.since_view = heartbeat.since_view
        self.is_leaving = heartbeat.is_leaving
        self.is_coordinator = heartbeat.is_coordinator
        self.heard_at = now

    def is_alive(self, now: float) -> bool:
        return not self.is_leaving and now - self.heard_at < self.failure_timeout


class RetryTimer:
    """Exponential backoff for repeated requests: a slow receiver would be slower still with more to read."""

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

    def __init__(self, to: MemberId, answer: Prepared, size: int, pause: float, now: float) -> None:
        self.coordinator = to
        self.reply = answer
        self.invited_count = size  # number of invited members
        self.started_at = now
        self.retry = RetryTimer(pause, now)


class MembershipLayer(Layer):
    def __init__(self, context: MemberContext, receive_buffer: ReceiveBuffer, last: ViewId) -> None:
        super().__init__(context)
        self.receive_buffer = receive_buffer
        self.peers: dict[MemberId, PeerState] = {}
        """Members whose heartbeats we receive: those in the core or outside our view, or all if we coordinate.
        """
        self._agreed_view: AgreedView | None = None
        self._rank: int | None = None  # by age in our view; 0 coordinates
        self._listens_to_coordinators = False  # whether packets to coordinators are received
        self._listen_started = 0.0
        self._next_newcomer_call = 0.0  # while we are a newcomer
        self._call_interval = context.options.heartbeat_interval
        self._listen_after = 0.0
        self._monitored: set[MemberId] = set()  # members of our view whose failure we detect
        self._view_id = last
        self._since_view = 0
        self._max_view_number = last.number
        self._promised_round = last
        self._promise: ViewPromise | None = None
        self._round: ViewRound | None = None
        self._last_decided: NewView | None = None
        self._view_agreed_at = 0.0
        self._is_view_complete = False
        self._always_alone = True  # in every view so far
        self._started_at = 0.0
        self._last_active = 0.0
        self._last_heard = 0.0  # any other member or publisher
        self._hearing_since = 0.0  # without interruption
        self._next_heartbeat = 0.0
        self._heartbeats_until_broadcast = 0
        self._next_coordinator_broadcast = 0.0  # besides the regular heartbeats
        self._next_introduction = 0.0
        self._quiet_until = 0.0
        self._next_round = 0.0
        self._next_completion = 0.0
        self._failed_rounds = 0  # consecutive rounds that most members did not answer

    def start(self, now: float) -> None:
        self._started_at = self._last_active = self._last_heard = self._hearing_since = now
        options = self.context.options
        if self.receive_buffer.skips_history and not options.has_total_order:
            self._quiet_until = now + LISTEN_HEARTBEAT_FACTOR * options.heartbeat_interval
        delay = self._newcomer_delay() * options.heartbeat_interval
        self._next_newcomer_call = max(now + delay, self._quiet_until + delay / 2)
        self._listen_after = self._next_newcomer_call + options.retry_interval
        self._send_heartbeat(now)
        if self.context.role is Role.ARCHIVE:
            self._set_listening(True, now)

    def _newcomer_delay(self) -> float:
        """Heartbeats after which a newcomer calls again, and listens if it still gets no answer. Of members
        that start together few do so early, each time twice as many after a tenth of an interval: so the first
        one answers all but a few of the others."""
        return max(0.1, 1 + log2(self._member_fraction()) / 10)

    def _set_listening(self, to_coordinators: bool, now: float) -> None:
        if to_coordinators != self._listens_to_coordinators:
            self._listens_to_coordinators = to_coordinators
            self.context.effects.append(ListenToCoordinators(to_coordinators))
            self._hearing_since = self._listen_started = now

    def _postpone_listening(self, now: float) -> None:
        """A newcomer has seen that a coordinator makes views, and waits longer for its answer."""
        self._listen_after = max(self._listen_after, now + self.context.options.failure_timeout)

    # --- our position in the view ---

    @property
    def _is_coordinator(self) -> bool:
        return self._rank == 0

    @property
    def _accepts_newcomers(self) -> bool:
        """Whether newcomers should turn to us."""
        return self._listens_to_coordinators and not self._rank

    @property
    def _is_single(self) -> bool:
        """Whether we are a subscriber and the only member of our view. While an older coordinator lives, such a
        member waits for an invitation like a newcomer and calls only that coordinator: if many members start
        together and each called all others, packets would grow with the square of the group."""
        single = self._agreed_view is not None and len(self._agreed_view.view.entries) == 1
        return single and self.context.role is not Role.ARCHIVE

    @property
    def _is_in_core(self) -> bool:
        """Also true for a newcomer, which may become part of the core."""
        return self._rank is None or self._rank <= DEPUTY_COUNT

    @property
    def _hears_all_members(self) -> bool:
        """Whether we hear every member of our view."""
        if self._agreed_view is None or self._is_coordinator:
            return self._listens_to_coordinators
        return len(self._agreed_view.view.entries) <= DEPUTY_COUNT + 1

    def _is_in_view(self, member: MemberId) -> bool:
        return self._agreed_view is not None and member in self._agreed_view.rank_by_member

    def _interval_factor_for(self, members: int) -> float:
        """Return the factor by which intervals grow in a group of this size."""
        return max(1.0, members / self.context.options.full_rate_members)

    # --- receiving ---

    def up(self, event: UpEvent, now: float) -> None:
        if not isinstance(event, PacketReceived):
            self._pass_up(event, now)
            return
        self._last_active = now
        if event.sender != self.context.member_id:
            if not self._is_hearing(now):
                self._hearing_since = now
            self._last_heard = now
        match event.packet:
            case Heartbeat(_, view) | Prepare(view) if not is_plausible_view_number(
                view.number, self._max_view_number
            ):
                self.context.malformed_count += 1
            case Heartbeat() as heartbeat:
                self._handle_heartbeat(event.sender, heartbeat, now)
            case Prepare() as prepare:
                self._postpone_listening(now)
                invited = self._resolve_invited(prepare)
                self._handle_prepare(event.sender, prepare, invited, now)
                named = Prepare(prepare.round_id, invited)
                self._pass_up(PacketReceived(event.route, event.sender, named), now)
            case Prepared() as answer:
                self._handle_prepared(event.sender, answer, now)
            case NewView() as new:
                self._postpone_listening(now)
                self._accept_view(new, now)
            case ViewDelta() as next_:
                self._postpone_listening(now)
                if self._agreed_view is not None and self._agreed_view.id == next_.base_view:
                    self._accept_view(self._agreed_view.apply_delta(next_), now)
            case MembersRequest():
                self._send_members(event.sender, now)
            case _:
                self._pass_up(event, now)

    def down(self, event: DownEvent, now: float) -> None:
        if isinstance(event, LeaveRequested):
            heartbeat = Heartbeat(self.context.role, self._view_id, self._since_view, True)
            lead = self._heartbeat_target(now)
            if lead is not None:
                self.send(heartbeat, lead, now)
            if lead is None or self._is_in_core:
                self.send(heartbeat, COORDINATORS, now)
        self._pass_down(event, now)

    def _handle_heartbeat(self, sender: MemberId, heartbeat: Heartbeat, now: float) -> None:
        self._max_view_number = max(self._max_view_number, heartbeat.view_id.number)
        peer = self.peers.get(sender)
        ours = self._rank is not None and heartbeat.view_id == self._view_id
        if heartbeat.hears_outsiders and ours:
            self.context.outsider_heard_at = now
        if peer is not None and ours and peer.is_unchanged(heartbeat):
            peer.heard_at = now  # other members' silence is checked with our own heartbeat
            return
        if not heartbeat.is_leaving and not self._is_in_view(sender):
            self.context.outsider_heard_at = now
        news = peer is None or not peer.is_unchanged(heartbeat)
        if peer is not None:
            peer.update(heartbeat, now)
        elif not heartbeat.is_leaving and len(self.peers) < MAX_MEMBERS - 1:
            limit = self.context.options.failure_timeout * (
                1.0 if self._is_in_core else self.context.interval_factor
            )
            self.peers[sender] = PeerState(heartbeat, now, limit)
        if not ours and not heartbeat.is_leaving:
            self._handle_foreign_heartbeat(sender, heartbeat, news, now)
        self._start_round_if_needed(now)

    def _handle_foreign_heartbeat(
        self, sender: MemberId, heartbeat: Heartbeat, news: bool, now: float
    ) -> None:
        """Handle a newcomer, an excluded member, or a member of another group."""
        if not heartbeat.since_view:
            self._handle_newcomer(sender, heartbeat, now)
        elif self._rank is None:
            if heartbeat.is_coordinator and self.context.role is not Role.ARCHIVE:
                self._set_listening(False, now)
        elif (
            heartbeat.is_coordinator
            and self._accepts_newcomers
            and not self._is_older(sender, heartbeat)
        ):
            if news:
                self._call_other_group(now)
        elif heartbeat.is_coordinator:
            if self._is_single:
                self._set_listening(False, now)
            self._introduce(sender, now)
        if (
            news
            and self._rank is None
            and not self._listens_to_coordinators
            and self._heartbeat_target(now) is None
        ):
            self._send_heartbeat(now)  # our previous coordinator refers us to another one

    def _handle_newcomer(self, sender: MemberId, heartbeat: Heartbeat, now: float) -> None:
        """Answer a newcomer, so that it knows us at once; or tell it that we are no longer its coordinator."""
        rivals = self._rank is None and heartbeat.is_coordinator
        if rivals and sender < self.context.member_id and self.context.role is not Role.ARCHIVE:
            self._set_listening(False, now)
        peer = self.peers.get(sender)
        if peer is not None and (self._accepts_newcomers or peer.was_answered):
            peer.was_answered = self._accepts_newcomers
            self.send(self._build_heartbeat(now), sender, now)

    def _call_other_group(self, now: float) -> None:
        """Call the members of a younger coordinator's view; those that answer are invited to the next view.
        Each call reaches all members of the feed: competing coordinators share one per heartbeat interval."""
        if now >= self._next_coordinator_broadcast:
            self._broadcast_heartbeat(now)
        else:
            self._heartbeats_until_broadcast = 0
        self._next_round = max(self._next_round, now + self.context.options.retry_interval)

    def _introduce(self, coordinator: MemberId, now: float) -> None:
        """MB9: tell the coordinator of another view that we are alive."""
        if now >= self._next_introduction:
            self._next_introduction = now + self.context.options.heartbeat_interval / 2
            self.send(self._build_heartbeat(now), coordinator, now)

    def _send_members(self, sender: MemberId, now: float) -> None:
        if self._agreed_view is not None and self._is_coordinator:
            view, since = self._agreed_view.view, self._agreed_view.since_views
            self.send(NewView(view, since, {}, [], self._is_view_complete), sender, now)

    def adjust_for_stall(self, seconds: float) -> None:
        """MB7: packets sent meanwhile may be lost. The loop has run again within a heartbeat interval."""
        if seconds > self.context.options.failure_timeout / 2:
            self._hearing_since = self._last_active + self._heartbeat_interval()

    # --- promising ---

    def _resolve_invited(self, prepare: Prepare) -> list[MemberId]:
        """Return the invited members; empty if we are not in the base view: then we are sent the complete
        packet."""
        if prepare.base_view == NO_VIEW:
            return prepare.added
        if self._agreed_view is not None and self._agreed_view.id == prepare.base_view:
            return self._agreed_view.resolve_invited(prepare)
        return []

    def _handle_prepare(
        self, sender: MemberId, prepare: Prepare, invited: list[MemberId], now: float
    ) -> None:
        round_ = prepare.round_id
        self._max_view_number = max(self._max_view_number, round_.number)
        promise = self._promise
        if promise is not None and promise.reply.round_id == round_:
            if sender != self.context.member_id and self.context.member_id in invited:
                self.send(promise.reply, promise.coordinator, now)
        elif self.context.member_id in invited and round_ > self._promised_round:
            if sender != self.context.member_id:
                self._round = None
            self._promise_round(sender, round_, invited, prepare.base_view, now)

    def _promise_round(
        self, to: MemberId, round_: ViewId, invited: list[MemberId], base: ViewId, now: float
    ) -> None:
        """Stop delivering and report the messages that we have."""
        self._promised_round = round_
        self.receive_buffer.freeze()
        vector = self.receive_buffer.received_sequences()
        if base != NO_VIEW:
            assert self._agreed_view is not None
            vector = self._agreed_view.subtract_cut(vector)
        context = self.context
        # A subscriber alone in its view has seen no member of interest to archives.
        unseen = self._always_alone and context.role is not Role.ARCHIVE
        view = NO_VIEW if unseen else self._view_id
        outlook = self._report_outsiders(invited, now)
        answer = Prepared(round_, context.role, view, self._since_view, vector, outlook, base)
        self._promise = ViewPromise(
            to, answer, len(invited), self._retry_interval(len(invited)), now
        )
        if to == context.member_id:
            self._handle_prepared(to, answer, now)
        else:
            self.send(answer, to, now)

    def _report_outsiders(self, invited: list[MemberId], now: float) -> OutsiderReport:
        heard = {m.name for m, peer in self.peers.items() if peer.is_alive(now)}
        if heard.difference(m.name for m in invited):  # a returning name counts once
            return OutsiderReport.HEARD
        return (
            OutsiderReport.NONE
            if self._hears_all_members and self._has_listened(now)
            else OutsiderReport.UNSURE
        )

    def _is_hearing(self, now: float) -> bool:
        return (
            now - self._last_heard
            <= self.context.options.failure_timeout * self.context.interval_factor / 2
        )

    def _has_listened(self, now: float) -> bool:
        wanted = self.context.options.failure_timeout * self.context.interval_factor
        return self._is_hearing(now) and now - self._hearing_since >= wanted

    def _abandon_promise(self, now: float) -> None:
        self._promise = None
        self._pass_up(ViewChangeAbandoned(), now)

    def _accept_view(self, new: NewView, now: float) -> None:
        view, promise = new.view, self._promise
        rank = next(
            (i for i, s in enumerate(view.entries) if s.member == self.context.member_id), None
        )
        if rank is None:
            if view.entries and view.id.number > self._view_id.number:
                self._introduce(view.entries[0].member, now)
            return
        if (
            promise is None
            or promise.reply.round_id != view.id
            or len(new.since_views) != len(view.entries)
        ):
            return
        self._promise = None
        self._view_id = view.id
        self._view_agreed_at = now
        self._is_view_complete = new.is_complete
        self._always_alone = self._always_alone and len(view.entries) == 1
        self._max_view_number = max(self._max_view_number, view.id.number)
        self._since_view = new.since_views[rank]
        self.context.agreed_view = view
        self._enter_view(AgreedView(new), rank, now)
        record = ViewRecord(
            view, Vector(new.cut), tuple(new.previous_views), complete=new.is_complete
        )
        self._pass_up(ViewAgreed(record), now)

    def _enter_view(self, agreed: AgreedView, rank: int, now: float) -> None:
        """Monitor the members whose heartbeats we receive in this position."""
        heard_all = self._hears_all_members
        self._agreed_view, self._rank = agreed, rank
        entries = agreed.view.entries
        context, options = self.context, self.context.options
        context.interval_factor = self._interval_factor_for(len(entries))
        self._set_listening(self._is_in_core, now)
        if self._is_coordinator and not heard_all:
            self._hearing_since = now
        watched = len(entries) if rank == 0 else DEPUTY_COUNT + 1 if self._is_in_core else 1
        self._monitored = set()
        self.peers = {m: peer for m, peer in self.peers.items() if not self._is_in_view(m)}
        for i, entry in enumerate(entries[:watched]):
            if entry.member != context.member_id:
                heartbeat = Heartbeat(
                    entry.role, agreed.id, agreed.since_views[i], is_coordinator=i == 0
                )
                limit = options.failure_timeout
                if not self._is_in_core:
                    # Older members notice a failure before, and one of them takes over.
                    limit += (
                        limit * (context.interval_factor - 1)
                        + (rank - DEPUTY_COUNT) * options.retry_interval / 4
                    )
                elif i > DEPUTY_COUNT and entry.role is not Role.ARCHIVE:
                    limit *= context.interval_factor
                self._monitored.add(entry.member)
                self.peers[entry.member] = PeerState(heartbeat, now, limit)
        self._next_heartbeat = min(self._next_heartbeat, now + self._heartbeat_interval())

    # --- coordinating ---

    def _start_round_if_needed(self, now: float) -> None:
        """Start a view change if the view is not as it should be and we are responsible."""
        options = self.context.options
        if self._round is not None or self._promise is not None or now < self._next_round:
            return
        if self._view_id == NO_VIEW:  # hear other listening newcomers first
            begins = max(
                self._started_at + 2 * options.heartbeat_interval,
                self._listen_started + 2 * options.retry_interval,
            )
            if not self._listens_to_coordinators or now < begins:
                return
        living = {m: peer for m, peer in self.peers.items() if peer.is_alive(now)}
        if any(self._is_older(member, peer) for member, peer in living.items()):
            return
        failed = self._monitored - living.keys()
        fresh_view = (
            now
            < self._view_agreed_at + 2 * options.view_change_timeout * self.context.interval_factor
        )
        wanted, astray = [], False
        for member, peer in living.items():
            if peer.invite_after <= now:
                seated = self._is_in_view(member)
                astray = astray or (peer.view_id != self._view_id and not (seated and fresh_view))
                if not seated:
                    wanted.append(member)
        view = self.context.agreed_view
        if view is None or astray or failed or self._needs_completion(view, living, now):
            kept = [m for m in view.members() if m not in failed] if view is not None else []
            shy = {m for m, peer in living.items() if peer.invite_after > now}
            member_id = self.context.member_id
            self._start_round(
                [member_id, *(m for m in (*kept, *wanted) if m != member_id and m not in shy)], now
            )

    def _is_older(self, member: MemberId, peer: PeerState | Heartbeat) -> bool:
        """Return whether this member coordinates before us. Of newcomers, only listening ones do."""
        if not peer.since_view and not peer.is_coordinator:
            return False
        youngest = self._max_view_number + 1
        return (peer.since_view or youngest, member) < (
            self._since_view or youngest,
            self.context.member_id,
        )

    def _needs_completion(self, view: View, living: dict[MemberId, PeerState], now: float) -> bool:
        """Return whether archives would learn from another view that all absent members are silent."""
        if self._is_view_complete or now < self._next_completion or not view.archive_members():
            return False
        return self._has_listened(now) and all(map(self._is_in_view, living))

    def _start_round(self, invited: list[MemberId], now: float) -> None:
        self._max_view_number += 1
        round_ = ViewId(self._max_view_number, self.context.member_id.incarnation)
        self._round = ViewRound(round_, invited, self._retry_interval(len(invited)), now)
        whole = Prepare(round_, invited)
        base = NO_VIEW
        if self.context.options.has_total_order and self._has_archive():
            self.send(Prepare(round_, []), None, now)
        short = (
            None if self._agreed_view is None else self._agreed_view.build_prepare(round_, invited)
        )
        if short is None or 2 * len(short.added) > len(invited):
            self.send(whole, MEMBERS, now)
        else:
            base = short.base_view
            self.send(short, MEMBERS, now)
            for member in short.added:
                self.send(whole, member, now)
        self._promise_round(self.context.member_id, round_, invited, base, now)

    def _has_archive(self) -> bool:
        view = self.context.agreed_view
        return (
            self.context.role is Role.ARCHIVE
            or any(peer.role is Role.ARCHIVE for peer in self.peers.values())
            or (view is not None and bool(view.archive_members()))
        )

    def _handle_prepared(self, sender: MemberId, answer: Prepared, now: float) -> None:
        round_ = self._round
        if round_ is None or answer.round_id != round_.id:
            decided = self._last_decided
            if decided is not None and answer.round_id == decided.view.id:
                self.send(decided, sender, now)
        elif sender in round_.invited and answer.base_view in (NO_VIEW, self._base_view()):
            if sender not in round_.replies:
                round_.last_reply_at = now
            round_.replies[sender] = answer
            if len(round_.replies) == len(round_.invited):
                self._decide_view(round_, now)

    def _base_view(self) -> ViewId:
        return NO_VIEW if self._agreed_view is None else self._agreed_view.id

    def _decide_view(self, round_: ViewRound, now: float) -> None:
        suspect = self.context.options.failure_timeout * self.context.interval_factor
        self._round = None
        self._next_round = now + self._round_pause(round_)
        self._next_completion = now + suspect if self._has_listened(now) else 0.0
        for member in round_.invited:
            if member not in round_.replies and member in self.peers:
                self.peers[member].invite_after = now + 2 * suspect
        decided = self._last_decided = self._build_view(round_)
        elsewhere = [m for m, answer in round_.replies.items() if answer.base_view == NO_VIEW]
        if self._agreed_view is None or 2 * len(elsewhere) > len(round_.replies):
            self.send(decided, MEMBERS, now)
        else:
            self.send(self._agreed_view.build_delta(decided), MEMBERS, now)
            for member in elsewhere:
                self.send(decided, member, now)
        self._accept_view(decided, now)

    def _round_pause(self, round_: ViewRound) -> float:
        """Return the seconds until the next round: newcomers are collected meanwhile. If most members did not
        reply, they may have promised themselves to a competing coordinator: back off with jitter."""
        if 2 * len(round_.replies) > len(round_.invited):
            self._failed_rounds = 0
        else:
            self._failed_rounds = min(self._failed_rounds + 1, MAX_COUNTED_FAILURES)
        pause = self.context.options.retry_interval * self._interval_factor_for(len(round_.invited))
        return pause * (
            2**self._failed_rounds * (0.5 + self._member_fraction()) if self._failed_rounds else 1.0
        )

    def _member_fraction(self) -> float:
        """Return a constant of this member between 0 and 1, used as jitter."""
        return (crc32(self.context.member_id.incarnation) + 1) / 2**32

    def _build_view(self, round_: ViewRound) -> NewView:
        answers, number = round_.replies, round_.id.number
        cut: dict[bytes, int] = {}
        if self._agreed_view is not None:
            cut = self._agreed_view.merge_received(
                a for a in answers.values() if a.base_view != NO_VIEW
            )
        raise_entries(
            cut, merge_full_vectors(a for a in answers.values() if a.base_view == NO_VIEW)
        )
        # Merged groups may have more publishers together than the limit; the oldest member's come first.
        cut = dict(islice(cut.items(), self.receive_buffer.max_publishers + MAX_ORDER_PUBLISHERS))
        order = sorted(answers, key=lambda m: (answers[m].since_view or number, m))
        entries = tuple(ViewEntry(member, answers[member].role) for member in order)
        since = [answers[member].since_view or number for member in order]
        previous = sorted({a.view_id for a in answers.values()} - {NO_VIEW})
        outlooks = {answer.outsiders for answer in answers.values()}
        complete = (
            len(answers) == len(round_.invited)
            and OutsiderReport.HEARD not in outlooks
            and OutsiderReport.NONE in outlooks
        )
        return NewView(View(round_.id, entries), since, cut, previous, complete)

    # --- time ---

    def _heartbeat_interval(self) -> float:
        """Return the seconds between our heartbeats."""
        full_rate = self._is_in_core or self.context.role is Role.ARCHIVE
        return self.context.options.heartbeat_interval * (
            1.0 if full_rate else self.context.interval_factor
        )

    def _build_heartbeat(self, now: float) -> Heartbeat:
        hears_others = now - self.context.outsider_heard_at < self.context.options.failure_timeout
        return Heartbeat(
            self.context.role,
            self._view_id,
            self._since_view,
            is_coordinator=self._accepts_newcomers,
            hears_outsiders=self._is_coordinator and hears_others,
        )

    def _heartbeat_target(self, now: float) -> MemberId | None:
        """Return the coordinator to which we send heartbeats; None if we are in the core, or hear none (alone
        in a view: none that is older)."""
        if self._rank is not None and not self._is_single:
            agreed = self._agreed_view
            assert agreed is not None
            return None if self._is_in_core else agreed.view.entries[0].member
        leads = [
            (p.since_view or self._max_view_number + 1, m)
            for m, p in self.peers.items()
            if p.is_coordinator and p.is_alive(now) and (self._rank is None or self._is_older(m, p))
        ]
        return min(leads)[1] if leads and not self._listens_to_coordinators else None

    def _send_heartbeat(self, now: float) -> None:
        if now < self._quiet_until:
            self._next_heartbeat = self._quiet_until
            return
        self._next_heartbeat = now + self._heartbeat_interval()
        if self._rank is None and now >= self._next_newcomer_call:
            # Waiting newcomers must not slow down the coordinator that has to answer: back off.
            self._next_heartbeat = now + self._call_interval
            self._call_interval = min(
                2 * self._call_interval, self.context.options.failure_timeout / 2
            )
        if self._rank is None and now < self._next_newcomer_call:
            self._next_heartbeat = min(self._next_heartbeat, self._next_newcomer_call)
        if self._is_single and self._heartbeat_target(now) is None:
            self._set_listening(True, now)
        self._heartbeats_until_broadcast -= 1
        if (
            self._is_coordinator
            and self._accepts_newcomers
            and self._heartbeats_until_broadcast <= 0
        ):
            self._broadcast_heartbeat(now)
        else:
            self.send(self._build_heartbeat(now), self._heartbeat_target(now) or COORDINATORS, now)

    def _broadcast_heartbeat(self, now: float) -> None:
        """Send the coordinator's heartbeat to all members."""
        self._heartbeats_until_broadcast = round(self.context.interval_factor)
        self._next_coordinator_broadcast = now + self.context.options.heartbeat_interval
        self.send(self._build_heartbeat(now), MEMBERS, now)

    def tick(self, now: float) -> None:
        options = self.context.options
        self._last_active = now
        newcomer = self._rank is None and not self._listens_to_coordinators
        if newcomer and now >= self._listen_after and self._heartbeat_target(now) is None:
            self._set_listening(True, now)
            self._send_heartbeat(now)
            self._next_heartbeat = (
                now + options.retry_interval
            )  # other newcomers may not listen yet
        if now >= self._next_heartbeat:
            self._send_heartbeat(now)
        promise, round_ = self._promise, self._round
        if round_ is not None:
            if now >= self._round_deadline(round_):
                self._decide_view(round_, now)
            elif round_.retry.is_due(now):
                whole = Prepare(round_.id, list(round_.invited))
                for member in round_.invited:
                    if member not in round_.replies:
                        self.send(whole, member, now)
        elif promise is not None:
            if now >= self._promise_deadline(promise):
                self._abandon_promise(now)
            elif promise.retry.is_due(now):
                self.send(promise.reply, promise.coordinator, now)
        for member, peer in list(self.peers.items()):
            if now - peer.heard_at > 10 * options.failure_timeout or peer.is_leaving:
                self._forget_peer(member)
        self._start_round_if_needed(now)

    def _round_deadline(self, round_: ViewRound) -> float:
        """Return when to decide without the missing replies. While replies still arrive, the machine or the
        network is slow: restarting the round would not be faster. The limit is shorter than the one of
        `_promise_deadline`."""
        flush = self.context.options.view_change_timeout * self._interval_factor_for(
            len(round_.invited)
        )
        return min(round_.last_reply_at + flush, round_.started_at + 2.5 * flush)

    def _promise_deadline(self, promise: ViewPromise) -> float:
        """Return when to abandon a promise: later than the coordinator decides, or its view would come too
        late."""
        return (
            promise.started_at
            + 3
            * self.context.options.view_change_timeout
            * self._interval_factor_for(promise.invited_count)
        )

    def _retry_interval(self, size: int) -> float:
        """Return the seconds before a request is repeated in a round of this many members."""
        return self.context.options.retry_interval * self._interval_factor_for(size)

    def _forget_peer(self, member: MemberId) -> None:
        """Forget a failed or leaving member, unless it is in our view."""
        if member not in self._monitored:
            del self.peers[member]

    def deadline(self) -> float | None:
        due = self._next_heartbeat
        if self._rank is None:
            for moment in (
                self._listen_after,
                self._listen_started + 2 * self.context.options.retry_interval,
            ):
                if moment > self._last_active:
                    due = min(due, moment)
        if self._round is not None:
            due = min(due, self._round.retry.due_at, self._round_deadline(self._round))
        elif self._promise is not None:
            due = min(due, self._promise.retry.due_at, self._promise_deadline(self._promise))
        elif self._next_round > self._last_active:
            due = min(due, self._next_round)
        return due
