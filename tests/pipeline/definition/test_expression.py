"""What is known of SQL without Spark: the names in it, its type, and whether it can fail."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.pipeline.definition.expression import BadExpression, is_safe, names, tokens, type_of
from recado.pipeline.definition.fields import Fields, NoType, from_ddl, type_named

FIELDS = Fields(
    {"a": "bigint", "x": "double", "s": "string", "t": "timestamp", "b": "boolean", "o": None}
)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("a + `b c` * 2", ["a", "b c"]),
        ("f(a, g(x))", ["a", "x"]),
        ("cast(a as decimal(10, 2)) > 5.0", ["a"]),
        ("CASE WHEN a IS NULL THEN 'a b' ELSE \"c\" END", ["a"]),
        ("transform(l, e -> e.price + a)", ["l", "a"]),
        ("aggregate(l, 0, (sum, e) -> sum + e)", ["l"]),
        ("t + INTERVAL 5 MINUTES", ["t"]),
        ("properties.type = 'x' -- and more", ["properties"]),
        ("a::string /* b */ || s", ["a", "s"]),
        ("percentile_approx(x, 0.5, accuracy => 100)", ["x"]),
        ("count(*) FILTER (WHERE a > 0)", ["a"]),
        ("m['k'] IN (1, 2L, 1e5D, X'ff')", ["m"]),
    ],
)
def test_names(sql: str, found: list[str]) -> None:
    assert [name.column for name in names(sql)] == found


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        read = tokens(text)
    except BadExpression:
        return
    assert "".join(token.text for token in read).replace(" ", "") in text.replace(" ", "") or read


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("a", "bigint"), ("A", "bigint"), ("5", "int"), ("'x'", "string"), ("x * a", "double"),
        ("a + 1", "bigint"), ("a / 2", "double"), ("cast(s as date)", "date"), ("sum(a)", "bigint"),
        ("sum(x)", "double"), ("max_by(s, a)", "string"), ("count(*)", "bigint"), ("avg(a)", "double"),
        ("try_cast(s AS decimal(4, 1))", "decimal(4,1)"), ("f(a)", None), ("o", None), ("s || s", None),
        ("upper(s) || lower(s)", None), ("cast(s as oddity)", None), ("coalesce(x, 0)", "double"),
    ],
)  # fmt: skip
def test_types(sql: str, kind: str | None) -> None:
    assert type_of(sql, FIELDS) == kind


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
    read = from_ddl(spaced)
    assert {name: kind.lower() for name, kind in read.types.items() if kind} == types


@pytest.mark.parametrize("text", ["", "strin", "array<", "map<string>", "struct<a>", "array<a b>"])
def test_no_type(text: str) -> None:
    with pytest.raises(NoType):
        type_named(text)
