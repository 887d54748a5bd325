"""The nodes that are believed to be alive, sorted by id, with this node among them.

The view has no epoch and is not agreed upon: the views of two nodes differ for a while after each change. It
decides where commands are sent first and who proposes a reconfiguration, never who may acknowledge a command.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from .identifier import RING_MODULUS, NodeId, closeness, distance
from .peer_address import PeerAddress


class Departure(Enum):
    """Why a peer is no longer in the view."""

    LEFT = "left"
    FAILED = "failed"
    RESTARTED = "restarted"
    """A later incarnation has replaced it; its `PeerAdded` follows."""


class PeerAdded(Struct, frozen=True):
    peer: PeerAddress


class PeerRemoved(Struct, frozen=True):
    peer: PeerAddress
    departure: Departure


ViewChange = PeerAdded | PeerRemoved


class PeerView:
    """A set of peers with their order on the ring."""

    def __init__(self, own: PeerAddress) -> None:
        self.own = own
        self._ids: list[NodeId] = [own.node_id]
        self._peers: dict[NodeId, PeerAddress] = {own.node_id: own}

    def __len__(self) -> int:
        """Return the number of nodes, this one included."""
        return len(self._ids)

    def __contains__(self, node: NodeId) -> bool:
        return node in self._peers

    def __iter__(self) -> Iterator[NodeId]:
        """Iterate over the ids in their order on the ring, this node's included."""
        return iter(self._ids)

    def get(self, node: NodeId) -> PeerAddress | None:
        return self._peers.get(node)

    def peers(self) -> list[PeerAddress]:
        """Return all nodes in the order of their ids, this node included."""
        return [self._peers[node] for node in self._ids]

    # ── changes ───────────────────────────────────────────────────────────────────────────────────

    def add(self, peer: PeerAddress) -> list[ViewChange]:
        """Add a peer, or replace an earlier incarnation; ignore what is known or older."""
        known = self._peers.get(peer.node_id)
        if known is None:
            insort(self._ids, peer.node_id)
            self._peers[peer.node_id] = peer
            return [PeerAdded(peer)]
        if known.incarnation >= peer.incarnation:
            return []
        self._peers[peer.node_id] = peer
        if peer.node_id == self.own.node_id:
            self.own = peer
        return [PeerRemoved(known, Departure.RESTARTED), PeerAdded(peer)]

    def remove(self, node: NodeId, departure: Departure) -> list[ViewChange]:
        """Remove a peer if it is known; this node always stays."""
        if node == self.own.node_id or node not in self._peers:
            return []
        del self._ids[bisect_left(self._ids, node)]
        return [PeerRemoved(self._peers.pop(node), departure)]

    # ── the ring ──────────────────────────────────────────────────────────────────────────────────

    def nearest(self, key: int) -> NodeId:
        """Return the node that the key belongs to."""
        ids = self._ids
        at = bisect_left(ids, key)
        before, after = ids[at - 1], ids[at % len(ids)]
        return min(before, after, key=lambda node: closeness(key, node))

    def neighbours(self, position: int, count: int) -> list[NodeId]:
        """Return the `count` nodes nearest to a key or node, nearest first; a node itself is not among them."""
        ids = self._ids
        size = len(ids)
        after = bisect_left(ids, position)
        before = after - 1
        if after < size and ids[after] == position:
            after += 1
        wanted = min(count, size - (after - before - 1))
        found: list[NodeId] = []
        while len(found) < wanted:
            one, other = ids[before % size], ids[after % size]
            if (distance(position, one), one) < (distance(position, other), other):
                found.append(one)
                before -= 1
            else:
                found.append(other)
                after += 1
        return found

    def successor(self, node: NodeId) -> NodeId:
        """Return the next node clockwise; with one node only, that node."""
        return self._ids[bisect_left(self._ids, (node + 1) % RING_MODULUS) % len(self._ids)]

    def predecessor(self, node: NodeId) -> NodeId:
        """Return the next node anticlockwise; with one node only, that node."""
        return self._ids[bisect_left(self._ids, node) - 1]
