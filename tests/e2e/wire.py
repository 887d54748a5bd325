"""A client that may misbehave: frames by pamqp, written to a plain socket in any order.

No client library sends what a broken one would, so these tests go below them all.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pamqp import commands, frame, heartbeat
from pamqp.base import Frame
from pamqp.common import FieldTable
from pamqp.exceptions import UnmarshalingException

from workshop.peers import Server
from workshop.time_limit import scale

from .traffic import PATIENCE

HEADER = b"AMQP\x00\x00\x09\x01"
CAPABILITIES: FieldTable = {
    "authentication_failure_close": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
}


class Wire:
    """A socket to the broker, and the frames that it has not yet given out."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection((server.host, server.port), timeout=scale(PATIENCE))
        self.buffer = b""

    def send(self, *methods: Frame | bytes, channel: int = 0) -> None:
        """Write methods as frames, and bytes as they are."""
        self.socket.sendall(
            b"".join(
                each if isinstance(each, bytes) else frame.marshal(each, channel)
                for each in methods
            )
        )

    def receive(self) -> tuple[int, object]:
        """The next frame that is no heartbeat: its channel, and what pamqp makes of it."""
        while True:
            try:
                size, channel, value = frame.unmarshal(self.buffer)
            except UnmarshalingException:
                size, channel, value = 0, 0, None
            if size:
                self.buffer = self.buffer[size:]
                if not isinstance(value, heartbeat.Heartbeat):
                    return channel, value
                continue
            data = self.socket.recv(65536)
            if not data:
                raise EOFError("the broker closed the socket")
            self.buffer += data

    def expect(self, *kinds: type[Frame]) -> Frame:
        """The next frames must be of these kinds; returns the last."""
        for kind in kinds:
            _, found = self.receive()
            assert isinstance(found, kind), found
        assert isinstance(found, Frame)
        return found

    def handshake(
        self, user: str = "guest", password: str = "guest", vhost: str = "/", **tune: int
    ) -> None:
        """Log in; `tune` overrides what the client asks for."""
        self.send(HEADER)
        self.expect(commands.Connection.Start)
        properties: FieldTable = {"capabilities": CAPABILITIES}
        login = f"\0{user}\0{password}"
        self.send(commands.Connection.StartOk(properties, "PLAIN", login, "en_US"))
        self.expect(commands.Connection.Tune)
        limits = {"channel_max": 2047, "frame_max": 131072, "heartbeat": 0, **tune}
        self.send(commands.Connection.TuneOk(**limits), commands.Connection.Open(vhost))
        self.expect(commands.Connection.OpenOk)

    def until_closed(self) -> commands.Connection.Close | commands.Channel.Close:
        """The close that the broker sends, whatever comes before it."""
        while True:
            _, value = self.receive()
            if isinstance(value, commands.Connection.Close | commands.Channel.Close):
                return value

    def until_end(self) -> None:
        """Read until the broker ends the stream, whatever it says before."""
        with suppress(EOFError, ConnectionResetError):
            while True:
                self.receive()

    def at_end(self) -> bool:
        """Whether the broker has ended the stream; a reset is an end as well."""
        try:
            return self.socket.recv(65536) == b""
        except ConnectionResetError:
            return True


@contextmanager
def wire_to(server: Server, *, log_in: bool = True) -> Iterator[Wire]:
    """A wire for the length of a test."""
    wire = Wire(server)
    with wire.socket:
        if log_in:
            wire.handshake()
        yield wire
