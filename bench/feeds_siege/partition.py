"""A carrier of datagrams that loses every packet, in both directions, while a file exists.

UDP has no connection that could be cut from outside. The siege creates the file to cut a program off and
removes it to mend the network. A cast counts as confirmed all the same: on UDP that means sent, not received.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from recado.feeds.boundary import PacketRoute, Target
from recado.feeds.transport.endpoint import FeedEndpoint, FeedTransport, PacketListener
from recado.feeds.views import MemberId, Role


def cut_file(folder: Path, name: str) -> Path:
    """While this file exists, the program of this name is cut off."""
    return folder / f"{name}.cut"


class LossyCarrier:
    def __init__(self, carrier: FeedTransport, file: Path) -> None:
        self.layer_name = carrier.layer_name
        self.max_packet_bytes = carrier.max_packet_bytes
        self._carrier = carrier
        self._file = file

    @property
    def is_connected(self) -> bool:
        return self._carrier.is_connected

    async def join(
        self, feed: str, member_id: MemberId, role: Role, listener: PacketListener
    ) -> FeedEndpoint:
        heard = LossyListener(listener, self._file)
        return LossyPort(
            await self._carrier.join(feed, member_id, role, heard), listener, self._file
        )

    async def close(self) -> None:
        await self._carrier.close()


class LossyListener:
    def __init__(self, listener: PacketListener, file: Path) -> None:
        self._listener = listener
        self._file = file

    def packet_received(
        self, route: PacketRoute, sender: MemberId, packet: bytes, tag: int
    ) -> None:
        if not self._file.exists():
            self._listener.packet_received(route, sender, packet, tag)

    def broadcasts_confirmed(self, last_sequence: int) -> None:
        self._listener.broadcasts_confirmed(last_sequence)

    def transport_lost(self, error: Exception) -> None:
        self._listener.transport_lost(error)


class LossyPort:
    def __init__(self, port: FeedEndpoint, listener: PacketListener, file: Path) -> None:
        self._port = port
        self._listener = listener
        self._file = file

    def broadcast(self, packet: bytes, key: str, last_sequence: int) -> None:
        if not self._file.exists():
            self._port.broadcast(packet, key, last_sequence)
        elif last_sequence:
            asyncio.get_running_loop().call_soon(self._listener.broadcasts_confirmed, last_sequence)

    def send(self, to: Target, packet: bytes) -> None:
        if not self._file.exists():
            self._port.send(to, packet)

    def listen_to_coordinators(self, *, enabled: bool) -> None:
        self._port.listen_to_coordinators(enabled=enabled)

    def settle(self, last_tag: int) -> None:
        self._port.settle(last_tag)

    async def close(self) -> None:
        await self._port.close()
