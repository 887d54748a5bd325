"""An AMQP 0-9-1 client: `connect` (asyncio) and `connect_blocking` return robust connections, which reconnect
by themselves; `Connection.open` opens a plain connection, which does not."""

from recado.amqp.properties import Properties, encode_properties

from .blocking import BlockingChannel, BlockingConnection, BlockingConsumer, connect_blocking
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
from .robust import RobustConnection, connect
from .robust_channel import RobustChannel, RobustConsumer

__all__ = [
    "AuthenticationError",
    "BlockingChannel",
    "BlockingConnection",
    "BlockingConsumer",
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
    "ReturnedMessage",
    "RobustChannel",
    "RobustConnection",
    "RobustConsumer",
    "TlsError",
    "VhostRefusedError",
    "connect",
    "connect_blocking",
    "encode_properties",
    "parse_url",
]
