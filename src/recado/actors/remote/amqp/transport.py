"""The AMQP transport: nodes reach each other by name, and only one port of one broker has to be open.

    async with ActorSystem("exchange", transport=AmqpTransport("amqp://localhost")) as system: …

The actors that own its connections and channels run in their own actor system: they are not in the registry of
the application, its `stop_all` does not stop them, and `close` does.
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
from recado.actors.remote.errors import LinkClosedError, NoRouteError
from recado.actors.remote.events import (
    LinkClosed,
    LinkEvent,
    LinkLost,
    LinkRestored,
    LinkStillDown,
)
from recado.actors.remote.node import TransportMixin
from recado.actors.remote.transport import TransportListener
from recado.actors.system import ActorSystem
from recado.client import (
    CannotConnectError,
    ChannelClosedByBrokerError,
    ConnectionParameters,
    parse_url,
)

from .actors import CloseBridge, ConnectionSupervisor, OpenBridge
from .bridge import Bridge, BridgeListener
from .link import AmqpLink, ClientBridgeLink, ServerBridgeLinks
from .naming import check_names
from .settings import AmqpSettings, ConnectionSharing
from .topology import BridgeTopology, client_topology, server_topology

CLOSE_TIMEOUT_S: Final = 2.0  # for the broker to confirm posted frames; then they are returned

log = logging.getLogger("recado.actors")


class AmqpTransport(TransportMixin):
    """Connects nodes through an AMQP broker."""

    def __init__(
        self, url: str | ConnectionParameters, settings: AmqpSettings | None = None
    ) -> None:
        """`settings` override the timeouts in the URL. Raises ValueError for an invalid URL."""
        self._settings = settings or AmqpSettings()
        self.address = msgspec.structs.replace(
            parse_url(url) if isinstance(url, str) else url,
            heartbeat=self._settings.heartbeat_seconds,
            connection_timeout=self._settings.connect_timeout,
        )
        self._client_id = ""
        self._max_frame_bytes = 0
        self._listener: TransportListener | None = None
        self._system: ActorSystem | None = None
        self._supervisor: ActorRef[OpenBridge | CloseBridge]
        self._server_links: ServerBridgeLinks | None = None
        self._links: dict[str, ClientBridgeLink] = {}
        self._close_reason: str | None = None  # set when the transport has given up

    @property
    def registry(self) -> Registry:
        """The actors that own the connections and channels. Raises NoRouteError if it is not open."""
        if self._system is None:
            raise NoRouteError("the transport is not open")
        return self._system.registry

    async def open(
        self, node: str, client_id: str, max_frame_bytes: int, listener: TransportListener
    ) -> None:
        """Open the transport, and wait for the broker if there is a server bridge.

        Raises CannotConnectError if the broker refuses the bridge, or is absent for `reconnect_timeout`
        seconds, and ValueError for names that are too long.
        """
        check_names(node, client_id)
        settings = self._settings
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._listener = listener
        self._system = await ActorSystem(f"amqp.{node}").__aenter__()
        self._supervisor = await self._system.spawn(ConnectionSupervisor)
        if settings.server_bridge:
            server_links = self._server_links = ServerBridgeLinks(
                node, listener, settings.max_clients, self._server_bridge_given_up
            )
            topology = server_topology(node, settings.storage)
            server_links.bridge = self._make_bridge(topology, settings.server_sharing, server_links)
            try:
                await self._wait_until_up(server_links.bridge)
            except BaseException:
                await self.close()
                raise

    def connect(self, node: str) -> ClientBridgeLink:
        link = self._links.get(node)
        if link is None:
            if self._listener is None:
                raise NoRouteError("the transport is not open")
            if self._close_reason is not None:
                raise LinkClosedError(self._close_reason)
            try:
                check_names(node, self._client_id)
            except ValueError as error:
                raise NoRouteError(str(error)) from None
            settings = self._settings
            link = self._links[node] = ClientBridgeLink(node, self._listener, self._close_bridge)
            topology = client_topology(node, self._client_id, settings.storage)
            link.bridge = self._make_bridge(
                topology, settings.client_sharing, link, self._client_id
            )
        return link

    def link_to_client(self, client_id: str) -> AmqpLink:
        if self._server_links is None:
            raise NoRouteError(f"no server bridge to answer client {client_id} (server_bridge)")
        return self._server_links.link_to(client_id)

    def _make_bridge(
        self,
        topology: BridgeTopology,
        sharing: ConnectionSharing,
        handler: ClientBridgeLink | ServerBridgeLinks,
        client_id: str | None = None,
    ) -> Bridge:
        bridge = Bridge(
            topology,
            self.address,
            sharing,
            self._settings,
            handler,
            BridgeEventPublisher(topology.name, handler, self._publish_event),
            max_frame_bytes=self._max_frame_bytes,
            client_id=client_id,
        )
        self._supervisor.tell(OpenBridge(bridge))
        return bridge

    async def _wait_until_up(self, bridge: Bridge) -> None:
        """Wait until the bridge is up. While the broker is absent, wait without a limit of our own.

        If a reachable broker still refuses the bridge after `connect_timeout`, raise CannotConnectError. It is
        not raised earlier because an old process of the same name may still hold the queue while it closes.
        """
        while not bridge.first_up.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._settings.connect_timeout):
                    await asyncio.shield(bridge.first_up)
            if isinstance(bridge.last_error, ChannelClosedByBrokerError):
                raise CannotConnectError(
                    f"no bridge for {bridge.topology.name}: {bridge.last_error}"
                )
        bridge.first_up.result()

    def _server_bridge_given_up(self, reason: str) -> None:
        """Close the client bridges too: a node that cannot be reached must not reach other nodes either."""
        timeout = self._settings.reconnect_timeout
        self._close_reason = (
            f"the broker cannot be reached (reconnect_timeout={timeout:g}): {reason}"
        )
        for link in tuple(self._links.values()):
            link.bridge.abandon(LinkClosedError(self._close_reason))

    def _close_bridge(self, link: ClientBridgeLink) -> None:
        if self._links.get(link.peer) is link:
            del self._links[link.peer]
        link.bridge.close("closed")
        self._supervisor.tell(CloseBridge(link.bridge))

    def _publish_event(self, event: LinkEvent) -> None:
        match event:
            case LinkLost(link, reason):
                log.warning("bridge lost, reconnecting (bridge=%s): %s", link, reason)
            case LinkRestored(link):
                log.info("bridge restored (bridge=%s)", link)
            case LinkStillDown(link, down_seconds, reason):
                log.warning(
                    "bridge still down, reconnecting (bridge=%s down_s=%.0f reconnect_timeout=%s): %s",
                    link, down_seconds, self._settings.reconnect_timeout, reason,
                )  # fmt: skip
            case LinkClosed(link, reason):
                log.error(
                    "bridge closed: reconnect timeout (bridge=%s reconnect_timeout=%s): %s",
                    link, self._settings.reconnect_timeout, reason,
                )  # fmt: skip
        if self._listener is not None:
            self._listener.publish_event(event)

    async def close(self) -> None:
        system, self._system = self._system, None
        if system is None:
            return
        self._listener = None
        bridges = [link.bridge for link in self._links.values()]
        if self._server_links is not None:
            self._server_links.is_closed = True
            bridges.append(self._server_links.bridge)
        for link in self._links.values():
            link.close_reason = "closed"
        self._links.clear()
        waits = [asyncio.ensure_future(bridge.wait_until_confirmed()) for bridge in bridges]
        if waits:
            _, late = await asyncio.wait(waits, timeout=CLOSE_TIMEOUT_S)
            for wait in late:
                wait.cancel()
        for bridge in bridges:
            if unconfirmed := len(bridge.outbox):
                log.warning(
                    "closing bridge: frames not confirmed by the broker (bridge=%s frames=%d waited_s=%g)",
                    bridge.topology.name,
                    unconfirmed,
                    CLOSE_TIMEOUT_S,
                )
            bridge.close("closed")
        await system.close()


class BridgeEventPublisher:
    """Publishes the events of a bridge to the application, and passes them on to its link."""

    def __init__(
        self, link_name: str, listener: BridgeListener, publish: Callable[[LinkEvent], None]
    ) -> None:
        self._link_name = link_name
        self._listener = listener
        self._publish = publish

    def bridge_lost(self, reason: str) -> None:
        self._publish(LinkLost(self._link_name, reason))
        self._listener.bridge_lost(reason)

    def bridge_restored(self) -> None:
        self._publish(LinkRestored(self._link_name))
        self._listener.bridge_restored()

    def bridge_still_down(self, seconds: float, reason: str) -> None:
        self._publish(LinkStillDown(self._link_name, seconds, reason))

    def bridge_closed(self, reason: str) -> None:
        self._publish(LinkClosed(self._link_name, reason))
        self._listener.bridge_closed(reason)
