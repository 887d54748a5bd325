"""No actors: asyncio sends bytes to another process and back, the lower bound for an ask."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import deque
from typing import cast

from bench.actors.programs.flight import flight
from bench.actors.programs.task_loop import Watch, serve, tell

MESSAGE = b"x" * 64


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class Asker(asyncio.Protocol):
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._got = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self._got += len(data)
        while self._got >= len(MESSAGE):
            self._got -= len(MESSAGE)
            self._waiting.popleft().set_result(None)

    def ask(self) -> asyncio.Future[None]:
        self._transport.write(MESSAGE)
        future = self._loop.create_future()
        self._waiting.append(future)
        return future


async def other_process() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    tell({"port": server.sockets[0].getsockname()[1]})
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


async def connected(port: int) -> Asker:
    loop = asyncio.get_running_loop()
    _, asker = await loop.create_connection(Asker, "127.0.0.1", port)
    return asker


async def one_by_one(asker: Asker, count: int) -> dict[str, float]:
    watch = Watch()
    for _ in range(count):
        await asker.ask()
    return {"seconds": watch.seconds()}


def main() -> None:
    command = [sys.executable, "-m", "bench.actors.programs.echo_remote", "serve"]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server,
        asyncio.Runner() as runner,
    ):
        assert server.stdout
        port = int(server.stdout.readline().split(":")[1].strip(" }\n"))
        asker = runner.run(connected(port))
        serve(
            {
                "ask": lambda count: runner.run(one_by_one(asker, count)),
                "flight": lambda count, window: runner.run(flight(asker.ask, count, window)),
            }
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(other_process())
    else:
        main()
