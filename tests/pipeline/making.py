"""Archives of quotes with all properties that a message can have, and their rows decoded independently."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import encode_table
from recado.feeds.archive.archive import Archive
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.views import NO_VIEW
from tests.feeds.archive.making import NOON, Clock
from workshop.time_limit import scale

DAY = 86_400.0
PLAIN = encode_properties(Properties(content_type="application/json", priority=5))
STARTED = 1_700_000_000_000_000
PATIENCE = 60.0


def quotes(number: int, first: int, count: int) -> MessageBatch:
    """Of one publisher; every third has headers, every second an id, every fifth properties."""
    each = range(first, first + count)
    block = Block.build(
        [b'{"symbol": "S%d", "price": %d.5, "n": %d}' % (n % 7, n % 90, n) for n in each],
        timestamps=[STARTED + 1000 * n + number for n in each],
        keys=[b"S%d" % (n % 7) for n in each],
        message_ids=[b"%d-%d" % (number, n) if n % 2 else b"" for n in each],
        headers=[encode_table({"n": n % 4, "who": "é"}) if n % 3 == 0 else b"" for n in each],
        properties=[PLAIN if n % 5 == 0 else b"" for n in each],
    )
    return MessageBatch(number.to_bytes(16, "big"), first, block, NO_VIEW)


def filled(
    path: Path, days: Sequence[Iterable[MessageBatch]], tail: Iterable[MessageBatch] = ()
) -> Path:
    """An archive with a file for each day, and a tail."""
    clock = Clock(NOON)
    with ArchiveStore(path, "quotes", clock=clock, seal_rows=500) as store:
        for batches in days:
            store.append(batches)
            store.seal()
            clock.now += DAY
        store.append(tail)
        store.sync()
    return path


def more(path: Path, batches: Iterable[MessageBatch]) -> None:
    with ArchiveStore(path, "quotes") as store:
        store.append(batches)
        store.sync()


def truth(path: Path) -> list[dict[str, Any]]:
    """The rows as pyarrow has them, headers and properties decoded one by one."""
    found = []
    with Archive.open(path) as archive:
        table = pa.Table.from_batches(archive.batches())
        for row, message in zip(table.to_pylist(), archive.messages(), strict=True):
            row["headers"] = {
                name: value if isinstance(value, str) else str(value)
                for name, value in message.headers.items()
            } or None
            about = message.properties
            row["properties"] = about and (about.content_type, about.priority)
            found.append(row)
    return found


def stored(path: Path, count: int) -> list[bytes]:
    """The bodies in an archive that is being written, when so many are there."""
    deadline = time.monotonic() + scale(PATIENCE)
    while time.monotonic() < deadline:
        with Archive.open(path) as archive:
            found = [message.body for message in archive.messages()]
        if len(found) >= count:
            return found
    pytest.fail(f"{len(found)} of {count} messages are there")
