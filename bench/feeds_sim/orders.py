"""The judge's part for order beyond that of one publisher: views with messages, and total order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import combinations, pairwise

from . import history as h
from .history import Life, Mark, Message, named, titled
from .verdict import Rule

Violated = Callable[[Rule, str], None]


class Views:
    """All that install a view agree on it; a member has then delivered all messages before it, and none after
    it."""

    def __init__(self, violated: Violated) -> None:
        self._violated = violated
        self._known: dict[str, h.Installed] = {}
        self._current: dict[Life, h.Installed] = {}
        self._live: dict[Life, dict[str, int]] = defaultdict(dict)
        """The last live message of each publisher that a member delivered."""

    def install(self, event: h.Installed, position: Mapping[str, int] | None) -> None:
        """`position` is how far a subscriber has come."""
        who = named(event.life)
        known = self._known.setdefault(event.view, event)
        if (known.members, known.cut) != (event.members, event.cut):
            self._violated(Rule.VIEWS, f"{who} installed another view {event.view} than others")
        if event.life not in event.members:
            self._violated(Rule.VIEWS, f"{who} installed {event.view} and is no member of it")
        self._current[event.life] = event
        if position is None:
            return
        for publisher, last in event.cut.items():
            reached = position.get(publisher, 0)
            if publisher in self._live[event.life] and reached != last:
                told = f"installed {event.view} at {publisher}:{reached}, its cut is {last}"
                self._violated(Rule.VIEWS, f"{who} {told}")

    def delivered(self, event: h.Delivered) -> None:
        if event.mark is not Mark.LIVE:
            return
        current = self._current.get(event.life)
        last = event.first + len(event.checks) - 1
        who = named(event.life)
        if current is None:
            self._violated(Rule.VIEWS, f"{who} got {event.publisher}:{last} live without a view")
        elif event.view != current.view:
            told = f"got {event.publisher}:{last} of view {event.view} in {current.view}"
            self._violated(Rule.VIEWS, f"{who} {told}")
        elif event.first <= current.cut.get(event.publisher, 0):
            told = f"got {event.publisher}:{event.first} live in {current.view}, behind its cut"
            self._violated(Rule.VIEWS, f"{who} {told}")
        self._live[event.life][event.publisher] = last


class TotalOrder:
    """Two members that go from one view to the same next one have delivered its live messages in the same
    order; so have those that are still in it. Nothing is required of a member that failed in a view, or went to
    another one: it may have known positions in the order that the others never heard of."""

    def __init__(self, violated: Violated) -> None:
        self._violated = violated
        self._current: dict[Life, str] = {}
        self._orders: dict[tuple[str, str], dict[Life, list[Message]]] = defaultdict(dict)
        """By a view and the next one."""
        self._open: dict[Life, list[Message]] = {}

    def delivered(self, life: Life, message: Message) -> None:
        self._open.setdefault(life, []).append(message)

    def install(self, event: h.Installed) -> None:
        self._end(event.life, event.view)
        self._current[event.life] = event.view

    def died(self, life: Life) -> None:
        self._open.pop(life, None)

    def _end(self, life: Life, following: str) -> None:
        order = self._open.pop(life, None)
        if order:
            self._orders[self._current.get(life, ""), following][life] = order

    def compare(self) -> None:
        for life in list(self._open):
            self._end(life, "")
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
