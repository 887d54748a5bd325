"""Options of the AMQP transport. The section `[actors]` of recado.toml has most of them, under the same names."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from recado.actors.durable_mailbox.sequence_set import RANGES_MAX
from recado.client.retry import RetryPolicy

ABSENCE_MAX_S: Final = 600.0
"""A client bridge closes when its node has had no queue on the broker for this long, because meanwhile it holds
a connection and probes for the node three times a second. The next message to that node opens a new bridge."""


class Storage(enum.Enum):
    """How long the exchanges and queues of a bridge, and the messages in them, exist.

    Each node chooses it for the objects that it declares.
    """

    DURABLE = "durable"  # until deleted: a node finds its messages when it returns
    TRANSIENT = "transient"  # as long as the broker runs
    EXCLUSIVE_AUTODELETE = "exclusive_autodelete"  # as long as the connection that declared them


class ConnectionSharing(enum.Enum):
    """Which channels of a bridge share a connection."""

    PER_NODE = "one_connection_per_node"  # the read channel and the write channel share one
    PER_CHANNEL = "one_connection_per_channel"  # each has its own, so that neither blocks the other


class ExchangeParameters(msgspec.Struct, frozen=True):
    durable: bool
    auto_delete: bool


class QueueParameters(msgspec.Struct, frozen=True):
    durable: bool
    exclusive: bool
    auto_delete: bool


EXCHANGE_PARAMETERS = {
    Storage.DURABLE: ExchangeParameters(durable=True, auto_delete=False),
    Storage.TRANSIENT: ExchangeParameters(durable=False, auto_delete=False),
    Storage.EXCLUSIVE_AUTODELETE: ExchangeParameters(durable=False, auto_delete=True),
}
QUEUE_PARAMETERS = {
    Storage.DURABLE: QueueParameters(durable=True, exclusive=False, auto_delete=False),
    Storage.TRANSIENT: QueueParameters(durable=False, exclusive=False, auto_delete=False),
    Storage.EXCLUSIVE_AUTODELETE: QueueParameters(durable=False, exclusive=True, auto_delete=True),
}


class AmqpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the AMQP transport. Durations are seconds."""

    storage: Storage = Storage.DURABLE
    persistent: bool = True
    """Whether messages in durable queues survive a restart of the broker."""
    server_sharing: ConnectionSharing = ConnectionSharing.PER_NODE
    client_sharing: ConnectionSharing = ConnectionSharing.PER_NODE
    server_bridge: bool = True
    """Whether other nodes can reach this one by its name; a node that only sends asks needs no server
    bridge."""

    connect_timeout: float = 5.0
    """For one attempt to connect. At the start it is also the time for a reachable broker to accept the server
    bridge; an unreachable broker is waited for up to `reconnect_timeout`."""
    read_timeout: float = 20.0
    """A connection on which nothing is received from the broker for this long is closed."""
    retry_max: float = 0.3
    """Longest delay between two attempts to connect."""
    reconnect_timeout: float | None = None
    """A bridge closes when the broker cannot be reached for this long; None retries forever."""
    report_interval: float = 60.0
    """Interval of the `LinkStillDown` events of a lost bridge."""
    absence_timeout: float = 2.0
    """How long a node that was on the broker may be missing before frames to it are returned."""

    send_buffer_bytes: int = 64 << 20
    """Frames that a bridge holds until the broker has confirmed them."""
    prefetch: int = 4096
    """Limit of received frames that are not settled. Divided by 40, the most frames that a message has, it is
    the prefetch count of the AMQP channel."""
    max_clients: int = 10_000
    """Clients that a server bridge remembers."""

    def __post_init__(self) -> None:
        if not 0 < self.prefetch <= RANGES_MAX:
            # RANGES_MAX is how many frames left unsettled by the last incarnation a durable mailbox remembers.
            raise ValueError(f"prefetch is {self.prefetch}: it has to be from 1 to {RANGES_MAX}")

    @property
    def retry_policy(self) -> RetryPolicy:
        """For attempts to reach the broker."""
        return self._policy(self.reconnect_timeout)

    @property
    def search_policy(self) -> RetryPolicy:
        """For attempts of a client bridge while the broker is there and its node is not."""
        timeout = self.reconnect_timeout
        return self._policy(ABSENCE_MAX_S if timeout is None else min(ABSENCE_MAX_S, timeout))

    def _policy(self, reconnect_timeout: float | None) -> RetryPolicy:
        return RetryPolicy(
            retry_initial=0.05, retry_max=self.retry_max, reconnect_timeout=reconnect_timeout
        )

    @property
    def heartbeat_seconds(self) -> int:
        """The AMQP heartbeat: the client closes a connection after two of them without input."""
        return max(1, round(self.read_timeout / 2))
