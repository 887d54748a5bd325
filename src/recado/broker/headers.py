"""Headers exchange: a binding's arguments are the headers that it wants to see.

`x-match` says how many of them: `all` (the default) or `any`. Arguments whose name begins with `x-`
are no criteria, unless it is `all-with-x` or `any-with-x`. A criterion without a value (void) wants
its header to be there, whatever it holds. Of no criteria at all, "all" are met and "any" are not.
"""

from typing import Final, Generic, TypeVar

from recado.amqp.errors import PreconditionFailed
from recado.amqp.values import Table

from .binding import DEAD_LETTER_BINDING, Binding
from .checks import comparable, shown, type_name

T = TypeVar("T")

_MODES: Final = ("all", "any", "all-with-x", "any-with-x")


class HeadersMatcher(Generic[T]):
    """Looks at one binding after the other, as RabbitMQ does."""

    __slots__ = ("_criteria",)

    def __init__(self) -> None:
        self._criteria: dict[Binding[T], _Criteria] = {}

    def add(self, binding: Binding[T]) -> None:
        self._criteria[binding] = _Criteria(binding.arguments)

    def remove(self, binding: Binding[T]) -> None:
        del self._criteria[binding]

    def match(self, key: str, headers: Table) -> list[Binding[T]]:
        present = {name: comparable(value) for name, value in headers.items()}
        return [binding for binding, criteria in self._criteria.items() if criteria.met(present)]


class _Criteria:
    """What one binding asks for, taken apart once."""

    __slots__ = ("_needs_all", "_present", "_valued")

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
        self._needs_all = mode.startswith("all")
        self._present = {name for name, value in asked.items() if value is None}
        self._valued = {(name, value) for name, value in asked.items() if value is not None}

    def met(self, headers: dict[str, object]) -> bool:
        if self._needs_all:
            return headers.keys() >= self._present and headers.items() >= self._valued
        return not (
            headers.keys().isdisjoint(self._present) and headers.items().isdisjoint(self._valued)
        )
