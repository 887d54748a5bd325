"""Headers exchange: a binding's arguments are the headers that it wants to see.

`x-match` says how many of them: `all` (the default) or `any`. Arguments whose name begins with `x-`
are no criteria, unless it is `all-with-x` or `any-with-x`. A criterion without a value (void) wants
its header to be there, whatever it holds. Of no criteria at all, "all" are met and "any" are not.
"""

from typing import Final, Generic, TypeAlias, TypeVar

from recado.amqp.errors import PreconditionFailed
from recado.amqp.values import Table

from .binding import DEAD_LETTER_BINDING, Binding, collect
from .checks import comparable, shown, type_name
from .steps import STEP_UNITS, Steps, parts

T = TypeVar("T")

_Criterion: TypeAlias = tuple[str, object]  # of a header and its value, where None is any

_CHECKS_PER_UNIT: Final = 8  # 0.6 µs each
_CHECKS_PER_STEP: Final = STEP_UNITS * _CHECKS_PER_UNIT
_MODES: Final = ("all", "any", "all-with-x", "any-with-x")


class HeadersMatcher(Generic[T]):
    """Looks at those bindings only that ask for a header which the message has.

    A binding that wants all of its criteria is kept under one of them, that by which the fewest others are kept
    so far; one that wants any of them is kept under each.
    """

    __slots__ = ("_criteria", "_undemanding", "_wanting")

    by_key = False
    add_units = 0

    def __init__(self) -> None:
        self._criteria: dict[Binding[T], _Criteria] = {}
        self._undemanding: dict[Binding[T], None] = {}  # want all of no criteria
        self._wanting: dict[_Criterion, dict[Binding[T], None]] = {}

    def add(self, binding: Binding[T]) -> None:
        criteria = self._criteria[binding] = _Criteria(binding.arguments)
        if criteria.needs_all and not criteria.asked:
            self._undemanding[binding] = None
        if criteria.needs_all and criteria.asked:
            criteria.kept_under = [min(criteria.asked, key=self._crowd)]
        for criterion in criteria.kept_under:
            self._wanting.setdefault(criterion, {})[binding] = None

    def remove(self, binding: Binding[T]) -> None:
        criteria = self._criteria.pop(binding)
        self._undemanding.pop(binding, None)
        for criterion in criteria.kept_under:
            wanting = self._wanting[criterion]
            del wanting[binding]
            if not wanting:
                del self._wanting[criterion]

    def search(self, key: str, headers: Table, found: dict[Binding[T], None]) -> Steps[None]:
        present: dict[str, object] = {name: comparable(value) for name, value in headers.items()}
        if self._undemanding:
            yield from collect(self._undemanding, found)
        looked_at = len(present)
        asked: list[_Criterion] = [(name, None) for name in present]
        asked += present.items()
        for criterion in asked:
            if criterion not in self._wanting:
                continue
            for some in parts(list(self._wanting[criterion]), _CHECKS_PER_STEP):
                for binding in some:
                    criteria = self._criteria.get(binding)  # None: removed since
                    if criteria is not None and criteria.met(present):
                        found[binding] = None
                    looked_at += 1 + (len(criteria.asked) // 8 if criteria is not None else 0)
                if looked_at >= _CHECKS_PER_STEP:
                    yield looked_at // _CHECKS_PER_UNIT
                    looked_at = 0
        yield looked_at // _CHECKS_PER_UNIT

    def _crowd(self, criterion: "_Criterion") -> int:
        return len(self._wanting.get(criterion, ()))


class _Criteria:
    """What one binding asks for, taken apart once."""

    __slots__ = ("_present", "_valued", "asked", "kept_under", "needs_all")

    def __init__(self, arguments: Table) -> None:
        mode = arguments.get("x-match", "all")
        if not isinstance(mode, str):
            raise PreconditionFailed(
                f"Invalid x-match field type {type_name(mode)} (value {shown(mode)}); "
                "expected longstr"
            )
        if mode not in _MODES:
            raise PreconditionFailed(
                f"Invalid x-match field value '{mode}'; "
                "expected all, any, all-with-x, or any-with-x"
            )
        asked = {
            name: comparable(value)
            for name, value in arguments.items()
            if name not in ("x-match", DEAD_LETTER_BINDING)
            and (mode.endswith("-with-x") or not name.startswith("x-"))
        }
        self.needs_all = mode.startswith("all")
        self.asked: list[_Criterion] = list(asked.items())
        self.kept_under = self.asked
        self._present = {name for name, value in asked.items() if value is None}
        self._valued = {(name, value) for name, value in asked.items() if value is not None}

    def met(self, headers: dict[str, object]) -> bool:
        if self.needs_all:
            return headers.keys() >= self._present and headers.items() >= self._valued
        return not (
            headers.keys().isdisjoint(self._present) and headers.items().isdisjoint(self._valued)
        )
