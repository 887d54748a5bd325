"""The sparse index: from where it says, a scan finds every record that it should."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recado.server.store.streams import SparseIndex

steps = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50)), max_size=40)


@given(steps, st.integers(1, 200), st.integers(-5, 130), st.integers(0, 2000))
def test_no_record_with_the_key_is_before_the_found_position(
    steps: list[tuple[int, int]], stride: int, key: int, dropped: int
) -> None:
    index = SparseIndex()
    records = []
    at_key = position = known = 0
    for more, size in steps:
        at_key += more
        if position >= known:
            index.add(at_key, position)
            known = position + stride
        records.append((at_key, position))
        position += size
    index.drop_before(dropped)
    found = index.find(key)
    wanted = [at for k, at in records if k >= key and at >= dropped]
    assert found <= min(wanted, default=found)
    # And no more than a stride has to be scanned in vain: of one record's size, and of equal keys.
    in_vain = [at for k, at in records if k < key and at >= max(found, dropped)]
    assert max(in_vain, default=found) - max(found, dropped) < stride + 50


def test_dropped_records_are_forgotten() -> None:
    index = SparseIndex()
    for position in range(0, 1000, 100):
        index.add(position // 10, position)
    assert len(index) == 10
    assert index.find(35) == 300
    assert index.find(30) == 200
    index.drop_before(300)
    assert len(index) == 7
    assert index.find(5) == 300


def test_an_empty_index_begins_at_the_start() -> None:
    index = SparseIndex()
    assert index.find(3) == 0
    index.drop_before(7)
    assert index.find(3) == 7
