"""What happens to a client's connection, as values; the session makes them, the rim acts on them.

Deliveries come as `Delivered` of `amqp/deliveries.py`, the way the reader made them.
"""

from typing import Any, TypeAlias

import msgspec

from recado.amqp.deliveries import Delivered
from recado.amqp.methods import Method
from recado.amqp.values import FieldTable

from .messages import ReturnedMessage

ReplyToken: TypeAlias = Any  # whatever the caller gave along with a call; the rim gives futures


class ConnectionOpened(msgspec.Struct, frozen=True):
    server_properties: FieldTable


class ReplyReceived(msgspec.Struct, frozen=True):
    token: ReplyToken
    method: Method
    raw_properties: bytes = b""  # of a get-ok
    body: bytes = b""


class PublishesConfirmed(msgspec.Struct, frozen=True):
    channel: int
    sequence_numbers: range
    acked: bool


class MessageReturned(msgspec.Struct, frozen=True):
    channel: int
    message: ReturnedMessage


class ConsumerCancelReceived(msgspec.Struct, frozen=True):
    """The broker cancelled it."""

    channel: int
    consumer_tag: str


class FlowChanged(msgspec.Struct, frozen=True):
    channel: int
    active: bool


class ChannelTerminated(msgspec.Struct, frozen=True):
    channel: int
    error: Exception
    pending_tokens: list[ReplyToken]  # of the calls that nobody will answer


class BlockedStateChanged(msgspec.Struct, frozen=True):
    reason: str | None  # None: publishing may go on


class ConnectionTerminated(msgspec.Struct, frozen=True):
    error: Exception
    pending_tokens: list[ReplyToken]


SessionEvent: TypeAlias = (
    ConnectionOpened
    | ReplyReceived
    | Delivered
    | PublishesConfirmed
    | MessageReturned
    | ConsumerCancelReceived
    | FlowChanged
    | ChannelTerminated
    | BlockedStateChanged
    | ConnectionTerminated
)
