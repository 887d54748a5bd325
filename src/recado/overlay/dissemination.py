"""How a notification reaches many subscriber nodes without overloading one: directly, or over a tree of relays.

Up to `direct_max` subscriber nodes the owner sends each its copy. Above, the nodes form a tree by the digits of their
ids: below the owner there is a segment for each first digit, below its head one for each second digit, and so on. The
head of a segment is the node with the smallest id in it, and relays to at most `fan_out` others. The tree depends on
the set of nodes only, so every node that knows the set computes the same, and a change of one node changes only the
few assignments on its path.

Selectors are evaluated as late as possible but before a copy is sent for nothing: each relay evaluates those of its own
subscriptions, and those of the nodes below it that relay nothing. So the work of a hot topic is spread over all relays.

DP1  Every subscriber node is reached exactly once.
DP2  In a tree no node sends more than `fan_out` copies.
DP3  Removing or adding a node changes at most two assignments per level, and three more.
DP4  The subscriptions of each subscriber node are evaluated at exactly one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from .identifier import NodeId

DIRECT_NODES_MAX: Final = 256
COPIES_MAX: Final = 16


class Assignment(Struct, frozen=True, array_like=True):
    """What one node does with each notification of a topic."""

    relays: tuple[NodeId, ...]
    """Nodes that get each notification and have assignments of their own."""
    leaves: tuple[NodeId, ...]
    """Nodes that get a copy only if one of their subscriptions matches, which is evaluated here."""

    @property
    def copies_max(self) -> int:
        return len(self.relays) + len(self.leaves)


NOTHING: Final = Assignment((), ())


class Plan(Struct, frozen=True):
    """The assignments of all nodes of a topic."""

    version: int
    owner: NodeId
    assignments: dict[NodeId, Assignment]
    """Of the owner and the relays."""

    def assignment(self, node: NodeId) -> Assignment:
        return self.assignments.get(node, NOTHING)

    def evaluates(self, node: NodeId) -> tuple[NodeId, ...]:
        """Return the nodes whose subscriptions are evaluated at this node, itself included if it relays."""
        if node not in self.assignments:
            return ()
        return (node, *self.assignments[node].leaves)

    def changes(self, earlier: Plan | None) -> dict[NodeId, Assignment]:
        """Return the assignments that differ from those of an earlier plan; `NOTHING` for former relays."""
        if earlier is None:
            return dict(self.assignments)
        changed = {
            node: assignment
            for node, assignment in self.assignments.items()
            if earlier.assignments.get(node) != assignment
        }
        for node in earlier.assignments:
            if node not in self.assignments:
                changed[node] = NOTHING
        return changed


def plan_dissemination(
    owner: NodeId,
    subscribers: Iterable[NodeId],
    version: int,
    *,
    direct_max: int = DIRECT_NODES_MAX,
    fan_out: int = COPIES_MAX,
) -> Plan:
    """Plan the way to a set of subscriber nodes. `fan_out` is a power of two, at least 2."""
    if fan_out < 2 or fan_out & (fan_out - 1):
        raise ValueError(f"fan_out is {fan_out}, and must be a power of two")
    nodes = sorted(set(subscribers) - {owner})
    if len(nodes) <= direct_max:
        return Plan(version, owner, {owner: Assignment((), tuple(nodes))})
    assignments: dict[NodeId, Assignment] = {}
    bits = fan_out.bit_length() - 1
    pending: list[tuple[NodeId, Sequence[NodeId], int]] = [(owner, nodes, 128 - bits)]
    while pending:
        relay, below, shift = pending.pop()
        relays: list[NodeId] = []
        leaves: list[NodeId] = []
        if len(below) <= fan_out:
            leaves.extend(below)
        else:
            for segment in _segments(below, shift):
                head, rest = segment[0], segment[1:]
                if rest:
                    relays.append(head)
                    # Below the last digit nothing is left to divide: ids are unique.
                    pending.append((head, rest, shift - bits))
                else:
                    leaves.append(head)
        assignments[relay] = Assignment(tuple(relays), tuple(leaves))
    return Plan(version, owner, assignments)


def _segments(nodes: Sequence[NodeId], shift: int) -> list[Sequence[NodeId]]:
    """Split sorted nodes, equal in all higher digits, by the digit above `shift`."""
    found: list[Sequence[NodeId]] = []
    start = 0
    for end in range(1, len(nodes) + 1):
        if end == len(nodes) or nodes[end] >> max(shift, 0) != nodes[start] >> max(shift, 0):
            found.append(nodes[start:end])
            start = end
    return found
