"""Wire tap: a copy of each message for an observer, while the message continues.

On recado a program can also tap a queue from outside, without a step: `recado tap`, and consumers with
`x-wire-tap`. This step works on any broker, inside a flow.
"""

from collections.abc import Iterable
from typing import Any

from ..destination import DestinationLike
from ..message import Message
from ..routing import SelectorLike, to_predicate
from ..step import FlowStep, Outputs, Send


class WireTap(FlowStep):
    """Send a copy of each message to `to`; with a condition, of each message that matches.

    The copy has no return address, so an observer that replies disturbs no requester.
    """

    def __init__(self, to: DestinationLike, condition: SelectorLike | None = None) -> None:
        self._to = to
        self._matches = None if condition is None else to_predicate(condition)

    def process(self, message: Message[Any]) -> Outputs:
        if self._matches is not None and not self._matches(message):
            return (message,)
        return (Send(self._to, message.as_new()), message)

    def destinations(self) -> Iterable[DestinationLike]:
        return (self._to,)
