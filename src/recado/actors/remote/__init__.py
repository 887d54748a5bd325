"""Actors on other nodes: transports, the wire format, delivery, monitoring and placement.

    node         the remote layer of one system           transport   the port to the transports
    peer_table   known nodes and the links to them        tcp   amqp   memory   the transports
    outbound     sending                                  wire        frames, envelopes, control messages
    inbound      receiving                                monitoring  relations, heartbeats, failure detection
    placement    creating and moving actors               remote_ref  references and replies

The path of a message: remote_ref ► outbound ► peer_table ► link; on the other node: link ► inbound ► mailbox.

Names are imported on first use, so that a program imports only the transports that it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recado.actors.serialization.class_registry import register as register

    from .amqp import AmqpSettings as AmqpSettings
    from .amqp import AmqpTransport as AmqpTransport
    from .amqp import ConnectionSharing as ConnectionSharing
    from .amqp import Storage as Storage
    from .errors import ClassNotOfferedError as ClassNotOfferedError
    from .errors import LimitExceededError as LimitExceededError
    from .errors import LinkClosedError as LinkClosedError
    from .errors import LinkLostError as LinkLostError
    from .errors import MessageRefusedError as MessageRefusedError
    from .errors import NoRouteError as NoRouteError
    from .errors import NotDeliveredError as NotDeliveredError
    from .errors import RefusalReason as RefusalReason
    from .errors import RemoteActorError as RemoteActorError
    from .errors import RemoteError as RemoteError
    from .errors import SerializationError as SerializationError
    from .events import FrameRefused as FrameRefused
    from .events import LinkClosed as LinkClosed
    from .events import LinkLost as LinkLost
    from .events import LinkRestored as LinkRestored
    from .events import LinkStillDown as LinkStillDown
    from .events import MessageRefused as MessageRefused
    from .events import NodeReachable as NodeReachable
    from .events import NodeReplaced as NodeReplaced
    from .events import NodeUnreachable as NodeUnreachable
    from .memory import MemoryNetwork as MemoryNetwork
    from .memory import MemoryTransport as MemoryTransport
    from .node import Node as Node
    from .node import TransportMixin as TransportMixin
    from .options import RemoteOptions as RemoteOptions
    from .placement.migration import NotMovableError as NotMovableError
    from .tcp.transport import TcpSettings as TcpSettings
    from .tcp.transport import TcpTransport as TcpTransport
    from .transport import Transport as Transport
    from .wire.failures import register_exception as register_exception

_EXPORTS = {
    ".serialization.class_registry": "register",
    "amqp": "AmqpSettings AmqpTransport ConnectionSharing Storage",
    "errors": "ClassNotOfferedError LimitExceededError LinkClosedError LinkLostError MessageRefusedError "
    "NoRouteError NotDeliveredError RefusalReason RemoteActorError RemoteError "
    "SerializationError",
    "events": "FrameRefused LinkClosed LinkLost LinkRestored LinkStillDown MessageRefused NodeReachable "
    "NodeReplaced NodeUnreachable",
    "memory": "MemoryNetwork MemoryTransport",
    "node": "Node TransportMixin",
    "options": "RemoteOptions",
    "placement.migration": "NotMovableError",
    "tcp.transport": "TcpSettings TcpTransport",
    "transport": "Transport",
    "wire.failures": "register_exception",
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> object:
        if name in _MODULE_OF:
            return getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
