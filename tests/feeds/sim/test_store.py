"""The store of a simulated archive: what a crash leaves, and what a reading gives."""

from __future__ import annotations

from random import Random

import pytest

from bench.feeds_sim.store import Store
from recado.feeds.block import BODY_INDEX, Block
from recado.feeds.boundary import ArchiveQuery, MessageBatch, MessageRange
from recado.feeds.vector import Vector
from recado.feeds.views import NO_VIEW, LostRange, ViewStability

P, Q = b"p" * 16, b"q" * 16


def batch(publisher: bytes, first: int, last: int) -> MessageBatch:
    bodies = [b"%d" % sequence for sequence in range(first, last + 1)]
    return MessageBatch(publisher, first, Block.build(bodies))


@pytest.fixture
def store() -> Store:
    """Offsets 0 to 8."""
    store = Store()
    store.append([batch(P, 1, 3), batch(Q, 1, 1), ViewStability(NO_VIEW, Vector()), batch(P, 4, 8)])
    return store


def read(
    store: Store, query: ArchiveQuery, limit: int = 1 << 20
) -> list[tuple[bytes, list[bytes]]]:
    answer = store.recall(1, query, limit)
    return [(each.publisher[:1], each.block.values(BODY_INDEX)) for each in answer.batches]


def test_a_crash_leaves_what_was_synced_and_perhaps_more(store: Store) -> None:
    new = store.synced(2)
    assert [each.publisher for each in new] == [P, Q]
    assert [each.first for each in store.synced(4)] == [4]
    store.append([batch(P, 9, 9), batch(P, 10, 10)])
    left = {store.after_crash(Random(seed)).state().vector.last_of(P) for seed in range(20)}
    assert left == {8, 9, 10}


def test_its_state_is_that_of_all_and_what_is_stable_that_of_a_part(store: Store) -> None:
    assert store.state().vector == {P: 8, Q: 1}
    assert store.state().next_offset == 9
    assert (store.stable, store.stable_offset) == ({}, 0)
    store.synced(2)
    assert (store.stable, store.stable_offset) == ({P: 3, Q: 1}, 4)
    store.synced(4)
    assert (store.stable, store.stable_offset) == ({P: 8, Q: 1}, 9)
    assert store.state().stability == (ViewStability(NO_VIEW, Vector()),)
    store.append([LostRange(Q, 2, 5)])
    assert store.state().vector == {P: 8, Q: 5}


def test_a_reading_is_behind_a_vector_from_an_offset_on(store: Store) -> None:
    everything = [
        (b"p", [b"1", b"2", b"3"]),
        (b"q", [b"1"]),
        (b"p", [b"4", b"5", b"6", b"7", b"8"]),
    ]
    assert read(store, ArchiveQuery(Vector())) == everything
    assert read(store, ArchiveQuery(Vector({P: 6}))) == [(b"q", [b"1"]), (b"p", [b"7", b"8"])]
    assert read(store, ArchiveQuery(Vector({P: 6}), offset=4)) == [(b"p", [b"7", b"8"])]
    assert read(store, ArchiveQuery(Vector(), offset=2))[0] == (b"p", [b"3"])


def test_a_reading_may_want_ranges(store: Store) -> None:
    wanted = ArchiveQuery(Vector(), (MessageRange(P, 2, 5), MessageRange(Q, 7, 9)))
    assert read(store, wanted) == [(b"p", [b"2", b"3"]), (b"p", [b"4", b"5"])]


def test_a_long_reading_goes_on(store: Store) -> None:
    found, offset, readings = [], 0, 0
    while True:
        answer = store.recall(1, ArchiveQuery(Vector(), offset=offset), 1)
        found += [(each.publisher, each.first) for each in answer.batches]
        readings += 1
        if not answer.has_more:
            break
        offset = answer.offset
    assert found == [(P, 1), (Q, 1), (P, 4)]
    assert readings == 3
    assert answer.reached == {P: 8, Q: 1}
