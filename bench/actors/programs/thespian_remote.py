"""Thespian's actors over TCP: each is a process, and so is their administrator."""

from __future__ import annotations

import socket
from typing import Any

from thespian.actors import Actor, ActorSystem

from bench.actors.programs.task_loop import Watch, check, serve

TIMEOUT = 30


class Echo(Actor):  # type: ignore[misc]  # it has no types
    def receiveMessage(self, message: Any, sender: Any) -> None:  # noqa: N802 (its name there)
        if isinstance(message, int):  # and not that it is to stop
            self.send(sender, message)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    system = ActorSystem("multiprocTCPBase", {"Admin Port": free_port()})
    try:
        echo = system.createActor(Echo)

        def one_by_one(count: int) -> dict[str, float]:
            watch = Watch()
            for _ in range(count):
                answer = system.ask(echo, 7, TIMEOUT)
            check(answer, 7)
            return {"seconds": watch.seconds()}

        serve({"ask": one_by_one})
    finally:
        system.shutdown()


if __name__ == "__main__":
    main()
