"""A stopped broker serves no client, not even one whose connection was just accepted."""

from __future__ import annotations

import asyncio
import gc
import socket
from contextlib import suppress

import pytest

import recado

HEADER = b"AMQP\x00\x00\x09\x01"
SILENCE = 0.2  # seconds. Python 3.11 neither serves nor ends what it accepts in the last turn
OFFER = b"PLAIN"  # how to log in; who was in already is sent away by other words


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # for the same reason
@pytest.mark.parametrize("turns", range(6))
def test_connections_during_stop_are_not_served(turns: int) -> None:
    """A socket is accepted in one turn of the loop, and is a connection some turns later."""

    async def work() -> bytes:
        broker = recado.Broker()
        await broker.__aenter__()
        address = ("127.0.0.1", int(broker.url.rpartition(":")[2].partition("/")[0]))
        said = b""
        with socket.create_connection(address) as late:
            late.setblocking(False)
            for _ in range(turns):
                await asyncio.sleep(0)
            await broker.__aexit__(None, None, None)
            with suppress(OSError, TimeoutError):
                late.sendall(HEADER)
                async with asyncio.timeout(SILENCE):
                    said = await asyncio.get_running_loop().sock_recv(late, 1000)
        return said

    assert OFFER not in asyncio.run(work())
    gc.collect()  # or a later test would be blamed for the socket
