"""One start of a node: its id, incarnation, network and address."""

from typing import NewType

from msgspec import Struct

from .identifier import NodeId

NetworkId = NewType("NetworkId", int)
"""A random number of 63 bits that the first node of a network draws and joining nodes adopt. So two networks that were
started apart never mix, even if they have the same secret, or if an address of one is reused in the other."""
Incarnation = NewType("Incarnation", int)
"""Grows with each start of a node: milliseconds since 1970, or one more than the last known to the network."""


class PeerAddress(Struct, frozen=True, array_like=True):
    """One start of a node, and where it is reached."""

    node_id: NodeId
    incarnation: Incarnation
    network_id: NetworkId
    address: str
