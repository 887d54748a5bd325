"""SQL expressions without Spark: tokens, and whether an expression can fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.pipeline.definition.expression import ExpressionError, TokenAnalyser, is_safe, tokenize
from recado.pipeline.definition.fields import Fields, UnknownTypeError, parse_ddl, parse_type

FIELDS = Fields(
    {"a": "bigint", "x": "double", "s": "string", "t": "timestamp", "b": "boolean", "o": None}
)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = tokenize(text)
    except ExpressionError:
        return
    assert "".join(token.text for token in read).replace(" ", "") in text.replace(" ", "") or read


@pytest.mark.parametrize(
    ("sql", "safe"),
    [
        ("a > 5 AND NOT (x <= 1.5 OR a IS NULL)", True), ("s = 'x'", True), ("s IN ('x', 'y')", True),
        ("b", True), ("a + 1 > 5", False), ("s > 5", False), ("cast(s as int) = 1", False),
        ("o > 5", False), ("unknown > 5", False), ("f(a)", False), ("-a > 1", False), ("t > s", False),
    ],
)  # fmt: skip
def test_what_cannot_fail(sql: str, safe: bool) -> None:
    assert is_safe(sql, FIELDS) is safe


def test_without_types_it_stays_open_whether_an_expression_can_fail() -> None:
    known = FIELDS.drop(["o"])
    assert TokenAnalyser().analyse_condition("a + 1 > 5", known).can_fail
    assert not TokenAnalyser().analyse_condition("a > 5", known).can_fail
    assert not TokenAnalyser().analyse_condition("o > 5", FIELDS).can_fail


TYPES = st.recursive(
    st.sampled_from(
        ["string", "bigint", "double", "boolean", "timestamp", "decimal(9,3)", "binary"]
    ),
    lambda inner: st.one_of(
        inner.map(lambda kind: f"array<{kind}>"),
        st.tuples(inner, inner).map(lambda pair: f"map<{pair[0]},{pair[1]}>"),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: (
                "struct<" + ",".join(f"f{at}:{kind}" for at, kind in enumerate(kinds)) + ">"
            )
        ),
    ),
    max_leaves=5,
)


@given(st.lists(TYPES, min_size=1, max_size=4))
def test_a_schema_is_read_as_it_is_written(kinds: list[str]) -> None:
    types = {f"c{at}": kind for at, kind in enumerate(kinds)}
    spaced = ", ".join(
        f"`{name}` {kind.upper().replace(',', ' , ')}" for name, kind in types.items()
    )
    read = parse_ddl(spaced)
    assert {name: kind.lower() for name, kind in read.types.items() if kind} == types


@pytest.mark.parametrize("text", ["", "strin", "array<", "map<string>", "struct<a>", "array<a b>"])
def test_no_type(text: str) -> None:
    with pytest.raises(UnknownTypeError):
        parse_type(text)
