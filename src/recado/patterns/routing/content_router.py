"""Content-based router: a message goes to the destination of the first condition that it matches."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..destination import DestinationLike
from ..message import Message
from ..step import FlowStep, Outputs, Send
from .message_selector import SelectorLike, to_predicate


class ContentRouter(FlowStep):
    """Send a message to the destination of the first condition that it matches.

        ContentRouter({"json.total > 1000": "orders.large", is_gift: "orders.gifts"}, otherwise="orders.small")

    A condition is a selector or a function of the message; they are tried in their order. Messages that match
    none are sent to `otherwise`; if it is None, they continue in the flow.
    """

    def __init__(
        self,
        branches: Mapping[SelectorLike, DestinationLike],
        *,
        otherwise: DestinationLike | None = None,
    ) -> None:
        self._branches = tuple(
            (to_predicate(condition), destination) for condition, destination in branches.items()
        )
        self._otherwise = otherwise

    def process(self, message: Message[Any]) -> Outputs:
        for matches, destination in self._branches:
            if matches(message):
                return (Send(destination, message),)
        return (message if self._otherwise is None else Send(self._otherwise, message),)

    def destinations(self) -> Iterable[DestinationLike]:
        yield from (destination for _, destination in self._branches)
        if self._otherwise is not None:
            yield self._otherwise
