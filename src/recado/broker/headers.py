"""Headers exchange: the arguments of a binding are the required headers of a message.

`x-match` is `all` (the default) or `any` of them. Arguments that start with `x-` are not criteria, unless
the mode is `all-with-x` or `any-with-x`. A criterion without a value (void) only requires the header to
exist. Without criteria, `all` matches every message and `any` none.
"""

from typing import Final, Generic, TypeAlias, TypeVar

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.values import FieldTable

from .binding import DEAD_LETTER_BINDING_ARGUMENT, Binding, collect
from .checks import format_value, to_comparable, type_name
from .steps import STEP_UNITS_MAX, Steps, chunks

T = TypeVar("T")

_Criterion: TypeAlias = tuple[str, object]  # name and value of a header; None matches any value

_CHECKS_PER_UNIT: Final = 8  # 0.6 µs each
_CHECKS_PER_STEP: Final = STEP_UNITS_MAX * _CHECKS_PER_UNIT
_MATCH_MODES: Final = ("all", "any", "all-with-x", "any-with-x")


class HeadersMatcher(Generic[T]):
    """An inverted index of criteria.

    Only bindings that require a header of the message are checked. A binding that requires all of its
    criteria is indexed under one of them, the one with the fewest bindings so far; a binding that requires
    any of them is indexed under each.
    """

    __slots__ = ("_always_matching", "_by_criterion", "_criteria")

    uses_key = False
    add_cost = 0

    def __init__(self) -> None:
        self._criteria: dict[Binding[T], _BindingCriteria] = {}
        self._always_matching: dict[Binding[T], None] = {}  # `all` without criteria
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
            bindings = self._by_criterion[criterion]
            del bindings[binding]
            if not bindings:
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
            for chunk in chunks(list(self._by_criterion[criterion]), _CHECKS_PER_STEP):
                for binding in chunk:
                    criteria = self._criteria.get(binding)  # None: removed meanwhile
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
    """The parsed criteria of one binding."""

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
        required = {
            name: to_comparable(value)
            for name, value in arguments.items()
            if name not in ("x-match", DEAD_LETTER_BINDING_ARGUMENT)
            and (mode.endswith("-with-x") or not name.startswith("x-"))
        }
        self.matches_all = mode.startswith("all")
        self.criteria: list[_Criterion] = list(required.items())
        self.indexed_under = self.criteria
        self._required_names = {name for name, value in required.items() if value is None}
        self._required_pairs = {
            (name, value) for name, value in required.items() if value is not None
        }

    def is_met(self, headers: dict[str, object]) -> bool:
        if self.matches_all:
            return (
                headers.keys() >= self._required_names and headers.items() >= self._required_pairs
            )
        return not (
            headers.keys().isdisjoint(self._required_names)
            and headers.items().isdisjoint(self._required_pairs)
        )
