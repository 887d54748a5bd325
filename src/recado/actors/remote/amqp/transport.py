"""AMQP as a transport: nodes are names, and one port of one broker is all that has to be open.

    async with ActorSystem("exchange", transport=Amqp("amqp://localhost")) as system: …

The actors that have its connections and channels live in a system of their own: no registry of the application
has them, its `stop_all` leaves them alone, and `close` is their end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from recado.actors.ref import ActorRef
from recado.actors.registry import Registry
from recado.actors.remote.faults import Gone, NoWay
from recado.actors.remote.node import Joining
from recado.actors.remote.occurrences import (
    BridgeDown,
    BridgeEvent,
    BridgeGone,
    BridgeHealed,
    BridgeLost,
)
from recado.actors.remote.transport import Receiver
from recado.actors.system import ActorSystem
from recado.client import Address, CannotConnect, ChannelRefused, parse_address

from .bridge import Bridge, Plan, client_plan, server_plan
from .connection import Build, ConnectionSupervisor, Dismantle
from .handler import Watcher
from .link import AmqpLink, ClientEnd, ServerEnd
from .naming import check_names
from .settings import AmqpSettings
from .storage import Sharing

CLOSE_SECONDS: Final = 2.0  # for what was posted to be confirmed; then it comes back

log = logging.getLogger("recado.actors")


class Amqp(Joining):
    def __init__(self, url: str | Address, settings: AmqpSettings | None = None) -> None:
        """How long to wait for the broker is said by `settings`, not by the URL."""
        self._settings = settings or AmqpSettings()
        self.address = msgspec.structs.replace(
            parse_address(url) if isinstance(url, str) else url,
            heartbeat=self._settings.heartbeat,
            connection_timeout=self._settings.connect_timeout,
        )
        self._client = ""
        self._frame_limit = 0
        self._receiver: Receiver | None = None
        self._system: ActorSystem | None = None
        self._supervisor: ActorRef[Build | Dismantle]
        self._server: ServerEnd | None = None
        self._links: dict[str, ClientEnd] = {}
        self._end: str | None = None  # why there is nothing any more

    @property
    def registry(self) -> Registry:
        """The actors that have its connections and channels, for whoever wants to look at them."""
        if self._system is None:
            raise NoWay("the transport is not open")
        return self._system.registry

    async def open(self, node: str, client: str, frame_limit: int, receiver: Receiver) -> None:
        check_names(node, client)
        self._client = client
        self._frame_limit = frame_limit
        self._receiver = receiver
        self._system = await ActorSystem(f"amqp.{node}").__aenter__()
        self._supervisor = await self._system.spawn(ConnectionSupervisor)
        if self._settings.serve:
            settings = self._settings
            server = self._server = ServerEnd(node, receiver, settings.clients_limit, self._give_up)
            plan = server_plan(node, settings.storage)
            server.bridge = self._bridge(plan, settings.server_sharing, server)
            try:
                await self._first(server.bridge)
            except BaseException:
                await self.close()
                raise

    def connect(self, node: str) -> ClientEnd:
        link = self._links.get(node)
        if link is None:
            if self._receiver is None:
                raise NoWay("the transport is not open")
            if self._end is not None:
                raise Gone(self._end)
            try:
                check_names(node, self._client)
            except ValueError as error:
                raise NoWay(str(error)) from None
            settings = self._settings
            link = self._links[node] = ClientEnd(node, self._receiver, self._part)
            plan = client_plan(node, self._client, settings.storage)
            link.bridge = self._bridge(plan, settings.client_sharing, link, self._client)
        return link

    def link_back(self, client: str) -> AmqpLink:
        if self._server is None:
            raise NoWay(f"without a server bridge no client is answered: {client}")
        return self._server.link_to(client)

    def _bridge(
        self,
        plan: Plan,
        sharing: Sharing,
        end: ClientEnd | ServerEnd,
        client: str | None = None,
    ) -> Bridge:
        bridge = Bridge(
            plan,
            self.address,
            sharing,
            self._settings,
            end,
            Teller(plan.name, end, self._tell),
            frame_limit=self._frame_limit,
            client=client,
        )
        self._supervisor.tell(Build(bridge))
        return bridge

    async def _first(self, bridge: Bridge) -> None:
        """Wait until the bridge is up. A broker that is away is waited for; one that is there and refuses the
        bridge for `connect_timeout` (another node may have its name, and just be ending) is an error."""
        while not bridge.up_once.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.connect_timeout):
                    await asyncio.shield(bridge.up_once)
            if isinstance(bridge.error, ChannelRefused):
                raise CannotConnect(f"no bridge for {bridge.plan.name}: {bridge.error}")
        bridge.up_once.result()

    def _give_up(self, reason: str) -> None:
        """The server bridge was given up: a node that others do not reach does not reach others either."""
        self._end = f"the node gave up its broker (give_up={self._settings.give_up:g}): {reason}"
        for link in tuple(self._links.values()):
            link.bridge.gave_up(Gone(self._end))

    def _part(self, link: ClientEnd) -> None:
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
        link.bridge.finish("closed")
        self._supervisor.tell(Dismantle(link.bridge))

    def _tell(self, event: BridgeEvent) -> None:
        match event:
            case BridgeLost(bridge, reason):
                log.warning("the bridge of %s is lost, and being rebuilt: %s", bridge, reason)
            case BridgeHealed(bridge):
                log.info("the bridge of %s is well again", bridge)
            case BridgeDown(bridge, seconds, reason):
                log.warning(
                    "bridge still down, reconnecting (bridge=%s down_s=%.0f give_up=%s): %s",
                    bridge, seconds, self._settings.give_up, reason,
                )  # fmt: skip
            case BridgeGone(bridge, reason):
                log.error(
                    "bridge given up (bridge=%s give_up=%s): %s",
                    bridge, self._settings.give_up, reason,
                )  # fmt: skip
        if self._receiver is not None:
            self._receiver.happened(event)

    async def close(self) -> None:
        system, self._system = self._system, None
        if system is None:
            return
        self._receiver = None
        bridges = [link.bridge for link in self._links.values()]
        if self._server is not None:
            self._server.is_closed = True
            bridges.append(self._server.bridge)
        for link in self._links.values():
            link.end = "closed"
        self._links.clear()
        waits = [asyncio.ensure_future(bridge.emptied()) for bridge in bridges]
        if waits:
            _, late = await asyncio.wait(waits, timeout=CLOSE_SECONDS)
            for wait in late:
                wait.cancel()
        for bridge in bridges:
            if left := len(bridge.outbox):
                log.warning("the broker has not taken %d messages of %s", left, bridge.plan.name)
            bridge.finish("closed")
        await system.close()


class Teller:
    """Tells the node and the application."""

    def __init__(self, bridge: str, end: Watcher, tell: Callable[[BridgeEvent], None]) -> None:
        self._bridge = bridge
        self._end = end
        self._tell = tell

    def lost(self, reason: str) -> None:
        self._tell(BridgeLost(self._bridge, reason))
        self._end.lost(reason)

    def healed(self) -> None:
        self._tell(BridgeHealed(self._bridge))
        self._end.healed()

    def down(self, seconds: float, reason: str) -> None:
        self._tell(BridgeDown(self._bridge, seconds, reason))

    def gone(self, reason: str) -> None:
        self._tell(BridgeGone(self._bridge, reason))
        self._end.gone(reason)
