"""Spooled messages decoded to rows: every property in its column, and invalid ones accepted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.properties import Properties, encode_properties
from recado.client.messages import Delivery, DeliverySource
from recado.pipeline.queue.row_decoder import MALFORMED_HEADER, decode_rows
from recado.pipeline.queue.spool_record import SpooledRows, to_record_batch
from recado.pipeline.row_schema import (
    QUEUE_SCHEMA,
    headers_to_strings,
    properties_to_dict,
    select_columns,
)

from .deliveries import Settled, delivery


def rows_of(*headers: bytes, columns: list[str] | None = None) -> list[dict[str, Any]]:
    spooled = [
        SpooledRows(number, to_record_batch([delivery(b"%d" % number, header=header)], 7))
        for number, header in enumerate(headers)
    ]
    schema = QUEUE_SCHEMA if columns is None else select_columns(QUEUE_SCHEMA, columns)
    batches = list(decode_rows(spooled, "orders", schema))
    assert len(batches) == 1  # however small the records are
    assert batches[0].schema == schema
    rows: list[dict[str, Any]] = batches[0].to_pylist()
    return rows


def made(values: dict[str, Any]) -> Properties:
    return Properties(**values)


names = st.none() | st.text("ab\udcff", min_size=1, max_size=3)
known = st.fixed_dictionaries(
    {
        "content_type": names,
        "headers": st.none() | st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
        "delivery_mode": st.none() | st.integers(1, 2),
        "correlation_id": names,
        "message_id": names,
        "timestamp": st.none() | st.integers(0, 2**40),
        "app_id": names,
        "cluster_id": names,
    }
).map(made)


@given(st.lists(known, min_size=1, max_size=5))
def test_properties_are_the_same_however_they_are_decoded(several: list[Properties]) -> None:
    rows = rows_of(*map(encode_properties, several))
    for row, each in zip(rows, several, strict=True):
        fields = properties_to_dict(each)
        assert row["properties"] == fields
        headers = headers_to_strings(each.headers)
        assert row["headers"] == (None if headers is None else list(headers.items()))
        named = each.message_id
        octets = None if named is None else named.encode(errors="surrogateescape")
        assert row["message_id"] == (None if octets is None else octets.decode(errors="replace"))
        if each.timestamp is None or each.timestamp > 253_402_300_799:
            assert row["timestamp"] is None
        else:
            assert row["timestamp"].timestamp() == each.timestamp


@pytest.mark.parametrize(
    "header", [b"", b"\x00", b"\x00\x80", b"\x20\x80\xff", b"\xff\xff", b"\x80\x00"]
)
def test_properties_that_make_no_sense_are_kept_in_a_header(header: bytes) -> None:
    [row, good] = rows_of(header, encode_properties(Properties(message_id="1")))
    assert row["headers"] == [(MALFORMED_HEADER, header.hex())]
    assert row["properties"] is row["message_id"] is row["timestamp"] is None
    assert (row["body"], good["message_id"]) == (b"0", "1")


def test_keys_that_are_not_utf_8_are_readable() -> None:
    key = b"\xff.new".decode(errors="surrogateescape")
    odd = Delivery(DeliverySource(Settled(), "c", True, "orders", key, False), 1, b"\x00\x00", b"")
    [batch] = decode_rows([SpooledRows(5, to_record_batch([odd], 7))], "q", QUEUE_SCHEMA)
    [row] = batch.to_pylist()
    assert (row["exchange"], row["routing_key"], row["redelivered"]) == (
        "orders",
        "\ufffd.new",
        True,
    )
    assert (row["queue"], row["offset"]) == ("q", 5)
    assert row["received"].timestamp() == pytest.approx(7e-6)


def test_only_the_columns_that_are_asked_for() -> None:
    assert rows_of(b"\x00\x00", columns=["body", "offset"]) == [{"body": b"0", "offset": 0}]


def test_many_small_records_are_few_batches_and_large_ones_are_not_put_together() -> None:
    small = [SpooledRows(n, to_record_batch([delivery(b"x")], 1)) for n in range(25_000)]
    sizes = [
        batch.num_rows
        for batch in decode_rows(small, "q", select_columns(QUEUE_SCHEMA, ["offset"]))
    ]
    assert sizes == [10_000, 10_000, 5_000]
    large = [SpooledRows(n, to_record_batch([delivery(b"x" * (9 << 20))], 1)) for n in range(2)]
    assert [batch.num_rows for batch in decode_rows(large, "q", QUEUE_SCHEMA)] == [1, 1]
    assert list(decode_rows([], "q", QUEUE_SCHEMA)) == []
    assert pa.Table.from_batches(decode_rows(small[:3], "q", QUEUE_SCHEMA)).num_rows == 3
