"""How often a message came back: quorum queues count it and tell the next consumer.

The count is the queue's and not the message's: it stands in the header `x-delivery-count` of what a consumer is
sent, and nowhere else. A dead letter says of it what its publisher said.
"""

from recado.amqp.frames import (
    CONTENT_HEADER_START,
    FRAME_END,
    FRAME_START,
    PROPERTIES_OFFSET,
    find_header_end,
)
from recado.amqp.properties import decode_properties, encode_properties
from recado.amqp.values import STORED_MAX_ENTRY_COUNT, Int64

from .run import Run

DELIVERY_COUNT_HEADER = "x-delivery-count"


def add_delivery_count(run: Run) -> Run:
    """The messages as the next consumer is to see them. One whose header would not fit stays as it is."""
    if run.prefix:
        head, tails = _add_header(run.prefix, run), run.payloads
    else:
        head, tails = b"", [_add_header(tail, run) for tail in run.payloads]
    return Run(run.origin, run.traits, run.channel, run.frame_max, head, tails, False)


def _add_header(content: bytes, run: Run) -> bytes:
    """A header frame, with whatever follows it, that tells the count."""
    at = find_header_end(content)
    properties = decode_properties(
        content[PROPERTIES_OFFSET : at - 1], max_entries=STORED_MAX_ENTRY_COUNT
    )
    properties.headers = {
        **(properties.headers or {}),
        DELIVERY_COUNT_HEADER: Int64(run.delivery_count),
    }
    encoded = encode_properties(properties)
    kind, channel, _, class_id, weight, body = CONTENT_HEADER_START.unpack_from(content)
    size = PROPERTIES_OFFSET - FRAME_START.size + len(encoded)
    start = CONTENT_HEADER_START.pack(kind, channel, size, class_id, weight, body)
    header = start + encoded + FRAME_END
    return header + content[at:] if len(header) <= run.frame_max else content
