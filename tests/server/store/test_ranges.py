"""Range sets against sets of integers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.server.store import ranges as module
from recado.server.store.ranges import END_POSITION, RangeSet, clip_ranges, is_covered, merge_spans

spans = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda pair: (pair[0], sum(pair)))
changes = st.lists(st.tuples(st.sampled_from(("add", "add", "remove", "forget")), spans))


@pytest.fixture(autouse=True, scope="module", params=[2, module.CHUNK_RANGES_MAX])
def chunk_ranges_max(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_RANGES_MAX", request.param)
        yield


def built(changes: list[tuple[str, tuple[int, int]]]) -> tuple[RangeSet, set[int]]:
    ranges, model = RangeSet(), set[int]()
    for what, (start, end) in changes:
        match what:
            case "add":
                ranges.add(start, end)
                model |= set(range(start, end))
            case "remove":
                ranges.remove(start, end)
                model -= set(range(start, end))
            case _:
                ranges.remove_below(start)
                model -= set(range(start))
    return ranges, model


@given(changes)
def test_it_is_a_set_in_as_few_ranges_as_can_be(
    changes: list[tuple[str, tuple[int, int]]],
) -> None:
    ranges, model = built(changes)
    found = list(ranges)
    assert [position for start, end in found for position in range(start, end)] == sorted(model)
    assert all(before[1] < after[0] for before, after in pairwise(found)), "RA1"
    assert all(start < end for start, end in found), "RA1"
    assert ranges.size == len(model)
    assert len(ranges) == len(found)
    assert ranges.first_missing == next(
        position for position in range(100) if position not in model
    )
    assert list(RangeSet(found)) == found


@given(changes, spans)
def test_it_answers_about_a_range(
    changes: list[tuple[str, tuple[int, int]]], span: tuple[int, int]
) -> None:
    ranges, model = built(changes)
    start, end = span
    asked = set(range(start, end))
    missing = ranges.missing(start, end)
    assert {position for low, high in missing for position in range(low, high)} == asked - model
    assert ranges.count(start, end) == len(asked & model)
    assert ranges.covers(start, end) == (asked <= model)
    split = ranges.split(start, end)
    assert [position for low, high, _ in split for position in range(low, high)] == sorted(asked)
    for low, high, inside in split:
        assert all((position in model) is inside for position in range(low, high))
    other = [position for position in range(start, 200) if (position in model) != (start in model)]
    assert ranges.next_change(start) == (other[0] if other else END_POSITION)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6), st.integers(1, 4))))
def test_spans_become_ranges(spans: list[tuple[int, int, int]]) -> None:
    positions = {first + i * step for first, count, step in spans for i in range(count)}
    ranges = merge_spans(spans)
    assert ranges == list(RangeSet((position, position + 1) for position in sorted(positions)))
    for limit in (0, 7, 100):
        below = [
            position for start, end in clip_ranges(ranges, limit) for position in range(start, end)
        ]
        assert below == sorted(position for position in positions if position < limit)
    for start in range(12):
        assert is_covered(ranges, start, start + 3) == ({start, start + 1, start + 2} <= positions)


def test_adding_a_range_moves_few_ranges() -> None:
    """However many there are: to settle messages in any order takes about as long for each."""
    ranges = RangeSet((position, position + 1) for position in range(0, 20_000, 2))
    assert len(ranges) == 10_000
    assert max(len(chunk.starts) for chunk in ranges._chunks) <= module.CHUNK_RANGES_MAX
    ranges.add(101, 9_900)
    assert len(ranges) == 50 + 1 + 5049
    for position in reversed(range(1, 20_000, 2)):
        ranges.add(position, position + 1)
    assert list(ranges) == [(0, 20_000)]
    assert len(ranges._chunks) == 1
