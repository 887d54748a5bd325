"""What happened between nodes, as values for whoever listens to the system's events."""

from __future__ import annotations

from typing import TypeAlias

from recado.actors.occurrences import Occurrence

from .faults import Refusal


class NodeUnreachable(Occurrence):
    """A node that we have to do with has been silent for too long."""

    node: str


class NodeReachable(Occurrence):
    """It speaks again."""

    node: str


class NodeReplaced(Occurrence):
    """Another node with our name has connected to this one, which refuses us until we are restarted."""

    node: str


class MessageRefused(Occurrence):
    """Another node did not process a message of ours that nobody waits for an answer to."""

    node: str
    reason: Refusal
    why: str = ""  # the other node's own account of it


class FrameRefused(Occurrence):
    """We did not process a frame of somebody else."""

    peer: str  # as the transport knows it: nobody has proved it
    reason: Refusal


class BridgeLost(Occurrence):
    """A way to others is lost, and being rebuilt: a bridge to a broker, a connection that we made."""

    bridge: str
    reason: str


class BridgeHealed(Occurrence):
    bridge: str


class BridgeDown(Occurrence):
    """It has been lost for so many seconds, and is still being rebuilt. Published every `report_interval`, so
    that the application may decide to end."""

    bridge: str
    seconds: float
    reason: str


class BridgeGone(Occurrence):
    """It was not rebuilt in time, and nobody tries any more. What waited in it has come back.

    The next message makes a new way to a single node. The server bridge of a node is given up after `give_up`
    seconds only, if that is set; then the node reaches nobody and is reached by nobody: close its system.
    """

    bridge: str
    reason: str


BridgeEvent: TypeAlias = BridgeLost | BridgeHealed | BridgeDown | BridgeGone
