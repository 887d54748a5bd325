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
from recado.actors.failing.supervision import Supervision
from recado.actors.message import Message
from recado.actors.ref import ActorRef
from recado.client import Channel, Connection, ConnectionLost

from .bridge import Bridge
from .reading import ReadChannelActor
from .restarting import AGAIN, Broke, Errand, Restarting
from .storage import Sharing
from .writing import WriteChannelActor


class Build(Message[None]):
    by_reference: ClassVar[bool] = True
    bridge: Bridge


class Dismantle(Message[None]):
    by_reference: ClassVar[bool] = True
    bridge: Bridge


class ConnectionSupervisor(Actor[Build | Dismantle]):
    supervision: ClassVar[Supervision] = AGAIN

    def __init__(self) -> None:
        self._actors: dict[Bridge, ActorRef[Errand]] = {}

    async def receive(self, message: Build | Dismantle) -> None:
        match message:
            case Build(bridge):
                self._actors[bridge] = await self.start_link(partial(ConnectionActor, bridge))
            case Dismantle(bridge):
                actor = self._actors.pop(bridge, None)
                if actor is not None:
                    actor.stop()


class ConnectionActor(Restarting):
    def __init__(self, bridge: Bridge) -> None:
        super().__init__(bridge, bridge.connecting)
        self._connections: list[Connection] = []
        self._writer: ActorRef[Errand] | None = None

    async def begin(self) -> None:
        await self._open("reads")
        if self.bridge.sharing is Sharing.PER_CHANNEL:
            await self._open("writes")
        reads = self._connections[0]
        await self.start_link(partial(ReadChannelActor, self.bridge, reads, self.ref))

    async def _open(self, what: str) -> None:
        bridge = self.bridge
        alone = bridge.sharing is Sharing.PER_NODE
        name = f"recado actors, {bridge.plan.name}" + ("" if alone else f", {what}")
        opening = asyncio.ensure_future(Connection.open(bridge.address, name=name))
        bridge.interrupt = opening.cancel
        try:
            connection = await opening
        finally:
            bridge.interrupt = None
        self._connections.append(connection)
        bridge.connections = self._connections
        connection.on_end = partial(self._ended, connection)
        connection.check()

    def _ended(self, connection: Connection, error: Exception) -> None:
        self.ref.tell(Broke(connection, error))

    async def other_reads(self) -> None:
        if self._writer is None and self._connections:
            writes = self._connections[-1]
            self._writer = await self.start_link(partial(WriteChannelActor, self.bridge, writes))

    def owns(self, what: Connection | Channel) -> bool:
        return what in self._connections

    async def pre_restart(self, reason: BaseException, message: object) -> None:
        for connection in self._connections:
            connection.abort(ConnectionLost("the other connection of this bridge was lost"))
        await self.stopped()

    async def leave(self) -> None:
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.on_end = None
        await asyncio.gather(*(connection.close() for connection in connections))
