"""The trace context of messages, in the headers of W3C Trace Context; for a combined message, those of all its parts.

    traceparent, tracestate     the span that created the message
    recado.trace-links          a list of traceparents: the messages that were combined into this one

Spans are made by `tracing`. Nothing here needs OpenTelemetry, so an aggregator keeps the links of its messages also
in a program without it.
"""

from collections.abc import Sequence
from typing import Any, Final

from .message import Message

TRACE_PARENT_HEADER: Final = "traceparent"
TRACE_STATE_HEADER: Final = "tracestate"
TRACE_LINKS_HEADER: Final = "recado.trace-links"
TRACE_LINKS_MAX: Final = 128  # as many as a span of OpenTelemetry has by default


def link_traces(combined: Message[Any], messages: Sequence[Message[Any]]) -> Message[Any]:
    """Return a combined message with the trace contexts of its messages, if they have any."""
    parents = [message.headers.get(TRACE_PARENT_HEADER) for message in messages]
    links = [each for each in parents if isinstance(each, str)][:TRACE_LINKS_MAX]
    return combined.with_headers({TRACE_LINKS_HEADER: links}) if links else combined
