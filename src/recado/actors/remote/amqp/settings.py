"""How bridges deal with their broker. The file of settings says the same in its section `[actors]`."""

from __future__ import annotations

from typing import Final

import msgspec

from recado.actors.durable.settled import GAPS
from recado.client.backoff import Backoff

from .storage import Sharing, Storage

ABSENCE_MAX_S: Final = 600.0
"""A client bridge whose node is not on the broker for so long is dismantled: it has a connection, and probes
three times a second. The next message to that node builds another one."""


class AmqpSettings(msgspec.Struct, frozen=True, kw_only=True):
    storage: Storage = Storage.DURABLE
    persistent: bool = True  # whether messages in durable queues outlast the broker, too
    server_sharing: Sharing = Sharing.PER_NODE
    client_sharing: Sharing = Sharing.PER_NODE
    serve: bool = True  # False for a node that only asks others: it has no server bridge

    connect_timeout: float = 5.0
    """Seconds for one attempt to connect, and for a broker that is there to accept the first bridge. A broker
    that is away when the node is opened is waited for, up to `give_up`."""
    read_timeout: float = 20.0  # seconds of the broker's silence after which a connection is dead
    reconnect_delay: float = 0.3  # seconds between two attempts, at most
    give_up: float | None = None
    """Seconds without the broker after which a bridge ends; None retries forever."""
    report_interval: float = 60.0  # seconds between two events BridgeDown of a bridge that is lost
    absence: float = 2.0  # seconds that a node which was there may be missing on the broker

    hold_limit: int = 64 << 20  # bytes that a bridge holds until the broker has confirmed them
    prefetch: int = 4096  # frames that came and are not settled; a message has up to 40
    clients_limit: int = 10_000  # that a server bridge remembers

    def __post_init__(self) -> None:
        if not 0 < self.prefetch <= GAPS:
            # Of what an earlier life left unsettled a durable mailbox remembers no more than that.
            raise ValueError(f"prefetch is {self.prefetch}: it has to be from 1 to {GAPS}")

    @property
    def backoff(self) -> Backoff:
        return Backoff(first=0.05, most=self.reconnect_delay, give_up=self.give_up)

    @property
    def search_backoff(self) -> Backoff:
        """For a bridge to one node, while the broker is there and that node is not."""
        limits = [ABSENCE_MAX_S] if self.give_up is None else [ABSENCE_MAX_S, self.give_up]
        return Backoff(first=0.05, most=self.reconnect_delay, give_up=min(limits))

    @property
    def heartbeat(self) -> int:
        """The client takes two of them without a word for the end."""
        return max(1, round(self.read_timeout / 2))
