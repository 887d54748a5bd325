"""Where a message for a key is sent next: one interface for full membership and for prefix routing."""

from __future__ import annotations

from typing import Final, Protocol

from .identifier import NodeId
from .peer_view import PeerView

FULL_MEMBERSHIP_NODES_MAX: Final = 500
"""Above this number of nodes, views of all of them cost more than the hops that they save."""


class OverlayRouter(Protocol):
    def next_hop(self, key: int) -> NodeId | None:
        """Return the node to send a message for this key to; None if this node owns the key."""
        ...


class OneHopRouter:
    """Routes with full membership: the owner is known."""

    def __init__(self, view: PeerView) -> None:
        self._view = view

    def next_hop(self, key: int) -> NodeId | None:
        owner = self._view.nearest(key)
        return None if owner == self._view.own.node_id else owner


def choose_router(full: OverlayRouter, prefix: OverlayRouter, nodes_count: int) -> OverlayRouter:
    """Return the router for a network of this size."""
    return full if nodes_count <= FULL_MEMBERSHIP_NODES_MAX else prefix
