"""A tree as a pyarrow expression, as far as the columns of a table allow, and what is left over.

What a file's own statistics or a column by itself can decide is decided by pyarrow before a row is made; the
parts that look at headers, at a body, or at what is no column are a selector of their own, to be asked about
the rows that are left. pyarrow is imported here and nowhere else in the room, and only by those who call
this.
"""

from functools import reduce
from operator import and_, or_
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .fields import BODY
from .tree import (
    Arithmetic,
    Compare,
    Condition,
    Constant,
    Every,
    Field,
    In,
    IsNull,
    Kind,
    Like,
    Member,
    Negative,
    Selector,
    Some,
    Value,
    sources,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.compute import Expression

_PER_SECOND: Final = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


class ArrowFilter(msgspec.Struct, frozen=True):
    """Both must hold; None asks for nothing."""

    expression: "Expression | None"
    residual: Selector | None


def arrow_filter(selector: Selector, schema: "pa.Schema") -> ArrowFilter:
    """The selector for tables of this schema, whose columns have the names of the fields.

    A column is used if it is text where the field is, or a number or a time (which counts in seconds since
    1970) where the field is a number.
    """
    writer = _Writer(schema)
    condition = selector.condition
    parts = condition.parts if isinstance(condition, Every) else (condition,)
    columnar = [part for part in parts if writer.knows(part)]
    others = tuple(part for part in parts if not writer.knows(part))
    return ArrowFilter(
        reduce(and_, map(writer.condition, columnar)) if columnar else None,
        Selector(selector.text, Every(others)) if others else None,
    )


class _Writer:
    def __init__(self, schema: "pa.Schema") -> None:
        import pyarrow
        import pyarrow.compute

        self._pa: Any = pyarrow
        self._pc: Any = pyarrow.compute
        self._schema = schema
        self._types: Any = pyarrow.types
        self._double = pyarrow.float64()

    def knows(self, part: Condition) -> bool:
        return all(isinstance(each, Field) and self._fits(each) for each in sources(part))

    def _fits(self, field: Field) -> bool:
        if field.name == BODY or self._schema.get_field_index(field.name) < 0:
            return False
        kind, types = self._schema.field(field.name).type, self._types
        if field.kind is Kind.TEXT:
            if types.is_dictionary(kind):
                kind = kind.value_type
            return bool(types.is_string(kind) or types.is_large_string(kind))
        return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_timestamp(kind))

    # ── conditions ────────────────────────────────────────────────────────────────────────────────────

    def condition(self, condition: Condition) -> Any:
        match condition:
            case Every(parts):
                return reduce(and_, map(self.condition, parts))
            case Some(parts):
                return reduce(or_, map(self.condition, parts))
            case Compare(sign, left, right):
                return self._comparison(sign, self._value(left), self._value(right))
            case In(value, choices, wanted):
                operand = self._value(value)
                if value.kind is Kind.NUMBER:
                    # Looked up by their bits, in which 0 and -0 differ; -0 + 0 is 0.
                    operand = self._pc.add(operand, self._pc.scalar(0.0))
                    choices = tuple(float(each) + 0.0 for each in choices)
                among = operand.isin(self._pa.array(choices))
                return among if wanted else ~among & operand.is_valid()
            case Like(value, pattern, wanted):
                like = self._pc.match_like(self._value(value), pattern.written("\\"))
                return like if wanted else ~like
            case IsNull(value, wanted):
                operand = self._value(value)
                return operand.is_null() if wanted else operand.is_valid()
            case _:
                operand = self._value(condition.value)
                return operand if condition.wanted else ~operand

    def _comparison(self, sign: str, left: Any, right: Any) -> Any:
        pc = self._pc
        compare = {
            "=": pc.equal,
            "<>": pc.not_equal,
            "<": pc.less,
            "<=": pc.less_equal,
            ">": pc.greater,
            ">=": pc.greater_equal,
        }
        return compare[sign](left, right)

    # ── values ────────────────────────────────────────────────────────────────────────────────────────

    def _value(self, value: Value) -> Any:
        result = self._computed(value)
        if isinstance(value, Constant) or value.kind is not Kind.NUMBER:
            return result
        if isinstance(value, Field) and not self._may_be_nan(value):
            return result
        nothing = self._pc.scalar(self._pa.scalar(None, self._double))
        return self._pc.if_else(self._pc.is_nan(result), nothing, result)

    def _may_be_nan(self, field: Field) -> bool:
        return bool(self._types.is_floating(self._schema.field(field.name).type))

    def _computed(self, value: Value) -> Any:
        pc = self._pc
        match value:
            case Constant(constant):
                return pc.scalar(constant)
            case Field():
                return self._column(value)
            case Negative(inner):
                return pc.negate(self._computed(inner))
            case Arithmetic(sign, left, right):
                compute = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[sign]
                return compute(self._computed(left), self._computed(right))
            case Member():  # pragma: no cover - left to the residual, see `knows`
                raise AssertionError(value)

    def _column(self, field: Field) -> Any:
        kind = self._schema.field(field.name).type
        column = self._pc.field(field.name)
        if field.kind is Kind.TEXT:
            return column.cast(kind.value_type) if self._types.is_dictionary(kind) else column
        if self._types.is_timestamp(kind):
            whole = column.cast(self._pa.int64()).cast(self._double, safe=False)
            return self._pc.divide(whole, self._pc.scalar(_PER_SECOND[kind.unit]))
        return column.cast(self._double, safe=False)
