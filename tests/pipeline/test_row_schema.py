"""Headers and properties as columns, against decoding each message separately; schemas that users pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from recado.amqp.properties import Properties, encode_properties
from recado.amqp.values import Int8, LongString, ScaledDecimal, Timestamp, encode_table
from recado.pipeline.feed.source import FeedDataSource
from recado.pipeline.options import OptionError
from recado.pipeline.queue.source import QueueSource
from recado.pipeline.row_schema import (
    FEED_SCHEMA,
    PROPERTY_TYPES,
    QUEUE_SCHEMA,
    decode_header_column,
    decode_property_column,
    headers_to_strings,
    properties_to_dict,
    select_columns,
    spark_type_names,
    to_ddl,
    value_to_string,
)

TABLES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.text("abcé", min_size=1, max_size=4),
    st.one_of(st.text(max_size=5), st.integers(-(2**40), 2**40), st.booleans(), st.none()),
    max_size=3,
)


class TestHeaders:
    @given(st.lists(st.none() | TABLES, max_size=30))
    def test_as_one_by_one(self, tables: list[dict[str, Any] | None]) -> None:
        column = pa.array([encode_table(each) if each else None for each in tables], pa.binary())
        expected = [headers_to_strings(each) for each in tables]
        for encoded in (column, column.dictionary_encode()):
            found = decode_header_column(encoded)
            assert found.type == FEED_SCHEMA.field("headers").type
            assert [None if each is None else dict(each) for each in found.to_pylist()] == expected

    def test_a_piece_has_the_dictionary_of_its_row_group(self) -> None:
        tables = [encode_table({"n": str(n)}) for n in range(100)]
        piece = pa.array(tables, pa.binary()).dictionary_encode()[60:62]
        assert decode_header_column(piece).to_pylist() == [[("n", "60")], [("n", "61")]]

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("um carro", "um carro"),
            (None, None),
            (True, "true"),
            (Int8(5), "5"),
            (1.5, "1.5"),
            (Timestamp(7), "7"),
            (ScaledDecimal(2, 150), "1.5"),
            (b"\x01\x02", '"AQI="'),
            (LongString(b"a\xff"), "a\N{REPLACEMENT CHARACTER}"),
            ([1, "a", None], '[1,"a",null]'),
            ({"a": {"b": Int8(1)}}, '{"a":{"b":1}}'),
            ("a\udcff", "a\N{REPLACEMENT CHARACTER}"),
        ],
    )
    def test_what_is_no_text_is_its_json(self, value: Any, text: str | None) -> None:
        assert value_to_string(value) == text

    def test_what_is_no_table_is_nothing(self) -> None:
        assert decode_header_column(pa.array([b"\x00\x01", None], pa.binary())).to_pylist() == [
            None,
            None,
        ]


class TestProperties:
    def test_those_without_a_column_of_their_own(self) -> None:
        many = Properties(content_type="text/plain", priority=3, message_id="1", app_id="desk")
        column = pa.array([encode_properties(many), None, encode_properties(Properties())])
        first, *others = decode_property_column(column).to_pylist()
        nothing = dict.fromkeys(PROPERTY_TYPES)
        assert first == nothing | {"content_type": "text/plain", "priority": 3, "app_id": "desk"}
        assert others == [None, None]

    def test_of_a_message(self) -> None:
        assert properties_to_dict(None) is None
        assert properties_to_dict(Properties(message_id="1")) is None


def test_some_columns() -> None:
    assert select_columns(FEED_SCHEMA, ["body", "offset"]).names == ["body", "offset"]
    with pytest.raises(ValueError, match="column 'price'; the columns are feed, offset"):
        select_columns(FEED_SCHEMA, ["price"])
    assert spark_type_names(QUEUE_SCHEMA)["redelivered"] == "boolean"
    assert to_ddl(FEED_SCHEMA).startswith("`feed` string, `offset` bigint, ")


# --- schemas that Spark passes ------------------------------------------------------------------

TEXT = StructType([StructField("body", StringType())])
BYTES = StructType([StructField("body", BinaryType())])


def test_a_column_has_one_type() -> None:
    queue = QueueSource({"url": "amqp://x", "queue": "q", "spool": "s"})
    with pytest.raises(
        OptionError, match=r'declares body as string, but in format\("amqp"\) it is binary'
    ):
        queue.streamReader(TEXT)
    queue.streamReader(BYTES)
    with pytest.raises(OptionError, match="unknown column 'price'"):
        queue.streamReader(StructType([StructField("price", BinaryType())]))


def test_nothing_is_overwritten() -> None:
    exchange = QueueSource(
        {"url": "amqp://x", "exchange": "", "routingKey": "q", "idColumns": "none"}
    )
    feed = FeedDataSource({"url": "amqp://x", "feed": "f", "idColumns": "none", "staging": "s"})
    for source in (exchange, feed):
        for writer in (source.writer, source.streamWriter):
            with pytest.raises(OptionError, match="cannot be overwritten: use mode append"):
                writer(TEXT, overwrite=True)
    exchange.writer(TEXT, overwrite=False)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp"])
def test_a_stream_has_no_end(tmp_path: Path, option: str) -> None:
    feed = FeedDataSource({"path": str(tmp_path), option: "17"})
    with pytest.raises(OptionError, match="are for tables"):
        feed.streamReader(BYTES)
    feed.reader(BYTES)
