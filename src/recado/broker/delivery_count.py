"""How often a message came back: quorum queues count it and tell the next consumer.

The count is the queue's and not the message's: it stands in the header `x-delivery-count` of what a consumer is
sent, and nowhere else. A dead letter says of it what its publisher said.
"""

from recado.amqp.frames import END_BYTE, ENVELOPE, HEADER_START, PROPERTIES_AT, header_end
from recado.amqp.properties import decode_properties, encode_properties
from recado.amqp.values import MAX_ENTRIES_GROWN, Int64

from .run import Run

HEADER = "x-delivery-count"


def counted(run: Run) -> Run:
    """The messages as the next consumer is to see them. One whose header would not fit stays as it is."""
    if run.head:
        head, tails = _stamped(run.head, run), run.tails
    else:
        head, tails = b"", [_stamped(tail, run) for tail in run.tails]
    return Run(run.origin, run.facts, run.channel, run.frame_max, head, tails, False)


def _stamped(content: bytes, run: Run) -> bytes:
    """A header frame, with whatever follows it, that tells the count."""
    at = header_end(content)
    properties = decode_properties(content[PROPERTIES_AT : at - 1], max_entries=MAX_ENTRIES_GROWN)
    properties.headers = {**(properties.headers or {}), HEADER: Int64(run.returns)}
    encoded = encode_properties(properties)
    kind, channel, _, class_id, weight, body = HEADER_START.unpack_from(content)
    size = PROPERTIES_AT - ENVELOPE.size + len(encoded)
    start = HEADER_START.pack(kind, channel, size, class_id, weight, body)
    header = start + encoded + END_BYTE
    return header + content[at:] if len(header) <= run.frame_max else content
