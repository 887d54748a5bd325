"""The exchanges, queues and bindings of a bridge, as values from which each new channel declares them.

They are declared in the order in which they are listed. An object that exists with the same parameters is left
unchanged, with its messages; the broker refuses one with other parameters, and the error says so.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from recado.client import Channel

from . import naming
from .settings import (
    EXCHANGE_PARAMETERS,
    QUEUE_PARAMETERS,
    ExchangeParameters,
    QueueParameters,
    Storage,
)


class ExchangeSpec(msgspec.Struct, frozen=True):
    """A direct exchange."""

    name: str
    parameters: ExchangeParameters


class QueueSpec(msgspec.Struct, frozen=True):
    name: str
    parameters: QueueParameters


class BindingSpec(msgspec.Struct, frozen=True):
    queue: str
    exchange: str
    key: str


TopologyObject: TypeAlias = ExchangeSpec | QueueSpec | BindingSpec


class BridgeTopology(msgspec.Struct, frozen=True):
    """The exchanges, queues and bindings that a bridge declares and uses on the broker."""

    name: str
    exchange: str
    read_objects: tuple[TopologyObject, ...]
    """Declared by the channel that reads."""
    queue: str
    write_objects: tuple[TopologyObject, ...]
    """Declared by the channel that writes."""
    probe_key: str | None
    """The key for which a queue must be bound before anything is written; None: not probed."""


def server_topology(node: str, storage: Storage) -> BridgeTopology:
    exchange = ExchangeSpec(naming.inbound_exchange(node), EXCHANGE_PARAMETERS[storage])
    queue = QueueSpec(naming.inbound_queue(node), QUEUE_PARAMETERS[storage])
    binding = BindingSpec(queue.name, exchange.name, naming.key_to_server(node))
    # Both channels need the exchange, and after a loss either may be reopened first.
    return BridgeTopology(
        name=f"server {node}",
        exchange=exchange.name,
        read_objects=(exchange, queue, binding),
        queue=queue.name,
        write_objects=(exchange,),
        probe_key=None,
    )


def client_topology(node: str, client_id: str, storage: Storage) -> BridgeTopology:
    queue = QueueSpec(naming.outbound_queue(node, client_id), QUEUE_PARAMETERS[storage])
    exchange = naming.inbound_exchange(node)
    binding = BindingSpec(queue.name, exchange, naming.key_to_client(node, client_id))
    return BridgeTopology(
        name=f"client {client_id} of {node}",
        exchange=exchange,
        read_objects=(queue, binding),
        queue=queue.name,
        write_objects=(),
        probe_key=naming.key_to_server(node),
    )


async def declare(channel: Channel, item: TopologyObject) -> None:
    match item:
        case ExchangeSpec(name, parameters):
            await channel.declare_exchange(
                name, "direct", durable=parameters.durable, auto_delete=parameters.auto_delete
            )
        case QueueSpec(name, parameters):
            await channel.declare_queue(
                name,
                durable=parameters.durable,
                exclusive=parameters.exclusive,
                auto_delete=parameters.auto_delete,
            )
        case BindingSpec(queue, exchange, key):
            await channel.bind_queue(queue, exchange, key)
