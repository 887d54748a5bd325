"""recado's actors within one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from itertools import cycle, islice
from typing import Any

from bench.actors.programs.task_loop import Watch, check, resident_megabytes, serve
from recado.actors import Actor, ActorRef, ActorSystem, Message, blocking

TIMEOUT = 30.0
# Tells before yielding to the loop. With actors as threads the interpreter switches by itself.
BATCH = 1_000


class Number(Message[int]):
    value: int


class Total(Message[int]):
    """Asks for the number of messages received so far."""


class Counter(Actor[Number | Total]):
    def __init__(self) -> None:
        self.count = 0

    def receive(self, message: Number | Total) -> None:
        self.count += 1
        if type(message) is Total:
            self.reply(self.count)


class Echo(Actor[Number]):
    def receive(self, message: Number) -> None:
        self.reply(message.value)


class AwaitingEcho(Actor[Number]):
    async def receive(self, message: Number) -> None:
        self.reply(message.value)


class Player(Actor[Number]):
    """Sends each number back, one less, until it is 0."""

    def __init__(self, over: asyncio.Event) -> None:
        self._over = over

    def receive(self, message: Number) -> None:
        if message.value == 0:
            self._over.set()
            return
        sender = self.sender
        assert sender is not None
        sender.tell(Number(message.value - 1))


class Opener(Player):
    """Starts the exchange with the first number that it receives from outside."""

    def __init__(self, over: asyncio.Event, other: ActorRef[Number]) -> None:
        super().__init__(over)
        self._other = other

    def receive(self, message: Number) -> None:
        if self.sender is None:
            self._other.tell(message)
        else:
            super().receive(message)


async def tells(count: int) -> dict[str, float]:
    async with ActorSystem() as system:
        ref = await system.spawn(Counter)
        message = Number(1)
        watch = Watch()
        for _ in range(0, count, BATCH):
            for _ in range(BATCH):
                ref.tell(message)
            await asyncio.sleep(0)
        check(await ref.ask(Total(), TIMEOUT), count + 1)
        return {"seconds": watch.seconds()}


async def asks(count: int, kind: type[Actor[Number]] = Echo) -> dict[str, float]:
    async with ActorSystem() as system:
        ref = await system.spawn(kind)
        message = Number(7)
        watch = Watch()
        for _ in range(count):
            answer = await ref.ask(message, TIMEOUT)
        check(answer, 7)
        return {"seconds": watch.seconds()}


async def pong(count: int) -> dict[str, float]:
    over = asyncio.Event()
    async with ActorSystem() as system:
        other = await system.spawn(lambda: Player(over))
        opener = await system.spawn(lambda: Opener(over, other))
        watch = Watch()
        opener.tell(Number(count))
        await over.wait()
        return {"seconds": watch.seconds()}


async def crowd(actors: int, tells: int) -> dict[str, float]:
    """Start `actors` actors, tell each of them something, and then continue in rounds."""
    async with ActorSystem() as system:
        watch, processor = Watch(), time.process_time()
        refs = [await system.spawn(Counter) for _ in range(actors)]
        spawned, processor = watch.seconds(), time.process_time() - processor
        message = Number(1)
        for ref in refs:
            ref.tell(message)
        check(await refs[-1].ask(Total(), TIMEOUT), 2)
        check(sum(system.mailbox_size(ref) for ref in refs), 0)
        megabytes = resident_megabytes()
        watch = Watch()
        for ref in islice(cycle(refs), tells):
            ref.tell(message)
        for ref in refs[-2:]:
            await ref.ask(Total(), TIMEOUT)
        return {
            "seconds": watch.seconds(),
            "spawned": spawned,
            "spawned_cpu": processor,
            "megabytes": megabytes,
        }


def blocking_asks(count: int) -> dict[str, float]:
    with blocking.BlockingActorSystem("blocking") as system:
        ref = system.spawn(Echo)
        message = Number(7)
        watch = Watch()
        for _ in range(count):
            answer = ref.ask(message, timeout=TIMEOUT)
        check(answer, 7)
        return {"seconds": watch.seconds()}


def run(work: Coroutine[Any, Any, dict[str, float]]) -> dict[str, float]:
    return asyncio.run(work)


if __name__ == "__main__":
    serve(
        {
            "tell": lambda count: run(tells(count)),
            "ask": lambda count: run(asks(count)),
            "ask-awaiting": lambda count: run(asks(count, AwaitingEcho)),
            "ask-blocking": blocking_asks,
            "pong": lambda count: run(pong(count)),
            "crowd": lambda actors, tells: run(crowd(actors, tells)),
        }
    )
