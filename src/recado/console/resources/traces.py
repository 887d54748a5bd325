"""Traces: the paths of messages through exchanges, queues, dead letters and consumers."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from recado.amqp.errors import AccessRefusedError

from ..access import Access
from ..body import read_body
from ..message_trace import TracedMessage, TraceFilter, describe_event
from ..query import Listing
from ..request import NO_CONTENT, Answer, ApiError, ApiRequest, bad_request, not_found
from ..routes import API, Content
from ..trace_table import DURATION_DEFAULT_S, DURATION_MAX_S, RunningTrace
from .messages import ShortText
from .queue_operations import Selector
from .topology import access_to


class TraceToStart(msgspec.Struct):
    """Which messages to follow, and for how long. With several conditions, all must hold."""

    vhost: ShortText
    message_id: ShortText = ""
    correlation_id: ShortText = ""
    selector: Selector = ""
    duration: Annotated[
        int,
        msgspec.Meta(ge=1, le=DURATION_MAX_S, description="Seconds until the trace stops itself."),
    ] = DURATION_DEFAULT_S


@API.add(
    "POST",
    "/api/traces",
    Access.ADMINISTRATOR,
    answers=(201, 429),
    body=TraceToStart,
)
def start_trace(request: ApiRequest) -> Answer:
    """Follow messages that are published to a vhost from now on, if they match; the answer has the `id` of the trace.

    The last 500 matching messages are kept, with 100 events each, and at most 1,000 in a second are chosen.
    """
    body = read_body(request, TraceToStart)
    vhost = request.broker.vhosts.get(body.vhost)
    if vhost is None:
        raise ApiError(404, "not_found", f"vhost '{body.vhost}' not found")
    access_to(request, vhost)
    for name in ("message_id", "correlation_id"):
        if len(getattr(body, name).encode()) > 255:
            raise bad_request(f"{name}: longer than 255 bytes")
    running = request.console.traces.start(
        vhost,
        TraceFilter(body.message_id, body.correlation_id, body.selector),
        request.message_access.parse_selector(body.selector),
        user=request.user.name,
        duration_s=body.duration,
    )
    return Answer(201, body={"id": running.id})


@API.add("GET", "/api/traces", Access.ADMINISTRATOR, content=Content.LIST)
def list_traces(request: ApiRequest) -> Answer:
    """List the traces that run, and those that were stopped in the last hour."""
    return Answer(
        listing=Listing(request.console.traces.list(), RunningTrace.describe, lambda each: each.id)
    )


@API.add("GET", "/api/traces/{trace}", Access.ADMINISTRATOR)
def get_trace(request: ApiRequest) -> Answer:
    """Return a trace and the messages that it follows, the newest first."""
    running = _find_trace(request)
    messages = [_summary_object(each) for each in reversed(running.trace.messages.values())]
    return Answer(body={**running.describe(), "messages": messages})


@API.add("GET", "/api/traces/{trace}/messages/{message}", Access.ADMINISTRATOR)
def get_path(request: ApiRequest) -> Answer:
    """Return what has happened to a message, and to those with an id in common, such as its reply.

    Properties and the first 4 KiB of the body are shown to users who may read all queues that the message has entered.
    """
    running, text = _find_trace(request), request.parameters["message"]
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0
    message = running.trace.messages.get(number)
    if message is None:
        raise not_found()
    related = running.trace.find_related(message)
    return Answer(
        body={
            "number": message.number,
            "messages": [
                {
                    **_summary_object(each),
                    **_content_object(request, running, each),
                    "events": [describe_event(event) for event in each.events],
                    "omitted_events": each.omitted_event_count,
                }
                for each in related
            ],
        }
    )


@API.add("POST", "/api/traces/{trace}/stop", Access.ADMINISTRATOR, answers=(204,))
def stop_trace(request: ApiRequest) -> Answer:
    """Follow no more messages; what was found can be read for an hour."""
    request.console.traces.stop(_find_trace(request))
    return NO_CONTENT


@API.add("DELETE", "/api/traces/{trace}", Access.ADMINISTRATOR)
def delete_trace(request: ApiRequest) -> Answer:
    """Stop a trace, and forget what it has found."""
    running = _find_trace(request)
    request.console.traces.stop(running)
    request.console.traces.forget(running)
    return NO_CONTENT


def _find_trace(request: ApiRequest) -> RunningTrace:
    running = request.console.traces.find(request.parameters["trace"])
    if running is None:
        raise not_found()
    return running


def _summary_object(message: TracedMessage) -> dict[str, Any]:
    first, last = message.events[0], message.events[-1]
    return {
        "number": message.number,
        "message_id": message.properties.message_id,
        "correlation_id": message.properties.correlation_id,
        "published_at": first.at,
        "exchange": first.exchange,
        "routing_key": first.routing_key,
        "body_bytes": message.body_bytes,
        "queues": list(message.queues),
        "event_count": len(message.events) + message.omitted_event_count,
        "last_event": describe_event(last),
    }


def _content_object(
    request: ApiRequest, running: RunningTrace, message: TracedMessage
) -> dict[str, Any]:
    """Return the content as the user sees it, or why it is not shown."""
    permissions = access_to(request, running.vhost).permissions
    try:
        for queue in message.queues:
            permissions.check_read("queue", queue)
    except AccessRefusedError as error:
        return {"content_refusal": str(error)}
    return request.message_access.describe(
        message.properties, message.body, body_bytes=message.body_bytes
    )
