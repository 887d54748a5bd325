"""Nodes in separate processes over TCP: killed, cut off and restarted, and no caller hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from recado.actors import ActorSystem, Down, NodeUnreachableError, NoSuchActorError
from recado.actors.remote.errors import LinkLostError, NotDeliveredError, RemoteError
from recado.actors.remote.options import RemoteOptions
from recado.actors.remote.tcp import TcpTransport
from recado.actors.remote.tcp.transport import TcpSettings
from recado.actors.supervision.links import monitor
from tests.actors.remote.running import in_a_loop
from tests.actors.remote.shop import Ack, Place, Silence, Who, watcher

OPTIONS = RemoteOptions(heartbeat_interval=0.05, failure_timeout=0.5)
SERVER = """
import asyncio, sys
from recado.actors import ActorSystem
from recado.actors.remote.tcp import TcpTransport
from tests.actors.remote.shop import Book
async def main():
    tcp = TcpTransport(sys.argv[1])
    async with ActorSystem("server", transport=tcp) as system:
        await system.spawn(Book, name="book")
        print(*tcp.address, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@contextmanager
def server(listen: str = "127.0.0.1:0") -> Iterator[tuple[int, str]]:
    """Its process and where it listens."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, listen], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        host, port = process.stdout.readline().split()
        try:
            yield process.pid, f"{host}:{port}"
        finally:
            process.kill()


def client_of(address: str) -> ActorSystem:
    tcp = TcpTransport(nodes={"server": address}, settings=TcpSettings(retry_max=0.1))
    return ActorSystem("client", transport=tcp, options=OPTIONS)


@in_a_loop
async def test_a_server_that_is_killed() -> None:
    with server() as (pid, address):
        async with client_of(address) as client:
            book = client.actor("book", node="server")
            assert await book.ask(Place(1)) == Ack(1)
            seer = await watcher(client)
            monitor(seer._cell, book)
            asking = asyncio.create_task(book.ask(Silence(), timeout=30))
            await asyncio.sleep(0)
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(LinkLostError):
                await asking
            with pytest.raises((NotDeliveredError, LinkLostError)):
                await book.ask(Place(2), timeout=30)
            [down] = await seer.until(1)
            assert isinstance(down, Down)
            assert isinstance(down.reason, NodeUnreachableError)


@in_a_loop
async def test_a_server_that_is_killed_and_comes_back_before_it_is_given_up() -> None:
    with server() as (pid, address):
        async with client_of(address) as client:
            book = client.actor("book", node="server")
            known = await book.ask(Who())  # the server's book has a uid, which the next one has not
            assert known == "None"
            seer = await watcher(client)
            there = client.ref(f"{book.address}#1")
            await book.ask(Place(1))
            os.kill(pid, signal.SIGKILL)
            with server(address):
                async with asyncio.timeout(10):
                    while True:
                        try:
                            assert await book.ask(Place(2), timeout=5) == Ack(2)
                            break
                        except RemoteError:
                            continue
                monitor(seer._cell, there)
                [down] = await seer.until(1)
                assert isinstance(down, Down)
                assert isinstance(down.reason, NoSuchActorError)


@in_a_loop
async def test_a_watch_by_name_does_not_outlive_a_server_that_is_killed_and_comes_back() -> None:
    with server() as (pid, address):
        patient = RemoteOptions(failure_timeout=60.0)
        tcp = TcpTransport(nodes={"server": address}, settings=TcpSettings(retry_max=0.1))
        async with ActorSystem("client", transport=tcp, options=patient) as client:
            book = client.actor("book", node="server")
            seer = await watcher(client)
            monitor(seer._cell, book)
            assert await book.ask(Place(1), timeout=30) == Ack(1)
            os.kill(pid, signal.SIGKILL)
            with server(address):
                [down] = await seer.until(1)
                assert isinstance(down, Down)
                assert isinstance(down.reason, NoSuchActorError)


@in_a_loop
async def test_a_server_that_is_stopped_is_unreachable_and_asks_time_out() -> None:
    with server() as (pid, address):
        async with client_of(address) as client:
            book = client.actor("book", node="server")
            await book.ask(Place(1))
            seer = await watcher(client)
            monitor(seer._cell, book)
            os.kill(pid, signal.SIGSTOP)  # its sockets stay open, and it sends nothing
            try:
                with pytest.raises(TimeoutError):
                    await book.ask(Place(2), timeout=0.2)
                [down] = await seer.until(1)
                assert isinstance(down, Down)
                assert isinstance(down.reason, NodeUnreachableError)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert await book.ask(Place(3), timeout=10) == Ack(3)
