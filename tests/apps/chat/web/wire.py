"""The network between browsers and a chat, which a test takes away or makes lossy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.e2e.proxy import Proxy
from workshop.peers import Server


class Wire(Proxy):
    """Forwards bytes until `cut`. While `is_deaf`, what the chat says is lost; while `is_mute`, what browsers say."""

    is_deaf = False
    is_mute = False

    @property
    def address(self) -> str:
        """The page of the chat, through this wire."""
        host, port = self._listener.getsockname()[:2]
        return f"http://{host}:{port}/"

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            is_answer = source.getpeername()[1] == self.server.port
            while data := source.recv(65536):
                if not (self.is_deaf if is_answer else self.is_mute):
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def wire_to(url: str) -> Iterator[Wire]:
    """A wire to the chat at an address."""
    port = int(url.rstrip("/").rsplit(":", 1)[1])
    wire = Wire(Server(name="chat", port=port, pid=0, log=Path()))
    try:
        yield wire
    finally:
        wire.close()
