"""Headers exchange: how many of the criteria, which of them, and when two values are equal."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import PreconditionFailed
from recado.amqp.values import (
    Float32,
    Int8,
    Int64,
    LongString,
    Scaled,
    Table,
    Timestamp,
    UInt16,
    Value,
)
from recado.broker.binding import Binding
from recado.broker.headers import HeadersMatcher


def bind(arguments: Table) -> Binding[str]:
    return Binding("x", "q", "", arguments, 0)


def matches(arguments: Table, headers: Table) -> bool:
    matcher: HeadersMatcher[str] = HeadersMatcher()
    matcher.add(bind(arguments))
    return bool(matcher.match("any key at all", headers))


@pytest.mark.parametrize(
    ("arguments", "headers", "expected"),
    [
        ({}, {}, True),
        ({}, {"a": 1}, True),
        ({"x-match": "all"}, {}, True),
        ({"x-match": "any"}, {"a": 1}, False),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {}, False),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2, "c": 3}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 1}, True),
        ({"x-match": "any", "a": 1, "b": 2}, {"a": 2, "b": 1}, False),
        ({"x-match": "any", "a": 1, "b": 2}, {}, False),
        ({"a": None}, {"a": "whatever"}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {"b": 1}, False),
        ({"a": 1}, {"a": None}, False),
        ({"x-match": "any", "a": None, "b": 1}, {"a": 3}, True),
        ({"x-match": "any", "a": None, "b": 1}, {"b": 1}, True),
        ({"x-match": "any", "a": None, "b": 1}, {"c": 1}, False),
        ({"a": 1, "x-b": 2}, {"a": 1}, True),
        ({"x-match": "any", "x-b": 2}, {"x-b": 2}, False),
        ({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1}, False),
        ({"x-match": "all-with-x", "a": 1, "x-b": 2}, {"a": 1, "x-b": 2}, True),
        ({"x-match": "any-with-x", "x-b": 2}, {"x-b": 2}, True),
        ({"x-match": "any-with-x", "x-match-not": 1}, {"x-match": "any-with-x"}, False),
        ({"x-match": "all-with-x", "x-dead-letter-binding": True, "a": 1}, {"a": 1}, True),
    ],
)
def test_criteria(arguments: Table, headers: Table, expected: bool) -> None:
    assert matches(arguments, headers) is expected


@pytest.mark.parametrize(
    ("asked", "given_"),
    [
        (Int8(1), 1),
        (1, Int64(1)),
        (1, 1.0),
        (UInt16(3), Float32(3.0)),
        (Timestamp(7), 7),
        (datetime.fromtimestamp(7, UTC), Timestamp(7)),
        ("é", "é".encode()),
        (LongString(b"\xff"), b"\xff"),
        (True, True),
        ([1, "a"], [Int8(1), "a"]),
        ({"k": [1]}, {"k": [1]}),
        ({"k": 1, "l": 2}, {"l": 2, "k": 1}),
        (Scaled(1, 5), Scaled(1, 5)),
    ],
)
def test_equal_values(asked: Value, given_: Value) -> None:
    assert matches({"a": asked}, {"a": given_})


@pytest.mark.parametrize(
    ("asked", "given_"),
    [
        (True, 1),
        (0, False),
        ("1", 1),
        ("a", "A"),
        ([1], [True]),
        ([1, 2], [2, 1]),
        ({"k": 1}, {"k": True}),
        ({}, []),
        ("", None),
        (Scaled(1, 5), Scaled(2, 50)),
    ],
)
def test_different_values(asked: Value, given_: Value) -> None:
    assert not matches({"a": asked}, {"a": given_})


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(
        PreconditionFailed, match="Invalid x-match field value 'most'; expected all"
    ):
        HeadersMatcher[str]().add(bind({"x-match": "most"}))


def test_a_mode_that_is_no_text_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match=r"field type signedint \(value 1\); expected"):
        HeadersMatcher[str]().add(bind({"x-match": 1}))


def test_a_removed_binding_no_longer_matches() -> None:
    matcher: HeadersMatcher[str] = HeadersMatcher()
    kept, removed = bind({"a": 1}), bind({"a": 1})
    matcher.add(removed)
    matcher.add(kept)
    assert matcher.match("", {"a": 1}) == [removed, kept]
    matcher.remove(removed)
    assert matcher.match("", {"a": 1}) == [kept]


values = st.sampled_from([None, 1, 2, "1", True])
tables = st.dictionaries(st.sampled_from(["a", "b", "x-a", "x-b"]), values)


@given(tables, tables, st.sampled_from(["all", "any", "all-with-x", "any-with-x"]))
def test_agrees_with_the_definition(asked: Table, headers: Table, mode: str) -> None:
    met = [
        name in headers
        and (value is None or (type(value), value) == (type(headers[name]), headers[name]))
        for name, value in asked.items()
        if mode.endswith("-with-x") or not name.startswith("x-")
    ]
    expected = all(met) if mode.startswith("all") else any(met)
    assert matches({**asked, "x-match": mode}, headers) is expected
