"""Streams for a while: they are nobody's own, so they have to be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pika import BlockingConnection

STREAM = {"x-queue-type": "stream"}


@contextmanager
def declared(
    connect: Callable[..., BlockingConnection], name: str, **arguments: object
) -> Iterator[None]:
    """A stream of that name: `with declared(connect, "numbers", max_age="1h")`."""
    given = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    connect().channel().queue_declare(name, durable=True, arguments={**STREAM, **given})
    try:
        yield
    finally:
        connect().channel().queue_delete(name)
