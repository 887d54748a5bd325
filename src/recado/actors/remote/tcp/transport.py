"""The TCP transport: a listening socket, and a connection to each node that is addressed.

A node that only sends asks need not listen: answers come back on the connection that it opened.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Final

import msgspec

from recado.actors.remote.errors import NoRouteError
from recado.actors.remote.node import TransportMixin
from recado.actors.remote.transport import TransportListener

from .connection import READ_BUFFER_BYTES, TcpConnection
from .handshake import CHALLENGE_BYTES, Handshake
from .link import InboundTcpLink, OutboundTcpLink, TcpLink

CLOSE_TIMEOUT_S: Final = 2.0  # for open handshakes, and then again for the posted frames


class TcpSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the TCP transport. Durations are seconds."""

    connect_timeout: float = 5.0
    """For one attempt to connect, and then again for the handshake."""
    read_timeout: float = 20.0
    """A connection on which nothing is received for this long, though pinged, is closed."""
    retry_max: float = 0.3
    """Longest delay between two attempts to connect."""
    reconnect_timeout: float = 600.0
    """A link to a node closes when no attempt succeeds for this long; the next message opens a new one."""
    report_interval: float = 60.0
    """Interval of the `LinkStillDown` events of a lost link."""
    send_buffer_bytes: int = 64 << 20
    """Bytes of frames that may wait for one peer."""
    max_connections: int = 10_000
    """Connections accepted from other nodes."""
    handshake_timeout: float = 10.0
    """For the handshake and the first authentic frame on an accepted connection."""


class TcpTransport(TransportMixin):
    """Connects nodes directly over TCP."""

    def __init__(
        self,
        listen: str | None = None,
        nodes: Mapping[str, str] | None = None,
        settings: TcpSettings | None = None,
    ) -> None:
        """`listen` is "host:port", with port 0 for any free one; None does not listen. `nodes` are the
        addresses of other nodes, by name. Raises ValueError for an invalid address."""
        self._listen = None if listen is None else _parse_address(listen)
        self._nodes = {name: _parse_address(address) for name, address in (nodes or {}).items()}
        self._settings = settings or TcpSettings()
        self._outbound_links: dict[str, OutboundTcpLink] = {}
        self._inbound_links: set[InboundTcpLink] = set()
        self._server: asyncio.Server | None = None
        self._listener: TransportListener | None = None
        self._max_frame_bytes = 0
        self._buffer = memoryview(bytearray(READ_BUFFER_BYTES))

    @property
    def address(self) -> tuple[str, int]:
        """Host and port on which an open transport listens. Raises RuntimeError if it does not."""
        if self._server is None:
            raise RuntimeError("the transport does not listen: pass `listen`, and open it")
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def set_address(self, node: str, address: str) -> None:
        """Set the address of a node. An open link to it uses the new address when it reconnects."""
        self._nodes[node] = _parse_address(address)

    async def open(
        self, node: str, client_id: str, max_frame_bytes: int, listener: TransportListener
    ) -> None:
        self._listener = listener
        self._max_frame_bytes = max_frame_bytes
        if self._listen is not None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._accept, *self._listen)

    def connect(self, node: str) -> OutboundTcpLink:
        link = self._outbound_links.get(node)
        if link is None or link.close_reason is not None:
            if node not in self._nodes or self._listener is None:
                raise NoRouteError(
                    f"no address is known for node {node}", "Pass it in `nodes`, or set_address"
                )
            link = self._outbound_links[node] = OutboundTcpLink(
                node,
                lambda: self._nodes[node],
                self._listener,
                self._settings,
                self._make_outbound_connection,
            )
        return link

    def link_to_client(self, client_id: str) -> OutboundTcpLink:
        raise NoRouteError(f"{client_id} has no address: it has to connect itself")

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self._flush_buffered_frames()
        self._listener = None
        outbound = list(self._outbound_links.values())
        links: list[TcpLink] = [*outbound, *self._inbound_links]
        self._outbound_links.clear()
        connections = [link.connection for link in links if link.connection is not None]
        for link in links:
            link.close()
        await asyncio.gather(
            *(link.connect_task for link in outbound if link.connect_task is not None),
            return_exceptions=True,
        )
        if connections:
            _, late = await asyncio.wait(
                [connection.closed for connection in connections], timeout=CLOSE_TIMEOUT_S
            )
            for connection in connections:
                if connection.closed in late:
                    connection.abort("closed")
            if late:
                await asyncio.wait(late)
        if server is not None:
            await server.wait_closed()

    async def _flush_buffered_frames(self) -> None:
        """Wait until links that are still connecting have sent their buffered frames.

        Otherwise frames that are posted just before closing would be lost.
        """
        waits = [
            asyncio.ensure_future(link.wait_until_sent()) for link in self._outbound_links.values()
        ]
        if waits:
            _, late = await asyncio.wait(waits, timeout=CLOSE_TIMEOUT_S)
            for wait in late:
                wait.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # ── connections ───────────────────────────────────────────────────────────────────────────────────────

    def _accept(self) -> TcpConnection:
        assert self._listener is not None
        settings = self._settings
        link = InboundTcpLink(
            self._listener, settings.send_buffer_bytes, self._inbound_links.discard
        )
        connection = link.connection = self._make_connection(
            link, settings.handshake_timeout, is_initiator=False
        )
        if len(self._inbound_links) >= settings.max_connections:
            reason = f"too many connections (max_connections={settings.max_connections})"
            asyncio.get_running_loop().call_soon(connection.abort, reason)
        self._inbound_links.add(link)
        return connection

    def _make_outbound_connection(self, link: OutboundTcpLink) -> TcpConnection:
        return self._make_connection(link, self._settings.connect_timeout, is_initiator=True)

    def _make_connection(
        self,
        link: OutboundTcpLink | InboundTcpLink,
        handshake_timeout: float,
        *,
        is_initiator: bool,
    ) -> TcpConnection:
        assert self._listener is not None
        handshake = Handshake(
            self._listener, os.urandom(CHALLENGE_BYTES), is_initiator=is_initiator
        )
        connection = TcpConnection(
            link, handshake, self._max_frame_bytes, self._buffer, self._settings.read_timeout
        )
        connection.start_handshake_timer(handshake_timeout)
        return connection


def _parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)
