"""Which kinds of value go together, and how a header or a field of a JSON body gets its kind.

What such a field holds is not known before a message comes. Beside a number it is meant as a number, beside a
text as a text; where it holds something else it is NULL (R2 of `tree`). Two of them are compared as numbers
if both are numbers, as texts if both are texts, and as true and false if both are that: at most one of the
three is not NULL.
"""

import msgspec

from .tree import (
    Arithmetic,
    Compare,
    Condition,
    Constant,
    Every,
    Is,
    Kind,
    Member,
    Operator,
    Sign,
    Some,
    Value,
)

_ORDERED = (Kind.NUMBER, Kind.TEXT)
_EQUATED = (Kind.NUMBER, Kind.TEXT, Kind.BOOLEAN)


class WrongKind(Exception):
    """A value of a kind that does not fit its place; `value` tells which."""

    def __init__(self, value: Value, reason: str) -> None:
        super().__init__(reason)
        self.value = value


def as_kind(value: Value, kind: Kind) -> Value:
    """The value as this kind, for a place where only this kind makes sense."""
    if value.kind is kind:
        return value
    if isinstance(value, Member) and value.kind is Kind.ANY:
        return msgspec.structs.replace(value, kind=kind)
    raise WrongKind(value, f"expected {kind.value}, found {value.kind.value}")


def alike(*values: Value) -> list[Value]:
    """Values that are to be compared with each other, as one kind; ANY if none of them has one."""
    kind = next((each.kind for each in values if each.kind is not Kind.ANY), Kind.ANY)
    return [as_kind(each, kind) for each in values]


def compared(sign: Sign, left: Value, right: Value) -> Compare:
    left, right = alike(left, right)
    if left.kind is Kind.BOOLEAN and sign not in ("=", "<>"):
        raise WrongKind(right, f"true and false are not in order: expected = or <>, not {sign}")
    return Compare(sign, left, right)


def asserted(value: Value) -> Condition:
    """A value that stands where a condition is expected."""
    if isinstance(value, Constant | Member) and value.kind in (Kind.BOOLEAN, Kind.ANY):
        checked = as_kind(value, Kind.BOOLEAN)
        assert isinstance(checked, Constant | Member)
        return Is(checked)
    raise WrongKind(value, f"expected a condition, found {value.kind.value} alone")


def settled(condition: Condition) -> Condition:
    """Without comparisons of values whose kinds are open: each becomes one for every kind that both may have.

    For a condition that nothing denies any more: that one of three is true is what counts, not which are NULL.
    """
    match condition:
        case Compare(sign, Member(kind=Kind.ANY) as left, Member(kind=Kind.ANY) as right):
            kinds = _EQUATED if sign in ("=", "<>") else _ORDERED
            return Some(
                tuple(Compare(sign, as_kind(left, kind), as_kind(right, kind)) for kind in kinds)
            )
        case Every(parts):
            return Every(tuple(map(settled, parts)))
        case Some(parts):
            return Some(tuple(map(settled, parts)))
        case _:
            return condition


def computed(sign: Operator, left: Value, right: Value, at: int) -> Arithmetic:
    return Arithmetic(sign, as_kind(left, Kind.NUMBER), as_kind(right, Kind.NUMBER), at)
