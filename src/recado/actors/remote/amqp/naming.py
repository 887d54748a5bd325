"""The names of what the bridges have on a broker; the same for everybody, so that all find each other.

    exchange  actor.exchange.in.NODE        direct; the server bridge of NODE has made it
    queue     actor.queue.in.NODE           to it, by the key  to.server.NODE
    queue     actor.queue.out.NODE.CLIENT   from it, by the key  client.NODE.CLIENT

They are those of the dissertation.
"""

from __future__ import annotations

from typing import Final

LONGEST: Final = 255  # bytes of an AMQP short string


def exchange_in(node: str) -> str:
    return f"actor.exchange.in.{node}"


def queue_in(node: str) -> str:
    return f"actor.queue.in.{node}"


def key_to_server(node: str) -> str:
    return f"to.server.{node}"


def queue_out(node: str, client: str) -> str:
    return f"actor.queue.out.{node}.{client}"


def key_to_client(node: str, client: str) -> str:
    return f"client.{node}.{client}"


def check_names(node: str, client: str = "") -> None:
    """ValueError if no name with these in it could be written."""
    if not node:
        raise ValueError("a node on a broker needs a name")
    # The longest of them; the exchange's is as long as this with an empty client.
    size = len(max(exchange_in(node), queue_out(node, client), key=len).encode())
    if size > LONGEST:
        raise ValueError(f"node {node!r} and client {client!r} are {size - LONGEST} bytes too long")
