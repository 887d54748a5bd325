"""Selectors as pyarrow expressions and residuals."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.selector import compile_predicate, parse, to_arrow_filter

from .cases import Case, all_conditions, both, column_conditions, no
from .rows import SCHEMA, Row, rows, table


def chosen(text: str, messages: list[Row]) -> list[Row]:
    """As an archive does it: first the columns, then each message that is left."""
    wanted = to_arrow_filter(parse(text), SCHEMA)
    numbered = table(messages).append_column("place", pa.array(range(len(messages))))
    left = ds.dataset(numbered).to_table(filter=wanted.expression)
    found = [messages[place] for place in left["place"].to_pylist()]
    return (
        found
        if wanted.residual is None
        else list(filter(compile_predicate(wanted.residual), found))
    )


@settings(max_examples=100)
@given(column_conditions, st.lists(rows, min_size=1, max_size=10))
def test_columns_alone_decide_as_python_does(case: Case, messages: list[Row]) -> None:
    for each, wanted in ((case, True), (no(case), False)):
        assert to_arrow_filter(parse(each.text), SCHEMA).residual is None
        expected = [message for message in messages if case.reading(message) is wanted]
        assert chosen(each.text, messages) == expected


@settings(max_examples=60)
@given(column_conditions, all_conditions, st.lists(rows, min_size=1, max_size=10))
def test_what_columns_cannot_decide_is_left_over(
    columnar: Case, other: Case, messages: list[Row]
) -> None:
    case = both([columnar, other])
    expected = [message for message in messages if case.reading(message) is True]
    assert chosen(case.text, messages) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("routing_key = 'a' AND sequence > 1", [2]),
        ("routing_key = 'a' OR sequence = 1", [0, 1, 2]),
        ("NOT (routing_key = 'a' OR sequence = 1)", []),
        ("routing_key = 'b' OR (routing_key = 'a' AND sequence > 1)", [1, 2]),
        ("routing_key IN ('a', 'c')", [0, 2]),
        ("routing_key NOT IN ('a', 'c')", [1]),
        ("sequence IN (0, 2)", [2, 3]),
        ("routing_key LIKE 'a%'", [0, 2]),
        ("routing_key NOT LIKE 'a%'", [1]),
        ("routing_key IS NULL", [3]),
        ("routing_key IS NOT NULL AND -sequence * 2 + 1 < sequence - 1", [0, 1, 2]),
        ("sequence <> 1", [2, 3]),
        ("sequence >= 1 AND sequence <= 1", [0, 1]),
    ],
)
def test_each_kind_of_condition(text: str, expected: list[int]) -> None:
    """The texts are in a dictionary, as in archives."""
    keys = pa.array(["a", "b", "a", None]).dictionary_encode()
    columns = pa.table({"routing_key": keys, "sequence": pa.array([1.0, 1.0, 2.0, -0.0])})
    wanted = to_arrow_filter(parse(text), columns.schema)
    assert wanted.residual is None
    numbered = columns.append_column("place", pa.array(range(4)))
    left = ds.dataset(numbered).to_table(filter=wanted.expression)
    assert left["place"].to_pylist() == expected


def test_only_what_must_be_is_left_over() -> None:
    text = "sequence > 5 AND body LIKE '%x%' AND (routing_key = 'a' OR headers.a = 1)"
    wanted = to_arrow_filter(parse(text), SCHEMA)
    assert wanted.residual is not None
    assert wanted.residual.fields() == {"body", "routing_key", "headers"}
    assert to_arrow_filter(parse("json.a = 1"), SCHEMA).expression is None


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.uint64(), 2**64 - 1),
        (pa.int8(), 3),
        (pa.float32(), float("nan")),
        (pa.timestamp("s"), 3),
        (pa.timestamp("ns", "UTC"), 3_000_000_000),
        (pa.timestamp("ms"), None),
    ],
)
def test_numbers_of_any_type(kind: pa.DataType, value: int | float | None) -> None:
    column = pa.table({"timestamp": pa.array([value], kind)})
    texts = ["timestamp = 3", "timestamp <> 3", "timestamp IS NULL", "timestamp * 1 > 1e19"]
    found = [
        ds.dataset(column).count_rows(filter=to_arrow_filter(parse(text), column.schema).expression)
        for text in texts
    ]
    null = value is None or value != value
    three = value in (3, 3_000_000_000)
    assert found == [three, not null and not three, null, value == 2**64 - 1]


def test_columns_of_another_kind_are_no_help() -> None:
    schema = pa.schema([("publisher", pa.binary(16)), ("sequence", pa.string())])
    for text in ("publisher = 'a'", "sequence = 1", "priority = 1"):
        assert to_arrow_filter(parse(text), schema).expression is None


def test_constants() -> None:
    for text, count in (("TRUE", 1), ("NOT TRUE", 0), ("1 = 1", 1), ("TRUE <> FALSE", 1)):
        wanted = to_arrow_filter(parse(text), pa.schema([]))
        assert ds.dataset(pa.table({"a": [1]})).count_rows(filter=wanted.expression) == count
