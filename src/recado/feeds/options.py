"""Options of feeds: timeouts, limits, and the recovery of a subscriber."""

from enum import Enum

from msgspec import Struct, field

from .vector import Vector


class RecoveryPolicy(Enum):
    """Which messages a returning subscriber receives first."""

    NONE = "none"
    """None: it starts with messages published from now on. The application calls this `optimistic` or None."""
    VECTOR = "vector"
    """The messages that are not in `FeedOptions.start_vector`."""
    PESSIMISTIC = "pessimistic"
    """The messages after the last acknowledgement of this name, some of which it may have received before; each
    is marked with its `Certainty`."""
    ARCHIVE = "archive"
    """Like PESSIMISTIC, but the archive starts it when it sees the name return."""


class FeedOptions(Struct, frozen=True, kw_only=True):
    """Options of a feed; all members should use the same. Durations are in seconds."""

    has_total_order: bool = True
    """True on AMQP: the transport delivers broadcasts to all members in one order, publishers do not receive
    them, and so do not resend messages. False on UDP: no common order, and publishers resend messages on
    request. Set by the transport."""
    max_packet_bytes: int = 1024 * 1024
    """Largest packet of the transport, in bytes. Set by the transport."""
    heartbeat_interval: float = 0.5
    failure_timeout: float = 2.0
    """A member that has been silent for this long is considered to have failed."""
    full_rate_members: int = 100
    """In a group of up to this many members, subscribers send a heartbeat every `heartbeat_interval`; in a
    group n times as large every n intervals, and a failure is detected after n times `failure_timeout`.
    Archives and the oldest members always send at the full rate."""
    view_change_timeout: float = 1.0
    """Seconds that a view change waits for replies."""
    retry_interval: float = 0.2
    """Seconds before an unanswered request is repeated."""
    loss_timeout: float = 10.0
    """Seconds after which a message that no reachable member has is reported as lost."""
    retransmit_bytes: int = 16 * 1024 * 1024
    """Memory for recent messages that are resent to members which missed them."""
    buffer_bytes: int = 64 * 1024 * 1024
    """Memory for messages that cannot be delivered yet, for each of three reasons. Beyond it, messages that are
    out of order are dropped and requested again; live messages that wait for recovery are dropped and recovered
    from the archive, too; and with UNIFORM, if too much waits to be durable, the member fails."""
    recovery: RecoveryPolicy = RecoveryPolicy.NONE
    start_vector: Vector = field(default_factory=Vector)
    """With RecoveryPolicy.VECTOR: the messages that the application has."""
    recovery_timeout: float = 10.0
    """Seconds to wait for an archive to answer."""
    live_without_archive: bool = False
    """If no archive answers, continue with live messages and a gap instead of failing."""
    gap_timeout: float | None = None
    """For a subscriber with recovery: seconds to wait for a message that no reachable member has, but an absent
    archive may have, before it fails. None waits until an archive returns."""
    acknowledge_interval: float = 5.0
    """Seconds between acknowledgements to the archives, besides those for views."""
    archive_count: int = 0
    """Number of archives that the feed has; 0 uses the number in the view."""
    resume_after: int = 0
    """For a resumed publisher: the sequence after which it continues."""
    uniform_copies: int = 0
    """UNIFORM: number of archives that must have a message; 0 means a majority."""
