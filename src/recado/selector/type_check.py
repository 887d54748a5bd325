"""Which kinds of value go together, and how a header or a field of a JSON body gets its kind.

What such a field holds is not known before a message comes. Beside a number it is meant as a number, beside a
text as a text; where it holds something else it is NULL (R2 of `tree`). Two of them are compared as numbers
if both are numbers, as texts if both are texts, and as true and false if both are that: at most one of the
three is not NULL.
"""

import msgspec

from .tree import (
    And,
    Arithmetic,
    ArithmeticOperator,
    BooleanTest,
    Comparison,
    ComparisonOperator,
    Condition,
    Constant,
    NestedField,
    Or,
    Value,
    ValueType,
)

_ORDERED_TYPES = (ValueType.NUMBER, ValueType.TEXT)
_EQUATABLE_TYPES = (ValueType.NUMBER, ValueType.TEXT, ValueType.BOOLEAN)


class OperandTypeError(Exception):
    """A value of a kind that does not fit its place; `value` tells which."""

    def __init__(self, value: Value, reason: str) -> None:
        super().__init__(reason)
        self.value = value


def convert_type(value: Value, value_type: ValueType) -> Value:
    """The value as this kind, for a place where only this kind makes sense."""
    if value.value_type is value_type:
        return value
    if isinstance(value, NestedField) and value.value_type is ValueType.ANY:
        return msgspec.structs.replace(value, value_type=value_type)
    raise OperandTypeError(value, f"expected {value_type.value}, found {value.value_type.value}")


def unify_types(*values: Value) -> list[Value]:
    """Values that are to be compared with each other, as one kind; ANY if none of them has one."""
    kind = next(
        (each.value_type for each in values if each.value_type is not ValueType.ANY), ValueType.ANY
    )
    return [convert_type(each, kind) for each in values]


def make_comparison(operator: ComparisonOperator, left: Value, right: Value) -> Comparison:
    left, right = unify_types(left, right)
    if left.value_type is ValueType.BOOLEAN and operator not in ("=", "<>"):
        raise OperandTypeError(
            right, f"true and false are not in order: expected = or <>, not {operator}"
        )
    return Comparison(operator, left, right)


def make_boolean_test(value: Value) -> Condition:
    """A value that stands where a condition is expected."""
    if isinstance(value, Constant | NestedField) and value.value_type in (
        ValueType.BOOLEAN,
        ValueType.ANY,
    ):
        checked = convert_type(value, ValueType.BOOLEAN)
        assert isinstance(checked, Constant | NestedField)
        return BooleanTest(checked)
    raise OperandTypeError(value, f"expected a condition, found {value.value_type.value} alone")


def expand_untyped_comparisons(condition: Condition) -> Condition:
    """Without comparisons of values whose kinds are open: each becomes one for every kind that both may have.

    For a condition that nothing denies any more: that one of three is true is what counts, not which are NULL.
    """
    match condition:
        case Comparison(
            sign,
            NestedField(value_type=ValueType.ANY) as left,
            NestedField(value_type=ValueType.ANY) as right,
        ):
            kinds = _EQUATABLE_TYPES if sign in ("=", "<>") else _ORDERED_TYPES
            return Or(
                tuple(
                    Comparison(sign, convert_type(left, kind), convert_type(right, kind))
                    for kind in kinds
                )
            )
        case And(parts):
            return And(tuple(map(expand_untyped_comparisons, parts)))
        case Or(parts):
            return Or(tuple(map(expand_untyped_comparisons, parts)))
        case _:
            return condition


def make_arithmetic(
    operator: ArithmeticOperator, left: Value, right: Value, offset: int
) -> Arithmetic:
    return Arithmetic(
        operator,
        convert_type(left, ValueType.NUMBER),
        convert_type(right, ValueType.NUMBER),
        offset,
    )
