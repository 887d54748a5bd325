"""Events of remote messaging, published to the event stream of the system."""

from __future__ import annotations

from typing import TypeAlias

from recado.actors.actor_events import ActorEvent

from .errors import RefusalReason


class NodeUnreachable(ActorEvent):
    """A node with which relations exist was silent for `failure_timeout` seconds."""

    node: str


class NodeReachable(ActorEvent):
    """An unreachable node was heard again."""

    node: str


class NodeReplaced(ActorEvent):
    """Another node with our name has connected to `node`, which refuses our frames until we are restarted."""

    node: str


class MessageRefused(ActorEvent):
    """A node did not process a message of ours that was not an ask."""

    node: str
    reason: RefusalReason
    detail: str = ""
    """The explanation of that node."""


class FrameRefused(ActorEvent):
    """This node did not process a frame of another one."""

    peer: str
    """As the transport names it, without authentication."""
    reason: RefusalReason


class LinkLost(ActorEvent):
    """A link to a node, or to the broker, is lost; the transport reconnects."""

    link: str
    reason: str


class LinkRestored(ActorEvent):
    """A lost link is connected again."""

    link: str


class LinkStillDown(ActorEvent):
    """A lost link was not restored for `down_seconds`; the transport continues to reconnect.

    Published every `report_interval`, so that the application can decide to stop.
    """

    link: str
    down_seconds: float
    reason: str


class LinkClosed(ActorEvent):
    """A link was not restored within `reconnect_timeout` seconds. Its waiting frames were returned.

    If it was the link to one node, the next message to that node opens a new link. The link to a broker closes
    only if `reconnect_timeout` is set. Then this node can neither send nor receive, and its system should be
    closed.
    """

    link: str
    reason: str


LinkEvent: TypeAlias = LinkLost | LinkRestored | LinkStillDown | LinkClosed
