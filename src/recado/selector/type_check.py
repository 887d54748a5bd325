"""Type checking of operands, and the type of headers and JSON fields.

The type of a header or JSON field is unknown until a message arrives. Compared with a number it is read as a
number, compared with a text as a text; if the message has a value of another type, it is NULL (SLT2 of `tree`).
Two such fields are compared as numbers if both are numbers, as texts if both are texts, and as booleans if both
are booleans: at most one of the three comparisons is not NULL.
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
    """An operand has the wrong type; `value` is the operand."""

    def __init__(self, value: Value, reason: str) -> None:
        super().__init__(reason)
        self.value = value


def convert_type(value: Value, value_type: ValueType) -> Value:
    """Return the value with the required type; raises `OperandTypeError` if it has another."""
    if value.value_type is value_type:
        return value
    if isinstance(value, NestedField) and value.value_type is ValueType.ANY:
        return msgspec.structs.replace(value, value_type=value_type)
    raise OperandTypeError(value, f"expected {value_type.value}, found {value.value_type.value}")


def unify_types(*values: Value) -> list[Value]:
    """Convert the operands of a comparison to one type, which is ANY if none of them has another type.

    Raises `OperandTypeError` if two of them have different types.
    """
    known = (each.value_type for each in values if each.value_type is not ValueType.ANY)
    value_type = next(known, ValueType.ANY)
    return [convert_type(each, value_type) for each in values]


def make_comparison(operator: ComparisonOperator, left: Value, right: Value) -> Comparison:
    """Return the comparison; raises `OperandTypeError`."""
    left, right = unify_types(left, right)
    if left.value_type is ValueType.BOOLEAN and operator not in ("=", "<>"):
        raise OperandTypeError(
            right, f"true and false have no order: expected = or <>, found {operator}"
        )
    return Comparison(operator, left, right)


def make_boolean_test(value: Value) -> Condition:
    """Return the condition for a value that stands where a condition is expected.

    Raises `OperandTypeError` if the value is not boolean.
    """
    if isinstance(value, Constant | NestedField) and value.value_type in (
        ValueType.BOOLEAN,
        ValueType.ANY,
    ):
        checked = convert_type(value, ValueType.BOOLEAN)
        assert isinstance(checked, Constant | NestedField)
        return BooleanTest(checked)
    raise OperandTypeError(value, f"expected a condition, found {value.value_type.value} alone")


def expand_untyped_comparisons(condition: Condition) -> Condition:
    """Replace each comparison of two untyped fields by one comparison per type that both may have.

    The result must not be negated, so this is called after all negations. It is true where the comparison is
    true, but NULL where the comparison is false, because the comparisons of the other types are NULL.
    """
    match condition:
        case Comparison(
            operator,
            NestedField(value_type=ValueType.ANY) as left,
            NestedField(value_type=ValueType.ANY) as right,
        ):
            types = _EQUATABLE_TYPES if operator in ("=", "<>") else _ORDERED_TYPES
            return Or(
                tuple(
                    Comparison(operator, convert_type(left, each), convert_type(right, each))
                    for each in types
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
    """Return the arithmetic operation; raises `OperandTypeError`."""
    return Arithmetic(
        operator,
        convert_type(left, ValueType.NUMBER),
        convert_type(right, ValueType.NUMBER),
        offset,
    )
