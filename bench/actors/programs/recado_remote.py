"""recado actors on two nodes over TCP: `serve` is the other node."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from bench.actors.programs.flight import flight
from bench.actors.programs.task_loop import Watch, check, serve, tell
from recado.actors import Actor, ActorRef, ActorSystem, Message
from recado.actors.remote.tcp import TcpTransport

TIMEOUT = 30.0


class Number(Message[int]):
    value: int


class Echo(Actor[Number]):
    def receive(self, message: Number) -> None:
        self.reply(message.value)


async def other_node() -> None:
    transport = TcpTransport("127.0.0.1:0")
    async with ActorSystem("server", transport=transport) as system:
        await system.spawn(Echo, name="echo")
        tell({"port": transport.address[1]})
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(
            None, sys.stdin.read
        )  # until the parent process has closed our input


async def one_by_one(ref: ActorRef[Number], count: int) -> dict[str, float]:
    message = Number(7)
    watch = Watch()
    for _ in range(count):
        answer = await ref.ask(message, TIMEOUT)
    check(answer, 7)
    return {"seconds": watch.seconds()}


def main() -> None:
    command = [sys.executable, "-m", "bench.actors.programs.recado_remote", "serve"]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server,
        asyncio.Runner() as runner,
    ):
        assert server.stdout
        port = int(server.stdout.readline().split(":")[1].strip(" }\n"))
        system = ActorSystem(
            "client", transport=TcpTransport(nodes={"server": f"127.0.0.1:{port}"})
        )
        runner.run(system.__aenter__())
        ref = system.actor("echo", Echo, node="server")
        message = Number(7)
        serve(
            {
                "ask": lambda count: runner.run(one_by_one(ref, count)),
                "flight": lambda count, window: runner.run(
                    flight(lambda: ref.ask(message, TIMEOUT), count, window)
                ),
            }
        )
        runner.run(system.close())


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(other_node())
    else:
        main()
