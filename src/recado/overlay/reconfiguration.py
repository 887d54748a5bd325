"""The decision what follows a configuration: one node's attempt to bring it about.

Any member may propose; usually the owner does, and if that is dead the others in turn. The stages:

    CANVASSING   Does a majority take part? Otherwise nothing is sealed: the smaller side of a partition changes
    nothing,
                 and a member with a broken link does not stop the range again and again.
    PREPARING    A majority promises. From here on the epoch cannot continue; if this proposer dies, another one
    completes
                 the decision, at the latest when it finds its replica sealed.
    FETCHING     The longest log among the promises is longer than this node's.
    ACCEPTING    A majority accepts. The decision is final (ORP6 of `replica`) when it does.

RC1  The decided end is that of the longest log among a majority of promises, or an earlier proposer's choice.
RC2  If any promise has an accepted decision, the one with the highest ballot is proposed again.
RC3  What a proposer wants is computed when it has the promises, from the members that have promised: those have the
     state and are alive, so the successors can begin at once.

Competing proposers back off by their rank, so that one of them succeeds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from .messages import (
    Accept,
    AcceptedDecision,
    Ballot,
    Canvass,
    Decision,
    FetchLog,
    LogMissing,
    LogSuffix,
    Outvoted,
    PrepareBallot,
    Promised,
    RangeMessage,
    Reload,
)
from .peer_address import PeerAddress
from .replica import Replica

RESEND_S: Final = 0.2
BALLOT_S: Final = 0.6
"""After this time without a decision, begin again with a higher ballot: promises may have been lost."""
BACK_OFF_S: Final = 0.15
"""For each rank among the members."""
CANVASS_S: Final = 1.0

Choose = Callable[[int, list[PeerAddress]], Decision]
"""Returns the wanted decision for the end of the log and the members that have promised."""


class Stage(Enum):
    CANVASSING = "canvassing"
    PREPARING = "preparing"
    FETCHING = "fetching"
    ACCEPTING = "accepting"
    BACKING_OFF = "backing off"
    DECIDED = "decided"
    ABANDONED = "abandoned"


class Reconfiguration:
    def __init__(self, replica: Replica, own: PeerAddress, choose: Choose, now: float) -> None:
        self.replica = replica
        self.configuration = replica.configuration
        self.stage = Stage.CANVASSING
        self.decision: Decision | None = None
        """What is proposed; final when the stage is DECIDED."""
        self.ends: dict[PeerAddress, int] = {}
        """How far the log of each member reaches, as far as known."""
        self.outbox: list[tuple[PeerAddress, RangeMessage]] = []
        self._own = own
        self._choose = choose
        self._rank = self.configuration.members.index(own)
        self._ballot = Ballot(0, own.node_id)
        self._willing: set[PeerAddress] = set()
        self._promises: dict[PeerAddress, Promised] = {}
        self._accepted: set[PeerAddress] = set()
        self._stage_at = self._sent_at = now
        self._back_off_until = 0.0
        self._send_canvass()

    def _broadcast(self, message: RangeMessage) -> None:
        self.outbox += [(member, message) for member in self.configuration.members]

    # ── canvassing ────────────────────────────────────────────────────────────────────────────────

    def _send_canvass(self) -> None:
        self._broadcast(Canvass(self.configuration))

    def willing(self, peer: PeerAddress, now: float) -> None:
        if self.stage is not Stage.CANVASSING:
            return
        self._willing.add(peer)
        if self.configuration.is_majority(self._willing):
            self._prepare(now)

    # ── preparing ─────────────────────────────────────────────────────────────────────────────────

    def _prepare(self, now: float) -> None:
        highest = max(
            self._ballot.round, self.replica.promised.round if self.replica.promised else 0
        )
        self._ballot = Ballot(highest + 1, self._own.node_id)
        self._promises.clear()
        self._accepted.clear()
        self.decision = None
        self._enter(Stage.PREPARING, now)
        self._broadcast(PrepareBallot(self.configuration, self._ballot))

    def promised(self, peer: PeerAddress, message: Promised, now: float) -> None:
        if message.ballot != self._ballot:
            return
        self.ends[peer] = max(message.end, self.ends.get(peer, 0))
        if self.stage is not Stage.PREPARING:
            return
        self._promises[peer] = message
        if self.configuration.is_majority(self._promises):
            self._propose(now)

    def _propose(self, now: float) -> None:
        accepted = self._highest_accepted()
        if accepted is not None:
            self.decision = accepted.decision
        else:
            end = self._longest_log()
            self.decision = self._choose(end, list(self._promises))
        if self.replica.log.end < self.decision.end:
            self._enter(Stage.FETCHING, now)
            self._fetch()
        else:
            self._send_accepts(now)

    def _highest_accepted(self) -> AcceptedDecision | None:
        accepted = [each.accepted for each in self._promises.values() if each.accepted is not None]
        return max(accepted, key=lambda each: each.ballot, default=None)

    def _longest_log(self) -> int:
        return max(promise.end for promise in self._promises.values())

    # ── fetching ──────────────────────────────────────────────────────────────────────────────────

    def _fetch(self) -> None:
        assert self.decision is not None
        for peer, promise in self._promises.items():
            if promise.end >= self.decision.end and peer != self._own:
                self.outbox.append((peer, FetchLog(self.replica.range_id, self.replica.log.end)))
                return

    def fetched(self, message: LogSuffix, now: float) -> None:
        self.replica.extend(message.first, message.entries)
        self.check_log(now)

    def check_log(self, now: float) -> None:
        """Continue if the log is complete now."""
        if (
            self.stage is Stage.FETCHING
            and self.decision is not None
            and self.replica.log.end >= self.decision.end
        ):
            self._send_accepts(now)

    # ── accepting ─────────────────────────────────────────────────────────────────────────────────

    def _send_accepts(self, now: float) -> None:
        self._enter(Stage.ACCEPTING, now)
        for member in self.configuration.members:
            self._send_accept(member)

    def _send_accept(self, member: PeerAddress) -> None:
        decision = self.decision
        assert decision is not None
        log = self.replica.log
        first = min(self.ends.get(member, decision.end), decision.end)
        if first < log.first:  # the member lags so far that it needs the state
            self.outbox.append((member, Reload(self.replica.range_id)))
            return
        entries = log.entries(first, decision.end - first)
        self.outbox.append(
            (member, Accept(self.configuration, self._ballot, decision, first, entries))
        )

    def log_missing(self, peer: PeerAddress, message: LogMissing) -> None:
        if self.stage is Stage.ACCEPTING and message.ballot == self._ballot:
            self.ends[peer] = message.end
            self._send_accept(peer)

    def accepted(self, peer: PeerAddress, ballot: Ballot, now: float) -> None:
        if self.stage is not Stage.ACCEPTING or ballot != self._ballot:
            return
        assert self.decision is not None
        self.ends[peer] = self.decision.end
        self._accepted.add(peer)
        if self.configuration.is_majority(self._accepted):
            self._enter(Stage.DECIDED, now)

    # ── competition and time ──────────────────────────────────────────────────────────────────────

    def outvoted(self, message: Outvoted, now: float) -> None:
        if message.ballot <= self._ballot or self.stage in (Stage.DECIDED, Stage.ABANDONED):
            return
        self._ballot = Ballot(message.ballot.round, self._own.node_id)
        self._enter(Stage.BACKING_OFF, now)
        self._back_off_until = now + BALLOT_S + BACK_OFF_S * self._rank

    def tick(self, now: float) -> None:
        match self.stage:
            case Stage.CANVASSING:
                if now >= self._stage_at + CANVASS_S:
                    self._enter(Stage.ABANDONED, now)
                elif now >= self._sent_at + RESEND_S:
                    self._sent_at = now
                    self._send_canvass()
            case Stage.PREPARING | Stage.FETCHING | Stage.ACCEPTING:
                if now >= self._stage_at + BALLOT_S + BACK_OFF_S * self._rank:
                    self._prepare(now)
                elif now >= self._sent_at + RESEND_S:
                    self._sent_at = now
                    self._resend(now)
            case Stage.BACKING_OFF:
                if now >= self._back_off_until:
                    self._prepare(now)
            case Stage.DECIDED | Stage.ABANDONED:
                pass

    def _resend(self, now: float) -> None:
        match self.stage:
            case Stage.PREPARING:
                message = PrepareBallot(self.configuration, self._ballot)
                self.outbox += [
                    (member, message)
                    for member in self.configuration.members
                    if member not in self._promises
                ]
            case Stage.FETCHING:
                self.check_log(now)
                if self.stage is Stage.FETCHING:
                    self._fetch()
            case _:
                for member in self.configuration.members:
                    if member not in self._accepted:
                        self._send_accept(member)

    def _enter(self, stage: Stage, now: float) -> None:
        self.stage = stage
        self._stage_at = self._sent_at = now
