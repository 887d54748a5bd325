"""The header `x-delivery-count`: quorum queues tell consumers how often a message was redelivered.

The count belongs to the queue: it is only in the header of delivered messages. A dead letter has the header
as its publisher set it.
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
    """Return the messages with the header. A message whose header would exceed a frame stays unchanged."""
    if run.prefix:
        prefix, payloads = _add_header(run.prefix, run), run.payloads
    else:
        prefix, payloads = b"", [_add_header(payload, run) for payload in run.payloads]
    return Run(run.origin, run.traits, run.channel, run.frame_max, prefix, payloads, False)


def _add_header(content: bytes, run: Run) -> bytes:
    """Return a message (header frame and following frames) with the header added."""
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
