"""What people write down, a line each, so that a kill -9 takes nothing of it: the system has it by then.

    of a publisher     born HEX · tried N · confirmed N
    of a subscriber    born VECTOR · got HEX SEQUENCE CERTAINTY whole|broken
    of one that commits its output with its vector, the table of its output

A line that the death cut short has no end, and does not count.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

SCHEMA: Final = """
create table if not exists output (publisher blob, sequence integer, whole integer);
create table if not exists progress (id integer primary key check (id = 1), vector text);
"""

Name = tuple[bytes, int]
"""Of a message: its publisher and its sequence."""


class Diary:
    """Written by the one whose it is."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, *lines: str) -> None:
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def lines(file: Path) -> Iterator[list[str]]:
    """The words of each whole line."""
    if file.is_file():
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield line.split()


@dataclass
class Published:
    """By publisher, the last sequence that was tried, and the last that was confirmed."""

    tried: dict[bytes, int] = field(default_factory=dict)
    confirmed: dict[bytes, int] = field(default_factory=dict)


def read_publisher(file: Path, into: Published) -> None:
    publisher = b""
    for words in lines(file):
        match words:
            case ["born", digits]:
                publisher = bytes.fromhex(digits)
                into.tried[publisher] = into.confirmed[publisher] = 0
            case ["tried", number]:
                into.tried[publisher] = int(number)
            case ["confirmed", number]:
                into.confirmed[publisher] = int(number)
            case _:
                raise ValueError(f"{file}: {words}")


@dataclass
class Got:
    name: Name
    certainty: str
    whole: bool


@dataclass
class Life:
    """Of a subscriber, from one start to the next."""

    began: dict[bytes, int]
    got: list[Got] = field(default_factory=list)


def read_subscriber(file: Path) -> list[Life]:
    lives: list[Life] = []
    for words in lines(file):
        match words:
            case ["born", *vector]:
                lives.append(Life(read_vector("".join(vector))))
            case ["got", digits, number, certainty, whole]:
                name = bytes.fromhex(digits), int(number)
                lives[-1].got.append(Got(name, certainty, whole == "whole"))
            case _:
                raise ValueError(f"{file}: {words}")
    return lives


def read_vector(text: str) -> dict[bytes, int]:
    pairs = (part.split(":") for part in text.split(",") if part)
    return {bytes.fromhex(digits): int(number) for digits, number in pairs}


def read_output(file: Path) -> list[Got]:
    """The table of one that commits, in the order of its rows."""
    if not file.is_file():
        return []
    base = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)
    try:
        rows = base.execute("select publisher, sequence, whole from output order by rowid")
        return [Got((publisher, number), "", bool(whole)) for publisher, number, whole in rows]
    except sqlite3.OperationalError:  # it has not come to make its tables
        return []
    finally:
        base.close()
