"""The fields of rows between two steps, as far as they are known without Spark.

Types are written as Spark writes them: `bigint`, `array<struct<price:double>>`. An unknown type is None.
Names are case-insensitive, as in Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ..errors import PipelineError

NUMERIC_TYPES: Final = frozenset(
    {"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"}
)
INTEGER_TYPES: Final = frozenset({"tinyint", "smallint", "int", "bigint"})
_SIMPLE_TYPES: Final = NUMERIC_TYPES | {
    "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz", "variant",
}  # fmt: skip
_TYPE_ALIASES: Final = {
    "long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "real": "float",
    "dec": "decimal", "numeric": "decimal", "timestamp_ltz": "timestamp",
}  # fmt: skip

_NESTED_TYPES_MAX: Final = 200
"""Limits the recursion when a type is parsed."""


class UnknownTypeError(PipelineError, ValueError):
    """A text is not a Spark type."""


class Fields(msgspec.Struct, frozen=True):
    """Columns in their order. If `is_open` is set, there may be more columns that only Spark will know."""

    types: dict[str, str | None]
    is_open: bool = False

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def find(self, name: str) -> str | None:
        """Return the name as the column has it; None if there is no such column."""
        if name in self.types:
            return name
        lower = name.lower()
        return next((each for each in self.types if each.lower() == lower), None)

    def type_of(self, name: str) -> str | None:
        """Return the type of a column; None if the column or its type is unknown."""
        found = self.find(name)
        return self.types[found] if found is not None else None

    def with_fields(self, added: Mapping[str, str | None]) -> Fields:
        """Return the fields with these added; existing fields of the same name are replaced."""
        types = {name: kind for name, kind in self.types.items() if name not in Fields(dict(added))}
        return Fields({**types, **added}, self.is_open)

    def select(self, names: Iterable[str]) -> Fields:
        return Fields({name: self.type_of(name) for name in names})

    def drop(self, names: Iterable[str]) -> Fields:
        gone = {name.lower() for name in names}
        types = {name: kind for name, kind in self.types.items() if name.lower() not in gone}
        return Fields(types, self.is_open)

    def rename(self, names: Mapping[str, str]) -> Fields:
        lower = {old.lower(): new for old, new in names.items()}
        return Fields(
            {lower.get(n.lower(), n): kind for n, kind in self.types.items()}, self.is_open
        )

    def to_text(self) -> str:
        parts = [f"{name} {kind or '?'}" for name, kind in self.types.items()]
        return ", ".join([*parts, *(["…"] if self.is_open else [])])


UNKNOWN_FIELDS: Final = Fields({}, is_open=True)


def parse_type(text: str) -> str:
    """Normalise the name of a Spark type. Raises UnknownTypeError."""
    if text.count("<") > _NESTED_TYPES_MAX:
        raise UnknownTypeError(text)
    text = re.sub(r"\s+", " ", text.strip().lower())
    if found := re.fullmatch(r"(?:decimal|dec|numeric)( ?\( ?\d+ ?(?:, ?\d+ ?)?\))?", text):
        return f"decimal{(found[1] or '(10,0)').replace(' ', '')}"
    name, bracket, rest = text.partition("<")
    if not bracket:
        name = _TYPE_ALIASES.get(name, name)
        if name in _SIMPLE_TYPES:
            return name
        raise UnknownTypeError(text)
    if not rest.endswith(">"):
        raise UnknownTypeError(text)
    parts = split_top_level(rest[:-1])
    match name.strip():
        case "array" if len(parts) == 1:
            return f"array<{parse_type(parts[0])}>"
        case "map" if len(parts) == 2:
            return f"map<{','.join(map(parse_type, parts))}>"
        case "struct":
            return "struct<{}>".format(
                ",".join(f"{name}:{kind}" for name, kind in map(_parse_member, parts))
            )
        case _:
            raise UnknownTypeError(text)


def _parse_member(text: str) -> tuple[str, str]:
    found = re.fullmatch(r"\s*`?([\w.-]+)`?\s*(?::|\s)\s*(.+)", text)
    if not found:
        raise UnknownTypeError(text)
    return found[1], parse_type(found[2])


def parse_ddl(text: str) -> Fields:
    """Parse `id bigint, name string`. Raises UnknownTypeError."""
    types: dict[str, str | None] = {}
    for part in split_top_level(text):
        found = re.fullmatch(r"\s*`?([^`\s:]+)`?\s*(?::|\s)\s*(.+?)(?i:\s+not\s+null)?\s*", part)
        if not found:
            raise UnknownTypeError(part.strip())
        types[found[1]] = parse_type(found[2])
    return Fields(types)


def struct_members(kind: str | None) -> dict[str, str] | None:
    """Return the fields of a struct type; None for other types."""
    if kind is None or not kind.startswith("struct<"):
        return None
    parts = (part.partition(":") for part in split_top_level(kind[len("struct<") : -1]))
    return {name: inner for name, _, inner in parts}


def array_element_type(kind: str | None) -> str | None:
    """Return the element type of an array type; None for other types."""
    if kind is None or not kind.startswith("array<"):
        return None
    return kind[len("array<") : -1]


def base_type(kind: str | None) -> str | None:
    """Return a type without parameters: `decimal`, `array`."""
    return None if kind is None else re.split("[<(]", kind, maxsplit=1)[0]


def split_top_level(text: str) -> list[str]:
    """Split a text at the commas that are outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        if sign in "<(":
            depth += 1
        elif sign in ">)":
            depth -= 1
        elif sign == "," and not depth:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]
