"""Message channels in the sense of Hohpe and Woolf: the places to which messages are sent and from which they come.

The glossary calls them destinations, because a channel is AMQP's multiplexed session.

    PointToPoint("orders")                        a queue: each message goes to one of its consumers
    PublishSubscribe("events")                    an exchange: each subscriber has a queue and gets every message
    LogStream("history")                           a stream: subscribers read it from any position, again and again

A plain string means `PointToPoint`. A name that AMQP cannot carry raises `CompositionError` at once: a flow that makes
names of messages then dead-letters the message.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from .errors import CompositionError

NAME_MAX_BYTES = 255  # a short string of AMQP

QueueType: TypeAlias = Literal["quorum", "classic"]
ExchangeType: TypeAlias = Literal["topic", "fanout", "direct", "headers", "regex"]


class PointToPoint(msgspec.Struct, frozen=True):
    """A durable queue of that name.

    A quorum queue counts the deliveries of each message, so attempts are exact even if workers are killed;
    a classic queue has priorities.
    """

    name: str
    queue_type: QueueType = "quorum"
    arguments: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        _check_name("queue", self.name)


class PublishSubscribe(msgspec.Struct, frozen=True):
    """A durable exchange of that name. `regex` exchanges exist on recado only."""

    name: str
    type: ExchangeType = "topic"
    arguments: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        _check_name("exchange", self.name)


class LogStream(msgspec.Struct, frozen=True):
    """A stream of that name: reading removes nothing."""

    name: str
    arguments: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        _check_name("stream", self.name)


def _check_name(kind: str, name: str) -> None:
    if name.isascii() and len(name) <= NAME_MAX_BYTES:
        return
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise CompositionError(
            f"{kind} {name!r:.100}: the name is not valid text: {error}"
        ) from None
    if size > NAME_MAX_BYTES:
        raise CompositionError(
            f"{kind} {name!r:.100}: the name has {size} bytes, but at most {NAME_MAX_BYTES} are possible"
        )


Destination: TypeAlias = PointToPoint | PublishSubscribe | LogStream
DestinationLike: TypeAlias = str | Destination


def to_destination(destination: DestinationLike) -> Destination:
    """Return a destination; a string is the name of a point-to-point queue."""
    return PointToPoint(destination) if isinstance(destination, str) else destination
