"""Arcs of the key space, and who is responsible for one in an epoch.

A *range* is an arc of keys together with its topics, also those that do not exist yet. A `Configuration` names the
nodes that are responsible for an arc in one epoch. The first node of a network starts with one configuration for the
whole ring, in epoch 1. Every other one is a *successor*: the members of an earlier configuration have agreed on it
(`reconfiguration`), and its epoch is higher.

OCF1  Two different configurations whose arcs intersect have different epochs. So an epoch and any key of the arc
      identify a configuration, and `RangeId` uses the first key.
CF2  A member is one start of a node, with its incarnation. State is in memory, so a node that has restarted knows
     neither what it has stored nor what it has promised. It is not the member that it was, and does not vote for
     it.

Arcs do not wrap around: the first range ends at the highest key, and successors only divide it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from .identifier import RING_MODULUS, TopicKey
from .peer_address import PeerAddress


class Arc(Struct, frozen=True, array_like=True, order=True):
    """The keys from `first` to `last`, both included."""

    first: TopicKey
    last: TopicKey

    def __contains__(self, key: int) -> bool:
        return self.first <= key <= self.last

    def __str__(self) -> str:
        return f"{self.first:032x}-{self.last:032x}"

    def intersects(self, other: Arc) -> bool:
        return self.first <= other.last and other.first <= self.last

    def covers(self, other: Arc) -> bool:
        return self.first <= other.first and other.last <= self.last

    def is_followed_by(self, other: Arc) -> bool:
        """Whether the other arc begins where this one ends."""
        return self.last + 1 == other.first


WHOLE_RING: Final = Arc(TopicKey(0), TopicKey(RING_MODULUS - 1))


class RangeId(Struct, frozen=True, array_like=True, order=True):
    """Identifies a configuration (OCF1)."""

    epoch: int
    first: TopicKey

    def __str__(self) -> str:
        return f"{self.first:032x}@{self.epoch}"


class Configuration(Struct, frozen=True, array_like=True):
    """The nodes that are responsible for an arc in one epoch."""

    arc: Arc
    epoch: int
    members: tuple[PeerAddress, ...]
    """The nodes that store the range and vote, sorted by id. The owner is one of them."""
    owner: PeerAddress
    """The only node that appends commands in this epoch."""

    @property
    def range_id(self) -> RangeId:
        return RangeId(self.epoch, self.arc.first)

    @property
    def majority(self) -> int:
        """The number of members whose consent is required."""
        return len(self.members) // 2 + 1

    def is_majority(self, peers: Iterable[PeerAddress]) -> bool:
        return sum(member in peers for member in self.members) >= self.majority

    def __str__(self) -> str:
        members = ",".join(f"{each.node_id:032x}"[:6] for each in self.members)
        return f"{self.arc}@{self.epoch} owner={self.owner.node_id:032x} members={members}"


def first_configuration(own: PeerAddress) -> Configuration:
    """Return the configuration of a network of one node."""
    return Configuration(WHOLE_RING, 1, (own,), own)
