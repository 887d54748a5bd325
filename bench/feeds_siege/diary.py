"""The diaries: lines that the programs append to files, so that a kill -9 loses none of them.

    publisher    TIME born HEX · TIME tried N · TIME confirmed N
    subscriber   TIME born VECTOR · TIME joined · TIME got HEX FIRST LAST CERTAINTY whole|broken
                 TIME lost HEX FIRST LAST · TIME view NUMBER COORDINATOR MEMBER,… · TIME failed REASON
                 TIME stalled SECONDS
    siege        TIME kill|stop|cut NAME · TIME kill-ended|stop-ended|cut-ended NAME

TIME is the system's monotonic clock, which all processes of the machine share. A subscriber that commits its
output together with its vector has the received ranges in an SQLite table instead of `got` lines. A line that
a kill cut short has no line end and is ignored.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

SCHEMA: Final = """
create table if not exists output (at real, publisher blob, first integer, last integer, whole integer);
create table if not exists progress (id integer primary key check (id = 1), vector text);
"""

Sequences = dict[bytes, set[int]]
"""Messages, by publisher."""

FOREVER: Final = float("inf")
UNKNOWN: Final = "unknown"


class Diary:
    """Written by one program; each call is one write, complete before it returns."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, *lines: str) -> None:
        os.write(self._file, "".join(f"{line}\n" for line in lines).encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def stamped(words: str) -> str:
    return f"{time.monotonic():.4f} {words}"


def lines(file: Path) -> Iterator[list[str]]:
    """Yield the words of each complete line."""
    if file.is_file():
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                yield line.split()


# --- publishers


@dataclass
class Published:
    """By publisher: the last sequence that was tried, the last that was confirmed, and when which was."""

    tried: dict[bytes, int] = field(default_factory=dict)
    confirmed: dict[bytes, int] = field(default_factory=dict)
    confirmations: dict[bytes, list[tuple[float, int]]] = field(default_factory=dict)

    def confirmed_before(self, publisher: bytes, at: float) -> int:
        """The last sequence that was confirmed by this time."""
        known = self.confirmations.get(publisher, [])
        return max((upto for then, upto in known if then < at), default=0)


def read_publisher(file: Path, into: Published) -> None:
    publisher = b""
    for words in lines(file):
        match words:
            case [_, "born", digits]:
                publisher = bytes.fromhex(digits)
                into.tried[publisher] = into.confirmed[publisher] = 0
                into.confirmations[publisher] = []
            case [_, "tried", number]:
                into.tried[publisher] = int(number)
            case [at, "confirmed", number]:
                into.confirmed[publisher] = int(number)
                into.confirmations[publisher].append((float(at), int(number)))
            case [_, "stalled", _]:
                pass
            case _:
                raise ValueError(f"{file}: {words}")


# --- subscribers


@dataclass(frozen=True)
class Got:
    """Messages first..last of a publisher, received together."""

    at: float
    publisher: bytes
    first: int
    last: int
    certainty: str = "live"
    whole: bool = True


@dataclass(frozen=True)
class Lost:
    """The subscriber was notified that messages first..last are lost."""

    at: float
    publisher: bytes
    first: int
    last: int


@dataclass(frozen=True)
class ViewSeen:
    """A view as recorded by one member or archive; only archives know the cut."""

    id: tuple[int, str]
    members: frozenset[str]
    cut: frozenset[tuple[bytes, int]] | None = None
    at: float = field(default=0.0, compare=False)


@dataclass
class Saved:
    """A vector that a subscriber began with."""

    upto: dict[bytes, int] = field(default_factory=dict)
    holes: Sequences = field(default_factory=dict)

    def covers(self, publisher: bytes, sequence: int) -> bool:
        return sequence <= self.upto.get(publisher, 0) and sequence not in self.holes.get(
            publisher, ()
        )


@dataclass
class Incarnation:
    """Of a subscriber: from one subscription to the end of it."""

    born: float
    vector: Saved
    joined: float = FOREVER
    events: list[Got | Lost | ViewSeen] = field(default_factory=list)
    stalls: list[tuple[float, float]] = field(default_factory=list)
    ended: float = FOREVER
    is_killed: bool = False

    @property
    def got(self) -> list[Got]:
        return [each for each in self.events if isinstance(each, Got)]

    @property
    def views(self) -> list[ViewSeen]:
        return [each for each in self.events if isinstance(each, ViewSeen)]


def read_subscriber(file: Path) -> list[Incarnation]:
    incarnations: list[Incarnation] = []
    for words in lines(file):
        at = float(words[0])
        match words[1:]:
            case ["born", *vector]:
                incarnations.append(Incarnation(at, read_vector("".join(vector))))
            case ["joined"]:
                incarnations[-1].joined = at
            case ["got", digits, first, last, certainty, whole]:
                publisher = bytes.fromhex(digits)
                got = Got(at, publisher, int(first), int(last), certainty, whole == "whole")
                incarnations[-1].events.append(got)
            case ["lost", digits, first, last]:
                incarnations[-1].events.append(
                    Lost(at, bytes.fromhex(digits), int(first), int(last))
                )
            case ["view", number, coordinator, members]:
                members_seen = frozenset(members.split(","))
                view = ViewSeen((int(number), coordinator), members_seen, at=at)
                incarnations[-1].events.append(view)
            case ["stalled", seconds]:
                incarnations[-1].stalls.append((at - float(seconds), at))
            case ["failed", *_]:
                incarnations[-1].ended = at
            case _:
                raise ValueError(f"{file}: {words}")
    return incarnations


def read_vector(text: str) -> Saved:
    """PUBLISHER:SEQUENCE/FIRST-LAST/…,…: the ranges after the sequence are holes."""
    saved = Saved()
    for part in filter(None, text.split(",")):
        digits, _, numbers = part.partition(":")
        number, *holes = numbers.split("/")
        publisher = bytes.fromhex(digits)
        saved.upto[publisher] = int(number)
        for hole in holes:
            first, _, last = hole.partition("-")
            missing = range(int(first), int(last) + 1)
            saved.holes.setdefault(publisher, set()).update(missing)
    return saved


def read_output(file: Path) -> list[Got]:
    """The table of a subscriber that commits, in the order of its rows; it does not have the certainty."""
    if not file.is_file():
        return []
    database = sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)
    try:
        rows = database.execute(
            "select at, publisher, first, last, whole from output order by rowid"
        )
        return [
            Got(at, publisher, first, last, UNKNOWN, whole=bool(whole))
            for at, publisher, first, last, whole in rows
        ]
    except sqlite3.OperationalError:  # killed before it created its tables
        return []
    finally:
        database.close()


