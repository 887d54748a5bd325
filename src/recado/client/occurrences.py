"""What happens to a client's connection, as values; the session makes them, the rim acts on them.

Deliveries come as `Delivered` of `amqp/deliveries.py`, the way the reader made them.
"""

from typing import Any, TypeAlias

import msgspec

from recado.amqp.deliveries import Delivered
from recado.amqp.methods import Method
from recado.amqp.values import Table

from .messages import Returned

Token: TypeAlias = Any  # whatever the caller gave along with a call; the rim gives futures


class Opened(msgspec.Struct, frozen=True):
    server_properties: Table


class Answered(msgspec.Struct, frozen=True):
    token: Token
    method: Method
    header: bytes = b""  # of a get-ok
    body: bytes = b""


class Confirmed(msgspec.Struct, frozen=True):
    channel: int
    numbers: range
    ok: bool


class CameBack(msgspec.Struct, frozen=True):
    channel: int
    message: Returned


class ConsumerGone(msgspec.Struct, frozen=True):
    """The broker cancelled it."""

    channel: int
    consumer_tag: str


class FlowChanged(msgspec.Struct, frozen=True):
    channel: int
    active: bool


class ChannelEnded(msgspec.Struct, frozen=True):
    channel: int
    error: Exception
    tokens: list[Token]  # of the calls that nobody will answer


class BlockChanged(msgspec.Struct, frozen=True):
    reason: str | None  # None: publishing may go on


class Ended(msgspec.Struct, frozen=True):
    error: Exception
    tokens: list[Token]


Occurrence: TypeAlias = (
    Opened
    | Answered
    | Delivered
    | Confirmed
    | CameBack
    | ConsumerGone
    | FlowChanged
    | ChannelEnded
    | BlockChanged
    | Ended
)
