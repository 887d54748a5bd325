"""A server on fake transports, in a loop whose time can be skipped, so that tests never wait."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec

from recado.amqp.events import Event, MethodReceived
from recado.amqp.frames import FRAME_MAX_DEFAULT_BYTES, PROTOCOL_HEADER, encode_method_frame
from recado.amqp.handshake import ClientHandshake, HandshakeStep
from recado.amqp.methods import ChannelOpen, ConnectionClose, Method
from recado.amqp.reader import FrameReader
from recado.amqp.values import FieldTable
from recado.broker.access import User
from recado.broker.broker import Broker
from recado.server.certificate_login import PeerCertificate
from recado.server.connection import Connection
from recado.server.options import ConnectionOptions, ServerLimits
from recado.server.passwords import hash_password
from recado.server.server import Server

from .client import ALL_CAPABILITIES, EVERYTHING, new_broker

P = ParamSpec("P")

GUEST = User("guest", hash_password("secret"), permissions={"/": EVERYTHING}, loopback_only=True)


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be advanced."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


def in_the_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=SkippingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def skip(seconds: float) -> None:
    """Advance the clock, and run the timers that are due."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skipped += seconds
    await turns()


async def soon(awaitable: Awaitable[object]) -> None:
    """Wait for work that takes real time, such as argon2 in its thread."""
    await asyncio.wait_for(awaitable, 60)


class Wire(asyncio.Transport):
    """A transport that records writes, and can be full."""

    def __init__(
        self,
        protocol: Connection,
        peer: object,
        *,
        half_close: bool = True,
        certificate: PeerCertificate | None = None,
    ) -> None:
        super().__init__({"peername": peer, "peercert": certificate})
        self.protocol = protocol
        self.written = b""
        self.unsent = 0
        self.room: int | None = None  # bytes that can be written before it says so
        self.reading = True
        self.open = True
        self.ended = False
        self.aborted = False
        self.wrote = asyncio.Event()
        self._half_close = half_close

    def _check_open(self) -> None:
        """As uvloop does it; asyncio says nothing."""
        if not self.open:
            raise RuntimeError("the handler is closed")

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._check_open()
        self.written += bytes(data)
        self.wrote.set()
        if self.room is not None:
            self.room -= len(data)
            if self.room < 0:
                self.room = None
                self.protocol.pause_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def can_write_eof(self) -> bool:
        return self._half_close

    def write_eof(self) -> None:
        self._check_open()
        self.ended = True

    def pause_reading(self) -> None:
        self._check_open()
        self.reading = False

    def resume_reading(self) -> None:
        self._check_open()
        self.reading = True

    def is_closing(self) -> bool:
        return not self.open

    def close(self) -> None:
        if self.open:
            self.open = False
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        self.close()


class Guest:
    """A client on a made-up transport."""

    def __init__(
        self,
        server: Server,
        peer: object = ("127.0.0.1", 5),
        protocol: Connection | None = None,
        **wire: Any,
    ) -> None:
        self.protocol = protocol or Connection(server)
        self.wire = Wire(self.protocol, peer, **wire)
        self.reader = FrameReader()
        self.protocol.connection_made(self.wire)

    def feed(self, data: bytes) -> None:
        self.protocol.get_buffer(-1)[: len(data)] = data
        self.protocol.buffer_updated(len(data))

    def send(self, *methods: tuple[int, Method]) -> None:
        self.feed(b"".join(encode_method_frame(*each) for each in methods))

    def received(self) -> list[Event]:
        data, self.wire.written = self.wire.written, b""
        self.wire.wrote.clear()
        return list(self.reader.feed(data))

    def methods(self) -> list[Method]:
        return [event.method for event in self.received() if isinstance(event, MethodReceived)]

    async def greet(
        self,
        user: str = "guest",
        password: bytes = b"secret",
        *,
        heartbeat: int = 0,
        capabilities: FieldTable = ALL_CAPABILITIES,
    ) -> ConnectionClose | None:
        """Open the connection and channel 1; return connection.close if the server refuses."""
        handshake = ClientHandshake(
            user,
            password,
            "/",
            {"capabilities": capabilities},
            FRAME_MAX_DEFAULT_BYTES,
            0,
            heartbeat,
        )
        self.feed(PROTOCOL_HEADER)
        while handshake.step is not HandshakeStep.OPEN:
            await soon(self.wire.wrote.wait())
            for method in self.methods():
                if isinstance(method, ConnectionClose):
                    return method
                for reply in handshake.receive(method):
                    self.send((0, reply))
        self.send((1, ChannelOpen()))
        await turns()
        self.received()
        return None

    async def call(self, *methods: Method, channel: int = 1) -> list[Method]:
        self.send(*((channel, method) for method in methods))
        await turns()
        return self.methods()


def new_server(
    broker: Broker | None = None,
    *,
    offer: ConnectionOptions | None = None,
    used_memory: Callable[[], int] = lambda: 0,
    **limits: Any,
) -> Server:
    return Server(broker or new_broker(GUEST), offer, ServerLimits(**limits), used_memory)
