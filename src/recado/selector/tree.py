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

from .pattern import Pattern


class Kind(Enum):
    NUMBER = "a number"
    TEXT = "a text"
    BOOLEAN = "true or false"
    ANY = "a value"
    """Only IS NULL uses a value without minding its kind."""


Sign = Literal["=", "<>", "<", "<=", ">", ">="]

Operator = Literal["+", "-", "*"]

OPPOSITE: Final[dict[Sign, Sign]] = {
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
    at: int

    @property
    def kind(self) -> Kind:
        match self.value:
            case bool():
                return Kind.BOOLEAN
            case float():
                return Kind.NUMBER
            case _:
                return Kind.TEXT


class Field(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    at: int


class Member(msgspec.Struct, frozen=True):
    """A field of the headers or of a JSON body."""

    source: Literal["headers", "json"]
    path: tuple[str, ...]
    kind: Kind
    at: int


class Arithmetic(msgspec.Struct, frozen=True):
    sign: Operator
    left: "Value"
    right: "Value"
    at: int
    kind: Kind = Kind.NUMBER


class Negative(msgspec.Struct, frozen=True):
    value: "Value"
    at: int
    kind: Kind = Kind.NUMBER


Value = Constant | Field | Member | Arithmetic | Negative


# ── conditions ──────────────────────────────────────────────────────────────────────────────────


class Compare(msgspec.Struct, frozen=True):
    """Two values of one kind. True and false are equal or not, and in no order."""

    sign: Sign
    left: Value
    right: Value


class Like(msgspec.Struct, frozen=True):
    value: Value
    pattern: Pattern
    wanted: bool = True


class In(msgspec.Struct, frozen=True):
    value: Value
    choices: tuple[float, ...] | tuple[str, ...]
    wanted: bool = True


class IsNull(msgspec.Struct, frozen=True):
    value: Value
    wanted: bool = True


class Is(msgspec.Struct, frozen=True):
    """A value that is true, or false, by itself."""

    value: Constant | Member
    wanted: bool = True


class Every(msgspec.Struct, frozen=True):
    parts: "tuple[Condition, ...]"


class Some(msgspec.Struct, frozen=True):
    parts: "tuple[Condition, ...]"


Condition = Compare | Like | In | IsNull | Is | Every | Some


class Selector(msgspec.Struct, frozen=True):
    text: str
    condition: Condition

    def fields(self) -> frozenset[str]:
        """The names of the fields that it looks at, `headers` and `json` among them."""
        return frozenset(
            each.source if isinstance(each, Member) else each.name
            for each in sources(self.condition)
        )


def sources(node: Condition | Value) -> Iterator[Field | Member]:
    """All that is read of a message."""
    match node:
        case Field() | Member():
            yield node
        case Arithmetic() | Compare():
            yield from sources(node.left)
            yield from sources(node.right)
        case Negative() | Like() | In() | IsNull() | Is():
            yield from sources(node.value)
        case Constant():
            pass
        case _:
            for part in node.parts:
                yield from sources(part)


def denied(condition: Condition) -> Condition:
    """True where the condition is false, false where it is true, NULL where it is NULL (R1)."""
    match condition:
        case Compare(sign, left, right):
            return Compare(OPPOSITE[sign], left, right)
        case Every(parts):
            return Some(tuple(map(denied, parts)))
        case Some(parts):
            return Every(tuple(map(denied, parts)))
        case _:
            return msgspec.structs.replace(condition, wanted=not condition.wanted)
