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
from recado.client import Channel, ClientError, Connection, ConnectionEnded, Returned

from .bridge import Bridge
from .objects import make
from .restarting import CLOSE_SECONDS, Broke, NobodyThere, Restarting

PROBE: Final = encode_properties(Properties(expiration="0", delivery_mode=1))


class WriteChannelActor(Restarting):
    def __init__(self, bridge: Bridge, connection: Connection) -> None:
        super().__init__(bridge, bridge.writing)
        self._connection = connection
        self._channel: Channel | None = None
        self._came_back = False

    async def begin(self) -> None:
        plan = self.bridge.plan
        channel = self._channel = await self._connection.channel(confirms=self.bridge.lasts)
        for each in plan.writes:
            await make(channel, each)
        if plan.probe is not None:
            await self._probe(channel, plan.exchange, plan.probe)
        channel.on_end = self._ended
        channel.check()
        self.bridge.writes(channel)

    async def _probe(self, channel: Channel, exchange: str, key: str) -> None:
        channel.on_return = self._returned
        channel.publish(exchange, key, b"", PROBE, mandatory=True)
        await channel.qos(0)  # answered when the broker has done what was said before
        if self._came_back:
            raise NobodyThere(f"nobody on this broker has a queue for '{key}'")

    def _returned(self, message: Returned) -> None:
        self._came_back = True

    def _ended(self, error: Exception) -> None:
        self.bridge.no_longer_writes(error)
        if self._channel is not None and not isinstance(error, ConnectionEnded):
            self.ref.tell(Broke(self._channel, error))

    def owns(self, what: Connection | Channel) -> bool:
        return what is self._channel

    async def leave(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await channel.close()
