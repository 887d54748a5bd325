"""The nearest nodes on both sides of the ring (Pastry's leaf set).

With complete leaf sets every key is routed to its owner: the owner of a key between two leaves is one of the leaves.

LS1  The set has the `size / 2` nearest known nodes in each direction.
LS2  `covers(key)` is true only if no unknown node can be nearer to the key than the nearest leaf, given LS1.
"""

from __future__ import annotations

from bisect import insort
from typing import Final

from .identifier import RING_MODULUS, NodeId, clockwise, closeness

LEAF_COUNT: Final = 16
"""Pastry's |L|: eight on each side."""


class LeafSet:
    def __init__(self, own: NodeId, size: int = LEAF_COUNT) -> None:
        self.own = own
        self._side = size // 2
        # By distance from this node, nearest first.
        self._after: list[tuple[int, NodeId]] = []
        self._before: list[tuple[int, NodeId]] = []

    def __contains__(self, node: NodeId) -> bool:
        after, before = clockwise(self.own, node), clockwise(node, self.own)
        return (after, node) in self._after or (before, node) in self._before

    def __len__(self) -> int:
        return len(self.nodes())

    @property
    def is_whole_ring(self) -> bool:
        """Whether both sides meet: the network is not larger than the leaf set, or not complete."""
        if len(self._after) < self._side or len(self._before) < self._side:
            return True
        return self._after[-1][0] + self._before[-1][0] >= RING_MODULUS

    def nodes(self) -> list[NodeId]:
        """Return the leaves, anticlockwise ones first, each once."""
        ordered = [node for _, node in reversed(self._before)] + [node for _, node in self._after]
        return list(dict.fromkeys(ordered))

    def after(self) -> list[NodeId]:
        """Return the leaves clockwise from this node, nearest first."""
        return [node for _, node in self._after]

    def before(self) -> list[NodeId]:
        return [node for _, node in self._before]

    def add(self, node: NodeId) -> bool:
        """Add a node if it is among the nearest; return whether the set has changed."""
        if node == self.own:
            return False
        after = self._insert(self._after, clockwise(self.own, node), node)
        before = self._insert(self._before, clockwise(node, self.own), node)
        return after or before

    def _insert(self, side: list[tuple[int, NodeId]], gap: int, node: NodeId) -> bool:
        if len(side) == self._side and gap >= side[-1][0]:
            return False
        if (gap, node) in side:
            return False
        insort(side, (gap, node))
        del side[self._side :]
        return True

    def remove(self, node: NodeId) -> bool:
        """Remove a node; return whether it was a leaf."""
        was_leaf = node in self
        self._after = [each for each in self._after if each[1] != node]
        self._before = [each for each in self._before if each[1] != node]
        return was_leaf

    def covers(self, key: int) -> bool:
        """Whether the key is within the range of the leaves, so that its owner is a leaf or this node."""
        if self.is_whole_ring:
            return True
        ahead, behind = clockwise(self.own, key), clockwise(key, self.own)
        return ahead <= self._after[-1][0] or behind <= self._before[-1][0]

    def nearest(self, key: int) -> NodeId:
        """Return the nearest to the key of the leaves and this node."""
        return min([self.own, *self.nodes()], key=lambda node: closeness(key, node))
