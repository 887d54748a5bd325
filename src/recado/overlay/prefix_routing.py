"""Routing with partial knowledge: Pastry's leaf set and routing table, how a node joins, and how both are repaired.

A joining node sends `JoinThrough` with its own id as the key. Each node on the route tells it about the rows of its
table that fit, and forwards the request; the owner of the key answers with its leaf set. The joining node then
announces itself to all nodes that it has been told about, and those that take it as a leaf answer with their leaves.

When a node fails, its place in the leaf set is filled from the leaves of the farthest leaf on that side, and its place
in the table from the tables of nodes that have the same prefix. So that no failure remains unnoticed on one side only,
each node compares its leaves with those of its two neighbours now and then (`CompareLeaves`).

The core does not detect failures: it is told of them (`PeerFailed`), and of nodes that were heard of by others only, it
enters none that it holds for failed.

OPR1  Each hop is nearer to the key than the one before, or shares a longer prefix with it. So routes have no loops.
OPR2  With correct leaf sets a message for a key arrives at its owner.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .effects import SendTo
from .identifier import DIGIT_VALUES_COUNT, DIGITS_COUNT, NodeId, closeness, digit, shared_digits
from .leaf_set import LEAF_COUNT, LeafSet
from .peer_address import PeerAddress
from .routing_table import RoutingTable

FAILED_NODES_MAX: Final = 256
"""Failed nodes that are remembered, so that peers that have not noticed yet do not bring them back."""
HOPS_MAX: Final = 64
PEERS_MAX: Final = 64
"""Peers named in one message: a leaf set, or the rows of one node that fit a joining one."""
FILL_ATTEMPTS_MAX: Final = 8
"""How often another node is asked to fill a place of the table. There may be no node for it."""
FILLED_ENTRIES_MAX: Final = 8
"""Places of the table that are tried again in one round."""
ASKED_LEAVES_MAX: Final = 2
"""Leaves that are asked to replace a failed one: one of them may have failed too."""


class JoinThrough(Struct, frozen=True, array_like=True, tag="join-through"):
    """Routed to the id of the joining node."""

    newcomer: PeerAddress
    hops: int


class Peers(Struct, frozen=True, array_like=True, tag="peers"):
    """Nodes that the receiver may want to know."""

    peers: tuple[PeerAddress, ...]


class Welcome(Struct, frozen=True, array_like=True, tag="welcome"):
    """The leaves of the owner of the newcomer's id: the end of the route."""

    peers: tuple[PeerAddress, ...]


class ArrivalAnnouncement(Struct, frozen=True, array_like=True, tag="announce"):
    """The sender has joined."""

    peer: PeerAddress


class LeavesRequest(Struct, frozen=True, array_like=True, tag="leaves-request"):
    pass


class EntryRequest(Struct, frozen=True, array_like=True, tag="entry-request"):
    """Asks for a node with this place in the table of the sender, which shares the first digits with the receiver."""

    key: NodeId
    """Of the sender: the row and column are relative to it."""
    row: int
    column: int


RoutingMessage = JoinThrough | Peers | Welcome | ArrivalAnnouncement | LeavesRequest | EntryRequest


class RoutingMessageReceived(Struct, frozen=True):
    source: PeerAddress
    message: RoutingMessage


class JoinNetwork(Struct, frozen=True):
    """Join through any node of the network."""

    contact: PeerAddress


class PeerFailed(Struct, frozen=True):
    node_id: NodeId


class CompareLeaves(Struct, frozen=True):
    """Ask both neighbours for their leaves; due every few seconds."""


RoutingEvent = RoutingMessageReceived | JoinNetwork | PeerFailed | CompareLeaves
RoutingEffect = SendTo[RoutingMessage]


