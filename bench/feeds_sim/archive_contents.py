"""The rules of the judge for archives: what each has on disk at a time, and at the end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from . import history as h
from .history import Incarnation, Message, named, titled
from .verdict import Rule


class ArchiveContents:
    def __init__(self, violated: Callable[[Rule, str], None]) -> None:
        self.last: dict[str, int] = {}
        """In the end: the last sequence of each publisher that any archive has."""
        self._violated = violated
        self._kept: dict[Message, dict[str, None]] = defaultdict(dict)
        self._read_archives: dict[str, dict[Message, None]] = {}
        self._recorded: dict[str, Mapping[str, str]] = {}

    def keep(self, archive: str, publisher: str, first: int, count: int) -> None:
        for sequence in range(first, first + count):
            self._kept[publisher, sequence][archive] = None

    def holders(self, message: Message) -> list[str]:
        return list(self._kept.get(message, ()))

    def read(self, event: h.ArchiveRead, published: Mapping[str, Sequence[int]]) -> None:
        has: dict[Message, None] = {}
        lost = {
            (publisher, sequence)
            for publisher, first, last in event.lost
            for sequence in range(first, last + 1)
        }
        ends: dict[str, int] = {}
        for publisher, sequence, check, _ in event.messages:
            told = f"{event.archive} has {publisher}:{sequence}"
            known = published.get(publisher, ())
            if not 1 <= sequence <= len(known) or known[sequence - 1] != check:
                self._violated(Rule.INTACT, f"{told}, which was not published so")
            end = ends.get(publisher, 0)
            if (
                sequence <= end
                and (publisher, sequence) in lost
                and (publisher, sequence) not in has
            ):
                has[publisher, sequence] = None  # it was found later
                continue
            while (publisher, end + 1) in lost and end + 1 < sequence:
                end += 1
            if sequence != end + 1:
                self._violated(Rule.ARCHIVE, f"{told} behind {end}")
            ends[publisher] = sequence
            has[publisher, sequence] = None
            self.last[publisher] = max(sequence, self.last.get(publisher, 0))
        self._read_archives[event.archive] = has
        for message, holders in self._kept.items():
            if event.archive in holders and message not in has:
                told = f"{event.archive} had {titled(message)} on disk, and has not"
                self._violated(Rule.ARCHIVE, told)

    def record(self, archive: str, facts: Mapping[str, str]) -> None:
        self._recorded[archive] = facts

    def compare(self) -> None:
        """At the end."""
        self._compare_messages()
        for (one, first), (other, second) in pairwise(self._recorded.items()):
            for what in {**first, **second}:
                ours, theirs = first.get(what), second.get(what)
                if ours != theirs:
                    told = f"{one} has of {what}: {ours}, and {other}: {theirs}"
                    self._violated(Rule.CONVERGE, told)
                    break

    def _compare_messages(self) -> None:
        every: dict[Message, str] = {}
        for archive, own in self._read_archives.items():
            every |= dict.fromkeys(own, archive)
        for archive, own in self._read_archives.items():
            for message, other in every.items():
                if message not in own:
                    told = f"{archive} has not {titled(message)}, which {other} has"
                    self._violated(Rule.CONVERGE, told)
                    break

    def has(self, message: Message) -> bool:
        return any(message in own for own in self._read_archives.values())

    def owe(self, publisher: str, upto: int) -> None:
        missing = [
            sequence for sequence in range(1, upto + 1) if not self.has((publisher, sequence))
        ]
        if self._read_archives and missing:
            told = f"{publisher}:{missing[0]} was safe, and no archive has it"
            self._violated(Rule.LOST, told)


class Uniform:
    """A member that requires a majority of the archives in the view gets that of its installed view, or of the
    next one if it has agreed to it: otherwise messages of a view whose archives failed would never be
    delivered."""

    def __init__(
        self, violated: Callable[[Rule, str], None], holders: Callable[[Message], list[str]]
    ) -> None:
        self._violated = violated
        self._holders = holders
        self._demands: dict[Incarnation, dict[str, int]] = defaultdict(dict)
        """Of the installed view, and of the next ones."""

    def agree(self, event: h.Agreed) -> None:
        self._demands[event.incarnation][event.view] = event.archives // 2 + 1

    def install(self, event: h.Installed) -> None:
        demands = self._demands[event.incarnation]
        demands.setdefault(event.view, event.archives // 2 + 1)
        for view in list(demands):
            if view == event.view:
                break
            del demands[view]

    def delivered(self, incarnation: Incarnation, copies: int, message: Message) -> None:
        count = len(self._holders(message))
        here_and_next = list(self._demands[incarnation].values())[:2]
        needed = copies or min(here_and_next, default=1)
        if count < needed:
            told = f"got {titled(message)}, which {count} archives had, and not {needed}"
            self._violated(Rule.UNIFORM, f"{named(incarnation)} {told}")
