"""One node's copy of a range in one epoch: it stores what the owner appends, and votes on what follows the epoch.

The life of a configuration has two parts. In the first, the owner is the only node that appends entries; an entry is
*committed* when a majority of the members has stored it, and only then is it executed and answered. In the second, the
members decide by Paxos how the configuration ends: at which position of the log, and which configurations follow. A
promise to a proposer *seals* the replica: it stores nothing more.

Why nothing that was answered is lost:

ORP1  Only the owner creates entries. So all logs of a configuration are prefixes of the owner's log.
ORP2  A sealed replica never tells the owner that it has stored an entry.
ORP3  The proposer takes the longest log among a majority of promises. A committed entry was stored by a majority before
      these were sealed (ORP2); two majorities have a member in common; so the entry is in that log (ORP1).
ORP4  To accept a decision, a replica must have the log up to the decided end. So the majority that decides has the
      final state, and entries after the end, which were never committed, are discarded.
ORP5  A replica without state neither stores nor promises: it counts as if it were down.
ORP6  The members of a configuration decide once (Paxos: the decision with the highest ballot among the promises is
      proposed again). So there is one sequence of configurations for each key, and one owner in each epoch.

ORP2 and ORP3 need no clocks. An owner that was deposed without knowing cannot commit, because a majority is sealed.
Answers of committed entries that it sends late are still true.

A replica without a vote (`is_voter` False) follows the log before it becomes a member, so that the change is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from .command import Answer
from .configuration import Configuration
from .messages import (
    Accept,
    Accepted,
    AcceptedDecision,
    Append,
    Ballot,
    Decision,
    LogMissing,
    Outvoted,
    PrepareBallot,
    Promised,
    Stored,
)
from .peer_address import PeerAddress
from .range_log import RangeLog
from .range_state import Entry, RangeState


class ReplicaPhase(Enum):
    AWAITING_STATE = "awaiting state"
    FOLLOWING = "following"
    SEALED = "sealed"
    DECIDED = "decided"


class Replica:
    def __init__(
        self, configuration: Configuration, own: PeerAddress, state: RangeState | None = None
    ) -> None:
        self.configuration = configuration
        self.range_id = configuration.range_id
        self.is_voter = own in configuration.members
        self.is_owned = configuration.owner == own
        self.state = state
        self.log = RangeLog(state.position if state is not None else 0)
        self.committed = self.log.end
        """Entries before this position are committed, as far as this node knows."""
        self.promised: Ballot | None = None
        self.accepted: AcceptedDecision | None = None
        self.decision: Decision | None = None

    @property
    def phase(self) -> ReplicaPhase:
        if self.decision is not None:
            return ReplicaPhase.DECIDED
        if self.state is None:
            return ReplicaPhase.AWAITING_STATE
        return ReplicaPhase.FOLLOWING if self.promised is None else ReplicaPhase.SEALED

    @property
    def is_open(self) -> bool:
        """Whether the replica stores what the owner appends."""
        return self.state is not None and self.promised is None and self.decision is None

    @property
    def is_final(self) -> bool:
        """Whether the replica has executed the whole log of a configuration that has ended."""
        return (
            self.decision is not None
            and self.state is not None
            and self.state.position == self.decision.end
        )

    # ── normal operation ──────────────────────────────────────────────────────────────────────────

    def append(self, entry: Entry) -> None:
        """Store an entry of the owner, which is this node."""
        assert self.is_open
        self.log.append(entry)

    def store(self, message: Append) -> Stored | None:
        """Store the entries of the owner; return what to answer."""
        if not self.is_open:
            return None
        self.log.extend(message.first, message.entries)
        self.commit(message.committed)
        return Stored(self.range_id, self.log.end, message.round)

    def commit(self, position: int) -> None:
        self.committed = max(self.committed, min(position, self.log.end))

    def execute(self, count_max: int) -> list[tuple[Entry, Answer | None]]:
        """Execute committed entries; return them with their answers."""
        state, log = self.state, self.log
        if state is None or state.position >= self.committed:
            return []
        start = state.position
        entries = log.entries(start, min(self.committed - start, count_max))
        results = [(entry, state.apply(entry)) for entry in entries]
        log.trim(state.position)
        return results

    def install(self, state: RangeState, entries: Sequence[Entry]) -> bool:
        """Take over the state of another replica and the entries that follow it; return whether that is an advance.

        What this replica has stored already must be part of it, since the owner may have counted it.
        """
        end = state.position + len(entries)
        if self.decision is not None or (
            self.state is not None and (end < self.log.end or state.position < self.state.position)
        ):
            return False
        self.state = state
        self.log = RangeLog(state.position)
        self.log.extend(state.position, entries)
        self.committed = max(self.committed, state.position)
        return True

    # ── the end of the epoch ──────────────────────────────────────────────────────────────────────

    def prepare(self, message: PrepareBallot) -> Promised | Outvoted | None:
        """Promise to store nothing more, and to accept nothing of lower ballots."""
        if not self.is_voter or self.state is None or self.decision is not None:
            return None
        if self.promised is not None and message.ballot < self.promised:
            return Outvoted(self.range_id, self.promised)
        self.promised = message.ballot
        return Promised(self.range_id, message.ballot, self.log.end, self.accepted)

    def extend(self, first: int, entries: Sequence[Entry]) -> None:
        """Add entries that another sealed replica has stored."""
        if self.state is not None and self.decision is None:
            self.log.extend(first, entries)

    def accept(self, message: Accept) -> Accepted | Outvoted | LogMissing | None:
        """Accept a decision if the log reaches its end."""
        if not self.is_voter or self.state is None or self.decision is not None:
            return None
        if self.promised is not None and message.ballot < self.promised:
            return Outvoted(self.range_id, self.promised)
        self.promised = message.ballot
        self.log.extend(message.first, message.entries)
        if self.log.end < message.decision.end:
            return LogMissing(self.range_id, message.ballot, self.log.end)
        self.log.truncate(message.decision.end)
        self.accepted = AcceptedDecision(message.ballot, message.decision)
        return Accepted(self.range_id, message.ballot)

    def learn(self, decision: Decision, first: int, entries: Sequence[Entry]) -> None:
        """End the epoch as decided: execute the log up to the decided end, if it is all there."""
        assert self.decision in (None, decision), "the members decide once (ORP6)"
        if self.state is not None and self.decision is None:
            self.log.extend(first, entries)
            if self.log.end >= decision.end:
                self.log.truncate(decision.end)
                self.committed = decision.end
                while self.execute(count_max=decision.end):
                    pass
        self.decision = decision
