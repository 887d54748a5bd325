"""What a bridge has for whoever uses it: messages that came, messages that came back, and how it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby, repeat
from typing import Protocol

from recado.actors.remote.transport import Settle
from recado.amqp.errors import ProtocolError
from recado.amqp.properties import decode_properties


class Arrivals:
    """Messages that the broker delivered together, at least one. Each comes again, unless it is settled, once.

    Message i has `headers[i]` and `frames[i]`.
    """

    __slots__ = ("_settle", "_tags", "frames", "headers")

    def __init__(
        self,
        settle: Callable[[int, bool], None],
        tags: Sequence[int],
        headers: list[bytes],
        frames: list[bytes],
    ) -> None:
        """`settle` is told the tag of a message, and whether it was taken."""
        self._settle = settle
        self._tags = tags
        self.headers = headers
        self.frames = frames

    def settles(self) -> list[Settle]:
        """How each is settled."""
        return list(map(partial, repeat(self._settle), self._tags))

    def by_header(self) -> Iterator[Arrivals]:
        """Those that follow each other and have the same one."""
        headers = self.headers
        if headers.count(headers[0]) == len(headers):  # as nearly always
            yield self
            return
        first = 0
        for _, alike in groupby(headers):
            last = first + sum(1 for _ in alike)
            part = slice(first, last)
            yield Arrivals(self._settle, self._tags[part], headers[part], self.frames[part])
            first = last


def client_of(header: bytes) -> str:
    """The id of the client bridge that sent it, as it says; empty if it says none."""
    try:
        return decode_properties(header, max_entries=64).reply_to or ""
    except ProtocolError:
        return ""


class MessageHandler(Protocol):
    def received(self, messages: Arrivals) -> bool:
        """True: acknowledge them. False: not now; who has them settles each, or it comes again."""

    def rejected(self, key: str, body: bytes, reason: str) -> None:
        """The broker gave this back: nobody has a queue for it, or it was refused."""


class Watcher(Protocol):
    """Who is told how a bridge stands; the application, in the end."""

    def lost(self, reason: str) -> None:
        """It has no way to the broker, or the broker none to the node. It is being rebuilt."""

    def healed(self) -> None: ...

    def gone(self, reason: str) -> None:
        """It was not rebuilt in time, and nobody tries any more."""
