"""What a channel has on the broker, as values from which it can be made again, whenever the channel is.

They are made in the order in which they are listed. What exists already as it should be stays as it is, with
all that is in it; what exists otherwise is refused by the broker, and the error says so.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from recado.client import Channel

from .storage import ExchangeParameters, QueueParameters


class ExchangeSpec(msgspec.Struct, frozen=True):
    """A direct one."""

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
