"""An AMQP client for asyncio: a bare connection that fails loudly, and a robust one that comes back."""

from recado.amqp.properties import Properties, encode_properties

from .channel import Channel
from .connection import Connection
from .consumer import Consumer
from .errors import (
    AuthenticationError,
    CannotConnectError,
    ChannelClosedByBrokerError,
    ChannelClosedByClientError,
    ChannelClosedError,
    ClientError,
    ConnectionClosedByBrokerError,
    ConnectionClosedByClientError,
    ConnectionClosedError,
    ConnectionLostError,
    ConnectionRejectedError,
    ConsumerCancelledError,
    PublishNackedError,
    ReconnectTimeoutError,
    TlsError,
    VhostRefusedError,
)
from .events import (
    ConnectionEvent,
    ConnectionLost,
    ConnectionRecovered,
    PublishingBlocked,
    PublishingUnblocked,
    ReconnectAbandoned,
    ReconnectScheduled,
    RecoverySkipped,
)
from .messages import Delivery, QueueInfo, ReturnedMessage
from .parameters import ConnectionParameters, parse_url
from .retry import RetryPolicy
from .robust import RobustConnection, connect
from .robust_channel import RobustChannel, RobustConsumer

__all__ = [
    "AuthenticationError",
    "CannotConnectError",
    "Channel",
    "ChannelClosedByBrokerError",
    "ChannelClosedByClientError",
    "ChannelClosedError",
    "ClientError",
    "Connection",
    "ConnectionClosedByBrokerError",
    "ConnectionClosedByClientError",
    "ConnectionClosedError",
    "ConnectionEvent",
    "ConnectionLost",
    "ConnectionLostError",
    "ConnectionParameters",
    "ConnectionRecovered",
    "ConnectionRejectedError",
    "Consumer",
    "ConsumerCancelledError",
    "Delivery",
    "Properties",
    "PublishNackedError",
    "PublishingBlocked",
    "PublishingUnblocked",
    "QueueInfo",
    "ReconnectAbandoned",
    "ReconnectScheduled",
    "ReconnectTimeoutError",
    "RecoverySkipped",
    "RetryPolicy",
    "ReturnedMessage",
    "RobustChannel",
    "RobustConnection",
    "RobustConsumer",
    "TlsError",
    "VhostRefusedError",
    "connect",
    "encode_properties",
    "parse_url",
]
