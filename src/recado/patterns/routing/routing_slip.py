"""Routing slip: a message carries the list of the destinations that it still has to visit.

The slip is a header, so any program that can publish could write one. Only destinations that a step allows are
visited, and the length of a slip is limited.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from ..destination import DestinationLike, to_destination
from ..errors import CompositionError, RejectMessageError
from ..message import Message
from ..step import FlowStep, Outputs, Send

T = TypeVar("T")

ROUTING_SLIP_HEADER: Final = "recado.routing-slip"
MAX_STOPS_COUNT: Final = 32


class RoutingSlip(FlowStep):
    """Send a message to the next destination of its slip; a message at the end of its slip continues.

        slip = RoutingSlip("check", "price", "ship", plan=lambda message: ["check", "ship"])
        app.flow("orders", slip)                      # plans the slip and sends the message to "check"
        app.flow("check", CheckStock(), slip)         # works, and passes the message on

    `destinations` are the ones that slips may name; others are rejected. `plan` returns the names for a message
    without a slip; without `plan`, such a message continues.
    """

    def __init__(
        self,
        *destinations: DestinationLike,
        plan: Callable[[Message[Any]], Sequence[str]] | None = None,
    ) -> None:
        if not destinations:
            raise CompositionError("a routing slip needs the destinations that it may name")
        self._allowed = {to_destination(each).name: to_destination(each) for each in destinations}
        self._plan = plan

    def process(self, message: Message[Any]) -> Outputs:
        if ROUTING_SLIP_HEADER not in message.headers and self._plan is not None:
            stops = list(self._plan(message))
        else:
            stops = routing_slip_of(message)
        if not stops:
            return (message.with_headers({ROUTING_SLIP_HEADER: None}),)
        for stop in stops:
            if stop not in self._allowed:
                raise RejectMessageError(
                    f"routing slip: {stop!r:.100} is not an allowed destination"
                )
        return (Send(self._allowed[stops[0]], attach_routing_slip(message, stops[1:])),)

    def destinations(self) -> Iterable[DestinationLike]:
        return self._allowed.values()


def routing_slip_of(message: Message[Any]) -> list[str]:
    """Return the destinations that the message still has to visit.

    Raises `RejectMessageError` if the header is not a list of names.
    """
    stops = message.headers.get(ROUTING_SLIP_HEADER, [])
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise RejectMessageError(f"invalid header {ROUTING_SLIP_HEADER}: not a list of names")
    if len(stops) > MAX_STOPS_COUNT:
        raise RejectMessageError(f"routing slip with {len(stops)} stops, at most {MAX_STOPS_COUNT}")
    return stops


def attach_routing_slip(message: Message[T], stops: Sequence[str]) -> Message[T]:
    """Return the message with a slip. An empty slip has been visited completely."""
    if len(stops) > MAX_STOPS_COUNT:
        raise RejectMessageError(f"routing slip with {len(stops)} stops, at most {MAX_STOPS_COUNT}")
    return message.with_headers({ROUTING_SLIP_HEADER: list(stops)})
