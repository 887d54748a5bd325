"""The channel that writes, as an actor.

Before anything is written to a node it asks whether anybody is there: by a message without content that must
be routed, and that no queue keeps. So nothing goes to where nobody is while the node's own bridge is still
being rebuilt, and the order of what was held back stays what it was.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from recado.amqp.properties import Properties, encode_properties
from recado.client import Channel, ClientError, Connection, ConnectionClosedError, ReturnedMessage

from .bridge import Bridge
from .restart import CHANNEL_CLOSE_TIMEOUT_S, BridgeActor, NodeAbsentError, ResourceClosed
from .topology import declare

PROBE_PROPERTIES: Final = encode_properties(Properties(expiration="0", delivery_mode=1))


class WriteChannelActor(BridgeActor):
    def __init__(self, bridge: Bridge, connection: Connection) -> None:
        super().__init__(bridge, bridge.write_retries)
        self._connection = connection
        self._channel: Channel | None = None
        self._probe_returned = False

    async def open_resources(self) -> None:
        plan = self.bridge.topology
        channel = self._channel = await self._connection.channel(confirms=self.bridge.is_durable)
        for each in plan.write_objects:
            await declare(channel, each)
        if plan.probe_key is not None:
            await self._probe(channel, plan.exchange, plan.probe_key)
        channel.on_end = self._channel_closed
        channel.check_open()
        self.bridge.writing_started(channel)

    async def _probe(self, channel: Channel, exchange: str, key: str) -> None:
        channel.on_return = self._handle_return
        channel.publish(exchange, key, b"", PROBE_PROPERTIES, mandatory=True)
        await channel.qos(0)  # answered when the broker has done what was said before
        if self._probe_returned:
            raise NodeAbsentError(f"nobody on this broker has a queue for '{key}'")

    def _handle_return(self, message: ReturnedMessage) -> None:
        self._probe_returned = True

    def _channel_closed(self, error: Exception) -> None:
        self.bridge.writing_stopped(error)
        if self._channel is not None and not isinstance(error, ConnectionClosedError):
            self.ref.tell(ResourceClosed(self._channel, error))

    def owns(self, resource: Connection | Channel) -> bool:
        return resource is self._channel

    async def close_resources(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(CHANNEL_CLOSE_TIMEOUT_S):
                    await channel.close()
