"""Split a selector into a pyarrow expression over the columns of a table and a residual selector.

The selector is split at its outermost ANDs. pyarrow evaluates the parts that use columns only, before rows become
Python objects; it can skip row groups by their statistics. A part that uses a header, the body or a field without
a column belongs to the residual as a whole, and the caller evaluates it for the remaining rows. This is the only
module of the package that imports pyarrow, and it does so when `to_arrow_filter` is called.
"""

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .fields import BODY_FIELD
from .tree import (
    And,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    InList,
    IsNull,
    Like,
    MessageField,
    Negate,
    NestedField,
    Or,
    Selector,
    Value,
    ValueType,
    iterate_fields,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression

_UNITS_PER_SECOND: Final = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class ArrowFilter(msgspec.Struct, frozen=True):
    """A row is selected if the expression and the residual are true for it; None means no condition."""

    expression: "Expression | None"
    residual: Selector | None


def to_arrow_filter(selector: Selector, schema: "pa.Schema") -> ArrowFilter:
    """Split a selector for tables with this schema; a column has the name of its field.

    A column is used if its type fits the field: strings for texts; numbers and timestamps (as seconds since
    1970) for numbers. Returns the expression and the residual selector.
    """
    compiler = _ArrowCompiler(schema)
    condition = selector.condition
    parts = condition.parts if isinstance(condition, And) else (condition,)
    columnar = [part for part in parts if compiler.supports(part)]
    residual = tuple(part for part in parts if not compiler.supports(part))
    return ArrowFilter(
        reduce(and_, map(compiler.compile_condition, columnar)) if columnar else None,
        Selector(selector.text, And(residual)) if residual else None,
    )


class _ArrowCompiler:
    def __init__(self, schema: "pa.Schema") -> None:
        import pyarrow
        import pyarrow.compute

        self._pa: Any = pyarrow
        self._pc: Any = pyarrow.compute
        self._schema = schema
        self._types: Any = pyarrow.types
        self._double_type = pyarrow.float64()

    def supports(self, part: Condition) -> bool:
        return all(
            isinstance(each, MessageField) and self._has_column(each)
            for each in iterate_fields(part)
        )

    def _has_column(self, field: MessageField) -> bool:
        if field.name == BODY_FIELD or self._schema.get_field_index(field.name) < 0:
            return False
        column_type, types = self._schema.field(field.name).type, self._types
        if field.value_type is ValueType.TEXT:
            if types.is_dictionary(column_type):
                column_type = column_type.value_type
            return bool(types.is_string(column_type) or types.is_large_string(column_type))
        return bool(
            types.is_integer(column_type)
            or types.is_floating(column_type)
            or types.is_timestamp(column_type)
        )

    # ── conditions ────────────────────────────────────────────────────────────────────────────────────

    def compile_condition(self, condition: Condition) -> Any:
        match condition:
            case And(parts):
                return reduce(and_, map(self.compile_condition, parts))
            case Or(parts):
                return reduce(or_, map(self.compile_condition, parts))
            case Comparison(operator, left, right):
                return self._compile_comparison(
                    operator, self._compile_value(left), self._compile_value(right)
                )
            case InList(value, choices, expected):
                operand = self._compile_value(value)
                if value.value_type is ValueType.NUMBER:
                    # isin compares bits, in which 0 and -0 differ; -0 + 0 is 0.
                    operand = self._pc.add(operand, self._pc.scalar(0.0))
                    choices = tuple(float(each) + 0.0 for each in choices)
                among = operand.isin(self._pa.array(choices))
                return among if expected else ~among & operand.is_valid()
            case Like(value, pattern, expected):
                like = self._pc.match_like(self._compile_value(value), pattern.to_text("\\"))
                return like if expected else ~like
            case IsNull(value, expected):
                operand = self._compile_value(value)
                return operand.is_null() if expected else operand.is_valid()
            case _:
                operand = self._compile_value(condition.value)
                return operand if condition.expected else ~operand

    def _compile_comparison(self, operator: str, left: Any, right: Any) -> Any:
        pc = self._pc
        compare = {
            "=": pc.equal,
            "<>": pc.not_equal,
            "<": pc.less,
            "<=": pc.less_equal,
            ">": pc.greater,
            ">=": pc.greater_equal,
        }
        return compare[operator](left, right)

    # ── values ────────────────────────────────────────────────────────────────────────────────────────

    def _compile_value(self, value: Value) -> Any:
        """Return the expression for a value, with NULL in place of NaN (SLT3 of `tree`)."""
        result = self._compile_arithmetic(value)
        if isinstance(value, Constant) or value.value_type is not ValueType.NUMBER:
            return result
        if isinstance(value, MessageField) and not self._may_be_nan(value):
            return result
        nothing = self._pc.scalar(self._pa.scalar(None, self._double_type))
        return self._pc.if_else(self._pc.is_nan(result), nothing, result)

    def _may_be_nan(self, field: MessageField) -> bool:
        return bool(self._types.is_floating(self._schema.field(field.name).type))

    def _compile_arithmetic(self, value: Value) -> Any:
        pc = self._pc
        match value:
            case Constant(constant):
                return pc.scalar(constant)
            case MessageField():
                return self._compile_column(value)
            case Negate(inner):
                return pc.negate(self._compile_arithmetic(inner))
            case Arithmetic(operator, left, right):
                compute = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[operator]
                return compute(self._compile_arithmetic(left), self._compile_arithmetic(right))
            case NestedField():  # pragma: no cover - left to the residual, see `supports`
                raise AssertionError(value)

    def _compile_column(self, field: MessageField) -> Any:
        column_type = self._schema.field(field.name).type
        column = self._pc.field(field.name)
        if field.value_type is ValueType.TEXT:
            return (
                column.cast(column_type.value_type)
                if self._types.is_dictionary(column_type)
                else column
            )
        if self._types.is_timestamp(column_type):
            units = column.cast(self._pa.int64()).cast(self._double_type, safe=False)
            return self._pc.divide(units, self._pc.scalar(_UNITS_PER_SECOND[column_type.unit]))
        return column.cast(self._double_type, safe=False)
