"""Messages and actors of the end-to-end tests, for a node in its own process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from recado.actors import Actor, Message


class Note(Message[int]):
    """To be written down, once if possible."""

    life: int
    number: int


class Twice(Message[int]):
    number: int


class Add(Message[int]):
    number: int


class Ledger(Actor[Note]):
    """Writes its messages to a file, which survives it."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def receive(self, message: Note) -> None:
        os.write(self._file, b"%d %d\n" % (message.life, message.number))
        self.reply_if_asked(message.number)

    def post_stop(self) -> None:
        os.close(self._file)


class Calculator(Actor[Twice]):
    def receive(self, message: Twice) -> None:
        if message.number < 0:
            raise ValueError(f"{message.number} is negative")
        self.reply(2 * message.number)


class Gate(Actor[Twice]):
    """It answers when the file `open` exists, and writes what it has answered to `passed`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "open"
        self._passed = folder / "passed"

    async def receive(self, message: Twice) -> None:
        while not self._file.exists():  # noqa: ASYNC110  another process makes it
            await asyncio.sleep(0.01)
        with self._passed.open("a") as passed:
            passed.write(f"{message.number}\n")
        self.reply(2 * message.number)


class Counter(Actor[Add]):
    """Other nodes may create it on a node, and move it there."""

    def __init__(self, first: int = 0) -> None:
        self.count = first

    def receive(self, message: Add) -> None:
        if message.number < 0:
            raise ValueError(f"{message.number} is negative")
        self.count += message.number
        self.reply_if_asked(self.count)

    def snapshot(self) -> int:
        return self.count

    def restore(self, state: int) -> None:
        self.count = state
