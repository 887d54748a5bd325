"""How bridges deal with their broker. The file of settings says the same in its section `[actors]`."""

from __future__ import annotations

from typing import Final

import msgspec

from recado.actors.durable_mailbox.sequence_set import RANGES_MAX
from recado.client.retry import RetryPolicy

from .storage import ConnectionSharing, Storage

ABSENCE_MAX_S: Final = 600.0
"""A client bridge whose node is not on the broker for so long is dismantled: it has a connection, and probes
three times a second. The next message to that node builds another one."""


class AmqpSettings(msgspec.Struct, frozen=True, kw_only=True):
    storage: Storage = Storage.DURABLE
    persistent: bool = True  # whether messages in durable queues outlast the broker, too
    server_sharing: ConnectionSharing = ConnectionSharing.PER_NODE
    client_sharing: ConnectionSharing = ConnectionSharing.PER_NODE
    server_bridge: bool = True  # False for a node that only asks others: it has no server bridge

    connect_timeout: float = 5.0
    """Seconds for one attempt to connect, and for a broker that is there to accept the first bridge. A broker
    that is away when the node is opened is waited for, up to `give_up`."""
    read_timeout: float = 20.0  # seconds of the broker's silence after which a connection is dead
    retry_max: float = 0.3  # seconds between two attempts, at most
    reconnect_timeout: float | None = None
    """Seconds without the broker after which a bridge ends; None retries forever."""
    report_interval: float = 60.0  # seconds between two events BridgeDown of a bridge that is lost
    absence_timeout: float = 2.0  # seconds that a node which was there may be missing on the broker

    send_buffer_bytes: int = (
        64 << 20
    )  # bytes that a bridge holds until the broker has confirmed them
    prefetch: int = 4096  # frames that came and are not settled; a message has up to 40
    max_clients: int = 10_000  # that a server bridge remembers

    def __post_init__(self) -> None:
        if not 0 < self.prefetch <= RANGES_MAX:
            # Of what an earlier life left unsettled a durable mailbox remembers no more than that.
            raise ValueError(f"prefetch is {self.prefetch}: it has to be from 1 to {RANGES_MAX}")

    @property
    def backoff(self) -> RetryPolicy:
        return RetryPolicy(
            retry_initial=0.05, retry_max=self.retry_max, reconnect_timeout=self.reconnect_timeout
        )

    @property
    def search_backoff(self) -> RetryPolicy:
        """For a bridge to one node, while the broker is there and that node is not."""
        limits = (
            [ABSENCE_MAX_S]
            if self.reconnect_timeout is None
            else [ABSENCE_MAX_S, self.reconnect_timeout]
        )
        return RetryPolicy(
            retry_initial=0.05, retry_max=self.retry_max, reconnect_timeout=min(limits)
        )

    @property
    def heartbeat_seconds(self) -> int:
        """The client takes two of them without a word for the end."""
        return max(1, round(self.read_timeout / 2))
