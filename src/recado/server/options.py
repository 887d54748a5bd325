"""What the server offers and allows to every connection."""

import msgspec

from recado.amqp.frames import FRAME_MAX_DEFAULT_BYTES
from recado.amqp.values import FieldTable

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


class ConnectionOptions(msgspec.Struct, frozen=True):
    product_properties: FieldTable = {}
    frame_max: int = FRAME_MAX_DEFAULT_BYTES
    channel_max: int = 2047
    heartbeat: int = 60
    body_max_bytes: int = 16 << 20
    run_messages_max: int = 1 << 30

    def server_properties(self) -> FieldTable:
        return {**self.product_properties, "capabilities": CAPABILITIES}
