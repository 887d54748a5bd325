"""TCP as a transport: a listening socket, and a connection to each node that is asked for.

A node that only asks need not listen: answers come back on the connection that it made.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Final

import msgspec

from recado.actors.remote.faults import NoWay
from recado.actors.remote.node import Joining
from recado.actors.remote.transport import Receiver

from .handshake import CHALLENGE, Handshake
from .link import AcceptedLink, ConnectingLink, TcpLink
from .wire import READ, Wire

CLOSE_SECONDS: Final = 2.0  # for hands to be shaken, and then for what was posted to be sent


class TcpSettings(msgspec.Struct, frozen=True, kw_only=True):
    connect_timeout: float = 5.0  # seconds for one attempt
    read_timeout: float = 20.0  # seconds of silence, though asked, after which a connection is dead
    reconnect_delay: float = 0.3  # seconds between two attempts, at most
    # Seconds without an answer until a link to a node ends; the next message to that node makes a new one.
    give_up: float = 600.0
    report_interval: float = 60.0  # seconds between two events BridgeDown of a link that is lost
    hold_limit: int = 64 << 20  # bytes that wait for one peer
    connections_limit: int = 10_000  # that others made
    greeting_timeout: float = 10.0  # seconds for the first frame of somebody proved on such a one


class Tcp(Joining):
    """`listen` is "host:port", port 0 for any that is free, or None; `nodes` says where others listen."""

    def __init__(
        self,
        listen: str | None = None,
        nodes: Mapping[str, str] | None = None,
        settings: TcpSettings | None = None,
    ) -> None:
        self._listen = None if listen is None else _parse(listen)
        self._nodes = {name: _parse(address) for name, address in (nodes or {}).items()}
        self._settings = settings or TcpSettings()
        self._links: dict[str, ConnectingLink] = {}
        self._accepted: set[AcceptedLink] = set()
        self._server: asyncio.Server | None = None
        self._receiver: Receiver | None = None
        self._limit = 0
        self._buffer = memoryview(bytearray(READ))

    @property
    def address(self) -> tuple[str, int]:
        """Where others reach us, once it is open."""
        if self._server is None:
            raise RuntimeError("it does not listen")
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    def locate(self, node: str, address: str) -> None:
        """From now on this node is there. A link to it goes there when it has lost its old place."""
        self._nodes[node] = _parse(address)

    async def open(self, node: str, client: str, frame_limit: int, receiver: Receiver) -> None:
        self._receiver = receiver
        self._limit = frame_limit
        if self._listen is not None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._accept, *self._listen)

    def connect(self, node: str) -> ConnectingLink:
        link = self._links.get(node)
        if link is None or link.end is not None:
            if node not in self._nodes or self._receiver is None:
                raise NoWay(f"no address is known of node {node}")
            link = self._links[node] = ConnectingLink(
                node, lambda: self._nodes[node], self._receiver, self._settings, self._call
            )
        return link

    def link_back(self, client: str) -> ConnectingLink:
        raise NoWay(f"{client} has to connect by itself")

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self._hands_shaken()
        self._receiver = None
        made = list(self._links.values())
        links: list[TcpLink] = [*made, *self._accepted]
        self._links.clear()
        wires = [link.wire for link in links if link.wire is not None]
        for link in links:
            link.close()
        await asyncio.gather(
            *(link.attempts for link in made if link.attempts is not None), return_exceptions=True
        )
        if wires:
            _, late = await asyncio.wait([wire.gone for wire in wires], timeout=CLOSE_SECONDS)
            for wire in wires:
                if wire.gone in late:
                    wire.abort("closed")
            if late:
                await asyncio.wait(late)
        if server is not None:
            await server.wait_closed()

    async def _hands_shaken(self) -> None:
        """On connections that something waits for: what was posted just before the end is sent, too."""
        waits = [asyncio.ensure_future(link.emptied()) for link in self._links.values()]
        if waits:
            _, late = await asyncio.wait(waits, timeout=CLOSE_SECONDS)
            for wait in late:
                wait.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # ── connections that others make ──────────────────────────────────────────────────────────────────────

    def _accept(self) -> Wire:
        assert self._receiver is not None
        settings = self._settings
        link = AcceptedLink(self._receiver, settings.hold_limit, self._accepted.discard)
        wire = link.wire = self._wire(link, settings.greeting_timeout, calls=False)
        if len(self._accepted) >= settings.connections_limit:
            asyncio.get_running_loop().call_soon(wire.abort, "too many connections")
        self._accepted.add(link)
        return wire

    def _call(self, link: ConnectingLink) -> Wire:
        return self._wire(link, self._settings.connect_timeout, calls=True)

    def _wire(self, link: ConnectingLink | AcceptedLink, patience: float, *, calls: bool) -> Wire:
        assert self._receiver is not None
        handshake = Handshake(self._receiver, os.urandom(CHALLENGE), calls=calls)
        silence = self._settings.read_timeout
        wire = Wire(link, handshake, self._limit, self._buffer, silence)
        wire.expect(patience)
        return wire


def _parse(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)
