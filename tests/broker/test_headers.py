"""Headers exchange: match modes, criteria, and equality of values."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import (
    FieldTable,
    FieldValue,
    Float32,
    Int8,
    Int64,
    LongString,
    ScaledDecimal,
    Timestamp,
    UInt16,
)
from recado.broker.binding import Binding
from recado.broker.headers import HeadersMatcher
from recado.broker.steps import STEP_UNITS_MAX, StepTask

from .stage import found


def bind(arguments: FieldTable) -> Binding[str]:
    return Binding("x", "q", "", arguments, 0)


def matches(arguments: FieldTable, headers: FieldTable) -> bool:
    matcher: HeadersMatcher[str] = HeadersMatcher()
    matcher.add(bind(arguments))
    return bool(found(matcher, "any key at all", headers))


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
def test_criteria(arguments: FieldTable, headers: FieldTable, expected: bool) -> None:
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
        (ScaledDecimal(1, 5), ScaledDecimal(1, 5)),
    ],
)
def test_equal_values(asked: FieldValue, given_: FieldValue) -> None:
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
        (ScaledDecimal(1, 5), ScaledDecimal(2, 50)),
    ],
)
def test_different_values(asked: FieldValue, given_: FieldValue) -> None:
    assert not matches({"a": asked}, {"a": given_})


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(
        PreconditionFailedError, match="Invalid x-match field value 'most'; expected all"
    ):
        HeadersMatcher[str]().add(bind({"x-match": "most"}))


def test_a_mode_that_is_no_text_is_refused() -> None:
    with pytest.raises(
        PreconditionFailedError, match=r"field type signedint \(value 1\); expected"
    ):
        HeadersMatcher[str]().add(bind({"x-match": 1}))


def test_a_removed_binding_no_longer_matches() -> None:
    matcher: HeadersMatcher[str] = HeadersMatcher()
    kept, removed = bind({"a": 1}), bind({"a": 1})
    matcher.add(removed)
    matcher.add(kept)
    assert found(matcher, "", {"a": 1}) == [removed, kept]
    matcher.remove(removed)
    assert found(matcher, "", {"a": 1}) == [kept]


values = st.sampled_from([None, 1, 2, "1", True])
tables = st.dictionaries(st.sampled_from(["a", "b", "x-a", "x-b"]), values)


@given(tables, tables, st.sampled_from(["all", "any", "all-with-x", "any-with-x"]))
def test_agrees_with_the_definition(asked: FieldTable, headers: FieldTable, mode: str) -> None:
    met = [
        name in headers
        and (value is None or (type(value), value) == (type(headers[name]), headers[name]))
        for name, value in asked.items()
        if mode.endswith("-with-x") or not name.startswith("x-")
    ]
    expected = all(met) if mode.startswith("all") else any(met)
    assert matches({**asked, "x-match": mode}, headers) is expected


@given(
    st.lists(
        st.tuples(tables, st.sampled_from(["all", "any", "all-with-x", "any-with-x"])), max_size=8
    ),
    st.sets(st.integers(0, 7)),
    tables,
)
def test_many_bindings_agree_with_each_by_itself(
    asked: list[tuple[FieldTable, str]], removed: set[int], headers: FieldTable
) -> None:
    matcher: HeadersMatcher[str] = HeadersMatcher()
    bindings = [bind({**arguments, "x-match": mode}) for arguments, mode in asked]
    for binding in bindings:
        matcher.add(binding)
    for at in removed & {*range(len(bindings))}:
        matcher.remove(bindings[at])
    left = [binding for at, binding in enumerate(bindings) if at not in removed]
    expected = {binding for binding in left if matches(binding.arguments, headers)}
    assert {*found(matcher, "", headers)} == expected
    for binding in left:
        matcher.remove(binding)
    assert not matcher._by_criterion
    assert not matcher._always_matching


def test_bindings_that_ask_for_other_headers_cost_nothing() -> None:
    matcher: HeadersMatcher[str] = HeadersMatcher()
    for i in range(10_000):
        matcher.add(bind({"common": 1, "own": i}))
        matcher.add(bind({"x-match": "any", f"name{i}": None, "own": -i - 1}))
    assert sum(matcher.search("", {"common": 1, "own": 7, "name3": 1}, {})) <= 2
    assert len(found(matcher, "", {"common": 1, "own": 7, "name3": 1})) == 2


def test_no_step_is_long_where_many_bindings_ask_for_the_same() -> None:
    matcher: HeadersMatcher[str] = HeadersMatcher()
    bindings = [bind({"a": 1}) for _ in range(5000)]
    for binding in bindings:
        matcher.add(binding)
    steps = list(matcher.search("", {"a": 1}, {}))
    assert sum(steps) >= 500
    assert max(steps) <= 2 * STEP_UNITS_MAX
    taken: dict[Binding[str], None] = {}
    work = StepTask(matcher.search("", {"a": 1}, taken))
    work.advance(1)
    for binding in bindings[1::2]:
        matcher.remove(binding)
    while not work.is_done:
        work.advance(1)
    assert {*taken} >= {*bindings[::2]}
    assert len(taken) < 5000
