"""Garbage collection without long pauses: what is collected when, and that a broker leaves no reference cycles."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from recado.amqp.frames import PROTOCOL_HEADER
from recado.broker.work_queue import WorkQueue
from recado.journal.disk import MemoryDisk
from recado.journal.journal import Journal
from recado.node.garbage_collection import (
    FULL_COLLECTION_GROWTH_MAX_BYTES,
    FULL_COLLECTION_INTERVAL_S,
    YOUNG_OBJECTS_MAX,
    GarbageCollector,
)
from recado.server.connection import Connection
from recado.server.store.journal_store import JournalStore
from recado.server.store.recovery import restore_broker

from ..broker.stage import new_broker, new_queue, open_channel, published
from ..server.harness import in_the_loop, new_server, skip, turns

MIB = 1 << 20


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The collector is the whole process's."""
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()
    gc.enable()


class Circle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@in_the_loop
async def test_surviving_objects_are_not_collected_again() -> None:
    gc.collect()
    collector = GarbageCollector(lambda: 50 * MIB)
    collector.start(asyncio.get_running_loop())
    try:
        assert gc.get_threshold()[0] == YOUNG_OBJECTS_MAX
        kept = [Circle()]
        gone = weakref.ref(Circle())
        gc.collect(0)
        assert gone() is None, "new circles are garbage"
        old = weakref.ref(kept.pop())
        gc.collect()
        assert old() is not None
        assert not any(isinstance(each, Circle) for each in gc.get_objects())
    finally:
        collector.stop()
    gc.unfreeze()
    gc.collect()
    assert old() is None


@pytest.mark.parametrize(
    ("growth", "is_gone"), [(0, True), (FULL_COLLECTION_GROWTH_MAX_BYTES + 1, False)]
)
@in_the_loop
async def test_old_circles_are_garbage_while_the_process_is_small(
    growth: int, *, is_gone: bool
) -> None:
    used = [50 * MIB]
    collector = GarbageCollector(lambda: used[0])
    collector.start(asyncio.get_running_loop())
    try:
        for _ in range(2):
            kept = [Circle()]
            gc.collect()
            old = weakref.ref(kept.pop())
            used[0] = 50 * MIB + growth
            await skip(FULL_COLLECTION_INTERVAL_S)
            assert (old() is None) is is_gone
    finally:
        collector.stop()


@in_the_loop
async def test_a_connection_that_ends_leaves_no_circle() -> None:
    server = new_server()
    port = await server.listen("127.0.0.1", 0)
    gc.disable()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PROTOCOL_HEADER)
    await reader.readexactly(1)
    (connection,) = server.connections
    transport = weakref.ref(connection.transport)
    del connection
    writer.close()
    while server.connections:
        await turns()
    await turns()
    assert transport() is None
    assert not instances(Connection)
    await server.stop()


def test_a_queue_that_is_deleted_leaves_no_circle() -> None:
    store = JournalStore(Journal(MemoryDisk()))
    broker = new_broker(store)
    restore_broker(store, broker, 0)
    channel = open_channel(broker)
    gc.collect()
    gc.disable()
    before = instances(WorkQueue)
    for _ in range(3):
        queue = new_queue(broker, durable=True)
        channel.publisher.publish(published("q", b"x"), 0)
        broker.delete_queue(queue, 0)
        store.write()
    del queue
    channel.publisher.publish(published("none", b"x"), 0)  # a route is known until the next
    assert instances(WorkQueue) == before


def instances(kind: type) -> int:
    return sum(isinstance(each, kind) for each in gc.get_objects())
