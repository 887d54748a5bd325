"""Detect selectors that no message can satisfy, such as `priority > 9 AND priority < 3`.

All conditions of a conjunction must hold, and each restricts a value: its type, a range, a set of choices,
NULL or not NULL. `PossibleValues` is the set that remains; if it is empty, the conjunction is unsatisfiable.
The check is conservative: conditions that it does not understand count as satisfiable.
"""

from __future__ import annotations

from typing import Final

import msgspec

from recado.selector.tree import (
    And,
    BooleanTest,
    Comparison,
    ComparisonOperator,
    Condition,
    Constant,
    InList,
    IsNull,
    Like,
    MessageField,
    NestedField,
    Or,
    Selector,
    Value,
    ValueType,
)

_MIRRORED_SIGNS: Final[dict[ComparisonOperator, ComparisonOperator]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_OCTET_FIELDS: Final = ("priority", "delivery_mode")
_NON_NEGATIVE_FIELDS: Final = ("offset", "sequence")


class PossibleValues(msgspec.Struct):
    """The values that a field can still have.

    `kinds` are the types with which the field is compared: with two of them, or with one and `is_null`, no
    value remains.
    """

    kinds: set[ValueType]
    low: float | str | None = None
    high: float | str | None = None
    includes_low: bool = True
    includes_high: bool = True
    allowed: set[float | str | bool] | None = None
    excluded: set[float | str | bool] = msgspec.field(default_factory=set)
    is_null: bool | None = None

    def is_empty(self) -> bool:
        if len(self.kinds) > 1 or (self.is_null and self.kinds):
            return True
        if self.allowed is not None:
            return not any(self._contains(each) for each in self.allowed)
        if self.low is None or self.high is None or type(self.low) is not type(self.high):
            return False
        if self.low == self.high:
            return not (self.includes_low and self.includes_high and self.low not in self.excluded)
        return self.low > self.high  # type: ignore[operator]  # both have the same type

    def _contains(self, value: float | str | bool) -> bool:
        return not (
            value in self.excluded
            or _is_outside(value, self.low, is_inclusive=self.includes_low, is_upper=False)
            or _is_outside(value, self.high, is_inclusive=self.includes_high, is_upper=True)
        )

    def restrict(self, sign: ComparisonOperator, value: float | str | bool) -> None:
        match sign:
            case "=":
                self.restrict_to({value})
            case "<>":
                self.excluded.add(value)
            case ">" | ">=":
                if not _is_outside(value, self.low, is_inclusive=True, is_upper=False):
                    self.includes_low = sign == ">=" and (value != self.low or self.includes_low)
                    self.low = value
            case "<" | "<=":
                if not _is_outside(value, self.high, is_inclusive=True, is_upper=True):
                    self.includes_high = sign == "<=" and (value != self.high or self.includes_high)
                    self.high = value

    def restrict_to(self, values: set[float | str | bool]) -> None:
        self.allowed = values if self.allowed is None else self.allowed & values


def _is_outside(
    value: float | str | bool, bound: float | str | None, *, is_inclusive: bool, is_upper: bool
) -> bool:
    """Whether a value is below a lower bound, or above an upper one; false for values of another type."""
    if bound is None or type(value) is not type(bound):
        return False
    if value == bound:
        return not is_inclusive
    return (value > bound) if is_upper else (value < bound)  # type: ignore[operator]  # of one kind


def is_unsatisfiable(selector: Selector) -> bool:
    """Whether no message can satisfy a selector."""
    return _is_never_true(selector.condition)


def _is_never_true(condition: Condition) -> bool:
    match condition:
        case Or(parts):
            return all(map(_is_never_true, parts))
        case And():
            parts = tuple(_conjuncts(condition))
        case _:
            parts = (condition,)
    values: dict[tuple[str, ...], PossibleValues] = {}
    for part in parts:
        if isinstance(part, Or):
            if _is_never_true(part):
                return True
        elif _is_false(part):
            return True
        else:
            _apply_condition(part, values)
    return any(possible.is_empty() for possible in values.values())


def _conjuncts(condition: Condition) -> list[Condition]:
    if isinstance(condition, And):
        return [each for part in condition.parts for each in _conjuncts(part)]
    return [condition]


def _is_false(condition: Condition) -> bool:
    """Whether a condition on constants only is false."""
    match condition:
        case BooleanTest(Constant(value), wanted):
            return value is not wanted
        case Comparison(sign, Constant(left), Constant(right)):
            possible = PossibleValues(set())
            possible.restrict(sign, right)
            possible.restrict_to({left})
            return possible.is_empty()
        case _:
            return False


def _apply_condition(condition: Condition, values: dict[tuple[str, ...], PossibleValues]) -> None:
    """Restrict the values of the field that a condition is about."""
    match condition:
        case Comparison(sign, left, Constant(constant)):
            if possible := _values_of(left, values):
                possible.restrict(sign, constant)
        case Comparison(sign, Constant(constant), right):
            if possible := _values_of(right, values):
                possible.restrict(_MIRRORED_SIGNS[sign], constant)
        case InList(value, choices, wanted):
            if possible := _values_of(value, values):
                if wanted:
                    possible.restrict_to(set(choices))
                else:
                    possible.excluded.update(choices)
        case Like(value):
            _values_of(value, values)
        case BooleanTest(value, wanted):
            if possible := _values_of(value, values):
                possible.restrict_to({wanted})
        case IsNull(value, wanted) if isinstance(value, MessageField | NestedField):
            possible = values.setdefault(_key(value), _initial_values(value))
            # After both IS NULL and IS NOT NULL, `is_null` is true and `kinds` is not empty: no value remains.
            possible.is_null = wanted if possible.is_null in (None, wanted) else True
            if not wanted and not possible.kinds:
                possible.kinds.add(ValueType.ANY)
        case _:
            pass


def _values_of(
    value: Value, values: dict[tuple[str, ...], PossibleValues]
) -> PossibleValues | None:
    """Return the possible values of a field that a condition compares; None if the value is not a field.

    A true comparison implies that the field is not NULL and has the compared type.
    """
    if not isinstance(value, MessageField | NestedField):
        return None
    possible = values.setdefault(_key(value), _initial_values(value))
    possible.kinds.discard(ValueType.ANY)
    possible.kinds.add(value.value_type)
    return possible


def _key(value: MessageField | NestedField) -> tuple[str, ...]:
    return (value.name,) if isinstance(value, MessageField) else (value.source, *value.path)


def _initial_values(value: MessageField | NestedField) -> PossibleValues:
    if isinstance(value, MessageField) and value.name in _OCTET_FIELDS:
        return PossibleValues(set(), 0.0, 255.0)
    if isinstance(value, MessageField) and value.name in _NON_NEGATIVE_FIELDS:
        return PossibleValues(set(), 0.0)
    return PossibleValues(set())
