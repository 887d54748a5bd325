"""Actors on other nodes: what they are sent, how it is sealed, and how nodes watch over each other.

    node       puts the rest together, for one system    transport   the port to what carries frames
    ways       who the others are, and their links       tcp   amqp   memory   behind it
    outbound   what goes out                             sealed      what is carried, from the bytes inwards
    receiving  what comes in                             watching    signs of life
    placing    actors that start or go there

The names below are resolved when they are first used: durable mailboxes need a part of this, and no node.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recado.actors.serialising.catalogue import register as register

    from .amqp import Amqp as Amqp
    from .amqp import AmqpSettings as AmqpSettings
    from .amqp import Sharing as Sharing
    from .amqp import Storage as Storage
    from .faults import CannotSerialise as CannotSerialise
    from .faults import Cut as Cut
    from .faults import Full as Full
    from .faults import Gone as Gone
    from .faults import NotOffered as NotOffered
    from .faults import NoWay as NoWay
    from .faults import Refusal as Refusal
    from .faults import Refused as Refused
    from .faults import RemoteFailure as RemoteFailure
    from .faults import RemoteFault as RemoteFault
    from .faults import Undelivered as Undelivered
    from .memory import Hub as Hub
    from .memory import MemoryTransport as MemoryTransport
    from .node import Joining as Joining
    from .node import Node as Node
    from .occurrences import BridgeDown as BridgeDown
    from .occurrences import BridgeGone as BridgeGone
    from .occurrences import BridgeHealed as BridgeHealed
    from .occurrences import BridgeLost as BridgeLost
    from .occurrences import FrameRefused as FrameRefused
    from .occurrences import MessageRefused as MessageRefused
    from .occurrences import NodeReachable as NodeReachable
    from .occurrences import NodeReplaced as NodeReplaced
    from .occurrences import NodeUnreachable as NodeUnreachable
    from .options import Options as Options
    from .placing.moving import CannotMove as CannotMove
    from .sealed.failures import register_exception as register_exception
    from .tcp.transport import Tcp as Tcp
    from .tcp.transport import TcpSettings as TcpSettings
    from .transport import Transport as Transport

_ROOMS = {
    ".serialising.catalogue": "register",
    "amqp": "Amqp AmqpSettings Sharing Storage",
    "faults": "CannotSerialise Cut Full Gone NoWay NotOffered Refusal Refused RemoteFailure RemoteFault "
    "Undelivered",
    "memory": "Hub MemoryTransport",
    "node": "Joining Node",
    "occurrences": "BridgeDown BridgeGone BridgeHealed BridgeLost FrameRefused MessageRefused NodeReachable "
    "NodeReplaced NodeUnreachable",
    "options": "Options",
    "placing.moving": "CannotMove",
    "sealed.failures": "register_exception",
    "tcp.transport": "Tcp TcpSettings",
    "transport": "Transport",
}
_WHERE = {name: module for module, names in _ROOMS.items() for name in names.split()}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(import_module(f".{_WHERE[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
