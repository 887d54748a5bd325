"""An AMQP client for asyncio: a bare connection that fails loudly, and a robust one that comes back."""

from recado.amqp.properties import Properties, encode_properties

from .address import Address, parse_address
from .backoff import Backoff
from .channel import Channel
from .connection import Connection
from .consumer import Consumer
from .errors import (
    CannotConnect,
    ChannelClosed,
    ChannelEnded,
    ChannelRefused,
    ClientError,
    ClosedByBroker,
    ConnectionClosed,
    ConnectionEnded,
    ConnectionLost,
    ConsumerCancelled,
    GaveUp,
    LoginFailed,
    NotConfirmed,
    NotWelcome,
    TlsFailed,
    VhostRefused,
)
from .messages import Delivery, Queue, Returned
from .notices import (
    Blocked,
    GivenUp,
    Lost,
    Notice,
    NotRestored,
    Restored,
    Retrying,
    Unblocked,
)
from .robust import RobustConnection, connect
from .robust_channel import RobustChannel, RobustConsumer

__all__ = [
    "Address",
    "Backoff",
    "Blocked",
    "CannotConnect",
    "Channel",
    "ChannelClosed",
    "ChannelEnded",
    "ChannelRefused",
    "ClientError",
    "ClosedByBroker",
    "Connection",
    "ConnectionClosed",
    "ConnectionEnded",
    "ConnectionLost",
    "Consumer",
    "ConsumerCancelled",
    "Delivery",
    "GaveUp",
    "GivenUp",
    "LoginFailed",
    "Lost",
    "NotConfirmed",
    "NotRestored",
    "NotWelcome",
    "Notice",
    "Properties",
    "Queue",
    "Restored",
    "Retrying",
    "Returned",
    "RobustChannel",
    "RobustConnection",
    "RobustConsumer",
    "TlsFailed",
    "Unblocked",
    "VhostRefused",
    "connect",
    "encode_properties",
    "parse_address",
]
