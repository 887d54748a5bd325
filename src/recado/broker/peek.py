"""Peek: the messages at the front of a queue, or in a stream, as copies.

Nothing about the messages changes: neither their order nor the redelivered flag, delivery count or time to
live. An expired message is left out, because no consumer will get it.
"""

import msgspec

from recado.amqp.frames import extract_body, extract_properties

from .delivery_count import add_delivery_count
from .ready_messages import MessageReader, Selection, select
from .run import Run
from .steps import Steps
from .stream import BYTES_PER_UNIT


class PeekSettings(msgspec.Struct, frozen=True):
    """Which messages to return, and how much of them."""

    count: int
    """The maximum number of messages."""
    bytes_max: int
    """No further messages after this many bytes of bodies and properties."""
    skip: int = 0
    """The number of matching messages to leave out first."""
    body_bytes_max: int | None = None
    """The length to which bodies are truncated; None returns whole bodies."""
    message_filter: Selection | None = None


class PeekedMessage(msgspec.Struct, frozen=True):
    offset: int
    """The position of the message in its queue, or its offset in a stream."""
    redelivered: bool
    exchange: str
    routing_key: str
    properties: bytes
    """As encoded in a header frame."""
    body: bytes
    """Truncated to `PeekSettings.body_bytes_max`."""
    body_bytes: int
    """The size of the whole body."""


def peek(reader: MessageReader, settings: PeekSettings, now: int) -> Steps[list[PeekedMessage]]:
    """Return copies of messages, in order."""
    found: list[PeekedMessage] = []
    skip, size = settings.skip, 0
    while (portion := reader.read()) is not None:
        yield portion.cost
        for run in portion.runs:
            if run.expires_at is not None and run.expires_at <= now:
                continue
            low = 0
            while low < len(run):
                wanted = skip + settings.count - len(found)
                indexes, low, cost = select(settings.message_filter, run, low, wanted)
                for index in indexes[skip:]:
                    message = _copy_message(run.slice(index, index + 1), settings.body_bytes_max)
                    found.append(message)
                    size += len(message.body) + len(message.properties)
                    cost += len(message.properties) + message.body_bytes + BYTES_PER_UNIT
                    if len(found) == settings.count or size >= settings.bytes_max:
                        return found
                skip = max(skip - len(indexes), 0)
                yield cost // BYTES_PER_UNIT
    return found


def _copy_message(message: Run, body_bytes_max: int | None) -> PeekedMessage:
    rendered = add_delivery_count(message) if message.delivery_count else message
    (content,) = rendered.contents()
    body = extract_body(content)
    return PeekedMessage(
        message.first_position,
        message.redelivered,
        message.origin.exchange,
        message.origin.routing_key,
        extract_properties(content),
        body[:body_bytes_max],
        len(body),
    )
