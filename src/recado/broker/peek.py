"""Peek: the messages at the front of a queue, or in a stream, as copies.

Nothing about the messages changes: neither their order nor the redelivered flag, delivery count or time to
live. An expired message is left out, because no consumer will get it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from recado.amqp.frames import extract_body, extract_properties

from .delivery_count import add_delivery_count
from .ready_messages import MessageReader
from .run import Run
from .steps import STEP_UNITS_MAX, Steps
from .stream import BYTES_PER_UNIT

if TYPE_CHECKING:
    from .message_filter import MessageFilter

EVALUATED_MAX_COUNT: Final = STEP_UNITS_MAX // 2
"""Messages for which a selector is evaluated in a step: 10 µs each if it decodes JSON."""


class PeekSettings(msgspec.Struct, frozen=True):
    """Which messages to return, and how much of them."""

    count: int
    """The maximum number of messages."""
    bytes_max: int
    """No further messages after so many bytes of bodies and properties."""
    skip: int = 0
    """The number of matching messages to leave out."""
    body_bytes_max: int | None = None
    """The length to which bodies are truncated."""
    message_filter: "MessageFilter | None" = None


class PeekedMessage(msgspec.Struct, frozen=True):
    offset: int
    """The position of the message in its queue, or its offset in a stream."""
    redelivered: bool
    exchange: str
    routing_key: str
    properties: bytes
    """Encoded."""
    body: bytes
    """Perhaps truncated."""
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


def select(
    message_filter: "MessageFilter | None", run: Run, low: int, count_max: int
) -> tuple[Sequence[int], int, int]:
    """Return up to `count_max` matching messages of a run, as indexes from `low` on.

    Also returns the index after the last message that was evaluated, and the cost in bytes.
    """
    if message_filter is None:
        end = min(len(run), low + count_max)
        return range(low, end), end, 0
    return message_filter.select(run, low, min(len(run), low + EVALUATED_MAX_COUNT), count_max)


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
