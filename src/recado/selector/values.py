"""Conversion of headers, bodies and JSON fields to the types of the language; None is NULL.

SLV1  A body is a text if it is UTF-8 and not longer than 1 MiB; otherwise it is NULL. JSON fields of a body
      that is not such a text, or not JSON, are NULL. The limit bounds the time that one message takes.
SLV2  A number of any type is converted to a double, to infinity if it is too large; NaN is NULL. True and false
      are not numbers.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec

MAX_BODY_BYTES: Final = 1 << 20

_decode = msgspec.json.decode


def to_number(value: Any) -> float | None:
    python_type = type(value)
    if python_type is float:
        return value if value == value else None
    if (
        python_type is str
        or python_type is bool
        or value is None
        or not hasattr(python_type, "__float__")
    ):
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
    """Return the value unchanged; only NaN is NULL."""
    return None if isinstance(value, float) and value != value else value


def get_field(table: Any, name: str) -> Any:
    """Return a field of a table, or None."""
    return table.get(name) if isinstance(table, dict) else None


def get_nested_field(table: Any, path: Sequence[str]) -> Any:
    """Return the field that the path leads to, or None."""
    for name in path:
        table = get_field(table, name)
    return table


def decode_body_text(body: bytes | None) -> str | None:
    """Return the body as text, or None (SLV1)."""
    if body is None or len(body) > MAX_BODY_BYTES:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def decode_body_json(body: bytes | None) -> Any:
    """Return the decoded JSON body, or None (SLV1)."""
    body_string = decode_body_text(body)
    if body_string is None:
        return None
    try:
        return _decode(body_string)
    except msgspec.ValidationError:  # raised here only for an integer beyond 64 bits
        return _decode_with_large_numbers(body_string)
    except (msgspec.DecodeError, RecursionError):
        return None


def _decode_with_large_numbers(body_string: str) -> Any:
    try:
        return json.loads(body_string, parse_int=float, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None


def _reject_constant(word: str) -> None:
    raise ValueError(word)
