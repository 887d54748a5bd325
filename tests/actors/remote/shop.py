"""Messages and actors for the tests of remote actors, and two systems that reach each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from recado import Broker
from recado.actors import Actor, ActorRef, ActorSystem, Message, Signal
from recado.actors.remote.amqp import AmqpTransport
from recado.actors.remote.memory import MemoryNetwork, MemoryTransport
from recado.actors.remote.node import Node
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.tcp import TcpTransport
from recado.actors.remote.transport import Transport


class Ack(Message[None]):
    order: int


class Place(Message[Ack]):
    order: int


class Fail(Message[None]):
    text: str


class Log(Message[list[int]]):
    """The orders placed so far."""


class Silence(Message[None]):
    """It is never answered."""


class Who(Message[str]):
    """The address of the sender."""


class Reach(Message[int]):
    """Ask the actor in it, and reply with its answer."""

    book: ActorRef[Place]


class Pass(Message[Ack]):
    """To be forwarded to the actor in it."""

    book: ActorRef[Any]
    place: Place


class Book(Actor[Any]):
    def __init__(self, first: int = 0) -> None:
        self.placed: list[int] = [first] if first else []

    async def receive(self, message: Any) -> None:
        match message:
            case Place(order):
                self.placed.append(order)
                self.reply_if_asked(Ack(order))
            case Log():
                self.reply(self.placed)
            case Fail(text):
                raise ValueError(text)
            case Who():
                self.reply(str(self.sender))
            case Reach(book):
                ack = await book.ask(Place(7))
                self.reply(ack.order)
            case Pass(book, place):
                book.forward(place)
            case Silence():
                pass
            case _:
                self.unhandled(message)

    def snapshot(self) -> list[int]:
        return self.placed

    def restore(self, state: list[int]) -> None:
        self.placed = state


class Watcher(Actor[Any]):
    """It records the signals that it gets, and calls a function."""

    def __init__(self) -> None:
        self.heard: list[Signal] = []
        self.changed = asyncio.Event()

    def receive(self, message: Any) -> None:
        raise AssertionError(f"nobody sends it {message}")

    def on_signal(self, signal: Signal) -> None:
        self.heard.append(signal)
        self.changed.set()

    async def until(self, count: int) -> list[Signal]:
        async with asyncio.timeout(10):
            while len(self.heard) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.heard


@dataclass
class Pair:
    server: ActorSystem
    client: ActorSystem
    hub: MemoryNetwork | None = None

    def book(self, name: str = "book") -> ActorRef[Any]:
        """As a reference of the client."""
        ref: ActorRef[Any] = self.client.actor(name, node="server")
        return ref

    @property
    def at_server(self) -> Node:
        return Node.of(self.server)

    @property
    def at_client(self) -> Node:
        return Node.of(self.client)

    async def silence_server(self) -> None:
        """Stop the server from sending, without closing its links."""
        transport = self.at_server.transport
        match transport:
            case TcpTransport():
                assert transport._server is not None
                transport._server.close()
                for accepted in list(transport._inbound_links):
                    assert accepted.connection is not None
                    accepted.connection.abort("a test")
            case AmqpTransport():  # the broker is there, and accepts messages for it
                await transport.close()
            case _:
                assert self.hub is not None
                self.hub.frame_filter = lambda sender, to, frame: False


KINDS = ["tcp", "memory", "lasting", "amqp"]


@asynccontextmanager
async def pair(
    kind: str = "memory", server: RemoteOptions | None = None, client: RemoteOptions | None = None
) -> AsyncIterator[Pair]:
    """A server with a book, and a client."""
    async with AsyncExitStack() as stack:
        hub = None
        if kind == "tcp":
            tcp = TcpTransport("127.0.0.1:0")
            first = await stack.enter_async_context(
                ActorSystem("server", transport=tcp, options=server)
            )
            host, port = tcp.address
            to_server: Transport = TcpTransport(nodes={"server": f"{host}:{port}"})
        elif kind == "amqp":
            # One of its own: it is there in milliseconds, and the names are free.
            broker = await stack.enter_async_context(Broker())
            first = await stack.enter_async_context(
                ActorSystem("server", transport=AmqpTransport(broker.url), options=server)
            )
            to_server = AmqpTransport(broker.url)
        else:
            hub = MemoryNetwork(durable=kind == "lasting")
            first = await stack.enter_async_context(
                ActorSystem("server", transport=MemoryTransport(hub), options=server)
            )
            to_server = MemoryTransport(hub)
        await first.spawn(Book, name="book")
        async with ActorSystem("client", transport=to_server, options=client) as second:
            yield Pair(first, second, hub)


async def watcher(system: ActorSystem) -> Watcher:
    ref: ActorRef[Any] = await system.spawn(Watcher)
    actor = actor_of(system, ref)
    assert isinstance(actor, Watcher)
    return actor


def actor_of(system: ActorSystem, ref: ActorRef[Any]) -> Actor[Any]:
    cell = system._find_cell(ref.address)
    assert cell is not None
    assert cell.actor is not None
    return cell.actor


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the loop until a condition holds: usually for a few turns, sometimes for milliseconds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  it is about what nobody tells
            await asyncio.sleep(0.0005)
