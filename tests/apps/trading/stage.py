"""Measurements made by hand, and archives of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from recado.apps.trading.figures import TransportKind
from recado.apps.trading.measurement import (
    ASK_KEY,
    FEED_NAME,
    RUN_KEY,
    AskTiming,
    RunSummary,
    encode,
)
from recado.feeds.archive.store import ArchiveStore
from recado.feeds.block import Block
from recado.feeds.boundary import MessageBatch
from recado.feeds.views import NO_VIEW

PUBLISHER = bytes(range(16))

RUN_OF_NOTHING = RunSummary(
    run="", transport=TransportKind.AMQP, broker="recado", latency_us=0, clients=1, asks=30,
    at=1_800_000_000_000_000, traded=1000, processor={"clients": 1.0, "server": 2.0, "broker": 3.0},
)  # fmt: skip


def run_of(name: str, **changes: Any) -> RunSummary:
    return replace(RUN_OF_NOTHING, run=name, **changes)


def asks_of(
    name: str, count: int, nanoseconds: int = 1_000_000, clients: int = 1
) -> list[AskTiming]:
    """A little longer each, one after the other in each client."""
    began = [0] * clients
    asks = []
    for number in range(count):
        client = number % clients
        took = nanoseconds + 1000 * number
        asks.append(AskTiming(name, client, number // clients, began[client], took))
        began[client] += took
    return asks


def archive_of(folder: Path, told: Sequence[AskTiming | RunSummary], at_once: int = 20_000) -> None:
    """An archive that was told these, in this order; half of it in a file, the rest in the tail."""
    with ArchiveStore(folder, FEED_NAME) as store:
        for start in range(0, len(told), at_once):
            store.append([batch(told[start : start + at_once], start + 1)])
            if start == 0 and len(told) > at_once:
                store.seal()
        store.sync()


def batch(told: Sequence[AskTiming | RunSummary], first: int) -> MessageBatch:
    block = Block.build(
        [encode(each) for each in told],
        timestamps=[1_800_000_000_000_000] * len(told),
        keys=[(RUN_KEY if isinstance(each, RunSummary) else ASK_KEY).encode() for each in told],
    )
    return MessageBatch(PUBLISHER, first, block, NO_VIEW)
