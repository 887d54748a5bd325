"""The actors that have connections, and the one that supervises them.

    ConnectionSupervisor           one for each transport
    └── ConnectionActor            one for each bridge, with one connection or one for each channel
        ├── ReadChannelActor
        └── WriteChannelActor      after the first has begun to read: answers find a queue

CO1  When a connection ends its actor fails, and is restarted: that is all there is of recovery. A new instance
     has new connections and new channel actors.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import ClassVar

from recado.actors.actor import Actor
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.actors.supervision.strategy import SupervisorStrategy
from recado.client import Channel, Connection, ConnectionLostError

from .bridge import Bridge
from .reader import ReadChannelActor
from .restart import ALWAYS_RESTART, BridgeActor, BridgeActorMessage, ResourceClosed
from .storage import ConnectionSharing
from .writer import WriteChannelActor


class OpenBridge(Message[None]):
    by_reference: ClassVar[bool] = True
    bridge: Bridge


class CloseBridge(Message[None]):
    by_reference: ClassVar[bool] = True
    bridge: Bridge


class ConnectionSupervisor(Actor[OpenBridge | CloseBridge]):
    supervisor_strategy: ClassVar[SupervisorStrategy] = ALWAYS_RESTART

    def __init__(self) -> None:
        self._actors: dict[Bridge, ActorRef[BridgeActorMessage]] = {}

    async def receive(self, message: OpenBridge | CloseBridge) -> None:
        match message:
            case OpenBridge(bridge):
                self._actors[bridge] = await self.start_link(partial(ConnectionActor, bridge))
            case CloseBridge(bridge):
                actor = self._actors.pop(bridge, None)
                if actor is not None:
                    actor.stop()


class ConnectionActor(BridgeActor):
    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge, bridge.connect_retries)
        self._connections: list[Connection] = []
        self._writer: ActorRef[BridgeActorMessage] | None = None

    async def open_resources(self) -> None:
        await self._open("reads")
        if self.bridge.sharing is ConnectionSharing.PER_CHANNEL:
            await self._open("writes")
        reads = self._connections[0]
        await self.start_link(partial(ReadChannelActor, self.bridge, reads, self.ref))

    async def _open(self, what: str) -> None:
        bridge = self.bridge
        alone = bridge.sharing is ConnectionSharing.PER_NODE
        name = f"recado actors, {bridge.topology.name}" + ("" if alone else f", {what}")
        opening = asyncio.ensure_future(Connection.open(bridge.address, name=name))
        bridge.cancel_connect = opening.cancel
        try:
            connection = await opening
        finally:
            bridge.cancel_connect = None
        self._connections.append(connection)
        bridge.connections = self._connections
        connection.on_end = partial(self._connection_closed, connection)
        connection.check_open()

    def _connection_closed(self, connection: Connection, error: Exception) -> None:
        self.ref.tell(ResourceClosed(connection, error))

    async def reader_ready(self) -> None:
        if self._writer is None and self._connections:
            writes = self._connections[-1]
            self._writer = await self.start_link(partial(WriteChannelActor, self.bridge, writes))

    def owns(self, resource: Connection | Channel) -> bool:
        return resource in self._connections

    async def pre_restart(self, reason: BaseException, message: object) -> None:
        for connection in self._connections:
            connection.abort(ConnectionLostError("the other connection of this bridge was lost"))
        await self.post_stop()

    async def close_resources(self) -> None:
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.on_end = None
        await asyncio.gather(*(connection.close() for connection in connections))
