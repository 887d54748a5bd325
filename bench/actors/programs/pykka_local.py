"""Pykka's actors, each a thread. Their messages are of the same kind as ours: frozen structs."""

from __future__ import annotations

import time
from itertools import cycle, islice
from threading import Event
from typing import Any

import msgspec
import pykka

from bench.actors.programs.task_loop import (
    Task,
    Watch,
    check,
    resident_megabytes,
    serve,
)

TIMEOUT = 30.0


class Number(msgspec.Struct, frozen=True):
    value: int


class Total(msgspec.Struct, frozen=True):
    pass


class Counter(pykka.ThreadingActor):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def on_receive(self, message: Any) -> Any:
        self.count += 1
        return self.count if type(message) is Total else None


class Echo(pykka.ThreadingActor):
    def on_receive(self, message: Any) -> Any:
        return message.value


class Player(pykka.ThreadingActor):
    """Sends each number, reduced by one, to the other player until it is 0."""

    def __init__(self, over: Event) -> None:
        super().__init__()
        self.other: pykka.ActorRef[Any] | None = None
        self._over = over

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, pykka.ActorRef):
            self.other = message
        elif message.value == 0:
            self._over.set()
        else:
            assert self.other is not None
            self.other.tell(Number(message.value - 1))


def tells(count: int) -> dict[str, float]:
    ref = Counter.start()
    message = Number(1)
    watch = Watch()
    for _ in range(count):
        ref.tell(message)
    check(ref.ask(Total(), timeout=TIMEOUT), count + 1)
    seconds = watch.seconds()
    ref.stop()
    return {"seconds": seconds}


def asks(count: int) -> dict[str, float]:
    ref = Echo.start()
    message = Number(7)
    watch = Watch()
    for _ in range(count):
        answer = ref.ask(message, timeout=TIMEOUT)
    check(answer, 7)
    seconds = watch.seconds()
    ref.stop()
    return {"seconds": seconds}


def pong(count: int) -> dict[str, float]:
    over = Event()
    one, other = Player.start(over), Player.start(over)
    one.ask(other)
    other.ask(one)
    watch = Watch()
    one.tell(Number(count))
    over.wait()
    seconds = watch.seconds()
    pykka.ActorRegistry.stop_all()
    return {"seconds": seconds}


def crowd(actors: int, tells: int) -> dict[str, float]:
    watch, processor = Watch(), time.process_time()
    refs = [Counter.start() for _ in range(actors)]
    spawned, processor = watch.seconds(), time.process_time() - processor
    message = Number(1)
    for ref in refs:
        ref.tell(message)
    check(refs[-1].ask(Total(), timeout=TIMEOUT), 2)
    watch = Watch()
    for ref in islice(cycle(refs), tells):
        ref.tell(message)
    for ref in refs[-2:]:
        ref.ask(Total(), timeout=TIMEOUT)
    seconds = watch.seconds()
    megabytes = resident_megabytes()
    pykka.ActorRegistry.stop_all()
    return {
        "seconds": seconds,
        "spawned": spawned,
        "spawned_cpu": processor,
        "megabytes": megabytes,
    }


TASKS: dict[str, Task] = {
    "tell": tells,
    "ask": asks,
    "ask-awaiting": asks,  # Pykka has no other way
    "ask-blocking": asks,
    "pong": pong,
    "crowd": crowd,
}

if __name__ == "__main__":
    serve(TASKS)
