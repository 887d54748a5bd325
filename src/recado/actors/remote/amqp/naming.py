"""The names of what the bridges have on a broker; the same for everybody, so that all find each other.

    exchange  actor.exchange.in.NODE        direct; the server bridge of NODE has made it
    queue     actor.queue.in.NODE           to it, by the key  to.server.NODE
    queue     actor.queue.out.NODE.CLIENT   from it, by the key  client.NODE.CLIENT

They are those of the dissertation.
"""

from __future__ import annotations

from typing import Final

SHORT_STRING_MAX_BYTES: Final = 255  # bytes of an AMQP short string


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
    """ValueError if no name with these in it could be written."""
    if not node:
        raise ValueError("a node on a broker needs a name")
    # The longest of them; the exchange's is as long as this with an empty client.
    size = len(max(inbound_exchange(node), outbound_queue(node, client_id), key=len).encode())
    if size > SHORT_STRING_MAX_BYTES:
        raise ValueError(
            f"node {node!r} and client {client_id!r} are {size - SHORT_STRING_MAX_BYTES} bytes too long"
        )
