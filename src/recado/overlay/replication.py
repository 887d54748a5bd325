"""All ranges of one node: it creates replicas, feeds them with messages, and brings them to where they should be.

The supervision of a range depends on this node's view of the network, which may be wrong. That costs time, never
consistency: every change is a decision of a majority of the members (`replica`).

- The owner compares the configuration with the desired one (`placement`) whenever the view has not changed for
  `settle_s`. Nodes that are to become members are *invited* first: they get the state and follow the log while
  commands are being executed. When all have caught up, the owner proposes. If they have not within `hand_over_s`,
  it aborts: nothing has been sealed yet.
- If the owner is dead, the alive members propose in turn, the first at once.
- If a replica stays sealed without a decision, its proposer is gone; the members complete it in turn.

When an epoch has ended, members keep its final state until a majority of the members of each successor has confirmed
that it has its part, and announce the successors until then. So a crash at any step of a hand-over leaves at least
as many copies as before:

Joining nodes cut ranges in two. Neighbouring ranges of one owner with the same members are *merged*, by two decisions:
first the upper range ends with `merges_into` the lower one; then the lower one ends and *absorbs* it. If the lower
range ends otherwise, because its owner has failed for instance, the upper one continues by itself, with the
successor that is in its decision. The second decision tells which, and there is only one. To accept it, a member
must have the final state of both.

RN1  A replica is dropped only if later epochs cover its arc, and a majority of the members of each has the state.
RN2  A node becomes a voting replica of a configuration at most once (ORM2 of `range_map`).
RN3  A node without a majority changes nothing: it does not seal (CANVASSING), and its commands wait or are refused.
RN4  The upper range of a merge continues either in the merged range or by itself, not both: that is what the members of
     the lower range decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct, structs

from .command import TopicCommand
from .configuration import Arc, Configuration, RangeId, first_configuration
from .confirmations import Confirmations
from .hand_over import HandOver, has_enough_copies, new_members
from .messages import (
    Accept,
    Accepted,
    Announce,
    Append,
    Canvass,
    Decided,
    Decision,
    FetchLog,
    Invite,
    LogMissing,
    LogSuffix,
    LookUp,
    Notified,
    Outvoted,
    PrepareBallot,
    Promised,
    PullState,
    RangeMessage,
    RangesKnown,
    Reload,
    StateChunk,
    StateConfirmed,
    StateUnknown,
    Stored,
    Willing,
)
from .owner import HEARTBEAT_S, Function, Owner
from .peer_address import PeerAddress
from .placement import Ring, desired_successors, failover_successors, is_placed
from .range_map import RangeMap
from .range_state import Entry, RangeState
from .reconfiguration import Reconfiguration, Stage
from .replica import Replica, ReplicaPhase
from .state_transfers import StateTransfers

ANNOUNCE_S: Final = 0.3
INVITE_S: Final = 0.3
PATIENCE_S: Final = 1.0
"""All invited nodes should have caught up; after this time enough of them suffice."""
SEALED_S: Final = 1.2
"""A replica that is sealed for so long without a decision has lost its proposer."""
RANK_S: Final = 0.3
DECISIONS_MAX: Final = 10_000
SILENCE_S: Final = 3 * HEARTBEAT_S
LOG_SUFFIX_ENTRIES_MAX: Final = 2_000


class ReplicationSettings(Struct, frozen=True):
    replicas: int = 2
    """K: the nodes that store a range besides its owner."""
    settle_s: float = 0.5
    """The view must not have changed for so long before ranges are moved."""
    hand_over_s: float = 5.0
    """Within this time invited nodes must have caught up."""


class Replication:
    def __init__(
        self,
        own: PeerAddress,
        settings: ReplicationSettings,
        functions: Mapping[str, Function],
        send: Callable[[PeerAddress, RangeMessage], None],
    ) -> None:
        self.own = own
        self.settings = settings
        self.known = RangeMap()
        self.replicas: dict[RangeId, Replica] = {}
        self.owners: dict[RangeId, Owner] = {}
        self.ring = Ring([own])
        """The alive nodes that are not leaving."""
        self.alive: dict[PeerAddress, None] = {own: None}
        """Leaving nodes included."""
        self.returned: list[TopicCommand] = []
        """Commands without an answer whose range has moved."""
        self.counts: dict[str, int] = {"proposed": 0, "aborted": 0, "adopted": 0, "dropped": 0}
        self._functions = functions
        self._send = send
        self._reconfigurations: dict[RangeId, Reconfiguration] = {}
        self._hand_overs: dict[RangeId, HandOver] = {}
        self._transfers = StateTransfers(own, self._find_state)
        self._confirmations = Confirmations()
        self._announced_at: dict[RangeId, float] = {}
        self._absorbed: dict[RangeId, RangeId | None] = {}
        """The range that each decision has merged, of the newest decisions."""
        self._trouble_since: dict[RangeId, float] = {}
        self._ring_changed_at = 0.0
        self._changes = 0
        """Counts changes of the view and of what this node owns."""
        self._heard_at: dict[RangeId, float] = {}
        """When the owner of a replica without a vote was last heard."""
        self._dirty: dict[RangeId, None] = {}
        """Owned ranges that may have something to do in this step."""

    # ── the view ──────────────────────────────────────────────────────────────────────────────────

    def start_network(self, now: float) -> None:
        """Create the first range: this node is the first of a network."""
        configuration = first_configuration(self.own)
        self._adopt(configuration, RangeState(), (), now)

    def update_view(
        self, alive: Iterable[PeerAddress], leaving: Iterable[PeerAddress], now: float
    ) -> None:
        self.alive = dict.fromkeys(alive)
        gone = dict.fromkeys(leaving)
        self.ring = Ring(peer for peer in self.alive if peer not in gone)
        self._ring_changed_at = now
        self._changes += 1

    def is_alive(self, peer: PeerAddress) -> bool:
        return peer in self.alive

    # ── replicas ──────────────────────────────────────────────────────────────────────────────────

    def _adopt(
        self,
        configuration: Configuration,
        state: RangeState | None,
        sources: Sequence[PeerAddress],
        now: float,
    ) -> Replica | None:
        """Become a replica of a configuration, with its state or with nodes that may have it.

        Returns None if the epoch is over (RN2).
        """
        if self.known.is_superseded(configuration):
            return None
        self.known.learn(configuration)
        range_id = configuration.range_id
        replica = self.replicas.get(range_id)
        if replica is None:
            self.counts["adopted"] += 1
            replica = self.replicas[range_id] = Replica(configuration, self.own, state)
            if state is not None:
                self._begin(replica, now)
            else:
                others = [each for each in configuration.members if each not in sources]
                self._transfers.start_import(range_id, [*sources, *others], now)
        elif replica.state is None:
            if state is not None and replica.install(state, ()):
                self._begin(replica, now)
            elif self._transfers.is_importing(range_id):
                self._transfers.start_import(range_id, sources, now)
        return replica

    def _begin(self, replica: Replica, now: float) -> None:
        """The replica has its state for the first time."""
        self._transfers.cancel_import(replica.range_id)
        if replica.is_owned and replica.decision is None and replica.range_id not in self.owners:
            self.owners[replica.range_id] = Owner(replica, self.own, self._functions, now)
            self._changes += 1
            self._dirty[replica.range_id] = None

    def _drop(self, replica: Replica, now: float) -> None:
        range_id = replica.range_id
        self.counts["dropped"] += 1
        self._end(replica, now)
        del self.replicas[range_id]
        self._announced_at.pop(range_id, None)
        self._transfers.end_exports(range_id)

    def _end(self, replica: Replica, now: float) -> None:
        """Stop all activity of a replica; its commands must go elsewhere."""
        range_id = replica.range_id
        owner = self.owners.pop(range_id, None)
        if owner is not None:
            self.returned += owner.close(now)
        self._reconfigurations.pop(range_id, None)
        self._hand_overs.pop(range_id, None)
        self._transfers.cancel_import(range_id)
        self._trouble_since.pop(range_id, None)
        self._heard_at.pop(range_id, None)
        self._dirty.pop(range_id, None)

    def owner_of(self, key: int) -> Owner | None:
        """Return the owner of a key's range, if that is here and takes commands."""
        configuration = self.known.find(key)
        if configuration is None:
            return None
        owner = self.owners.get(configuration.range_id)
        return owner if owner is not None and owner.replica.is_open else None

    def submit(self, command: TopicCommand, now: float) -> bool:
        """Hand a command to the owner of its range, if that is here and takes commands."""
        owner = self.owner_of(command.key)
        if owner is None:
            return False
        owner.submit(command, now)
        self._dirty[owner.replica.range_id] = None
        return True

    def notified(self, peer: PeerAddress, message: Notified) -> None:
        owner = self.owners.get(message.range_id)
        if owner is not None:
            owner.notified(peer, message)
            self._dirty[message.range_id] = None

    @property
    def version(self) -> tuple[int, int]:
        """Changes when a command that waits may have somewhere to go."""
        return self.known.version, self._changes

    @property
    def is_member(self) -> bool:
        """Whether this node stores anything that another node may need."""
        return any(replica.is_voter for replica in self.replicas.values())

    # ── messages ──────────────────────────────────────────────────────────────────────────────────

    def receive(self, sender: PeerAddress, message: RangeMessage, now: float) -> None:
        match message:
            case Append():
                self._receive_append(sender, message, now)
            case Stored(range_id):
                if range_id in self.owners:
                    self.owners[range_id].stored(sender, message, now)
                    self._dirty[range_id] = None
            case Reload(range_id):
                replica = self.replicas.get(range_id)
                if replica is not None and replica.decision is None:
                    self._transfers.start_import(range_id, [sender], now)
            case Canvass(configuration):
                self._receive_canvass(sender, configuration, now)
            case PrepareBallot(configuration):
                replica = self._find_undecided(sender, configuration, now)
                if replica is not None:
                    self._answer(sender, replica.prepare(message))
            case Accept(configuration):
                replica = self._find_undecided(sender, configuration, now)
                if replica is not None and self._has_absorbed(message.decision):
                    self._answer(sender, replica.accept(message))
            case Willing() | Promised() | Accepted() | Outvoted() | LogMissing() | LogSuffix():
                self._receive_vote(sender, message, now)
            case FetchLog(range_id, first):
                replica = self.replicas.get(range_id)
                if replica is not None and replica.state is not None:
                    self._send_log(sender, replica, first)
            case Decided():
                self._receive_decided(sender, message, now)
            case Announce(configuration):
                self._receive_announce(sender, configuration, now)
            case StateConfirmed(range_id):
                self._confirmations.add(range_id, sender)
            case Invite(configuration):
                self._heard_at[configuration.range_id] = now
                if self._adopt(configuration, None, [sender], now) is None:
                    self._tell_ranges(sender, configuration)
            case RangesKnown(configurations):
                for each in configurations:
                    self._learn(each, sender, now)
            case LookUp(key):
                known = self.known.find(key)
                if known is not None:
                    self._send(sender, RangesKnown((known,)))
            case PullState():
                self._send(sender, self._transfers.export(sender, message, now))
            case StateChunk() | StateUnknown():
                self._receive_state(message, now)
            case _:
                raise AssertionError(f"{type(message).__name__} is not about ranges")

    def _answer(self, peer: PeerAddress, message: RangeMessage | None) -> None:
        if message is not None:
            self._send(peer, message)

    def _receive_append(self, sender: PeerAddress, message: Append, now: float) -> None:
        replica = self.replicas.get(message.range_id)
        if replica is None and message.configuration is not None:
            replica = self._adopt(message.configuration, None, [sender], now)
        if replica is None:
            known = self.known.find(message.range_id.first)
            if known is not None and known.epoch > message.range_id.epoch:
                self._send(sender, RangesKnown((known,)))
        elif replica.decision is not None:
            self._tell_decision(sender, replica)
        elif replica.configuration.owner == sender:
            self._heard_at[message.range_id] = now
            self._answer(sender, replica.store(message))
            replica.execute(LOG_SUFFIX_ENTRIES_MAX)

    def _find_undecided(
        self, sender: PeerAddress, configuration: Configuration, now: float
    ) -> Replica | None:
        """Return the replica that votes on what follows a configuration, or tell the sender what has followed."""
        replica = self.replicas.get(configuration.range_id)
        if replica is None:
            if self.known.is_superseded(configuration):
                self._tell_ranges(sender, configuration)
            elif self.own in configuration.members:
                replica = self._adopt(configuration, None, [sender], now)
        elif replica.decision is not None:
            self._tell_decision(sender, replica)
            return None
        return replica

    def _receive_canvass(
        self, sender: PeerAddress, configuration: Configuration, now: float
    ) -> None:
        replica = self._find_undecided(sender, configuration, now)
        if replica is None or replica.state is None or not replica.is_voter:
            return
        is_needed = (
            replica.promised is not None
            or sender == configuration.owner
            or configuration.owner not in self.alive
        )
        if is_needed:
            self._send(sender, Willing(configuration.range_id))

    def _receive_vote(
        self,
        sender: PeerAddress,
        message: Willing | Promised | Accepted | Outvoted | LogMissing | LogSuffix,
        now: float,
    ) -> None:
        attempt = self._reconfigurations.get(message.range_id)
        if attempt is None:
            return
        match message:
            case Willing():
                attempt.willing(sender, now)
            case Promised():
                attempt.promised(sender, message, now)
            case Accepted(_, ballot):
                attempt.accepted(sender, ballot, now)
            case Outvoted():
                attempt.outvoted(message, now)
            case LogMissing():
                attempt.log_missing(sender, message)
            case LogSuffix():
                attempt.fetched(message, now)

    def _send_log(self, peer: PeerAddress, replica: Replica, first: int) -> None:
        if first < replica.log.first:
            self._send(peer, Reload(replica.range_id))
        else:
            entries = replica.log.entries(first, LOG_SUFFIX_ENTRIES_MAX)
            self._send(peer, LogSuffix(replica.range_id, first, entries))

    def _tell_decision(self, peer: PeerAddress, replica: Replica) -> None:
        assert replica.decision is not None
        end = replica.decision.end
        self._send(peer, Decided(replica.configuration, replica.decision, end, ()))

    def _tell_ranges(self, peer: PeerAddress, configuration: Configuration) -> None:
        newer = [
            each
            for each in self.known.overlapping(configuration.arc)
            if each.epoch > configuration.epoch
        ]
        self._send(peer, RangesKnown(tuple(newer)))

    # ── the end of an epoch ───────────────────────────────────────────────────────────────────────

    def _receive_decided(self, sender: PeerAddress, message: Decided, now: float) -> None:
        replica = self.replicas.get(message.configuration.range_id)
        if replica is not None and replica.decision is None:
            replica.learn(message.decision, message.first, message.entries)
            self._follow_decision(replica, sender, now)
        elif message.decision.merges_into is None:
            for successor in message.decision.successors:
                self._learn(successor, sender, now)

    def _follow_decision(self, replica: Replica, source: PeerAddress, now: float) -> None:
        decision = replica.decision
        assert decision is not None
        self._end(replica, now)
        self._absorbed[replica.range_id] = decision.absorbed
        if len(self._absorbed) > DECISIONS_MAX:
            del self._absorbed[next(iter(self._absorbed))]
        for upper in list(self.replicas.values()):
            if upper.decision is not None and upper.decision.merges_into == replica.range_id:
                self._continue_alone(upper, now)
        if decision.merges_into is not None:
            self._continue_alone(replica, now)
            return
        for successor in decision.successors:
            if self.own in successor.members:
                state = self._derive(replica, successor)
                self._adopt(successor, state, [source, *replica.configuration.members], now)
            else:
                self.known.learn(successor)
        if not replica.is_voter:
            self._drop(replica, now)

    def _learn(self, configuration: Configuration, source: PeerAddress, now: float) -> None:
        if self.own in configuration.members:
            self._adopt(configuration, None, [source], now)
        else:
            self.known.learn(configuration)

    def _receive_announce(
        self, sender: PeerAddress, configuration: Configuration, now: float
    ) -> None:
        if self.known.is_superseded(configuration):
            self._tell_ranges(sender, configuration)
            return
        self._learn(configuration, sender, now)
        replica = self.replicas.get(configuration.range_id)
        if replica is not None and replica.state is not None:
            self._send(sender, StateConfirmed(configuration.range_id))

    # ── transfer ──────────────────────────────────────────────────────────────────────────────────

    def _receive_state(self, message: StateChunk | StateUnknown, now: float) -> None:
        range_id = message.range_id
        replica = self.replicas.get(range_id)
        received = self._transfers.receive(message, now)
        if received is None or replica is None:
            return
        whole, sources = received
        if replica.install(*whole):
            self._begin(replica, now)
        elif replica.state is None or not replica.is_open:
            self._transfers.start_import(range_id, sources, now)

    def _find_state(self, range_id: RangeId) -> tuple[RangeState, Sequence[Entry]] | None:
        """Return a copy of the state of a configuration, from its replica or from that of its predecessor."""
        replica = self.replicas.get(range_id)
        if replica is not None and replica.state is not None:
            entries = () if replica.is_final else replica.log.entries(replica.state.position)
            return replica.state.copy(), entries
        for each in self.replicas.values():
            for successor in each.decision.successors if each.decision is not None else ():
                state = self._derive(each, successor) if successor.range_id == range_id else None
                if state is not None:
                    return state, ()
        return None

    # ── time ──────────────────────────────────────────────────────────────────────────────────────

    def step(self, now: float) -> None:
        """Commit, execute and send what the messages of this step have brought."""
        for range_id in list(self._reconfigurations):
            self._advance(range_id, now)
        dirty, self._dirty = self._dirty, {}
        for range_id in dirty:
            owner = self.owners.get(range_id)
            if owner is not None:
                owner.execute(now)
                owner.flush(now)
                self._send_all(owner.outbox)
                if owner.needs_step:
                    self._dirty[range_id] = None
        self._send_all(self._transfers.take_outbox())

    @property
    def needs_step(self) -> bool:
        return bool(self._dirty)

    def _send_all(self, outbox: list[tuple[PeerAddress, RangeMessage]]) -> None:
        for peer, message in outbox:
            self._send(peer, message)
        outbox.clear()

    def tick(self, now: float) -> None:
        for range_id, owner in self.owners.items():
            owner.tick(now, self.is_alive)
            self._dirty[range_id] = None
        for attempt in self._reconfigurations.values():
            attempt.tick(now)
        self._transfers.tick(now)
        for replica in list(self.replicas.values()):
            if self.known.is_superseded(replica.configuration):
                self._retire(replica, now)
            elif replica.decision is None and replica.state is not None and replica.is_voter:
                self._supervise(replica, now)
                self._ask_if_over(replica, now)
            elif replica.decision is not None and replica.decision.merges_into is not None:
                self._ask_what_follows(replica, now)
            elif not replica.is_voter:
                heard_at = self._heard_at.setdefault(replica.range_id, now)
                if now >= heard_at + self.settings.hand_over_s:
                    self._drop(replica, now)  # the invitation was withdrawn
        self._confirmations.forget_old(self.known)

    def _ask_what_follows(self, upper: Replica, now: float) -> None:
        """A range has ended for a merge, and this node does not know what the range below has decided."""
        if now >= self._announced_at.get(upper.range_id, -ANNOUNCE_S) + ANNOUNCE_S:
            self._announced_at[upper.range_id] = now
            for member in upper.configuration.members:
                if member != self.own:
                    self._send(member, LookUp(upper.configuration.arc.first))

    def _ask_if_over(self, replica: Replica, now: float) -> None:
        """If the owner is silent, ask the other members what has followed: the decision may have been lost."""
        heard_at = self._heard_at.setdefault(replica.range_id, now)
        if not replica.is_owned and now >= heard_at + SILENCE_S:
            self._heard_at[replica.range_id] = now
            for member in replica.configuration.members:
                if member != self.own:
                    self._send(member, LookUp(replica.configuration.arc.first))
            self._send(replica.configuration.owner, Announce(replica.configuration))

    # ── supervision ───────────────────────────────────────────────────────────────────────────────

    def _supervise(self, replica: Replica, now: float) -> None:
        range_id = replica.range_id
        if range_id in self._reconfigurations:
            return
        if replica.is_owned and replica.is_open:
            self._trouble_since.pop(range_id, None)
            self._prepare_hand_over(replica, now)
            if range_id not in self._reconfigurations and range_id not in self._hand_overs:
                self._merge(replica, now)
            return
        members = [each for each in replica.configuration.members if each in self.alive]
        rank = members.index(self.own) if self.own in members else len(members)
        if replica.promised is not None:
            wait = SEALED_S + RANK_S * rank
        elif replica.configuration.owner not in self.alive:
            wait = RANK_S * rank
        else:
            self._trouble_since.pop(range_id, None)
            return
        since = self._trouble_since.setdefault(range_id, now)
        if now >= since + wait:
            del self._trouble_since[range_id]
            self._propose(replica, now)

    def _prepare_hand_over(self, replica: Replica, now: float) -> None:
        """Invite the nodes that are to become members; propose when they have caught up; abort when they do not."""
        range_id, configuration = replica.range_id, replica.configuration
        owner = self.owners[range_id]
        wanted = self.wanted(configuration)
        hand_over = self._hand_overs.get(range_id)
        if wanted is None or is_placed(configuration, wanted):
            if hand_over is not None:
                self._abort(owner, hand_over)
            return
        if hand_over is not None and hand_over.successors != wanted:
            self._abort(owner, hand_over)
            hand_over = None
        if now < self._ring_changed_at + self.settings.settle_s:
            return
        if hand_over is None:
            invited = new_members(configuration, wanted)
            hand_over = HandOver(wanted, invited, now + self.settings.hand_over_s, -INVITE_S)
            self._hand_overs[range_id] = hand_over
            for peer in invited:
                owner.follow(peer, now)
        missing = [peer for peer in hand_over.invited if not owner.is_caught_up(peer)]
        is_late = now >= hand_over.deadline - self.settings.hand_over_s + PATIENCE_S
        if not missing or (
            is_late and has_enough_copies(wanted, self._ready(replica, configuration.members))
        ):
            self._propose(replica, now)
        elif now >= hand_over.deadline:
            self._abort(owner, hand_over)
            self._ring_changed_at = max(self._ring_changed_at, now)  # wait before the next attempt
        elif now >= hand_over.invited_at + INVITE_S:
            hand_over.invited_at = now
            for peer in missing:
                self._send(peer, Invite(configuration))

    def wanted(self, configuration: Configuration) -> tuple[Configuration, ...] | None:
        """Return the desired successors in this node's view; None if no node may own anything."""
        if not len(self.ring):
            return None
        return desired_successors(configuration, self.ring, self.settings.replicas)

    def _abort(self, owner: Owner, hand_over: HandOver) -> None:
        """Give up a change that nothing depends on yet."""
        self.counts["aborted"] += 1
        for peer in hand_over.invited:
            owner.unfollow(peer)
        self._hand_overs.pop(owner.replica.range_id, None)

    def _propose(self, replica: Replica, now: float) -> None:
        self.counts["proposed"] += 1

        def choose(end: int, promised: list[PeerAddress]) -> Decision:
            merged = self._absorb(replica, end, promised)
            return merged or Decision(end, self._choose_successors(replica, promised))

        self._reconfigurations[replica.range_id] = Reconfiguration(replica, self.own, choose, now)

    # ── merging ───────────────────────────────────────────────────────────────────────────────────

    def _find_upper(self, lower: Replica) -> Replica | None:
        """Return the range above that can be merged into an owned one, or has ended for that."""
        configuration = lower.configuration
        known = self.known.find(configuration.arc.last + 1)
        upper = self.replicas.get(known.range_id) if known is not None else None
        if (
            upper is None
            or not configuration.arc.is_followed_by(upper.configuration.arc)
            or upper.configuration.owner != configuration.owner
            or upper.configuration.members != configuration.members
        ):
            return None
        if upper.decision is not None:
            return upper if upper.decision.merges_into == lower.range_id else None
        is_busy = any(
            upper.range_id in each or lower.range_id in each
            for each in (self._reconfigurations, self._hand_overs)
        ) or any(
            each.decision is not None and each.decision.merges_into == upper.range_id
            for each in self.replicas.values()
        )
        return upper if upper.is_open and not is_busy else None

    def _merge(self, lower: Replica, now: float) -> bool:
        """Take the next step of merging the range above into this one; return whether there was one."""
        upper = self._find_upper(lower)
        if upper is None:
            return False
        if upper.decision is not None:
            if upper.is_final:
                self._propose(lower, now)
            return upper.is_final
        if now < self._ring_changed_at + 2 * self.settings.settle_s:
            return False
        configuration = upper.configuration
        wanted = self.wanted(configuration)
        if wanted is None or not is_placed(configuration, wanted):
            return False

        def choose(end: int, promised: list[PeerAddress]) -> Decision:
            if self.own not in promised:
                return Decision(end, self._choose_successors(upper, promised))
            alone = structs.replace(configuration, epoch=configuration.epoch + 1)
            return Decision(end, (alone,), merges_into=lower.range_id)

        self._reconfigurations[upper.range_id] = Reconfiguration(upper, self.own, choose, now)
        return True

    def _absorb(self, lower: Replica, end: int, promised: Sequence[PeerAddress]) -> Decision | None:
        """Return the decision that completes a merge, if the upper range has ended for it."""
        if not lower.is_owned or self.own not in promised:
            return None
        upper = self._find_upper(lower)
        wanted = self.wanted(lower.configuration)
        if upper is None or not upper.is_final or upper.decision is None:
            return None
        if wanted is None or not is_placed(lower.configuration, wanted):
            return None
        low, high = lower.configuration, upper.configuration
        arc = Arc(low.arc.first, high.arc.last)
        merged = Configuration(arc, max(low.epoch, high.epoch) + 1, low.members, low.owner)
        return Decision(end, (merged,), high.range_id, upper.decision.end)

    def _has_absorbed(self, decision: Decision) -> bool:
        """Whether this node has the final state of the range that a decision merges, if any (RN4)."""
        if decision.absorbed is None:
            return True
        upper = self.replicas.get(decision.absorbed)
        return upper is not None and upper.is_final

    def _continue_alone(self, upper: Replica, now: float) -> None:
        """Follow the decision of a range that was to be merged, if the range below was decided otherwise."""
        decision = upper.decision
        assert decision is not None
        assert decision.merges_into is not None
        if decision.merges_into not in self._absorbed:
            return
        if self._absorbed[decision.merges_into] != upper.range_id:
            for successor in decision.successors:
                state = upper.state.copy() if upper.is_final and upper.state is not None else None
                self._adopt(successor, state, upper.configuration.members, now)

    def _derive(self, replica: Replica, successor: Configuration) -> RangeState | None:
        """Return the initial state of a successor, if this node has the final state of what precedes it."""
        decision = replica.decision
        if not replica.is_final or replica.state is None or decision is None:
            return None
        if decision.absorbed is None:
            return replica.state.copy(successor.arc)
        upper = self.replicas.get(decision.absorbed)
        if upper is None or not upper.is_final or upper.state is None:
            return None
        state = replica.state.copy()
        state.join(upper.state.copy())
        return state

    # ── proposals ─────────────────────────────────────────────────────────────────────────────────

    def _choose_successors(
        self, replica: Replica, promised: Sequence[PeerAddress]
    ) -> tuple[Configuration, ...]:
        """Return the desired successors if enough of their members have the state, otherwise those of a failover."""
        configuration = replica.configuration
        wanted = self.wanted(configuration)
        if wanted is not None and has_enough_copies(wanted, self._ready(replica, promised)):
            return wanted
        staying = [peer for peer in promised if peer in self.ring] or list(promised)
        return failover_successors(configuration, self.ring, self.settings.replicas, staying)

    def _ready(self, replica: Replica, members: Sequence[PeerAddress]) -> list[PeerAddress]:
        """Return the members, and the other nodes that have the state of a range."""
        owner = self.owners.get(replica.range_id)
        followers = owner.ends() if owner is not None else {}
        return [*members, *(peer for peer in followers if owner and owner.is_caught_up(peer))]

    def _advance(self, range_id: RangeId, now: float) -> None:
        attempt = self._reconfigurations[range_id]
        if attempt.stage is Stage.FETCHING:
            attempt.check_log(now)
        self._send_all(attempt.outbox)
        if attempt.stage is Stage.ABANDONED:
            del self._reconfigurations[range_id]
        elif attempt.stage is Stage.DECIDED:
            self._publish_decision(attempt, now)

    def _publish_decision(self, attempt: Reconfiguration, now: float) -> None:
        """Tell all nodes concerned, with what their logs lack."""
        replica, decision = attempt.replica, attempt.decision
        assert decision is not None
        owner = self.owners.get(replica.range_id)
        ends = {**(owner.ends() if owner is not None else {}), **attempt.ends}
        peers = dict.fromkeys(replica.configuration.members)
        peers |= dict.fromkeys(ends)
        for successor in decision.successors:
            peers |= dict.fromkeys(successor.members)
        for peer in peers:
            first = min(ends.get(peer, decision.end), decision.end)
            entries = (
                replica.log.entries(first, decision.end - first)
                if first >= replica.log.first
                else ()
            )
            self._send(peer, Decided(replica.configuration, decision, first, entries))

    # ── retirement ────────────────────────────────────────────────────────────────────────────────

    def _retire(self, replica: Replica, now: float) -> None:
        """Drop a replica whose epoch is over, when its successors do not need it any more (RN1)."""
        range_id, arc = replica.range_id, replica.configuration.arc
        if replica.phase is not ReplicaPhase.DECIDED:
            self._end(replica, now)
        unconfirmed = [
            (piece, each)
            for piece, each in self.known.pieces(arc)
            if not self._is_confirmed(each, replica)
        ]
        if not unconfirmed or not replica.is_voter:
            self._drop(replica, now)
            return
        if now < self._announced_at.get(range_id, -ANNOUNCE_S) + ANNOUNCE_S:
            return
        self._announced_at[range_id] = now
        for piece, each in unconfirmed:
            if each.epoch > replica.configuration.epoch:
                for member in self._confirmations.missing(each):
                    self._send(member, Announce(each))
            else:  # what has followed for these keys is not known here
                for member in replica.configuration.members:
                    if member != self.own:
                        self._send(member, LookUp(piece.first))

    def _is_confirmed(self, configuration: Configuration, replica: Replica) -> bool:
        if configuration.epoch <= replica.configuration.epoch:
            return False
        own = self.replicas.get(configuration.range_id)
        if own is not None and own.state is not None and own.is_voter:
            self._confirmations.add(configuration.range_id, self.own)
        return self._confirmations.suffice(configuration, self.alive)
