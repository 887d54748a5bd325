"""The preparation of a change of a range by its owner: which nodes must have the state before it is proposed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from .configuration import Configuration
from .peer_address import PeerAddress


class HandOver(Struct):
    """A change that the owner prepares, until it is proposed or aborted."""

    successors: tuple[Configuration, ...]
    invited: list[PeerAddress]
    deadline: float
    invited_at: float


def has_enough_copies(successors: Iterable[Configuration], ready: Sequence[PeerAddress]) -> bool:
    """Whether the owner and a majority of the members of each successor have the state."""
    return all(each.owner in ready and each.is_majority(ready) for each in successors)


def new_members(
    configuration: Configuration, successors: Iterable[Configuration]
) -> list[PeerAddress]:
    """Return the members of the successors that are no members now."""
    members = dict.fromkeys(member for each in successors for member in each.members)
    return [member for member in members if member not in configuration.members]
