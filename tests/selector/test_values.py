"""Conversion of headers and bodies."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from recado.amqp.values import Float32, Int8, LongString, ScaledDecimal, Timestamp
from recado.selector import compile_predicate, parse, values
from recado.selector.predicate import FieldPath


def holds(text: str, **fields: Any) -> bool:
    message = SimpleNamespace(**{"headers": None, "body": b"", **fields})
    return compile_predicate(parse(text))(message)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (1.5, 1.5),
        (Int8(-3), -3.0),
        (Timestamp(2**60 + 1), 2.0**60),
        (Float32(0.5), 0.5),
        (Decimal("0.1"), 0.1),
        (ScaledDecimal(2, 314), 3.14),
        (10**400, float("inf")),
        (-(10**400), float("-inf")),
        (float("nan"), None),
        (Float32("nan"), None),
        (True, None),
        ("1", None),
        (b"1", None),
        (None, None),
        ([1], None),
        ({}, None),
    ],
)
def test_numbers(value: Any, number: float | None) -> None:
    assert values.to_number(value) == number
    assert holds("headers.a = headers.a", headers={"a": value}) is (
        number is not None or isinstance(value, str | bool)
    )


def test_other_kinds() -> None:
    headers = {
        "text": "x",
        "yes": True,
        "no": False,
        "bytes": LongString(b"\xff"),
        "nan": float("nan"),
    }
    for text in (
        "headers.text = 'x'",
        "headers.yes AND NOT headers.no",
        "headers.yes = TRUE AND headers.no <> headers.yes",
        "headers.bytes IS NOT NULL AND headers.nan IS NULL AND headers.other IS NULL",
    ):
        assert holds(text, headers=headers), text
    for text in ("headers.text", "NOT headers.text", "headers.text > 1", "headers.bytes = 'x'"):
        assert not holds(text, headers=headers), text


def test_tables_within_tables() -> None:
    headers = {"a": {"b": {"c": 5}}, "d": [1]}
    assert holds("headers.a.b.c = 5", headers=headers)
    assert holds("headers.d.e IS NULL AND headers.a.x.y IS NULL", headers=headers)


def test_bodies() -> None:
    assert holds("body LIKE '%carro%'", body="um carro é".encode())
    assert holds("body IS NULL AND json.a IS NULL", body=b"\xff")
    assert holds("body IS NULL", body=None)
    assert holds("body IS NOT NULL", body=b" " * values.MAX_BODY_BYTES)
    assert holds("body IS NULL AND json.a IS NULL", body=b" " * (values.MAX_BODY_BYTES + 1))
    assert holds("json.a.b = 1 AND json.c = 'x'", body=b'{"a": {"b": 1}, "c": "x"}')
    assert holds("json.a IS NULL", body=b"[" * 100_000)
    assert holds("json.a IS NULL", body=b"1e400 " + b"[" * 100_000)
    assert holds("json.a IS NULL AND json.b IS NULL", body=b'{"a": 1e400, "b": NaN}')
    assert holds("json.a > 1e308 AND json.b = 5", body=b'{"a": 1e400, "b": 5}')
    assert holds("json.a > 1e308 AND json.b = 5", body=b'{"a": 1%s, "b": 5}' % (b"0" * 5000))


def test_numbers_are_doubles() -> None:
    assert holds("offset = 9007199254740993", offset=2**53)
    assert holds("offset + 1 = offset", offset=2**53)
    assert holds("offset * 1e308 * 1e308 > 1e308", offset=1)
    assert not holds("offset * 1e308 * 1e308 - offset * 1e308 * 1e308 = 0", offset=1)
    assert holds("offset * 1e308 * 1e308 - offset * 1e308 * 1e308 IS NULL", offset=1)
    assert holds(
        "priority * priority * priority * priority * priority * priority * priority > 7e16",
        priority=255,
    )
    assert holds("5 = 5 AND 'a' < 'b' AND TRUE = TRUE AND 5 IS NOT NULL")
    assert holds("5 = priority AND 'a' = type", priority=5, type="a")
    assert holds("-0.0 = 0 AND offset IN (0)", offset=-0.0)


def test_where_fields_are_found() -> None:
    message = SimpleNamespace(properties=SimpleNamespace(priority=3), micros=1_500_000)
    paths: dict[str, FieldPath] = {
        "priority": "properties.priority",
        "timestamp": lambda each: each.micros / 1e6,
    }
    assert compile_predicate(parse("priority = 3 AND timestamp = 1.5"), paths)(message)
    for path in ("", "a b", "a.", "class", "a;b", "__import__('os')"):
        with pytest.raises(ValueError, match=r"invalid path .* for field priority"):
            compile_predicate(parse("priority = 3"), {"priority": path})
