"""Batches to store, rows to compare, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recado.feeds.archive.archive import Archive
from recado.feeds.archive.records import StoredBatch
from recado.feeds.block import BODY_INDEX, KEY_INDEX, Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.views import NO_VIEW, ViewId

NOON = 1_800_000_000.0
"""In the afternoon of 15 January 2027, UTC."""

Row = tuple[bytes, int, str, bytes]


class Clock:
    def __init__(self, now: float = NOON) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def publisher(number: int) -> bytes:
    return number.to_bytes(16, "big")


def batch(
    number: int, first: int, count: int, *, view: ViewId = NO_VIEW, size: int = 12
) -> MessageBatch:
    """Messages first, first + 1, … of a publisher; what is in them follows from that."""
    sequences = range(first, first + count)
    block = Block.build(
        [b"%d/%d" % (number, each) + b"." * (each % size) for each in sequences],
        timestamps=[1_700_000_000_000_000 + each for each in sequences],
        keys=[b"key.%d" % (each % 3) for each in sequences],
        message_ids=[b"%d-%d" % (number, each) if each % 2 else b"" for each in sequences],
    )
    return MessageBatch(publisher(number), first, block, view)


def rows_of(batches: Iterable[MessageBatch]) -> list[Row]:
    return [
        (each.publisher, each.first + index, key.decode(), body)
        for each in batches
        for index, (key, body) in enumerate(
            zip(each.block.values(KEY_INDEX), each.block.values(BODY_INDEX), strict=True)
        )
    ]


def rows_in(archive: Archive, start: int = 0, stop: int | None = None) -> list[Row]:
    return [
        (each.publisher, each.sequence, each.key, each.body)
        for each in archive.messages(start, stop)
    ]


def stored(batches: Sequence[MessageBatch], offset: int = 0) -> list[StoredBatch]:
    """As they are in the journal, one behind the other."""
    made = []
    for each in batches:
        block = each.block
        made.append(
            StoredBatch(0, offset, block.count, each.publisher, each.first, each.view, block.data)
        )
        offset += block.count
    return made
