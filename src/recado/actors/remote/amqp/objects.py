"""What a channel has on the broker, as values from which it can be made again, whenever the channel is.

They are made in the order in which they are listed. What exists already as it should be stays as it is, with
all that is in it; what exists otherwise is refused by the broker, and the error says so.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from recado.client import Channel

from .storage import ExchangeParameters, QueueParameters


class Exchange(msgspec.Struct, frozen=True):
    """A direct one."""

    name: str
    parameters: ExchangeParameters


class Queue(msgspec.Struct, frozen=True):
    name: str
    parameters: QueueParameters


class Binding(msgspec.Struct, frozen=True):
    queue: str
    exchange: str
    key: str


Object: TypeAlias = Exchange | Queue | Binding


async def make(channel: Channel, each: Object) -> None:
    match each:
        case Exchange(name, parameters):
            await channel.declare_exchange(
                name, "direct", durable=parameters.durable, auto_delete=parameters.auto_delete
            )
        case Queue(name, parameters):
            await channel.declare_queue(
                name,
                durable=parameters.durable,
                exclusive=parameters.exclusive,
                auto_delete=parameters.auto_delete,
            )
        case Binding(queue, exchange, key):
            await channel.bind_queue(queue, exchange, key)
