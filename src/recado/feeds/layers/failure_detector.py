"""Heartbeats and failure detection: which other members live, and to which of them we send heartbeats.

Heartbeats go through the coordinator, so that their number grows linearly with the group:

    the core        the coordinator and the next DEPUTY_COUNT members by age hear each other every
                    `heartbeat_interval`
    other members   send theirs to the coordinator: archives every `heartbeat_interval`, subscribers less often
                    the larger the group is (`interval_factor_for`)
    coordinator     is heard by the core every `heartbeat_interval`, by all members as often as it hears them
    newcomers       call the core every `heartbeat_interval`; the coordinator answers and invites them to the
                    next view. A newcomer that gets no answer listens to such calls itself, and so becomes the
                    first coordinator

A member that is silent for `failure_timeout` counts as failed; `membership` then makes a view without it. The
invariants of both modules are listed there: this one is responsible for FM4 and FM7 to FM10.
"""

from collections.abc import Callable
from math import log2
from zlib import crc32

from ..boundary import COORDINATORS, MEMBERS, ListenToCoordinators, Target
from ..layer import MemberContext
from ..packet import Heartbeat, OutsiderReport, Packet
from ..views import MAX_MEMBERS, MemberId, Role, ViewId
from .agreed_view import AgreedView
from .receive_buffer import LISTEN_HEARTBEAT_FACTOR

# Deputies detect the failure of the coordinator; more than four members rarely fail at the same time.
DEPUTY_COUNT = 4

SendFunction = Callable[[Packet, Target | None, float], None]
"""Sends a packet at a time: `Layer.send`."""


def member_fraction(member: MemberId) -> float:
    """Return a constant of this member between 0 and 1, used as jitter."""
    return (crc32(member.incarnation) + 1) / 2**32


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


