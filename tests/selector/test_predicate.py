"""Selectors as Python functions, compared with a direct implementation of the rules."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.selector import compile_predicate, parse

from .cases import Case, all_conditions, no
from .rows import Row, rows


@settings(max_examples=200)
@given(all_conditions, st.lists(rows, min_size=1, max_size=5))
def test_it_means_what_it_says(case: Case, messages: list[Row]) -> None:
    """True, false or NULL; the negated selector distinguishes the last two."""
    says, denies = compile_predicate(parse(case.text)), compile_predicate(parse(no(case).text))
    for message in messages:
        truth = case.reading(message)
        assert (says(message), denies(message)) == (truth is True, truth is False), message


@pytest.mark.parametrize(
    ("pattern", "like", "unlike"),
    [
        ("", [""], ["a"]),
        ("carro", ["carro"], ["Carro", "carros", ""]),
        ("carro%", ["carro", "carros"], ["o carro"]),
        ("%carro", ["carro", "o carro"], ["carros"]),
        ("%carro%", ["carro", "os carros"], ["caro"]),
        ("%ca_ro%", ["carro", "o calros"], ["caro"]),
        ("c%o", ["carro", "co"], ["c", "o", "carros"]),
        ("_", ["c", "é", "😀"], ["", "cc", "e\u0301"]),
    ],
)
def test_patterns(pattern: str, like: list[str], unlike: list[str]) -> None:
    is_like = compile_predicate(parse(f"type LIKE '{pattern}'"))
    is_not = compile_predicate(parse(f"type NOT LIKE '{pattern}'"))
    for text in (*like, *unlike):
        message = SimpleNamespace(type=text)
        assert (is_like(message), is_not(message)) == (text in like, text in unlike)
    assert not is_like(SimpleNamespace(type=None))
    assert not is_not(SimpleNamespace(type=None))


def test_headers_may_be_any_mapping() -> None:
    message = SimpleNamespace(headers=MappingProxyType({"a": {"b": {"c": 1}}, "d": 2}))
    for text in (
        "headers.a.b.c = 1",
        "headers.d = 2",
        "headers.a.x IS NULL",
        "headers.d.e IS NULL",
    ):
        assert compile_predicate(parse(text))(message), text


def test_json_may_be_decoded_already() -> None:
    predicate = compile_predicate(
        parse("json.a = 1 AND json.b.c = 2"), {"json": lambda message: message.decoded}
    )
    assert predicate(SimpleNamespace(decoded={"a": 1, "b": {"c": 2}}))
    assert not predicate(SimpleNamespace(decoded={"a": 1}))
    assert not predicate(SimpleNamespace(decoded=None))
    path = compile_predicate(parse("json.a = 1"), {"json": "decoded"})
    assert path(SimpleNamespace(decoded={"a": 1}))
