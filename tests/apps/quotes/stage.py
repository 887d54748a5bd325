"""Fakes for the programs of quotes: a feed that records what is published, and messages made by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import count

from recado.apps.quotes.tick import Tick, encode_json, tick_key
from recado.feeds.message import NO_HEADERS, Message
from recado.feeds.vector import Vector
from recado.feeds.views import NO_VIEW, Certainty

PUBLISHER = bytes(range(16))


class Remembering:
    """A feed that keeps what is published, by batch."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, bytes]]] = []
        self.flushed = False

    async def publish_many(self, bodies: list[bytes], *, keys: list[str]) -> None:
        self.batches.append(list(zip(keys, bodies, strict=True)))

    async def flush(self) -> None:
        self.flushed = True


def messages_of(ticks: Iterable[Tick], first: int = 1) -> list[Message]:
    return [
        Message(
            "quotes",
            PUBLISHER,
            sequence,
            NO_VIEW,
            tick.at,
            tick_key(tick),
            "",
            NO_HEADERS,
            None,
            encode_json(tick),
            Certainty.LIVE,
        )
        for sequence, tick in zip(count(first), ticks, strict=False)
    ]


class Given:
    """A subscription to batches that are here already."""

    def __init__(self, batches: Sequence[Sequence[Message]], live_after: int = 0) -> None:
        self._batches = batches
        self._live_after = live_after
        self._entries: dict[bytes, int] = {}
        self._taken = 0
        self.is_closed = False

    @property
    def vector(self) -> Vector:
        return Vector(self._entries)

    @property
    def is_live(self) -> bool:
        return self._taken > self._live_after

    async def batches(self) -> AsyncIterator[Sequence[Message]]:
        for batch in self._batches:
            self._entries[PUBLISHER] = batch[-1].sequence
            self._taken += 1
            yield batch

    async def next_batches(self, most: int) -> list[Sequence[Message]]:
        found: list[Sequence[Message]] = []
        while self._taken < len(self._batches) and sum(map(len, found)) < most:
            found.append(self._batches[self._taken])
            self._entries[PUBLISHER] = found[-1][-1].sequence
            self._taken += 1
        return found

    def mark_finished(self, message: Message) -> None:
        self._entries[PUBLISHER] = message.sequence

    async def close(self) -> None:
        self.is_closed = True