class FailureDetector:
    def __init__(self, context: MemberContext, send: SendFunction, last: ViewId) -> None:
        self.context = context
        self._send = send
        self.peers: dict[MemberId, PeerState] = {}
        """Members whose heartbeats we receive: those in the core or outside our view, or all if we coordinate.
        """
        self.monitored: set[MemberId] = set()
        """Members of our view whose failure we detect."""
        self.agreed_view: AgreedView | None = None
        self.view_id = last
        self.since_view = 0
        """Number of the first view of our present stay; 0 for a newcomer."""
        self.max_view_number = last.number
        """The highest view number that we have heard of."""
        self._rank: int | None = None  # by age in our view; 0 coordinates
        self.listens_to_coordinators = False
        """Whether we receive packets to coordinators."""
        self.listen_started = 0.0
        self.started_at = 0.0
        self.last_active = 0.0
        """When we last handled a packet or a timer."""
        self.collecting_until = 0.0
        """No round starts before: members of another group were called, and their answers are collected."""
        self._next_newcomer_call = 0.0  # while we are a newcomer
        self._call_interval = context.options.heartbeat_interval
        self._listen_after = 0.0
        self._last_heard = 0.0  # any other member or publisher
        self._hearing_since = 0.0  # without interruption
        self._next_heartbeat = 0.0
        self._heartbeats_until_broadcast = 0
        self._next_coordinator_broadcast = 0.0  # besides the regular heartbeats
        self._next_introduction = 0.0
        self._quiet_until = 0.0

    def start(self, listens_first: bool, now: float) -> None:
        """Start as a newcomer; with `listens_first`, keep quiet until publishers were heard (FM8)."""
        self.started_at = self.last_active = self._last_heard = self._hearing_since = now
        options = self.context.options
        if listens_first:
            self._quiet_until = now + LISTEN_HEARTBEAT_FACTOR * options.heartbeat_interval
        delay = self._newcomer_delay() * options.heartbeat_interval
        self._next_newcomer_call = max(now + delay, self._quiet_until + delay / 2)
        self._listen_after = self._next_newcomer_call + options.retry_interval
        self._send_heartbeat(now)
        if self.context.role is Role.ARCHIVE:
            self._set_listening(True, now)

    def _newcomer_delay(self) -> float:
        """Return the heartbeat intervals after which a newcomer calls again, and listens if it still gets no
        answer. If many members start together, the number of those that have called doubles with every tenth of
        an interval. Then only a few listen early, and the first one answers most of the others before they listen."""
        return max(0.1, 1 + log2(member_fraction(self.context.member_id)) / 10)

    def _set_listening(self, to_coordinators: bool, now: float) -> None:
        if to_coordinators != self.listens_to_coordinators:
            self.listens_to_coordinators = to_coordinators
            self.context.effects.append(ListenToCoordinators(to_coordinators))
            self._hearing_since = self.listen_started = now

    def postpone_listening(self, now: float) -> None:
        """A newcomer has seen that a coordinator makes views, and waits longer for its answer."""
        self._listen_after = max(self._listen_after, now + self.context.options.failure_timeout)

    # --- our position in the view ---

    @property
    def is_coordinator(self) -> bool:
        return self._rank == 0

    @property
    def _accepts_newcomers(self) -> bool:
        """Whether newcomers should turn to us."""
        return self.listens_to_coordinators and not self._rank

    @property
    def _is_single(self) -> bool:
        """Whether we are a subscriber and the only member of our view. While an older coordinator lives, such a
        member waits for an invitation like a newcomer and calls only that coordinator: if many members start
        together and each called all others, packets would grow with the square of the group."""
        single = self.agreed_view is not None and len(self.agreed_view.view.entries) == 1
        return single and self.context.role is not Role.ARCHIVE

    @property
    def _is_in_core(self) -> bool:
        """Also true for a newcomer, which may become part of the core."""
        return self._rank is None or self._rank <= DEPUTY_COUNT

    @property
    def _hears_all_members(self) -> bool:
        """Whether we hear every member of our view."""
        if self.agreed_view is None or self.is_coordinator:
            return self.listens_to_coordinators
        return len(self.agreed_view.view.entries) <= DEPUTY_COUNT + 1

    def is_in_view(self, member: MemberId) -> bool:
        return self.agreed_view is not None and member in self.agreed_view.rank_by_member

    def is_older(self, member: MemberId, peer: PeerState | Heartbeat) -> bool:
        """Return whether this member coordinates before us. Of newcomers, only listening ones do."""
        if not peer.since_view and not peer.is_coordinator:
            return False
        youngest = self.max_view_number + 1
        return (peer.since_view or youngest, member) < (
            self.since_view or youngest,
            self.context.member_id,
        )

    def interval_factor_for(self, members: int) -> float:
        """Return the factor by which intervals grow in a group of this size."""
        return max(1.0, members / self.context.options.full_rate_members)

    def enter_view(self, agreed: AgreedView, rank: int, now: float) -> None:
        """Monitor the members whose heartbeats we receive in this position."""
        heard_all = self._hears_all_members
        self.agreed_view, self._rank = agreed, rank
        self.view_id, self.since_view = agreed.id, agreed.since_views[rank]
        self.note_view_number(agreed.id.number)
        entries = agreed.view.entries
        context, options = self.context, self.context.options
        context.interval_factor = self.interval_factor_for(len(entries))
        self._set_listening(self._is_in_core, now)
        if self.is_coordinator and not heard_all:
            self._hearing_since = now
        monitored_count = len(entries) if rank == 0 else DEPUTY_COUNT + 1 if self._is_in_core else 1
        self.monitored = set()
        self.peers = {m: peer for m, peer in self.peers.items() if not self.is_in_view(m)}
        for i, entry in enumerate(entries[:monitored_count]):
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
                self.monitored.add(entry.member)
                self.peers[entry.member] = PeerState(heartbeat, now, limit)
        self._next_heartbeat = min(self._next_heartbeat, now + self._heartbeat_interval())

    # --- receiving ---

    def note_packet(self, sender: MemberId, now: float) -> None:
        """Note that a packet of any kind arrived: we are connected (FM7)."""
        self.last_active = now
        if sender != self.context.member_id:
            if not self._is_hearing(now):
                self._hearing_since = now
            self._last_heard = now

    def note_view_number(self, number: int) -> None:
        self.max_view_number = max(self.max_view_number, number)

    def living(self, now: float) -> dict[MemberId, PeerState]:
        """Return the peers that are not considered failed or leaving."""
        return {member: peer for member, peer in self.peers.items() if peer.is_alive(now)}

    def has_archive(self) -> bool:
        """Return whether an archive is among the members that we hear."""
        return any(peer.role is Role.ARCHIVE for peer in self.peers.values())

    def postpone_invitation(self, member: MemberId, until: float) -> None:
        """Do not invite a member that did not reply, until it comes to another view (FM5)."""
        if member in self.peers:
            self.peers[member].invite_after = until

    def leave(self, now: float) -> None:
        """Tell the coordinator, or the core if we are in it, that we leave."""
        heartbeat = Heartbeat(self.context.role, self.view_id, self.since_view, True)
        coordinator = self._heartbeat_target(now)
        if coordinator is not None:
            self._send(heartbeat, coordinator, now)
        if coordinator is None or self._is_in_core:
            self._send(heartbeat, COORDINATORS, now)

    def handle_heartbeat(self, sender: MemberId, heartbeat: Heartbeat, now: float) -> bool:
        """Handle the heartbeat of another member; return whether the view may have to change."""
        self.max_view_number = max(self.max_view_number, heartbeat.view_id.number)
        peer = self.peers.get(sender)
        is_ours = self._rank is not None and heartbeat.view_id == self.view_id
        if heartbeat.hears_outsiders and is_ours:
            self.context.outsider_heard_at = now
        if peer is not None and is_ours and peer.is_unchanged(heartbeat):
            peer.heard_at = now  # other members' silence is checked with our own heartbeat
            return False
        if not heartbeat.is_leaving and not self.is_in_view(sender):
            self.context.outsider_heard_at = now
        is_new = peer is None or not peer.is_unchanged(heartbeat)
        if peer is not None:
            peer.update(heartbeat, now)
        elif not heartbeat.is_leaving and len(self.peers) < MAX_MEMBERS - 1:
            limit = self.context.options.failure_timeout * (
                1.0 if self._is_in_core else self.context.interval_factor
            )
            self.peers[sender] = PeerState(heartbeat, now, limit)
        if not is_ours and not heartbeat.is_leaving:
            self._handle_foreign_heartbeat(sender, heartbeat, is_new, now)
        return True

    def _handle_foreign_heartbeat(
        self, sender: MemberId, heartbeat: Heartbeat, is_new: bool, now: float
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
            and not self.is_older(sender, heartbeat)
        ):
            if is_new:
                self._call_other_group(now)
        elif heartbeat.is_coordinator:
            if self._is_single:
                self._set_listening(False, now)
            self.introduce(sender, now)
        if (
            is_new
            and self._rank is None
            and not self.listens_to_coordinators
            and self._heartbeat_target(now) is None
        ):
            self._send_heartbeat(now)  # our previous coordinator refers us to another one

    def _handle_newcomer(self, sender: MemberId, heartbeat: Heartbeat, now: float) -> None:
        """Answer a newcomer, so that it knows us at once; or tell it that we are no longer its coordinator."""
        is_rival = self._rank is None and heartbeat.is_coordinator
        if is_rival and sender < self.context.member_id and self.context.role is not Role.ARCHIVE:
            self._set_listening(False, now)
        peer = self.peers.get(sender)
        if peer is not None and (self._accepts_newcomers or peer.was_answered):
            peer.was_answered = self._accepts_newcomers
            self._send(self._build_heartbeat(now), sender, now)

    def _call_other_group(self, now: float) -> None:
        """Call the members of a younger coordinator's view; those that answer are invited to the next view.
        Each call reaches all members of the feed: competing coordinators share one per heartbeat interval."""
        if now >= self._next_coordinator_broadcast:
            self._broadcast_heartbeat(now)
        else:
            self._heartbeats_until_broadcast = 0
        self.collecting_until = now + self.context.options.retry_interval

    def introduce(self, coordinator: MemberId, now: float) -> None:
        """FM9: tell the coordinator of another view that we are alive."""
        if now >= self._next_introduction:
            self._next_introduction = now + self.context.options.heartbeat_interval / 2
            self._send(self._build_heartbeat(now), coordinator, now)

    # --- silence ---

    def report_outsiders(self, invited: list[MemberId], now: float) -> OutsiderReport:
        """Return whether we hear members that are not invited to a view (FM6)."""
        heard = {m.name for m, peer in self.peers.items() if peer.is_alive(now)}
        if heard.difference(m.name for m in invited):  # a returning name counts once
            return OutsiderReport.HEARD
        return (
            OutsiderReport.NONE
            if self._hears_all_members and self.has_listened(now)
            else OutsiderReport.UNSURE
        )

    def _is_hearing(self, now: float) -> bool:
        """Return whether any packet arrived recently: otherwise we may be disconnected (FM7)."""
        return (
            now - self._last_heard
            <= self.context.options.failure_timeout * self.context.interval_factor / 2
        )

    def has_listened(self, now: float) -> bool:
        """Return whether we have listened for long enough to know all living members (FM7)."""
        required = self.context.options.failure_timeout * self.context.interval_factor
        return self._is_hearing(now) and now - self._hearing_since >= required

    def adjust_for_stall(self, seconds: float) -> None:
        """After a long stall, begin to listen anew: packets sent meanwhile may be lost (FM7).

        The current time is not known here. In the time of the member, which leaves the stall out, it is about
        one heartbeat interval after `last_active` at most, because the timer for the next heartbeat was due by
        then.
        """
        if seconds > self.context.options.failure_timeout / 2:
            self._hearing_since = self.last_active + self._heartbeat_interval()

    # --- sending heartbeats ---

    def _heartbeat_interval(self) -> float:
        """Return the seconds between our heartbeats."""
        full_rate = self._is_in_core or self.context.role is Role.ARCHIVE
        return self.context.options.heartbeat_interval * (
            1.0 if full_rate else self.context.interval_factor
        )

    def _build_heartbeat(self, now: float) -> Heartbeat:
        hears_outsiders = (
            now - self.context.outsider_heard_at < self.context.options.failure_timeout
        )
        return Heartbeat(
            self.context.role,
            self.view_id,
            self.since_view,
            is_coordinator=self._accepts_newcomers,
            hears_outsiders=self.is_coordinator and hears_outsiders,
        )

    def _heartbeat_target(self, now: float) -> MemberId | None:
        """Return the coordinator to which we send heartbeats; None if we are in the core, or hear none (alone
        in a view: none that is older)."""
        if self._rank is not None and not self._is_single:
            agreed = self.agreed_view
            assert agreed is not None
            return None if self._is_in_core else agreed.view.entries[0].member
        coordinators = [
            (p.since_view or self.max_view_number + 1, m)
            for m, p in self.peers.items()
            if p.is_coordinator and p.is_alive(now) and (self._rank is None or self.is_older(m, p))
        ]
        return min(coordinators)[1] if coordinators and not self.listens_to_coordinators else None

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
            self.is_coordinator
            and self._accepts_newcomers
            and self._heartbeats_until_broadcast <= 0
        ):
            self._broadcast_heartbeat(now)
        else:
            self._send(self._build_heartbeat(now), self._heartbeat_target(now) or COORDINATORS, now)

    def _broadcast_heartbeat(self, now: float) -> None:
        """Send the coordinator's heartbeat to all members."""
        self._heartbeats_until_broadcast = round(self.context.interval_factor)
        self._next_coordinator_broadcast = now + self.context.options.heartbeat_interval
        self._send(self._build_heartbeat(now), MEMBERS, now)

    # --- time ---

    def tick(self, now: float) -> None:
        self.last_active = now
        is_newcomer = self._rank is None and not self.listens_to_coordinators
        if is_newcomer and now >= self._listen_after and self._heartbeat_target(now) is None:
            self._set_listening(True, now)
            self._send_heartbeat(now)
            # Other newcomers may not listen yet.
            self._next_heartbeat = now + self.context.options.retry_interval
        if now >= self._next_heartbeat:
            self._send_heartbeat(now)

    def forget_silent_peers(self, now: float) -> None:
        """Forget members that left or have been silent for long, unless they are in our view."""
        timeout = 10 * self.context.options.failure_timeout
        for member, peer in list(self.peers.items()):
            is_gone = now - peer.heard_at > timeout or peer.is_leaving
            if is_gone and member not in self.monitored:
                del self.peers[member]

    def deadline(self) -> float:
        due = self._next_heartbeat
        if self._rank is None:
            retry_interval = self.context.options.retry_interval
            for moment in (self._listen_after, self.listen_started + 2 * retry_interval):
                if moment > self.last_active:
                    due = min(due, moment)
        return due
