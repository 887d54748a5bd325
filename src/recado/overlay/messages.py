"""The messages between nodes about ranges and commands.

Several messages for one peer travel in one `Packet`. Messages may be lost, repeated and reordered; the docstring of the
receiving module says why each is safe then.
"""

from __future__ import annotations

from msgspec import Struct

from .answer_table import OriginRecord
from .command import Answer, CommandId, DeliveryMethod, SubscriptionId, TopicCommand, TopicMessage
from .configuration import Configuration, RangeId
from .identifier import NodeId, TopicKey
from .peer_address import PeerAddress
from .range_state import Entry, Pending
from .topic import TopicRecord


class Ballot(Struct, frozen=True, array_like=True, order=True):
    """The number of an attempt to decide. No two nodes use the same."""

    round: int
    proposer: NodeId


class Decision(Struct, frozen=True, array_like=True):
    """How a configuration ends: at which position, and what follows."""

    end: int
    successors: tuple[Configuration, ...]
    """They divide the arc. Each continues at `end`."""
    absorbed: RangeId | None = None
    """The range above, which is merged into the only successor (`merge`)."""
    absorbed_end: int = 0
    merges_into: RangeId | None = None
    """The range below absorbs this one. If it is decided otherwise, the only successor follows instead."""


class AcceptedDecision(Struct, frozen=True, array_like=True):
    ballot: Ballot
    decision: Decision


# ── normal operation ──────────────────────────────────────────────────────────────────────────────


class Append(Struct, frozen=True, tag=True):
    """From the owner: store these entries. An empty one is for `committed` and `round`."""

    range_id: RangeId
    first: int
    entries: tuple[Entry, ...]
    committed: int
    round: int
    """Counts the barriers of reads."""
    configuration: Configuration | None = None
    """Until the follower has answered once."""


class Stored(Struct, frozen=True, tag=True):
    """The follower has the state and all entries before `end`, and is not sealed."""

    range_id: RangeId
    end: int
    round: int


class Reload(Struct, frozen=True, tag=True):
    """The log of the sender begins after what the receiver has; it needs the state."""

    range_id: RangeId


# ── reconfiguration ───────────────────────────────────────────────────────────────────────────────


class Canvass(Struct, frozen=True, tag=True):
    """Would you take part in deciding what follows this configuration? Promises nothing."""

    configuration: Configuration


class Willing(Struct, frozen=True, tag=True):
    range_id: RangeId


class PrepareBallot(Struct, frozen=True, tag=True):
    configuration: Configuration
    ballot: Ballot


class Promised(Struct, frozen=True, tag=True):
    """The sender stores nothing more in this epoch, and accepts nothing of lower ballots."""

    range_id: RangeId
    ballot: Ballot
    end: int
    """Of the log."""
    accepted: AcceptedDecision | None


class FetchLog(Struct, frozen=True, tag=True):
    """From a proposer whose log is not the longest."""

    range_id: RangeId
    first: int


class LogSuffix(Struct, frozen=True, tag=True):
    range_id: RangeId
    first: int
    entries: tuple[Entry, ...]


class Accept(Struct, frozen=True, tag=True):
    configuration: Configuration
    ballot: Ballot
    decision: Decision
    first: int
    entries: tuple[Entry, ...]
    """What the acceptor lacks before `decision.end`."""


class Accepted(Struct, frozen=True, tag=True):
    """The sender has the final state."""

    range_id: RangeId
    ballot: Ballot


class LogMissing(Struct, frozen=True, tag=True):
    """The acceptor's log ends before the entries of the `Accept`."""

    range_id: RangeId
    ballot: Ballot
    end: int


class Outvoted(Struct, frozen=True, tag=True):
    """The sender has promised a higher ballot."""

    range_id: RangeId
    ballot: Ballot


class Decided(Struct, frozen=True, tag=True):
    configuration: Configuration
    decision: Decision
    first: int
    entries: tuple[Entry, ...]


class Announce(Struct, frozen=True, tag=True):
    """You are a member of this configuration; the sender has its initial state."""

    configuration: Configuration


class StateConfirmed(Struct, frozen=True, tag=True):
    """The sender has the state of the configuration."""

    range_id: RangeId


class Invite(Struct, frozen=True, tag=True):
    """From the owner: get the state and follow the log, without a vote; you may become a member."""

    configuration: Configuration


class RangesKnown(Struct, frozen=True, tag=True):
    """Configurations that the receiver seems not to know."""

    configurations: tuple[Configuration, ...]


class LookUp(Struct, frozen=True, tag=True):
    """Which configuration do you know for this key?"""

    key: TopicKey


# ── transfer of state ─────────────────────────────────────────────────────────────────────────────


class PullState(Struct, frozen=True, tag=True):
    range_id: RangeId
    request: int
    chunk: int
    """0 begins a new copy at the source."""


class StateChunk(Struct, frozen=True, tag=True):
    range_id: RangeId
    request: int
    chunk: int
    is_last: bool
    position: int
    end: int
    """Of the log that follows the state; the last chunk has the entries."""
    topics: tuple[TopicRecord, ...] = ()
    pending: tuple[Pending, ...] = ()
    answers: tuple[OriginRecord, ...] = ()
    entries: tuple[Entry, ...] = ()


class StateUnknown(Struct, frozen=True, tag=True):
    """The sender has no such state, or not any more."""

    range_id: RangeId
    request: int


# ── commands ──────────────────────────────────────────────────────────────────────────────────────


class Commands(Struct, frozen=True, tag=True):
    commands: tuple[TopicCommand, ...]
    hops: int = 0


class CommandAnswer(Struct, frozen=True, array_like=True):
    number: int
    answer: Answer


class Answers(Struct, frozen=True, tag=True):
    answers: tuple[CommandAnswer, ...]
    configuration: Configuration | None
    """Of the range that has executed the commands."""


# ── notifications ─────────────────────────────────────────────────────────────────────────────────


class Notification(Struct, frozen=True, array_like=True):
    topic: str
    position: int
    publish: CommandId
    message: TopicMessage
    subscriptions: tuple[SubscriptionId, ...]
    """Those of the receiver that match."""
    delivery: DeliveryMethod | None = None
    """The registered delivery, if it is not the subscriber itself."""


class Notify(Struct, frozen=True, tag=True):
    range_id: RangeId
    first: int
    """The number of the first notification in the stream of this owner to this node."""
    notifications: tuple[Notification, ...]


class Notified(Struct, frozen=True, tag=True):
    range_id: RangeId
    next: int
    """All notifications with smaller numbers are delivered."""


class SubscriptionsLost(Struct, frozen=True, tag=True):
    """The subscriptions have ended because the subscriber was too slow."""

    topic: str
    numbers: tuple[int, ...]


class Leaving(Struct, frozen=True, tag=True):
    """The sender wants to leave: it must become a member of nothing."""

    peer: PeerAddress
    is_leaving: bool = True


RangeMessage = (
    Append
    | Stored
    | Reload
    | Canvass
    | Willing
    | PrepareBallot
    | Promised
    | FetchLog
    | LogSuffix
    | Accept
    | Accepted
    | LogMissing
    | Outvoted
    | Decided
    | Announce
    | StateConfirmed
    | Invite
    | RangesKnown
    | LookUp
    | PullState
    | StateChunk
    | StateUnknown
    | Commands
    | Answers
    | Notify
    | Notified
    | SubscriptionsLost
    | Leaving
)


class Messages(Struct, frozen=True, tag=True):
    """What one node sends to another one in one step: the body of a `Packet`."""

    messages: tuple[RangeMessage, ...]
