"""Where ranges should be: a pure function of the alive nodes.

A key belongs to the node nearest to it. Its range is stored there and by the K ring neighbours of that node,
alternately before and after it. They are chosen by the position of the owner, not of the key, so that all keys of
an owner have the same members and one range suffices. And they are on both sides, because after a failure the
nearest nodes to the keys of the failed one are its two neighbours: both have the state already. If a node fails,
only the ranges of which it was a member change, its own and those of K neighbours.

PL1  The parts of a placement divide the arc.
PL2  In a failover, a majority of the members of each part, with the owner, had the state before. So the successors work
     at once, and tolerate the next failure as soon as the other members have the state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from .configuration import Arc, Configuration
from .identifier import RING_MODULUS, NodeId, TopicKey, boundary, clockwise, closeness
from .peer_address import PeerAddress


class Ring:
    """The nodes that may own ranges, sorted by id."""

    def __init__(self, peers: Iterable[PeerAddress]) -> None:
        self.peers = {peer.node_id: peer for peer in peers}
        self.ids: list[NodeId] = sorted(self.peers)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, peer: PeerAddress) -> bool:
        return self.peers.get(peer.node_id) == peer

    def nearest(self, key: int) -> PeerAddress:
        ids = self.ids
        at = bisect_left(ids, key)
        return self.peers[
            min(ids[at - 1], ids[at % len(ids)], key=lambda node: closeness(key, node))
        ]

    def neighbours(self, node: NodeId, count: int) -> list[PeerAddress]:
        """Return other nodes next to a node, alternately before and after it, nearest first."""
        ids = self.ids
        at = bisect_left(ids, node)
        present = at < len(ids) and ids[at] == node
        others = len(ids) - present
        found: list[NodeId] = []
        before, after = at - 1, at + present
        while len(found) < min(count, others):
            for place in (before, after):
                candidate = ids[place % len(ids)]
                if candidate not in found and len(found) < count:
                    found.append(candidate)
            before, after = before - 1, after + 1
        return [self.peers[each] for each in found]

    def territories(self, arc: Arc) -> list[tuple[Arc, PeerAddress]]:
        """Divide an arc by the nodes that its keys are nearest to (PL1)."""
        parts: list[tuple[Arc, PeerAddress]] = []
        first = int(arc.first)
        while first <= arc.last:
            owner = self.nearest(first)
            last = int(arc.last)
            if len(self.ids) > 1:
                successor = self.ids[(bisect_left(self.ids, owner.node_id) + 1) % len(self.ids)]
                end = clockwise(first, boundary(owner.node_id, successor)) or RING_MODULUS
                last = min(last, first + end - 1)
            parts.append((Arc(TopicKey(first), TopicKey(last)), owner))
            first = last + 1
        return parts


def desired_successors(
    configuration: Configuration, ring: Ring, replicas: int
) -> tuple[Configuration, ...]:
    """Return the placement of an arc if all nodes of the ring had the state."""
    successors = []
    for arc, owner in ring.territories(configuration.arc):
        members = [owner, *ring.neighbours(owner.node_id, replicas)]
        successors.append(_configuration(arc, configuration.epoch + 1, members, owner))
    return tuple(successors)


def failover_successors(
    configuration: Configuration, ring: Ring, replicas: int, holders: Sequence[PeerAddress]
) -> tuple[Configuration, ...]:
    """Return a placement in which nodes with the state have a majority and own all parts (PL2).

    `holders` have the state, and are a majority of the members.
    """
    holder_ring = Ring(holders)
    successors = []
    for arc, owner in holder_ring.territories(configuration.arc):
        wanted = [owner, *ring.neighbours(owner.node_id, replicas)]
        members = [owner]
        members += [each for each in wanted if each in holder_ring and each != owner]
        members += [each for each in holders if each not in members]
        del members[max(replicas + 1, 1) :]
        strangers = [each for each in wanted if each not in members and each not in holder_ring]
        room = min(replicas + 1 - len(members), len(members) - 1)
        members += strangers[: max(0, room)]
        successors.append(_configuration(arc, configuration.epoch + 1, members, owner))
    return tuple(successors)


def is_placed(configuration: Configuration, successors: Sequence[Configuration]) -> bool:
    """Whether the configuration is already as wanted."""
    if len(successors) != 1:
        return False
    (wanted,) = successors
    return wanted.owner == configuration.owner and wanted.members == configuration.members


def _configuration(
    arc: Arc, epoch: int, members: Iterable[PeerAddress], owner: PeerAddress
) -> Configuration:
    return Configuration(arc, epoch, tuple(sorted(members, key=lambda each: each.node_id)), owner)
