"""Updates that are still to be passed on, each a bounded number of times.

There is at most one update per node; a newer one replaces it. Those passed on least often go first. So an update
reaches all nodes in a number of rounds that grows with the logarithm of their number, and is not passed on forever.
"""

from __future__ import annotations

from .identifier import NodeId
from .membership_messages import UPDATES_BYTES_MAX, Alive, Update, size_bytes


def subject(update: Update) -> NodeId:
    """Return the node that an update is about."""
    return update.peer.node_id if isinstance(update, Alive) else update.node_id


class GossipQueue:
    TRANSMISSIONS_PER_BIT = 2
    """Transmissions of an update by one node, per bit of the number of nodes."""

    def __init__(self) -> None:
        self._updates: dict[NodeId, tuple[int, Update]] = {}
        """How often each was passed on, and the update."""

    def __len__(self) -> int:
        return len(self._updates)

    def add(self, update: Update) -> None:
        node = subject(update)
        # At the end: of equally new updates the oldest goes first.
        self._updates.pop(node, None)
        self._updates[node] = (0, update)

    def take(self, nodes_count: int, first: Update | None = None) -> tuple[Update, ...]:
        """Return the updates for the next message, and count them as passed on.

        `first` is added in any case, and not counted.
        """
        taken = [] if first is None else [first]
        room = UPDATES_BYTES_MAX - sum(map(size_bytes, taken))
        about = None if first is None else subject(first)
        limit = self.TRANSMISSIONS_PER_BIT * (nodes_count.bit_length() + 1)
        for node, (count, update) in sorted(self._updates.items(), key=lambda item: item[1][0]):
            size = size_bytes(update)
            if node == about or size > room:
                continue
            room -= size
            taken.append(update)
            if count + 1 >= limit:
                del self._updates[node]
            else:
                self._updates[node] = (count + 1, update)
        return tuple(taken)
