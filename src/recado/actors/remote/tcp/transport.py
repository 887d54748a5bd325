"""TCP as a transport: a listening socket, and a connection to each node that is asked for.

A node that only asks need not listen: answers come back on the connection that it made.
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

CLOSE_TIMEOUT_S: Final = 2.0  # for hands to be shaken, and then for what was posted to be sent


class TcpSettings(msgspec.Struct, frozen=True, kw_only=True):
    connect_timeout: float = 5.0  # seconds for one attempt
    read_timeout: float = 20.0  # seconds of silence, though asked, after which a connection is dead
    retry_max: float = 0.3  # seconds between two attempts, at most
    # Seconds without an answer until a link to a node ends; the next message to that node makes a new one.
    reconnect_timeout: float = 600.0
    report_interval: float = 60.0  # seconds between two events BridgeDown of a link that is lost
    send_buffer_bytes: int = 64 << 20  # bytes that wait for one peer
    max_connections: int = 10_000  # that others made
    handshake_timeout: float = 10.0  # seconds for the first frame of somebody proved on such a one


class TcpTransport(TransportMixin):
    """`listen` is "host:port", port 0 for any that is free, or None; `nodes` says where others listen."""

    def __init__(
        self,
        listen: str | None = None,
        nodes: Mapping[str, str] | None = None,
        settings: TcpSettings | None = None,
    ) -> None:
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
        """Where others reach us, once it is open."""
        if self._server is None:
            raise RuntimeError("it does not listen")
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def set_address(self, node: str, address: str) -> None:
        """From now on this node is there. A link to it goes there when it has lost its old place."""
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
                raise NoRouteError(f"no address is known of node {node}")
            link = self._outbound_links[node] = OutboundTcpLink(
                node,
                lambda: self._nodes[node],
                self._listener,
                self._settings,
                self._make_outbound_connection,
            )
        return link

    def link_to_client(self, client_id: str) -> OutboundTcpLink:
        raise NoRouteError(f"{client_id} has to connect by itself")

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self._wait_for_handshakes()
        self._listener = None
        made = list(self._outbound_links.values())
        links: list[TcpLink] = [*made, *self._inbound_links]
        self._outbound_links.clear()
        wires = [link.connection for link in links if link.connection is not None]
        for link in links:
            link.close()
        await asyncio.gather(
            *(link.connect_task for link in made if link.connect_task is not None),
            return_exceptions=True,
        )
        if wires:
            _, late = await asyncio.wait([wire.closed for wire in wires], timeout=CLOSE_TIMEOUT_S)
            for wire in wires:
                if wire.closed in late:
                    wire.abort("closed")
            if late:
                await asyncio.wait(late)
        if server is not None:
            await server.wait_closed()

    async def _wait_for_handshakes(self) -> None:
        """On connections that something waits for: what was posted just before the end is sent, too."""
        waits = [
            asyncio.ensure_future(link.wait_until_sent()) for link in self._outbound_links.values()
        ]
        if waits:
            _, late = await asyncio.wait(waits, timeout=CLOSE_TIMEOUT_S)
            for wait in late:
                wait.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # ── connections that others make ──────────────────────────────────────────────────────────────────────

    def _accept(self) -> TcpConnection:
        assert self._listener is not None
        settings = self._settings
        link = InboundTcpLink(
            self._listener, settings.send_buffer_bytes, self._inbound_links.discard
        )
        wire = link.connection = self._make_connection(
            link, settings.handshake_timeout, is_initiator=False
        )
        if len(self._inbound_links) >= settings.max_connections:
            asyncio.get_running_loop().call_soon(wire.abort, "too many connections")
        self._inbound_links.add(link)
        return wire

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
        silence = self._settings.read_timeout
        wire = TcpConnection(link, handshake, self._max_frame_bytes, self._buffer, silence)
        wire.start_handshake_timer(handshake_timeout)
        return wire


def _parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)
