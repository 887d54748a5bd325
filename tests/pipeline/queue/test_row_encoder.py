"""Rows encoded as messages."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from recado.amqp.properties import Properties, decode_properties
from recado.pipeline.options import OptionError
from recado.pipeline.queue.options import QueueWriteOptions
from recado.pipeline.queue.row_encoder import EncodedMessage, RowEncoder, RowEncodingError
from recado.pipeline.row_schema import QUEUE_SCHEMA

URL = "amqp://localhost"


def rendered(rows: list[dict[str, Any]], **options: Any) -> list[EncodedMessage]:
    names = list(rows[0])
    schema = pa.schema([field for field in QUEUE_SCHEMA if field.name in names])
    rendering = RowEncoder(
        QueueWriteOptions(url=URL, **options), dict.fromkeys(schema.names), "guest"
    )
    return list(rendering.encode(pa.RecordBatch.from_pylist(rows, schema)))


def properties(message: EncodedMessage) -> Properties:
    return decode_properties(message.properties)


def test_a_row_with_everything() -> None:
    row = {
        "exchange": "orders",
        "routing_key": "new",
        "message_id": "7",
        "timestamp": 1_800_000_000_000_000,
        "headers": [("kind", "order"), ("none", None), ("CC", '["other"]')],
        "properties": {"content_type": "text/plain", "priority": 3, "user_id": "guest"},
        "body": b"coffee",
    }
    other = row | {"message_id": "8", "timestamp": None, "headers": None, "properties": None}
    first, second = rendered([row, other])
    assert first[:3] == ("orders", "new", b"coffee")
    assert properties(first) == Properties(
        content_type="text/plain",
        priority=3,
        user_id="guest",
        delivery_mode=2,
        headers={"kind": "order", "none": None},
        message_id="7",
        timestamp=1_800_000_000,
    )
    assert properties(second) == Properties(delivery_mode=2, message_id="8")


def test_options_win_over_columns_and_nothing_is_empty() -> None:
    row = {"exchange": "a", "routing_key": None, "message_id": "1", "body": None}
    [message] = rendered([row])
    assert message[:3] == ("a", "", b"")
    [message] = rendered([row], exchange="b", routing_key="k")
    assert message[:2] == ("b", "k")
    [message] = rendered([row], id_columns="none")
    assert properties(message) == Properties(delivery_mode=2)


def test_what_a_broker_would_refuse_is_left_out() -> None:
    row = {"message_id": "1", "properties": {"user_id": "other", "delivery_mode": 7}, "body": b""}
    [message] = rendered([row], exchange="", routing_key="q")
    assert properties(message) == Properties(delivery_mode=2, message_id="1")
    row["properties"] = {"type": "x" * 256}
    with pytest.raises(RowEncodingError, match="type: a short string is limited to 255 bytes"):
        rendered([row], exchange="", routing_key="q")


def test_texts_are_bodies_too_and_times_before_1970_are_none() -> None:
    rendering = RowEncoder(
        QueueWriteOptions(url=URL, exchange="e"),
        dict.fromkeys(["message_id", "timestamp", "body"]),
        "",
    )
    rows = pa.RecordBatch.from_pydict(
        {
            "message_id": ["1"],
            "timestamp": pa.array([-5_000_000], pa.timestamp("us", "UTC")),
            "body": ["é"],
        }
    )
    [message] = rendering.encode(rows)
    assert (message.exchange, message.routing_key, message.body) == ("e", "", "é".encode())
    assert properties(message).timestamp is None


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        (["message_id"], {"exchange": "e"}, "needs a column body"),
        (["message_id", "body"], {}, "needs the option exchange"),
        (["message_id", "body"], {"exchange": ""}, "needs the option routingKey"),
        (["body"], {"exchange": "e"}, "makes message ids of the column message_id"),
    ],
)
def test_what_is_missing_is_said_at_the_start(
    columns: list[str], options: dict[str, str], told: str
) -> None:
    write_options = QueueWriteOptions(url=URL, **options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=told):
        RowEncoder(write_options, dict.fromkeys(columns), "guest")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("body", "int"),
        ("routing_key", "bigint"),
        ("timestamp", "string"),
        ("headers", "string"),
        ("properties", "map<string,string>"),
    ],
)
def test_a_column_of_another_type_is_told_at_the_start(name: str, kind: str) -> None:
    columns = {"message_id": "string", "body": "string", name: kind}
    with pytest.raises(OptionError, match=f"the column {name} is {kind}, .*: cast or drop it"):
        RowEncoder(QueueWriteOptions(url=URL, exchange="e", routing_key="q"), columns, "guest")
