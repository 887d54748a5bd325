"""Actors for tests of the semantics: they record their events in a log that the test reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from recado.actors.actor import Actor
from recado.actors.message import Message
from recado.actors.system import ActorSystem
from recado.actors.testkit import ShuffledDispatcher, run

T = TypeVar("T")


class Note(Message[int]):
    """Numbered by who sent it. A `pause` is awaited in the handler, `fails` says that it fails then."""

    sender: int
    number: int
    pause: float | None = None
    fails: bool = False


class BrokenError(Exception):
    pass


class Diary:
    """What happened to an actor, in all its lives."""

    def __init__(self) -> None:
        self.notes: list[tuple[int, int]] = []
        self.life: list[str] = []
        self.inside = 0
        self.crowded = 0
        """How often two were inside of its code."""

    def enter(self) -> None:
        self.inside += 1
        self.crowded += self.inside > 1

    def leave(self) -> None:
        self.inside -= 1

    def check(self) -> None:
        assert not self.crowded, "two at a time"
        last: dict[int, int] = {}
        for sender, number in self.notes:
            assert number > last.get(sender, -1), f"{number} of {sender} is out of order"
            last[sender] = number


class Listener(Actor[Note]):
    """It notes (sender, number), and who is inside of its code."""

    def __init__(self, diary: Diary) -> None:
        self.diary = diary

    def receive(self, message: Note) -> Coroutine[Any, Any, None] | None:
        self.diary.enter()
        if message.pause is not None:
            return self.slowly(message)
        try:
            self.do(message)
        finally:
            self.diary.leave()
        return None

    async def slowly(self, message: Note) -> None:
        try:
            await asyncio.sleep(message.pause or 0)
            self.do(message)
        finally:
            self.diary.leave()

    def do(self, message: Note) -> None:
        self.diary.notes.append((message.sender, message.number))
        if message.fails:
            raise BrokenError(str(message.number))
        self.reply_if_asked(message.number)


def told(
    story: Callable[[ActorSystem], Coroutine[Any, Any, T]], seed: int | None = None, **settings: Any
) -> T:
    """What the story gives, in virtual time; with a seed, in the order that it decides."""

    log = logging.getLogger("recado.actors")

    async def tell() -> T:
        dispatcher = None if seed is None else ShuffledDispatcher(seed)
        async with ActorSystem("test", dispatcher=dispatcher, **settings) as system:
            return await story(system)

    log.setLevel(logging.CRITICAL)  # failures are what these stories are about
    try:
        return run(tell())
    finally:
        log.setLevel(logging.NOTSET)
