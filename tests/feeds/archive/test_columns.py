"""Columns from batches and back: nothing is lost, nothing is added, whatever is in the messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.feeds.archive.batches import MAX_BATCH_BYTES, build_batches, read_keys
from recado.feeds.archive.columns import (
    DICTIONARY_SCHEMA,
    MAX_GROUP_BYTES,
    SCHEMA,
    RowConstants,
    build_table,
    format_view_id,
    group_batches,
    parse_view_id,
)
from recado.feeds.archive.files import decode_dictionaries
from recado.feeds.block import COLUMN_COUNT, Block, MalformedDataError
from recado.feeds.boundary import MessageBatch
from recado.feeds.views import ViewId

from .making import batch, publisher, rows_of, stored

PLACE = RowConstants("quotes", "feed.quotes")

texts = st.text(max_size=6).map(str.encode)
octets = st.binary(max_size=6)
views = st.builds(ViewId, st.integers(0, 3), st.sampled_from([bytes(16), b"v" * 16]))


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    count = draw(st.integers(1, 5))

    def column(values: st.SearchStrategy[bytes]) -> list[bytes] | bytes:
        same = values.map(lambda value: [value] * count)
        each = st.lists(values, min_size=count, max_size=count)
        return draw(st.one_of(same, each, values))

    bodies = column(octets)
    return Block.build(
        [bodies] * count if isinstance(bodies, bytes) else bodies,
        timestamps=draw(st.lists(st.integers(-(2**55), 2**57), min_size=count, max_size=count)),
        keys=column(texts),
        message_ids=column(texts),
        headers=column(octets),
        properties=column(octets),
    )


@st.composite
def flows(draw: st.DrawFn) -> list[MessageBatch]:
    """Of each publisher the sequences grow, with gaps now and then."""
    last = dict.fromkeys((publisher(1), publisher(2)), 0)
    made = []
    for block in draw(st.lists(blocks(), min_size=1, max_size=6)):
        who = draw(st.sampled_from(list(last)))
        first = last[who] + draw(st.sampled_from((1, 1, 1, 4)))
        made.append(MessageBatch(who, first, block, draw(views)))
        last[who] = made[-1].last
    return made


def everything(batches: list[MessageBatch]) -> list[tuple[Any, ...]]:
    """All that there is to know about each message."""
    return [
        (each.publisher, each.first + index, each.view, *row)
        for each in batches
        for index, row in enumerate(
            zip(
                each.block.timestamps(),
                *(each.block.values(which) for which in range(COLUMN_COUNT)),
                strict=True,
            )
        )
    ]


@settings(max_examples=40)
@given(flows(), st.data())
def test_batches_come_back_from_columns(flow: list[MessageBatch], data: st.DataObject) -> None:
    rows = stored(flow, offset=7)
    tables = [build_table(group, PLACE) for group in group_batches(rows, rows=4)]
    back: list[tuple[Any, ...]] = []
    wanted: list[bool] = []
    offset = 7
    for table in tables:
        assert table.schema == DICTIONARY_SCHEMA
        table.validate(full=True)
        assert table.column("offset").to_pylist() == list(range(offset, offset + table.num_rows))
        offset += table.num_rows
        mask = data.draw(st.lists(st.booleans(), min_size=table.num_rows, max_size=table.num_rows))
        wanted += mask
        for source in (table, decode_dictionaries(table)):  # as it was built, and as others read it
            found = list(build_batches(source, read_keys(source), np.array(mask, np.bool_)))
        back += everything([each for _, each in found])
        for _, each in found:
            assert each.block == Block.parse(each.block.data, each.block.count)
    assert back == [row for row, keep in zip(everything(flow), wanted, strict=True) if keep]


@settings(max_examples=40)
@given(flows())
def test_what_is_absent_is_null(flow: list[MessageBatch]) -> None:
    (group,) = group_batches(stored(flow))
    table = decode_dictionaries(build_table(group, PLACE))
    assert table.schema == SCHEMA
    rows = everything(flow)
    for number, row in enumerate(table.to_pylist()):
        _, sequence, view, timestamp, key, message_id, headers, properties, body = rows[number]
        assert (row["feed"], row["exchange"]) == PLACE
        assert row["sequence"] == sequence
        assert parse_view_id(row["view"]) == view
        assert row["routing_key"] == key.decode()
        assert row["message_id"] == (message_id.decode() or None)
        assert row["headers"] == (headers or None)
        assert row["properties"] == (properties or None)
        assert row["body"] == body
        assert table.column("timestamp").cast("int64")[number].as_py() == timestamp


def test_view_text_is_read_back() -> None:
    view = ViewId(12, b"c" * 16)
    assert format_view_id(view) == "12-" + "63" * 16
    assert parse_view_id(format_view_id(view)) == view


def test_text_that_is_none_is_replaced_in_its_place() -> None:
    block = Block.build([b"\xff"] * 3, keys=[b"a", b"\xff", b"c"], message_ids=[b"", b"\xfe", b"z"])
    (group,) = group_batches(stored([MessageBatch(publisher(1), 1, block)]))
    table = decode_dictionaries(build_table(group, PLACE))
    assert table.column("routing_key").to_pylist() == ["a", "�", "c"]
    assert table.column("message_id").to_pylist() == [None, "�", "z"]
    assert table.column("body").to_pylist() == [b"\xff"] * 3


def test_a_time_that_no_calendar_has_is_the_nearest_one() -> None:
    block = Block.build([b""] * 3, timestamps=[-(2**63), 5, 2**63 - 1])
    (group,) = group_batches(stored([MessageBatch(publisher(1), 1, block)]))
    times = build_table(group, PLACE).column("timestamp").to_pylist()
    assert [time.year for time in times] == [1, 1970, 9999]


def test_a_block_that_says_much_once_is_not_unpacked_at_once() -> None:
    block = Block.build([b"x" * 1_000_000] * 200)
    assert len(block.data) < 1_100_000
    found = list(group_batches(stored([MessageBatch(publisher(1), 1, block)])))
    assert len(found) > 1
    assert sum(each.batch.rows for group in found for each in group) == 200
    assert [each.batch.first for group in found for each in group] == [
        1 + each.batch.offset for group in found for each in group
    ]
    for group in found:
        assert sum(each.batch.rows for each in group) * 1_000_000 <= MAX_GROUP_BYTES


def test_large_messages_come_back_in_batches_of_their_own() -> None:
    size = MAX_BATCH_BYTES // 2 + 1
    block = Block.build([bytes([each]) * size for each in range(5)])
    (group,) = group_batches(stored([MessageBatch(publisher(1), 1, block)]))
    table = build_table(group, PLACE)
    found = [each for _, each in build_batches(table, read_keys(table), np.ones(5, np.bool_))]
    assert [each.count for each in found] == [1] * 5
    assert rows_of(found) == rows_of([MessageBatch(publisher(1), 1, block)])


def test_nothing_wanted_is_nothing() -> None:
    (group,) = group_batches(stored([batch(1, 1, 3)]))
    table = build_table(group, PLACE)
    assert list(build_batches(table, read_keys(table), np.zeros(3, np.bool_))) == []


@pytest.mark.parametrize(
    "change", [lambda block: block + b"!", lambda block: block[:-1], lambda _: b"!"]
)
def test_a_block_that_is_not_whole_is_refused(change: Callable[[bytes], bytes]) -> None:
    (good,) = stored([batch(1, 1, 3)])
    with pytest.raises(MalformedDataError, match="rows from 0 on"):
        list(group_batches([good._replace(block=change(good.block))]))
