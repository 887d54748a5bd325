"""Answers probes on the port of the HTTP API while a node recovers its data folder.

Recovery is one long call, so the event loop does not run meanwhile. Threads answer `/health/live` with 200, and
every other request with 503. The HTTP API takes over the listening sockets, so that no connection is refused in
between, and a port that is in use is noticed before recovery.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ssl import SSLContext

LIVE_PATH: Final = "/health/live"
READY_PATH: Final = "/health/ready"
REQUEST_TIMEOUT_S: Final = 1.0  # so long a slow client delays the end of the start at most
HEAD_MAX_BYTES: Final = 8_192
BACKLOG_COUNT: Final = 100
THREADS_COUNT: Final = 8
CLIENTS_MAX_COUNT: Final = 64  # further ones are disconnected
RECOVERING: Final = "the node recovers its data"


class StartupProbe:
    """Listens on a port, and answers between `start` and `take_sockets` or `close`."""

    def __init__(self, host: str, port: int, tls: SSLContext | None, path_prefix: str = "") -> None:
        """Bind the addresses of the host. Raises `OSError`."""
        self.sockets = bind_sockets(host, port)
        self._tls = tls
        self._path_prefix = path_prefix
        self._free_places = BoundedSemaphore(CLIENTS_MAX_COUNT)
        self._waker, self._woken = socket.socketpair()
        self._thread = Thread(target=self._run, name="recado-startup-probe", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take_sockets(self) -> Sequence[socket.socket]:
        """Stop, and return the listening sockets, which the caller closes."""
        taken, self.sockets = self.sockets, []
        self._stop()
        return taken

    def close(self) -> None:
        """Stop, and close the sockets unless they were taken."""
        self._stop()
        for each in self.sockets:
            each.close()

    def _stop(self) -> None:
        """Wait until the clients that are connected have been answered."""
        if self._thread.is_alive():
            self._waker.send(b"x")
            self._thread.join()
        self._waker.close()
        self._woken.close()

    def _run(self) -> None:
        with (
            ThreadPoolExecutor(THREADS_COUNT, "recado-startup-probe") as pool,
            selectors.DefaultSelector() as selector,
        ):
            listening = list(self.sockets)
            selector.register(self._woken, selectors.EVENT_READ)
            for each in listening:
                selector.register(each, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._woken in ready:
                    return
                for each in listening:
                    if each in ready:
                        self._accept(each, pool)

    def _accept(self, listening: socket.socket, pool: ThreadPoolExecutor) -> None:
        try:
            client, _ = listening.accept()
        except OSError:  # the client has disconnected
            return
        if self._free_places.acquire(blocking=False):
            pool.submit(self._serve, client)
        else:
            client.close()

    def _serve(self, client: socket.socket) -> None:
        # Not HTTP, no TLS, too long, too slow, or the client has disconnected: it is disconnected.
        with suppress(OSError):
            self._answer(client)
        self._free_places.release()

    def _answer(self, client: socket.socket) -> None:
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        client.settimeout(REQUEST_TIMEOUT_S)
        with ExitStack() as stack:
            stack.enter_context(closing(client))
            if self._tls is not None:
                client = stack.enter_context(self._tls.wrap_socket(client, server_side=True))
            head = b""
            while b"\r\n\r\n" not in head:
                client.settimeout(max(0.001, deadline - time.monotonic()))
                data = client.recv(HEAD_MAX_BYTES)
                head += data
                if not data or len(head) > HEAD_MAX_BYTES:
                    return
            client.sendall(self._render(head))

    def _render(self, head: bytes) -> bytes:
        method, _, rest = head.decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0].removeprefix(self._path_prefix)
        status, content = "503 Service Unavailable", {"reason": RECOVERING}
        if path == LIVE_PATH:
            status, content = "200 OK", {"status": "ok"}
        elif path == READY_PATH:
            content = {"status": "failed", **content}
        else:
            content = {"error": "starting", **content}
        body = json.dumps(content).encode()
        lines = (
            f"HTTP/1.1 {status}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "cache-control: no-cache",
            "connection: close",
            "server: recado",
        )
        return "\r\n".join((*lines, "", "")).encode() + (body if method != "HEAD" else b"")


def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on the addresses of a host, as asyncio chooses them. Raises `OSError`."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    bound: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            bound.append(socket.create_server(address, family=family, backlog=BACKLOG_COUNT))
            bound[-1].setblocking(False)
    except BaseException:
        for each in bound:
            each.close()
        raise
    return bound
