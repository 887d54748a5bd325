"""The events of a client's session, as immutable values: `Session` produces them, `Connection` handles them.

Deliveries are reported as `Delivered` of `amqp/deliveries.py`, as the reader produces them.
"""

from typing import Any, TypeAlias

import msgspec

from recado.amqp.deliveries import Delivered
from recado.amqp.methods import Method
from recado.amqp.values import FieldTable

from .messages import ReturnedMessage

ReplyToken: TypeAlias = Any  # passed in with a call and returned with its reply; here a future


class ConnectionOpened(msgspec.Struct, frozen=True):
    server_properties: FieldTable


class ReplyReceived(msgspec.Struct, frozen=True):
    """The reply to a call; `raw_properties` and `body` are those of a get-ok."""

    token: ReplyToken
    method: Method
    raw_properties: bytes = b""
    body: bytes = b""


class PublishesConfirmed(msgspec.Struct, frozen=True):
    """The broker acked, or nacked, a range of publishes."""

    channel: int
    sequence_numbers: range
    acked: bool


class MessageReturned(msgspec.Struct, frozen=True):
    channel: int
    message: ReturnedMessage


class ConsumerCancelReceived(msgspec.Struct, frozen=True):
    """The broker cancelled a consumer."""

    channel: int
    consumer_tag: str


class FlowChanged(msgspec.Struct, frozen=True):
    channel: int
    active: bool


class ChannelTerminated(msgspec.Struct, frozen=True):
    """A channel was closed by either side; the calls of `pending_tokens` get no reply."""

    channel: int
    error: Exception
    pending_tokens: list[ReplyToken]


class BlockedStateChanged(msgspec.Struct, frozen=True):
    """The broker stopped accepting messages for `reason`, or accepts them again (None)."""

    reason: str | None


class ConnectionTerminated(msgspec.Struct, frozen=True):
    """The connection has ended; the calls of `pending_tokens` get no reply."""

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
