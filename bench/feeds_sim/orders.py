"""The judge's part for order beyond that of one publisher: views with messages, and total order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import combinations, pairwise

from . import history as h
from .history import Incarnation, Mark, Message, named, titled
from .verdict import Rule

Violated = Callable[[Rule, str], None]


class Views:
    """All that install a view agree on it; a member has then delivered all messages before it, and none after
    it."""

    def __init__(self, violated: Violated) -> None:
        self._violated = violated
        self._known: dict[str, h.Installed] = {}
        self._current: dict[Incarnation, h.Installed] = {}
        self._live: dict[Incarnation, dict[str, int]] = defaultdict(dict)
        """The last live message of each publisher that a member delivered."""

    def install(self, event: h.Installed, position: Mapping[str, int] | None) -> None:
        """`position` is how far a subscriber has come."""
        who = named(event.incarnation)
        known = self._known.setdefault(event.view, event)
        if (known.members, known.cut) != (event.members, event.cut):
            self._violated(Rule.VIEWS, f"{who} installed another view {event.view} than others")
        if event.incarnation not in event.members:
            self._violated(Rule.VIEWS, f"{who} installed {event.view} and is no member of it")
        self._current[event.incarnation] = event
        if position is None:
            return
        for publisher, last in event.cut.items():
            reached = position.get(publisher, 0)
            if publisher in self._live[event.incarnation] and reached != last:
                told = f"installed {event.view} at {publisher}:{reached}, its cut is {last}"
                self._violated(Rule.VIEWS, f"{who} {told}")

    def delivered(self, event: h.Delivered) -> None:
        if event.mark is not Mark.LIVE:
            return
        current = self._current.get(event.incarnation)
        last = event.first + len(event.checks) - 1
        who = named(event.incarnation)
        if current is None:
            self._violated(Rule.VIEWS, f"{who} got {event.publisher}:{last} live without a view")
        elif event.view != current.view:
            told = f"got {event.publisher}:{last} of view {event.view} in {current.view}"
            self._violated(Rule.VIEWS, f"{who} {told}")
        elif event.first <= current.cut.get(event.publisher, 0):
            told = f"got {event.publisher}:{event.first} live in {current.view}, behind its cut"
            self._violated(Rule.VIEWS, f"{who} {told}")
        self._live[event.incarnation][event.publisher] = last


class TotalOrder:
    """Two members that go from one view to the same next one have delivered its live messages in the same
    order; so have those that are still in it. Nothing is required of a member that failed in a view, or went to
    another one: it may have known positions in the order that the others never heard of."""

    def __init__(self, violated: Violated) -> None:
        self._violated = violated
        self._current: dict[Incarnation, str] = {}
        self._orders: dict[tuple[str, str], dict[Incarnation, list[Message]]] = defaultdict(dict)
        """By a view and the next one."""
        self._open: dict[Incarnation, list[Message]] = {}

    def delivered(self, incarnation: Incarnation, message: Message) -> None:
        self._open.setdefault(incarnation, []).append(message)

    def install(self, event: h.Installed) -> None:
        self._end(event.incarnation, event.view)
        self._current[event.incarnation] = event.view

    def died(self, incarnation: Incarnation) -> None:
        self._open.pop(incarnation, None)

    def _end(self, incarnation: Incarnation, following: str) -> None:
        order = self._open.pop(incarnation, None)
        if order:
            self._orders[self._current.get(incarnation, ""), following][incarnation] = order

    def compare(self) -> None:
        for incarnation in list(self._open):
            self._end(incarnation, "")
        for (view, _), orders in self._orders.items():
            for (one, first), (other, second) in combinations(orders.items(), 2):
                places = {message: place for place, message in enumerate(first)}
                common = [each for each in second if each in places]
                for left, right in pairwise(common):
                    if places[left] > places[right]:
                        both = f"{named(one)} and {named(other)}"
                        what = f"{titled(left)} and {titled(right)} of view {view}"
                        self._violated(Rule.TOTAL, f"{both} got {what} in different orders")
                        break
