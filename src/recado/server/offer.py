"""What the server offers and allows to every connection."""

import msgspec

from recado.amqp.frames import FRAME_DEFAULT
from recado.amqp.values import Table

CAPABILITIES: Table = {
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


class Offer(msgspec.Struct, frozen=True):
    properties: Table = {}
    frame_max: int = FRAME_DEFAULT
    channel_max: int = 2047
    heartbeat: int = 60
    body_max: int = 16 << 20
    run_limit: int = 1 << 30

    def server_properties(self) -> Table:
        return {**self.properties, "capabilities": CAPABILITIES}
