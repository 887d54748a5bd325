"""Pastry's routing table: for each prefix of the own id and each next digit, one node that continues with that digit.

Row r has nodes that share exactly r digits with the own id; the entry in column d has the digit d at place r. A message
goes to the entry of its key, which shares at least one digit more with the key, so a route has about log16 N hops.

RT1  The entry (r, d) shares exactly r digits with the own id and has digit d at place r.
RT2  Of all nodes that it was told of for a place, and that were not removed, the table keeps the one whose other digits
     are most like the own ones. So nodes with a common prefix have different entries: none is in the tables of all,
     which would all lose it at once, and would ask each other in vain for another one.
"""

from __future__ import annotations

from collections.abc import Iterator

from .identifier import NodeId, digit, shared_digits


class RoutingTable:
    def __init__(self, own: NodeId) -> None:
        self.own = own
        self._entries: dict[tuple[int, int], NodeId] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._entries.values())

    def position(self, node: int) -> tuple[int, int]:
        """Return the row and column of another node, or of a key."""
        row = shared_digits(self.own, node)
        return row, digit(node, row)

    def get(self, row: int, column: int) -> NodeId | None:
        return self._entries.get((row, column))

    def row(self, row: int) -> list[NodeId]:
        """Return the entries of a row in the order of their columns."""
        found = [(column, node) for (at, column), node in self._entries.items() if at == row]
        return [node for _, node in sorted(found)]

    def add(self, node: NodeId) -> bool:
        """Enter a node if it suits its place better than the entry there; return whether it was entered."""
        if node == self.own:
            return False
        place = self.position(node)
        entry = self._entries.get(place)
        if entry is not None and entry ^ self.own <= node ^ self.own:
            return False
        self._entries[place] = node
        return True

    def remove(self, node: NodeId) -> tuple[int, int] | None:
        """Remove a node; return its place if it had one."""
        if node == self.own:
            return None
        place = self.position(node)
        if self._entries.get(place) != node:
            return None
        del self._entries[place]
        return place

    def lookup(self, key: int) -> NodeId | None:
        """Return the node that shares one digit more with the key than this one, if it is known."""
        return None if key == self.own else self._entries.get(self.position(key))
