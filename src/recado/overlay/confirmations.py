"""Which members of the newest configurations have confirmed that they have the state of their range."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from .configuration import Configuration, RangeId
from .peer_address import PeerAddress
from .range_map import RangeMap

SPARE_RANGES_MAX: Final = 64
"""Confirmations of so many ranges that are not current any more are stored, besides as many as are known."""


class Confirmations:
    def __init__(self) -> None:
        self._members: dict[RangeId, dict[PeerAddress, None]] = {}

    def add(self, range_id: RangeId, member: PeerAddress) -> None:
        self._members.setdefault(range_id, {})[member] = None

    def missing(self, configuration: Configuration) -> list[PeerAddress]:
        """Return the members that have not confirmed."""
        confirmed = self._members.get(configuration.range_id, {})
        return [member for member in configuration.members if member not in confirmed]

    def suffice(self, configuration: Configuration, alive: Container[PeerAddress]) -> bool:
        """Whether a majority has the state, with the owner if it is alive: the members learn of it from the owner."""
        confirmed = self._members.get(configuration.range_id, {})
        is_known = configuration.owner in confirmed or configuration.owner not in alive
        return is_known and configuration.is_majority(confirmed)

    def forget_old(self, known: RangeMap) -> None:
        """Drop the confirmations of ranges that are not current, if there are many."""
        if len(self._members) > 2 * len(known) + SPARE_RANGES_MAX:
            current = {configuration.range_id for _, configuration in known}
            self._members = {each: self._members[each] for each in self._members if each in current}
