"""Detour: messages pass through another destination while the detour is open, for tests or validation.

    detour = Detour("orders.validation")
    app.flow("orders", detour, to="orders.checked")      # the validator also sends to "orders.checked"
    detour.open = True

A control bus opens and closes detours of running programs.
"""

from collections.abc import Iterable
from typing import Any

from ..destination import DestinationLike
from ..message import Message
from ..routing import SelectorLike, to_predicate
from ..step import FlowStep, Outputs, Send


class Detour(FlowStep):
    """Send messages to `through` while `open` is true; with a condition, only those that match."""

    def __init__(
        self,
        through: DestinationLike,
        condition: SelectorLike | None = None,
        *,
        open: bool = False,  # noqa: A002  # the name of the attribute
    ) -> None:
        self.open = open
        self._through = through
        self._matches = None if condition is None else to_predicate(condition)

    def process(self, message: Message[Any]) -> Outputs:
        if self.open and (self._matches is None or self._matches(message)):
            return (Send(self._through, message),)
        return (message,)

    def destinations(self) -> Iterable[DestinationLike]:
        return (self._through,)
