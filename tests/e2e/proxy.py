"""A wire that can be cut: a TCP proxy between a client and the broker.

It makes a lost connection look the same on every broker, and needs nothing from any of them.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from workshop.peers import HOST, Server
from workshop.time_limit import scale

from .traffic import PATIENCE

RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Forwards bytes both ways until `cut`; while `refusing`, new connections are reset at once."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.refusing = False
        self.accepted = 0
        self._counting = threading.Condition()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def url(self) -> str:
        """The broker's URL, through this proxy."""
        port = self._listener.getsockname()[1]
        return f"amqp://guest:guest@{HOST}:{port}/%2F"

    def wait_for_accepted(self, count: int) -> None:
        """Wait until that many connections were tried, refused ones included."""
        with self._counting:
            in_time = self._counting.wait_for(lambda: self.accepted >= count, scale(PATIENCE))
        assert in_time, f"only {self.accepted} of {count} connections came"

    def cut(self) -> None:
        """Reset every connection."""
        while self._open:
            wire = self._open.pop()
            with suppress(OSError):
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                wire.shutdown(socket.SHUT_RDWR)
            wire.close()

    def close(self) -> None:
        """Stop listening and cut what is left."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()  # a connection accepted last is in `_open` when they are cut
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._counting:
                    self.accepted += 1
                    self._counting.notify_all()
                if self.refusing:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    client.close()
                    continue
                try:
                    broker = socket.create_connection((HOST, self.server.port))
                except OSError:
                    client.close()
                    continue
                self._open += [client, broker]
                for source, target in ((client, broker), (broker, client)):
                    pump = threading.Thread(target=self._pump, args=(source, target), daemon=True)
                    pump.start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def proxy_to(server: Server) -> Iterator[Proxy]:
    """A proxy for the length of a test."""
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
