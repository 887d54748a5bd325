"""A broker that loses, doubles, swaps or cuts messages on request, to test who checks for it.

Just enough of AMQP for the load generator, with pamqp as the codec: it gathers all bodies that are
published, lets `crook` change the list, and delivers what that returns.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from pamqp import body, commands, frame, header

from workshop.peers import Server

Crook = Callable[[list[bytes]], list[bytes]]

REPLIES: dict[type, frame.FrameTypes] = {
    commands.Connection.StartOk: commands.Connection.Tune(2047, 131072, 60),
    commands.Connection.Open: commands.Connection.OpenOk(),
    commands.Connection.Close: commands.Connection.CloseOk(),
    commands.Channel.Open: commands.Channel.OpenOk(),
    commands.Queue.Declare: commands.Queue.DeclareOk("any", 0, 0),
    commands.Queue.Delete: commands.Queue.DeleteOk(0),
    commands.Basic.Consume: commands.Basic.ConsumeOk("loadgen"),
    commands.Basic.Cancel: commands.Basic.CancelOk("loadgen"),
    commands.Confirm.Select: commands.Confirm.SelectOk(),
}


class CrookedBroker:
    """Serves each connection in a thread until the block ends."""

    def __init__(
        self,
        messages: int,
        crook: Crook = lambda bodies: bodies,
        confirm: tuple[int, ...] = (),
        refuse: str = "",
    ) -> None:
        self._messages = messages
        self._crook = crook
        self._confirm = confirm
        self._refuse = refuse
        self.declared: list[commands.Queue.Declare] = []
        self.headers: list[header.ContentHeader] = []
        self._bodies: list[bytes] = []
        self._consumer: socket.socket | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Server:
        self._threads[0].start()
        port = self._listener.getsockname()[1]
        return Server(name="crooked", port=port, pid=os.getpid(), log=Path(os.devnull))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # shutdown, because closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                assert connection.recv(8, socket.MSG_WAITALL) == b"AMQP\x00\x00\x09\x01"
                start = commands.Connection.Start(0, 9, {}, "PLAIN", "en_US")
                connection.sendall(frame.marshal(start, 0))
                self._answer(connection)
            except OSError:
                return  # the load generator has seen enough and is gone

    def _answer(self, connection: socket.socket) -> None:
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
            while received:
                size, channel, value = frame.unmarshal(received)
                if not size:
                    break
                received = received[size:]
                self._take(connection, channel, value)

    def _take(self, connection: socket.socket, channel: int, value: object) -> None:
        if isinstance(value, header.ContentHeader):
            self.headers.append(value)
        elif isinstance(value, commands.Queue.Declare):
            self.declared.append(value)
        if isinstance(value, body.ContentBody):
            self._bodies.append(value.value or b"")
            if len(self._bodies) == self._messages:
                self._deliver(connection)
        elif isinstance(value, commands.Queue.Declare) and self._refuse:
            refusal = commands.Channel.Close(405, self._refuse, 50, 10)
            connection.sendall(frame.marshal(refusal, channel))
        elif type(value) in REPLIES:
            if isinstance(value, commands.Basic.Consume):
                self._consumer = connection
            connection.sendall(frame.marshal(REPLIES[type(value)], channel))

    def _deliver(self, publisher: socket.socket) -> None:
        for tag in self._confirm:
            publisher.sendall(frame.marshal(commands.Basic.Ack(tag, False), 1))
        if self._consumer is None:
            return
        for tag, content in enumerate(self._crook(self._bodies), 1):
            deliver = commands.Basic.Deliver("loadgen", tag, False, "", "any")
            properties = header.ContentHeader(0, len(content), commands.Basic.Properties())
            for part in (deliver, properties, body.ContentBody(content)):
                self._consumer.sendall(frame.marshal(part, 1))