def add_output(incarnations: list[Incarnation], output: list[Got]) -> None:
    """Assign each row to the incarnation in which it was committed."""
    bounds = [*(incarnation.born for incarnation in incarnations[1:]), FOREVER][: len(incarnations)]
    for incarnation, until in zip(incarnations, bounds, strict=True):
        rows = [got for got in output if incarnation.born <= got.at < until]
        incarnation.events = sorted([*incarnation.events, *rows], key=lambda event: event.at)


def sequences_of(some: Iterable[Got]) -> Sequences:
    found: Sequences = defaultdict(set)
    for got in some:
        found[got.publisher].update(range(got.first, got.last + 1))
    return found


# --- the siege


@dataclass(frozen=True)
class Interval:
    """A fault, from its beginning to its end."""

    kind: str
    start: float
    end: float


def read_faults(file: Path) -> dict[str, list[Interval]]:
    """By the name of the program. A fault that has not ended lasts for ever."""
    found: dict[str, list[Interval]] = defaultdict(list)
    for at, word, name in lines(file):
        kind, _, ended = word.partition("-")
        if not ended:
            found[name].append(Interval(kind, float(at), FOREVER))
            continue
        begun = next(each for each in reversed(found[name]) if each.kind == kind)
        found[name][found[name].index(begun)] = Interval(kind, begun.start, float(at))
    return found
