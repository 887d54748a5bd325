"""The options of the server: what it announces to every connection, and the limits it enforces."""

import msgspec

from recado.amqp.frames import FRAME_MAX_DEFAULT_BYTES
from recado.amqp.values import FieldTable

from .certificate_login import CertificateLogin

CAPABILITIES: FieldTable = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}

PASSWORD_MECHANISMS = ("PLAIN", "AMQPLAIN")


class ConnectionOptions(msgspec.Struct, frozen=True):
    """Options of each connection: announced in connection.start, proposed in connection.tune, or enforced."""

    product_properties: FieldTable = {}
    frame_max: int = FRAME_MAX_DEFAULT_BYTES
    channel_max: int = 2047
    heartbeat: int = 60
    body_max_bytes: int = 16 << 20
    run_messages_max: int = 1 << 30
    """The largest run that input is grouped into; tests set it to 1."""
    certificate_login: CertificateLogin | None = None
    """Which part of a client certificate is the name of the user; without it EXTERNAL is not offered."""

    def server_properties(self) -> FieldTable:
        return {**self.product_properties, "capabilities": CAPABILITIES}


class ServerLimits(msgspec.Struct, frozen=True):
    """The limits of connections and memory that the server enforces. Durations are in seconds."""

    handshake_timeout: float = 10.0
    max_connections: int | None = None
    memory_watermark: float = 0.6
    """Publishers are blocked while the process uses more than this ratio of the machine's memory."""
    unread_max_bytes: int = 16 << 20
    """A client that leaves more than this unread for `unread_timeout` is closed."""
    unread_timeout: float = 10.0
    write_timeout: float = 60.0
    """A client that reads nothing at all for this long, while output waits, is closed."""
