"""Headers exchange: a binding's arguments are the headers that it wants to see.

`x-match` says how many of them: `all_stats` (the default) or `any`. Arguments whose name begins with `x-`
are no criteria, unless it is `all-with-x` or `any-with-x`. A criterion without a value (void) wants
its header to be there, whatever it holds. Of no criteria at all, "all" are met and "any" are not.
"""

from typing import Final, Generic, TypeAlias, TypeVar

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable

from .binding import DEAD_LETTER_BINDING_ARGUMENT, Binding, collect
from .checks import format_value, to_comparable, type_name
from .steps import STEP_UNITS_MAX, Steps, chunks

T = TypeVar("T")

_Criterion: TypeAlias = tuple[str, object]  # of a header and its value, where None is any

_CHECKS_PER_UNIT: Final = 8  # 0.6 µs each
_CHECKS_PER_STEP: Final = STEP_UNITS_MAX * _CHECKS_PER_UNIT
_MATCH_MODES: Final = ("all", "any", "all-with-x", "any-with-x")


class HeadersMatcher(Generic[T]):
    """Looks at those bindings only that ask for a header which the message has.

    A binding that wants all of its criteria is kept under one of them, that by which the fewest others are kept
    so far; one that wants any of them is kept under each.
    """

    __slots__ = ("_always_matching", "_by_criterion", "_criteria")

    uses_key = False
    add_cost = 0

    def __init__(self) -> None:
        self._criteria: dict[Binding[T], _BindingCriteria] = {}
        self._always_matching: dict[Binding[T], None] = {}  # want all of no criteria
        self._by_criterion: dict[_Criterion, dict[Binding[T], None]] = {}

    def add(self, binding: Binding[T]) -> None:
        criteria = self._criteria[binding] = _BindingCriteria(binding.arguments)
        if criteria.matches_all and not criteria.criteria:
            self._always_matching[binding] = None
        if criteria.matches_all and criteria.criteria:
            criteria.indexed_under = [min(criteria.criteria, key=self._index_size)]
        for criterion in criteria.indexed_under:
            self._by_criterion.setdefault(criterion, {})[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        criteria = self._criteria.pop(binding)
        self._always_matching.pop(binding, None)
        for criterion in criteria.indexed_under:
            wanting = self._by_criterion[criterion]
            del wanting[binding]
            if not wanting:
                del self._by_criterion[criterion]

    def search(self, key: str, headers: FieldTable, found: dict[Binding[T], None]) -> Steps[None]:
        message_headers: dict[str, object] = {
            name: to_comparable(value) for name, value in headers.items()
        }
        if self._always_matching:
            yield from collect(self._always_matching, found)
        checked_count = len(message_headers)
        candidates: list[_Criterion] = [(name, None) for name in message_headers]
        candidates += message_headers.items()
        for criterion in candidates:
            if criterion not in self._by_criterion:
                continue
            for some in chunks(list(self._by_criterion[criterion]), _CHECKS_PER_STEP):
                for binding in some:
                    criteria = self._criteria.get(binding)  # None: removed since
                    if criteria is not None and criteria.is_met(message_headers):
                        found[binding] = None
                    checked_count += 1 + (
                        len(criteria.criteria) // 8 if criteria is not None else 0
                    )
                if checked_count >= _CHECKS_PER_STEP:
                    yield checked_count // _CHECKS_PER_UNIT
                    checked_count = 0
        yield checked_count // _CHECKS_PER_UNIT

    def _index_size(self, criterion: "_Criterion") -> int:
        return len(self._by_criterion.get(criterion, ()))


class _BindingCriteria:
    """What one binding asks for, taken apart once."""

    __slots__ = ("_required_names", "_required_pairs", "criteria", "indexed_under", "matches_all")

    def __init__(self, arguments: FieldTable) -> None:
        mode = arguments.get("x-match", "all")
        if not isinstance(mode, str):
            raise PreconditionFailedError(
                f"Invalid x-match field type {type_name(mode)} (value {format_value(mode)}); "
                "expected longstr"
            )
        if mode not in _MATCH_MODES:
            raise PreconditionFailedError(
                f"Invalid x-match field value '{mode}'; "
                "expected all, any, all-with-x, or any-with-x"
            )
        asked = {
            name: to_comparable(value)
            for name, value in arguments.items()
            if name not in ("x-match", DEAD_LETTER_BINDING_ARGUMENT)
            and (mode.endswith("-with-x") or not name.startswith("x-"))
        }
        self.matches_all = mode.startswith("all")
        self.criteria: list[_Criterion] = list(asked.items())
        self.indexed_under = self.criteria
        self._required_names = {name for name, value in asked.items() if value is None}
        self._required_pairs = {(name, value) for name, value in asked.items() if value is not None}

    def is_met(self, headers: dict[str, object]) -> bool:
        if self.matches_all:
            return (
                headers.keys() >= self._required_names and headers.items() >= self._required_pairs
            )
        return not (
            headers.keys().isdisjoint(self._required_names)
            and headers.items().isdisjoint(self._required_pairs)
        )
