"""The parsed selector: a tree of conditions and values.

SLT1  The tree has no NOT. The parser pushes negations down to the comparisons: NOT a < b becomes a >= b. So
      conditions are combined by AND and OR only, and a condition that is NULL can be evaluated as false: the
      selector is then true for the same messages as in three-valued logic.
SLT2  Every value has a type. A header or JSON field has the type that its use requires, and is NULL if the
      message has a value of another type.
SLT3  Numbers are IEEE doubles. NaN is NULL. Because NaN propagates through +, - and *, it is checked once,
      where the result is used.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final, Literal

import msgspec

from .pattern import LikePattern


class ValueType(Enum):
    """The type of a value; the values are used in error texts."""

    NUMBER = "a number"
    TEXT = "a text"
    BOOLEAN = "true or false"
    ANY = "a value"
    """A header or JSON field whose type is not known yet; in a parsed selector, one used by IS NULL only."""


ComparisonOperator = Literal["=", "<>", "<", "<=", ">", ">="]

ArithmeticOperator = Literal["+", "-", "*"]

NEGATED_OPERATORS: Final[dict[ComparisonOperator, ComparisonOperator]] = {
    "=": "<>",
    "<>": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
}


# ── values ──────────────────────────────────────────────────────────────────────────────────────


class Constant(msgspec.Struct, frozen=True):
    value: float | str | bool
    offset: int

    @property
    def value_type(self) -> ValueType:
        match self.value:
            case bool():
                return ValueType.BOOLEAN
            case float():
                return ValueType.NUMBER
            case _:
                return ValueType.TEXT


class MessageField(msgspec.Struct, frozen=True):
    name: str
    value_type: ValueType
    offset: int


class NestedField(msgspec.Struct, frozen=True):
    """A header, or a field of a JSON body, named by a path."""

    source: Literal["headers", "json"]
    path: tuple[str, ...]
    value_type: ValueType
    offset: int


class Arithmetic(msgspec.Struct, frozen=True):
    operator: ArithmeticOperator
    left: "Value"
    right: "Value"
    offset: int
    value_type: ValueType = ValueType.NUMBER


class Negate(msgspec.Struct, frozen=True):
    value: "Value"
    offset: int
    value_type: ValueType = ValueType.NUMBER


Value = Constant | MessageField | NestedField | Arithmetic | Negate


# ── conditions ──────────────────────────────────────────────────────────────────────────────────
#
# `expected` is False for the negated form, as in NOT LIKE.


class Comparison(msgspec.Struct, frozen=True):
    """A comparison of two values of one type. Booleans are compared by = and <> only."""

    operator: ComparisonOperator
    left: Value
    right: Value


class Like(msgspec.Struct, frozen=True):
    value: Value
    pattern: LikePattern
    expected: bool = True


class InList(msgspec.Struct, frozen=True):
    value: Value
    choices: tuple[float, ...] | tuple[str, ...]
    expected: bool = True


class IsNull(msgspec.Struct, frozen=True):
    value: Value
    expected: bool = True


class BooleanTest(msgspec.Struct, frozen=True):
    """A boolean value that is used as a condition."""

    value: Constant | NestedField
    expected: bool = True


class And(msgspec.Struct, frozen=True):
    parts: "tuple[Condition, ...]"


class Or(msgspec.Struct, frozen=True):
    parts: "tuple[Condition, ...]"


Condition = Comparison | Like | InList | IsNull | BooleanTest | And | Or


class Selector(msgspec.Struct, frozen=True):
    """A parsed and type-checked selector; made by `parse`."""

    text: str
    condition: Condition

    def fields(self) -> frozenset[str]:
        """Return the names of the message fields that the selector uses, including `headers` and `json`."""
        return frozenset(
            each.source if isinstance(each, NestedField) else each.name
            for each in iterate_fields(self.condition)
        )


def iterate_fields(node: Condition | Value) -> Iterator[MessageField | NestedField]:
    """Iterate over all uses of message fields in a condition or value."""
    match node:
        case MessageField() | NestedField():
            yield node
        case Arithmetic() | Comparison():
            yield from iterate_fields(node.left)
            yield from iterate_fields(node.right)
        case Negate() | Like() | InList() | IsNull() | BooleanTest():
            yield from iterate_fields(node.value)
        case Constant():
            pass
        case _:
            for part in node.parts:
                yield from iterate_fields(part)


def negate(condition: Condition) -> Condition:
    """Return the negated condition: true where it is false, false where it is true, NULL where NULL (SLT1)."""
    match condition:
        case Comparison(operator, left, right):
            return Comparison(NEGATED_OPERATORS[operator], left, right)
        case And(parts):
            return Or(tuple(map(negate, parts)))
        case Or(parts):
            return And(tuple(map(negate, parts)))
        case _:
            return msgspec.structs.replace(condition, expected=not condition.expected)
