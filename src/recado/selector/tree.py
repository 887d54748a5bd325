"""What a selector is once it is understood.

R1  There is no NOT: it was pushed down to what it denies, where NOT a < b is a >= b. So a tree grows only from
    AND and OR, and it is true exactly where it is true when NULL counts as false. Three-valued logic costs
    nothing.
R2  Every value has a kind. A header or a field of a JSON body has the kind that it is used as, and is NULL
    where it is of another.
R3  Numbers are IEEE doubles. NaN is NULL; as it survives +, - and *, that is seen to once, where they are used.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final, Literal

import msgspec

from .pattern import LikePattern


class ValueType(Enum):
    NUMBER = "a number"
    TEXT = "a text"
    BOOLEAN = "true or false"
    ANY = "a value"
    """Only IS NULL uses a value without minding its kind."""


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
    """A field of the headers or of a JSON body."""

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


class Comparison(msgspec.Struct, frozen=True):
    """Two values of one kind. True and false are equal or not, and in no order."""

    operator: ComparisonOperator
    left: Value
    right: Value


class Like(msgspec.Struct, frozen=True):
    value: Value
    pattern: LikePattern
    wanted: bool = True


class InList(msgspec.Struct, frozen=True):
    value: Value
    choices: tuple[float, ...] | tuple[str, ...]
    wanted: bool = True


class IsNull(msgspec.Struct, frozen=True):
    value: Value
    wanted: bool = True


class BooleanTest(msgspec.Struct, frozen=True):
    """A value that is true, or false, by itself."""

    value: Constant | NestedField
    wanted: bool = True


class And(msgspec.Struct, frozen=True):
    parts: "tuple[Condition, ...]"


class Or(msgspec.Struct, frozen=True):
    parts: "tuple[Condition, ...]"


Condition = Comparison | Like | InList | IsNull | BooleanTest | And | Or


class Selector(msgspec.Struct, frozen=True):
    text: str
    condition: Condition

    def fields(self) -> frozenset[str]:
        """The names of the fields that it looks at, `headers` and `json` among them."""
        return frozenset(
            each.source if isinstance(each, NestedField) else each.name
            for each in iterate_fields(self.condition)
        )


def iterate_fields(node: Condition | Value) -> Iterator[MessageField | NestedField]:
    """All that is read of a message."""
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
    """True where the condition is false, false where it is true, NULL where it is NULL (R1)."""
    match condition:
        case Comparison(sign, left, right):
            return Comparison(NEGATED_OPERATORS[sign], left, right)
        case And(parts):
            return Or(tuple(map(negate, parts)))
        case Or(parts):
            return And(tuple(map(negate, parts)))
        case _:
            return msgspec.structs.replace(condition, wanted=not condition.wanted)
