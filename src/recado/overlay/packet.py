"""The envelope of every message between nodes.

| version | source: id, incarnation, network id, address | target id | target incarnation | body |

A packet says who sent it, as which incarnation in which network, and for whom it is. So a node drops what is meant for
another network, for the node that had its address before, or for its own earlier start.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final, Generic, TypeVar

from msgspec import Struct

from .identifier import NodeId, is_canonical, node_id
from .peer_address import Incarnation, NetworkId, PeerAddress

PROTOCOL_VERSION: Final = 1
ANY_NETWORK: Final = NetworkId(0)
"""The network id of a node that has not joined yet."""
ANY_INCARNATION: Final = Incarnation(0)
"""The target incarnation if the sender does not know it."""

Body = TypeVar("Body")


class Packet(Struct, Generic[Body], frozen=True, array_like=True):
    version: int
    source: PeerAddress
    target: NodeId
    target_incarnation: Incarnation
    body: Body


class Refusal(Enum):
    """Why a packet, or a claim about a node, was ignored."""

    VERSION = "version"
    NETWORK = "network"
    FORGED_ID = "forged id"
    OTHER_TARGET = "other target"
    STALE_SOURCE = "stale source"
    UNEXPECTED = "unexpected"
    EXCESS = "excess"
    """More requests than a node serves."""


class Admission:
    """Verifies the origin of packets and counts those that are refused."""

    VERIFIED_MAX: Final = 4_096
    """Ids that need not be computed again."""

    def __init__(self, secret: bytes) -> None:
        self.refused: Counter[Refusal] = Counter()
        self._secret = secret
        self._verified: dict[NodeId, str] = {}

    def refuse(self, reason: Refusal) -> bool:
        """Count a refusal; return False."""
        self.refused[reason] += 1
        return False

    def is_genuine(self, peer: PeerAddress) -> bool:
        """Whether the id of the peer is that of its address; count it if not."""
        if self._verified.get(peer.node_id) == peer.address:
            return True
        if not is_canonical(peer.address) or node_id(self._secret, peer.address) != peer.node_id:
            return self.refuse(Refusal.FORGED_ID)
        if len(self._verified) >= self.VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[peer.node_id] = peer.address
        return True

    def admits(self, packet: Packet[Body], own: PeerAddress) -> bool:
        """Whether a packet is for this node, and from a genuine node of its network or one that wants to join."""
        if packet.version != PROTOCOL_VERSION:
            return self.refuse(Refusal.VERSION)
        # A node that is joining does not know the network yet.
        is_member = own.network_id != ANY_NETWORK
        if is_member and packet.source.network_id not in (own.network_id, ANY_NETWORK):
            return self.refuse(Refusal.NETWORK)
        if packet.target != own.node_id or packet.source.node_id == own.node_id:
            return self.refuse(Refusal.OTHER_TARGET)
        if packet.target_incarnation not in (own.incarnation, ANY_INCARNATION):
            return self.refuse(Refusal.OTHER_TARGET)
        return self.is_genuine(packet.source)
