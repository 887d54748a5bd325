"""What happened between nodes, as values for whoever listens to the system's events."""

from __future__ import annotations

from typing import TypeAlias

from recado.actors.actor_events import ActorEvent

from .errors import RefusalReason


class NodeUnreachable(ActorEvent):
    """A node that we have to do with has been silent for too long."""

    node: str


class NodeReachable(ActorEvent):
    """It speaks again."""

    node: str


class NodeReplaced(ActorEvent):
    """Another node with our name has connected to this one, which refuses us until we are restarted."""

    node: str


class MessageRefused(ActorEvent):
    """Another node did not process a message of ours that nobody waits for an answer to."""

    node: str
    reason: RefusalReason
    detail: str = ""  # the other node's own account of it


class FrameRefused(ActorEvent):
    """We did not process a frame of somebody else."""

    peer: str  # as the transport knows it: nobody has proved it
    reason: RefusalReason


class LinkLost(ActorEvent):
    """A way to others is lost, and being rebuilt: a bridge to a broker, a connection that we made."""

    link: str
    reason: str


class LinkRestored(ActorEvent):
    link: str


class LinkStillDown(ActorEvent):
    """It has been lost for so many seconds, and is still being rebuilt. Published every `report_interval`, so
    that the application may decide to end."""

    link: str
    down_seconds: float
    reason: str


class LinkClosed(ActorEvent):
    """It was not rebuilt in time, and nobody tries any more. What waited in it has come back.

    The next message makes a new way to a single node. The server bridge of a node is given up after `give_up`
    seconds only, if that is set; then the node reaches nobody and is reached by nobody: close its system.
    """

    link: str
    reason: str


LinkEvent: TypeAlias = LinkLost | LinkRestored | LinkStillDown | LinkClosed
