"""Names of the exchanges, queues and routing keys of bridges; all nodes use the same scheme.

    exchange  actor.exchange.in.NODE        direct; declared by the server bridge of NODE
    queue     actor.queue.in.NODE           messages to NODE, by the key  to.server.NODE
    queue     actor.queue.out.NODE.CLIENT   messages from NODE to CLIENT, by the key  client.NODE.CLIENT

The names are those of the dissertation by Carmo.
"""

from __future__ import annotations

from typing import Final

SHORT_STRING_MAX_BYTES: Final = 255  # of an AMQP short string


def inbound_exchange(node: str) -> str:
    return f"actor.exchange.in.{node}"


def inbound_queue(node: str) -> str:
    return f"actor.queue.in.{node}"


def key_to_server(node: str) -> str:
    return f"to.server.{node}"


def outbound_queue(node: str, client_id: str) -> str:
    return f"actor.queue.out.{node}.{client_id}"


def key_to_client(node: str, client_id: str) -> str:
    return f"client.{node}.{client_id}"


def check_names(node: str, client_id: str = "") -> None:
    """Raise ValueError if a name with these parts would be too long for AMQP, or if the node has no name."""
    if not node:
        raise ValueError("a node on a broker needs a name")
    # One of these is the longest name: the second, if the client id has more than one byte.
    names = inbound_exchange(node), outbound_queue(node, client_id)
    excess = max(len(name.encode()) for name in names) - SHORT_STRING_MAX_BYTES
    if excess > 0:
        raise ValueError(
            f"the names of node {node!r} and client {client_id!r} are {excess} bytes too long for AMQP"
        )
