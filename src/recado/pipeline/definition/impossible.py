"""Selectors that no message can ever satisfy: `priority > 9 AND priority < 3`.

Every condition of a conjunction must be true, so each says something of a value: its kind, a range, a few
choices, that it is there or that it is not. What is left of a value when all have spoken is a `Rest`; if that
is nothing, the conjunction is impossible. Nothing is guessed: what is not understood is taken as possible.
"""

from __future__ import annotations

from typing import Final

import msgspec

from recado.selector.tree import (
    Compare,
    Condition,
    Constant,
    Every,
    Field,
    In,
    Is,
    IsNull,
    Kind,
    Like,
    Member,
    Selector,
    Sign,
    Some,
    Value,
)

_TURNED: Final[dict[Sign, Sign]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_OCTETS: Final = ("priority", "delivery_mode")
_COUNTS: Final = ("offset", "sequence")


class Rest(msgspec.Struct):
    """What a value may still be."""

    kinds: set[Kind]
    low: float | str | None = None
    high: float | str | None = None
    low_is_in: bool = True
    high_is_in: bool = True
    choices: set[float | str | bool] | None = None
    refused: set[float | str | bool] = msgspec.field(default_factory=set)
    is_null: bool | None = None

    def is_nothing(self) -> bool:
        if len(self.kinds) > 1 or (self.is_null and self.kinds):
            return True
        if self.choices is not None:
            return not any(self._takes(each) for each in self.choices)
        if self.low is None or self.high is None or type(self.low) is not type(self.high):
            return False
        if self.low == self.high:
            return not (self.low_is_in and self.high_is_in and self.low not in self.refused)
        return self.low > self.high  # type: ignore[operator]  # both are of one kind, as was just seen

    def _takes(self, value: float | str | bool) -> bool:
        return not (
            value in self.refused
            or _is_beyond(value, self.low, is_in=self.low_is_in, turned=False)
            or _is_beyond(value, self.high, is_in=self.high_is_in, turned=True)
        )

    def must(self, sign: Sign, value: float | str | bool) -> None:
        match sign:
            case "=":
                self.one_of({value})
            case "<>":
                self.refused.add(value)
            case ">" | ">=":
                if not _is_beyond(value, self.low, is_in=True, turned=False):
                    self.low_is_in = sign == ">=" and (value != self.low or self.low_is_in)
                    self.low = value
            case "<" | "<=":
                if not _is_beyond(value, self.high, is_in=True, turned=True):
                    self.high_is_in = sign == "<=" and (value != self.high or self.high_is_in)
                    self.high = value

    def one_of(self, values: set[float | str | bool]) -> None:
        self.choices = values if self.choices is None else self.choices & values


def _is_beyond(
    value: float | str | bool, bound: float | str | None, *, is_in: bool, turned: bool
) -> bool:
    """Whether a value is below a bound, or above it if `turned`. What is of another kind is not."""
    if bound is None or type(value) is not type(bound):
        return False
    if value == bound:
        return not is_in
    return (value > bound) if turned else (value < bound)  # type: ignore[operator]  # of one kind


def is_impossible(selector: Selector) -> bool:
    return _never(selector.condition)


def _never(condition: Condition) -> bool:
    match condition:
        case Some(parts):
            return all(map(_never, parts))
        case Every():
            parts = tuple(_conjuncts(condition))
        case _:
            parts = (condition,)
    rests: dict[tuple[str, ...], Rest] = {}
    for part in parts:
        if isinstance(part, Some):
            if _never(part):
                return True
        elif _is_false(part):
            return True
        else:
            _note(part, rests)
    return any(rest.is_nothing() for rest in rests.values())


def _conjuncts(condition: Condition) -> list[Condition]:
    if isinstance(condition, Every):
        return [each for part in condition.parts for each in _conjuncts(part)]
    return [condition]


def _is_false(condition: Condition) -> bool:
    """Of constants alone."""
    match condition:
        case Is(Constant(value), wanted):
            return value is not wanted
        case Compare(sign, Constant(left), Constant(right)):
            rest = Rest(set())
            rest.must(sign, right)
            rest.one_of({left})
            return rest.is_nothing()
        case _:
            return False


def _note(condition: Condition, rests: dict[tuple[str, ...], Rest]) -> None:
    """What a condition that is true says of the value that it is about."""
    match condition:
        case Compare(sign, left, Constant(constant)):
            if rest := _rest(left, rests):
                rest.must(sign, constant)
        case Compare(sign, Constant(constant), right):
            if rest := _rest(right, rests):
                rest.must(_TURNED[sign], constant)
        case In(value, choices, wanted):
            if rest := _rest(value, rests):
                if wanted:
                    rest.one_of(set(choices))
                else:
                    rest.refused.update(choices)
        case Like(value):
            _rest(value, rests)
        case Is(value, wanted):
            if rest := _rest(value, rests):
                rest.one_of({wanted})
        case IsNull(value, wanted) if isinstance(value, Field | Member):
            rest = rests.setdefault(_key(value), _anything(value))
            rest.is_null = wanted if rest.is_null in (None, wanted) else True
            if not wanted and not rest.kinds:
                rest.kinds.add(Kind.ANY)
        case _:
            pass


def _rest(value: Value, rests: dict[tuple[str, ...], Rest]) -> Rest | None:
    """Of a value that is compared, and so is there, and of that kind."""
    if not isinstance(value, Field | Member):
        return None
    rest = rests.setdefault(_key(value), _anything(value))
    rest.kinds.discard(Kind.ANY)
    rest.kinds.add(value.kind)
    return rest


def _key(value: Field | Member) -> tuple[str, ...]:
    return (value.name,) if isinstance(value, Field) else (value.source, *value.path)


def _anything(value: Field | Member) -> Rest:
    if isinstance(value, Field) and value.name in _OCTETS:
        return Rest(set(), 0.0, 255.0)
    if isinstance(value, Field) and value.name in _COUNTS:
        return Rest(set(), 0.0)
    return Rest(set())
