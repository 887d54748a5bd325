"""Message filter: messages that match continue, the rest is dropped or sent elsewhere."""

from collections.abc import Iterable
from typing import Any

from ..destination import DestinationLike
from ..message import Message
from ..step import FlowStep, Outputs, Send
from .message_selector import SelectorLike, to_predicate


class Filter(FlowStep):
    """Pass only messages that match a condition: a selector, or a function of the message.

    The other messages are sent to `otherwise`, or dropped if it is None.
    """

    def __init__(
        self, condition: SelectorLike, *, otherwise: DestinationLike | None = None
    ) -> None:
        self._matches = to_predicate(condition)
        self._otherwise = otherwise

    def process(self, message: Message[Any]) -> Outputs:
        if self._matches(message):
            return (message,)
        return () if self._otherwise is None else (Send(self._otherwise, message),)

    def destinations(self) -> Iterable[DestinationLike]:
        return () if self._otherwise is None else (self._otherwise,)
