"""How long the broker keeps what the bridges make there: exchanges, queues, and messages in them.

    DURABLE                until somebody removes it: a node finds its messages when it returns
    TRANSIENT              as long as the broker runs
    EXCLUSIVE_AUTODELETE   as long as the connection that made it

Nodes may differ in it: each says it of what it makes itself.
"""

from __future__ import annotations

import enum

import msgspec


class Storage(enum.Enum):
    DURABLE = "durable"
    TRANSIENT = "transient"
    EXCLUSIVE_AUTODELETE = "exclusive_autodelete"


class ConnectionSharing(enum.Enum):
    """Which channels of a bridge have the same connection."""

    PER_NODE = "one_connection_per_node"  # the one that reads and the one that writes
    PER_CHANNEL = "one_connection_per_channel"  # so that much of one does not hold up the other


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