class PrefixRouting:
    """A `OverlayRouter` that knows about 16 log16 N nodes."""

    def __init__(self, own: PeerAddress, leaves: int = LEAF_COUNT) -> None:
        self.own = own
        self.leaf_set = LeafSet(own.node_id, leaves)
        self.table = RoutingTable(own.node_id)
        self._addresses: dict[NodeId, PeerAddress] = {}
        self._failed: dict[NodeId, None] = {}
        self._vacant: dict[tuple[int, int], int] = {}
        """Places of the table whose nodes have failed, and how often another node was asked to fill them."""
        self._effects: list[RoutingEffect] = []

    def known(self) -> list[PeerAddress]:
        """Return all nodes of the leaf set and the table."""
        return list(self._addresses.values())

    def handle(self, event: RoutingEvent, now: float) -> list[RoutingEffect]:
        match event:
            case RoutingMessageReceived(source, message):
                self._receive(source, message)
            case JoinNetwork(contact):
                self._send(contact, JoinThrough(self.own, 0))
            case PeerFailed(node):
                self._repair(node)
            case CompareLeaves():
                for side in (self.leaf_set.after(), self.leaf_set.before()):
                    if side:
                        self._send(self._addresses[side[0]], LeavesRequest())
                for place in list(self._vacant)[:FILLED_ENTRIES_MAX]:
                    self._fill(place)
        effects, self._effects = self._effects, []
        return effects

    def next_hop(self, key: int) -> NodeId | None:
        if self.leaf_set.covers(key):
            nearest = self.leaf_set.nearest(key)
            return None if nearest == self.own.node_id else nearest
        found = self.table.lookup(key)
        if found is not None:
            return found
        # The place is empty: take any known node that is nearer to the key, and shares no shorter prefix with it.
        shared = shared_digits(self.own.node_id, key)
        best = min(
            (node for node in self._addresses if shared_digits(node, key) >= shared),
            key=lambda node: closeness(key, node),
            default=None,
        )
        if best is None or closeness(key, best) > closeness(key, self.own.node_id):
            return None
        return best

    # ── messages ──────────────────────────────────────────────────────────────────────────────────

    def _receive(self, source: PeerAddress, message: RoutingMessage) -> None:
        self._failed.pop(source.node_id, None)
        match message:
            case JoinThrough(newcomer, hops):
                self._guide(newcomer, hops)
            case Peers(peers):
                self._learn(source)
                for peer in peers[:PEERS_MAX]:
                    self._learn(peer)
            case Welcome(peers):
                self._learn(source)
                for peer in peers[:PEERS_MAX]:
                    self._learn(peer)
                for peer in self.known():
                    self._send(peer, ArrivalAnnouncement(self.own))
            case ArrivalAnnouncement(peer):
                self._failed.pop(peer.node_id, None)
                self._learn(peer)
                if peer.node_id in self.leaf_set:
                    self._send(peer, Peers(self._leaves()))
            case LeavesRequest():
                self._learn(source)
                self._send(source, Peers((*self._leaves(),)))
            case EntryRequest(key, row, column):
                self._answer_entry(source, key, row, column)

    def _guide(self, newcomer: PeerAddress, hops: int) -> None:
        """Tell a joining node what it needs of the own table, and pass its request on."""
        if newcomer.node_id == self.own.node_id or hops >= HOPS_MAX:
            return
        shared = shared_digits(self.own.node_id, newcomer.node_id)
        # The first node has no prefix in common, the next one digit and so on: each contributes one row.
        peers = [self._addresses[node] for row in (hops, shared) for node in self.table.row(row)]
        next_hop = self.next_hop(newcomer.node_id)
        if next_hop is None or next_hop == newcomer.node_id:
            self._send(newcomer, Peers(tuple(dict.fromkeys(peers))[:PEERS_MAX]))
            self._send(newcomer, Welcome(self._leaves()))
        else:
            self._send(newcomer, Peers(tuple(dict.fromkeys(peers))[:PEERS_MAX]))
            self._send(self._addresses[next_hop], JoinThrough(newcomer, hops + 1))

    def _answer_entry(self, source: PeerAddress, key: NodeId, row: int, column: int) -> None:
        if not (0 <= row < DIGITS_COUNT and 0 <= column < DIGIT_VALUES_COUNT):
            return
        for peer in (self.own, *self._addresses.values()):
            node = peer.node_id
            if shared_digits(key, node) == row and digit(node, row) == column:
                self._send(source, Peers((peer,)))
                return

    def _leaves(self) -> tuple[PeerAddress, ...]:
        return tuple(self._addresses[node] for node in self.leaf_set.nodes())[:PEERS_MAX]

    def _learn(self, peer: PeerAddress) -> None:
        """Enter a node where it fits."""
        node = peer.node_id
        if node in self._failed or node == self.own.node_id:
            return
        entry = self.table.get(*self.table.position(node))
        leaves = self.leaf_set.nodes()
        is_leaf, is_entry = self.leaf_set.add(node), self.table.add(node)
        if is_leaf or is_entry:
            self._addresses[node] = peer
        # What it has displaced.
        if is_entry and entry is not None:
            self._forget_unused(entry)
        if is_leaf:
            for other in leaves:
                self._forget_unused(other)

    def _forget_unused(self, node: NodeId) -> None:
        if node not in self.leaf_set and self.table.get(*self.table.position(node)) != node:
            self._addresses.pop(node, None)

    # ── failures ──────────────────────────────────────────────────────────────────────────────────

    def _repair(self, node: NodeId) -> None:
        if node == self.own.node_id:
            return
        self._failed.pop(node, None)
        self._failed[node] = None
        if len(self._failed) > FAILED_NODES_MAX:
            del self._failed[next(iter(self._failed))]
        is_after = node in self.leaf_set.after()
        was_leaf = self.leaf_set.remove(node)
        place = self.table.remove(node)
        self._addresses.pop(node, None)
        if was_leaf:
            side = self.leaf_set.after() if is_after else self.leaf_set.before()
            asked = [self._addresses[each] for each in side] or self.known()
            for peer in asked[-ASKED_LEAVES_MAX:]:
                self._send(peer, LeavesRequest())
        if place is not None:
            self._vacant[place] = 0
            self._fill(place)

    def _fill(self, place: tuple[int, int]) -> None:
        """Ask a node of the same row to fill a place, or one of a later row, which shares the prefix as well."""
        attempt = self._vacant.pop(place)
        if self.table.get(*place) is not None or attempt >= FILL_ATTEMPTS_MAX:
            return
        self._vacant[place] = attempt + 1
        row, column = place
        mates = [node for other in range(row, DIGITS_COUNT) for node in self.table.row(other)]
        if mates:
            # Another one each time: the answer may have been a failed node too.
            mate = mates[(column + attempt) % min(len(mates), DIGIT_VALUES_COUNT)]
            self._send(self._addresses[mate], EntryRequest(self.own.node_id, row, column))

    def _send(self, peer: PeerAddress, message: RoutingMessage) -> None:
        self._effects.append(SendTo(peer, message))
