"""Simulated users of a chat in one process: raw WebSockets, and one loop over epoll.

    python -m bench.chat.users URL ROOM COUNT RATE SECONDS

They sign in, join one room, and write `RATE` messages per second all together, in turn. A message contains the time at
which it was written, so every receipt is a latency. The line of figures has the latencies of all receipts.

    client frame (RFC 6455):  | 0x81 | 0x80 + length, or 0xFE and u16 | mask, 4 bytes | payload |
    server frame:             | 0x81 | length, or 126 and u16, or 127 and u64 | payload |

A mask of zeros leaves the payload as it is.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import struct
import sys
import time
from array import array
from typing import Final
from urllib.parse import urlsplit

CONNECT_TIMEOUT_S: Final = 120.0
DRAIN_MAX_S: Final = 120.0
"""After the last message, for the last receipts."""
READ_BYTES: Final = 256 * 1024
MARK: Final = b'"text":"at '
MARK_DIGITS_COUNT: Final = 20
PING_BYTE: Final = 0x89
PONG_BYTE: Final = 0x8A
CLOSED: Final = "the server closed the connection of a user"


class User:
    """One user with one WebSocket."""

    def __init__(self, address: tuple[str, int], cookie: str) -> None:
        self.socket = socket.create_connection(address, CONNECT_TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = (
            f"GET /socket HTTP/1.1\r\nhost: {address[0]}:{address[1]}\r\n"
            f"cookie: {cookie}\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: c2ltdWxhdGVkIHVzZXIhIQ==\r\n\r\n"
        )
        self.socket.sendall(request.encode())
        self._received = bytearray()
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, _, rest = bytes(self._received).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(f"no WebSocket: {head[:100]!r}")
        self._received = bytearray(rest)

    def say(self, **content: object) -> None:
        payload = json.dumps(content, separators=(",", ":")).encode()
        size = len(payload)
        header = bytes((0x81, 0x80 | size)) if size < 126 else struct.pack(">BBH", 0x81, 0xFE, size)
        self.socket.sendall(header + bytes(4) + payload)

    def wait_for(self, type_: str) -> None:
        """Read until a frame of a type arrives."""
        mark = f'"type":"{type_}"'.encode()
        while not any(mark in frame[:40] for frame in self.take_frames()):
            self._receive()

    def _receive(self) -> None:
        data = self.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError(CLOSED)
        self._received += data

    def take_frames(self, more: bytes = b"") -> list[bytes]:
        """Return the complete frames received so far, and keep the rest. Pings are answered."""
        if self._received:
            self._received += more
            data = bytes(self._received)
        else:
            data = more
        frames, position, end = [], 0, len(data)
        while end - position >= 2:
            size, head = data[position + 1], 2
            if size == 126:
                if end - position < 4:
                    break
                size, head = int.from_bytes(data[position + 2 : position + 4], "big"), 4
            elif size == 127:
                if end - position < 10:
                    break
                size, head = int.from_bytes(data[position + 2 : position + 10], "big"), 10
            if end - position < head + size:
                break
            content = data[position + head : position + head + size]
            if data[position] == PING_BYTE:
                self.socket.sendall(bytes((PONG_BYTE, 0x80 | size)) + bytes(4) + content)
            else:
                frames.append(content)
            position += head + size
        self._received = bytearray(data[position:])
        return frames


def sign_in(host: str, port: int, count: int) -> list[User]:
    connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_S)
    users = []
    for number in range(count):
        connection.request("POST", "/api/session", json.dumps({"name": f"user {number}"}))
        response = connection.getresponse()
        response.read()
        cookie = (response.getheader("set-cookie") or "").partition(";")[0]
        users.append(User((host, port), cookie))
    connection.close()
    return users


def converse(users: list[User], room: str, rate: float, seconds: float) -> dict[str, float]:
    """Write and read; return the figures."""
    poll = select.epoll()
    by_file = {user.socket.fileno(): user for user in users}
    for file in by_file:
        poll.register(file, select.EPOLLIN)
    latencies = array("d")
    written = 0
    begun = time.monotonic()
    last_write = begun + seconds
    last_read = last_write + DRAIN_MAX_S
    while (now := time.monotonic()) < last_read:
        if now >= last_write and len(latencies) >= written * len(users):
            break
        while now < last_write and now >= begun + written / rate:
            text = f"at {time.monotonic_ns():0{MARK_DIGITS_COUNT}} of a message like any other"
            author = users[written % len(users)]
            author.say(type="send", client_id=f"m{written}", conversation=f"room:{room}", text=text)
            written += 1
        next_write = begun + written / rate if now < last_write else last_read
        for file, _ in poll.poll(max(0.0, next_write - time.monotonic()), len(users)):
            user = by_file[file]
            data = user.socket.recv(READ_BYTES)
            if not data:
                raise ConnectionError(CLOSED)
            received_ns = time.monotonic_ns()
            for frame in user.take_frames(data):
                found = frame.find(MARK)
                if found >= 0:
                    start = found + len(MARK)
                    sent_ns = int(frame[start : start + MARK_DIGITS_COUNT])
                    latencies.append((received_ns - sent_ns) / 1e6)
    ordered = sorted(latencies)
    figures: dict[str, float] = {"written": written, "received": len(ordered), "users": len(users)}
    for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99), ("max_ms", 1.0)):
        if ordered:
            figures[name] = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
    return figures


def main() -> None:
    address, room, count, rate, seconds = sys.argv[1:]
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    users = sign_in(parts.hostname, parts.port, int(count))
    for user in users:
        user.say(type="resume", positions=None)
        user.wait_for("welcome")
        user.say(type="join", room=room)
        user.wait_for("joined")
    print("ready", flush=True)
    sys.stdin.readline()  # the measuring process notes the processor time
    print(json.dumps(converse(users, room, float(rate), float(seconds))), flush=True)
    sys.stdin.readline()  # it reads the memory while the users are connected


if __name__ == "__main__":
    main()
