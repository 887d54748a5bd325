"""What a header, a body, or a field of a JSON body counts as: a number, a text, true, false, or NULL.

V1  A body is text if it is UTF-8 and not longer than 1 MiB, and JSON if it is text and JSON; else it is NULL,
    and so are all its fields. The limit bounds the time that one message takes.
V2  A number of any type is a double, and infinite if it is too large for one; NaN is NULL. True and false are
    no numbers.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

MAX_BODY_BYTES: Final = 1 << 20

_decode = msgspec.json.decode


def to_number(value: Any) -> float | None:
    kind = type(value)
    if kind is float:
        return value if value == value else None
    if kind is str or kind is bool or value is None or not hasattr(kind, "__float__"):
        return None
    try:
        double = float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    return double if double == double else None


def to_text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def to_boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def to_any(value: Any) -> Any:
    """Whatever is there; only NaN is not."""
    return None if isinstance(value, float) and value != value else value


def get_field(table: Any, name: str) -> Any:
    return table.get(name) if isinstance(table, dict) else None


def get_nested_field(table: Any, path: Sequence[str]) -> Any:
    for name in path:
        table = get_field(table, name)
    return table


def decode_body_text(body: bytes | None) -> str | None:
    if body is None or len(body) > MAX_BODY_BYTES:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def decode_body_json(body: bytes | None) -> Any:
    words = decode_body_text(body)
    if words is None:
        return None
    try:
        return _decode(words)
    except msgspec.ValidationError:  # its one reason here is a number that is too large
        return _decode_with_large_numbers(words)
    except (msgspec.DecodeError, RecursionError):
        return None


def _decode_with_large_numbers(words: str) -> Any:
    try:
        return json.loads(words, parse_int=float, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None


def _reject_constant(word: str) -> None:
    raise ValueError(word)
