"""A carrier of datagrams that loses every packet, in both directions, while a file exists.

UDP has no connection that could be cut from outside. The siege creates the file to cut a program off and
removes it to mend the network. A cast counts as confirmed all the same: on UDP that means sent, not received.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from recado.feeds.boundary import Channel, Target
from recado.feeds.transport.port import Carrier, Listener, Port
from recado.feeds.views import MemberId, Role


def cut_file(folder: Path, name: str) -> Path:
    """While this file exists, the program of this name is cut off."""
    return folder / f"{name}.cut"


class LossyCarrier:
    def __init__(self, carrier: Carrier, file: Path) -> None:
        self.transport = carrier.transport
        self.largest = carrier.largest
        self._carrier = carrier
        self._file = file

    async def join(self, feed: str, me: MemberId, role: Role, listener: Listener) -> Port:
        heard = LossyListener(listener, self._file)
        return LossyPort(await self._carrier.join(feed, me, role, heard), listener, self._file)

    async def close(self) -> None:
        await self._carrier.close()


class LossyListener:
    def __init__(self, listener: Listener, file: Path) -> None:
        self._listener = listener
        self._file = file

    def arrived(self, channel: Channel, sender: MemberId, packet: bytes, tag: int) -> None:
        if not self._file.exists():
            self._listener.arrived(channel, sender, packet, tag)

    def confirmed(self, upto: int) -> None:
        self._listener.confirmed(upto)

    def broken(self, error: Exception) -> None:
        self._listener.broken(error)


class LossyPort:
    def __init__(self, port: Port, listener: Listener, file: Path) -> None:
        self._port = port
        self._listener = listener
        self._file = file

    def cast(self, packet: bytes, key: str, number: int) -> None:
        if not self._file.exists():
            self._port.cast(packet, key, number)
        elif number:
            asyncio.get_running_loop().call_soon(self._listener.confirmed, number)

    def send(self, to: Target, packet: bytes) -> None:
        if not self._file.exists():
            self._port.send(to, packet)

    def listen(self, *, to_coordinators: bool) -> None:
        self._port.listen(to_coordinators=to_coordinators)

    def settle(self, upto: int) -> None:
        self._port.settle(upto)

    async def close(self) -> None:
        await self._port.close()
