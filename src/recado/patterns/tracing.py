"""Tracing with OpenTelemetry: spans of published and handled messages, by its conventions for messaging.

    app.intercept(Tracing())

    send orders                until the broker has confirmed messages, with links to the spans that have created them
    create orders              when a message is encoded for publishing; its context goes into the headers
    └─ process orders          while a handler runs: a child of the span that created the message, with a link to it
       ├─ create invoices      what the handler publishes
       └─ create reply         its reply

A flow has a span `process …` for each batch, with links to the messages; it is part of their trace if they have the
same one. What leaves a flow is a child of that span; behind steps with state, it is a child of the span that created
what entered the flow. A message that an aggregator has combined has links to all messages of its group
(`trace_context`). An acknowledgement has no reply, so there are no spans for settling.

`pip install 'recado[otel]'` installs the API of OpenTelemetry; without an SDK, spans are not recorded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from .destination import Destination, PublishSubscribe
from .extra import import_package
from .interceptor import Interceptor, Proceed
from .message import Message
from .trace_context import (
    TRACE_LINKS_HEADER,
    TRACE_LINKS_MAX,
    TRACE_PARENT_HEADER,
    TRACE_STATE_HEADER,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanContext, SpanKind, TracerProvider

EXTRA: Final = "otel"
_PRIVATE_QUEUE_SUFFIX: Final = re.compile(r"\.[0-9a-f]{12}$")  # see `EndpointSource`

# The correlation id and the context of the reply to the message that this task handled last: replies are published
# after the handler has returned.
_reply_context: ContextVar[tuple[str | None, Context] | None] = ContextVar(
    "recado_reply_context", default=None
)


class Tracing(Interceptor):
    """Spans around every message that an application publishes and handles."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """Raises ImportError if OpenTelemetry is not installed. Without a provider, the global one is used."""
        self._api = import_package("opentelemetry.trace", EXTRA)
        propagation = import_package("opentelemetry.trace.propagation.tracecontext", EXTRA)
        self._empty_context: Context = import_package("opentelemetry.context", EXTRA).Context()
        self._propagator = propagation.TraceContextTextMapPropagator()
        self._tracer = self._api.get_tracer("recado.patterns", tracer_provider=tracer_provider)

    def publish(self, message: Message[Any], to: Destination | None) -> Message[Any]:
        """Return the message with the context of a new span in its headers."""
        parent, links = self._find_parent(message, is_reply=to is None)
        links += self._read_links(message)
        attributes = {
            **_describe(message),
            "messaging.operation.name": "create",
            "messaging.operation.type": "create",
        }
        if isinstance(to, PublishSubscribe):
            attributes["messaging.destination.name"] = _join_names(to.name, message.key)
            if message.key:
                attributes["messaging.rabbitmq.destination.routing_key"] = message.key
        elif to is not None:
            attributes["messaging.destination.name"] = to.name
            attributes["messaging.rabbitmq.destination.routing_key"] = to.name
        span = self._tracer.start_span(
            f"create {'reply' if to is None else to.name}",
            context=parent,
            kind=self._api.SpanKind.PRODUCER,
            attributes=attributes,
            links=links,
        )
        span.end()
        fields: dict[str, str] = {}
        self._propagator.inject(fields, self._api.set_span_in_context(span, self._empty_context))
        if not fields:
            return message
        return message.with_headers({TRACE_LINKS_HEADER: None, TRACE_STATE_HEADER: None, **fields})

    async def handle(self, message: Message[Any], tag: str, proceed: Proceed) -> Any:
        """Run the handler inside a span."""
        created = self._extract(message.headers)
        span = self._tracer.start_span(
            f"process {_span_destination(message, tag)}",
            context=created,
            kind=self._api.SpanKind.CONSUMER,
            attributes=_describe_handling(message, tag),
            links=[self._api.Link(each) for each in [self._span_context(created)] if each.is_valid],
        )
        correlation_id = message.correlation_id or message.message_id
        with self._api.use_span(span, end_on_exit=True):
            try:
                result = await proceed()
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise
            else:
                if isinstance(result, Message) and result.correlation_id:
                    correlation_id = result.correlation_id
                return result
            finally:
                context = self._api.set_span_in_context(span, self._empty_context)
                _reply_context.set((correlation_id, context))

    async def send(
        self, to: Destination, headers: Sequence[Mapping[str, Any]], proceed: Proceed
    ) -> Any:
        """Wait for the confirms inside a span."""
        attributes = {
            "messaging.system": "rabbitmq",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": to.name,
        }
        kind = self._api.SpanKind.CLIENT
        return await self._run_batch(f"send {to.name}", kind, attributes, headers, proceed)

    async def handle_batch(
        self, messages: Sequence[Message[Any]], tag: str, proceed: Proceed
    ) -> Any:
        """Run the steps of a flow inside a span."""
        attributes = {
            "messaging.system": "rabbitmq",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "recado.endpoint": tag,
        }
        name = f"process {_span_destination(messages[0], tag)}"
        headers = [each.headers for each in messages]
        return await self._run_batch(
            name, self._api.SpanKind.CONSUMER, attributes, headers, proceed
        )

    async def _run_batch(
        self,
        name: str,
        kind: SpanKind,
        attributes: dict[str, str],
        headers: Sequence[Mapping[str, Any]],
        proceed: Proceed,
    ) -> Any:
        """Run something inside a span with links to the spans that have created its messages."""
        carried = [self._extract(each) for each in headers[:TRACE_LINKS_MAX]]
        contexts = [self._span_context(each) for each in carried]
        parent = None  # the current span
        is_one_trace = len({each.trace_id for each in contexts}) == 1
        if is_one_trace and not self._api.get_current_span().get_span_context().is_valid:
            parent = carried[0]
        counted: dict[str, str | int] = dict(attributes)
        if len(headers) > 1:
            counted["messaging.batch.message_count"] = len(headers)
        span = self._tracer.start_span(
            name,
            context=parent,
            kind=kind,
            attributes=counted,
            links=[self._api.Link(each) for each in contexts if each.is_valid],
        )
        with self._api.use_span(span, end_on_exit=True):
            try:
                return await proceed()
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                raise

    def _find_parent(
        self, message: Message[Any], *, is_reply: bool
    ) -> tuple[Context | None, list[Link]]:
        """Return the context in which a message is created, and a link to the current one if that is another."""
        if is_reply:
            handled = _reply_context.get()
            if handled is not None and handled[0] == message.correlation_id:
                return handled[1], []
        carried = self._extract(message.headers)
        origin = self._span_context(carried)
        current = self._api.get_current_span().get_span_context()
        if not origin.is_valid or current.trace_id == origin.trace_id:
            return None, []  # the current one
        return carried, [self._api.Link(current)] if current.is_valid else []

    def _read_links(self, message: Message[Any]) -> list[Link]:
        """Return links to the messages that were combined into this one."""
        parents = message.headers.get(TRACE_LINKS_HEADER)
        if not isinstance(parents, list):
            return []
        contexts = [
            self._span_context(self._extract({TRACE_PARENT_HEADER: parent}))
            for parent in parents[:TRACE_LINKS_MAX]
        ]
        return [self._api.Link(each) for each in contexts if each.is_valid]

    def _extract(self, headers: Mapping[str, Any]) -> Context:
        """Return the context in headers, which come from any program; an invalid one is ignored."""
        names = (TRACE_PARENT_HEADER, TRACE_STATE_HEADER)
        fields = {name: headers[name] for name in names if isinstance(headers.get(name), str)}
        context: Context = self._propagator.extract(fields, self._empty_context)
        return context

    def _span_context(self, context: Context) -> SpanContext:
        found: SpanContext = self._api.get_current_span(context).get_span_context()
        return found


def _describe(message: Message[Any]) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {"messaging.system": "rabbitmq"}
    if message.message_id is not None:
        attributes["messaging.message.id"] = message.message_id
    if message.correlation_id is not None:
        attributes["messaging.message.conversation_id"] = message.correlation_id
    return attributes


def _describe_handling(message: Message[Any], tag: str) -> dict[str, str | int]:
    attributes = {
        **_describe(message),
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "recado.endpoint": tag,
        "recado.attempt": message.attempt,
    }
    if message.key:
        attributes["messaging.rabbitmq.destination.routing_key"] = message.key
    delivery = message.delivery
    if delivery is not None:
        attributes["messaging.destination.name"] = _join_names(
            delivery.exchange, message.key, delivery.queue
        )
        attributes["messaging.message.body.size"] = len(delivery.raw_body)
    return attributes


def _join_names(*names: str) -> str:
    """Return `exchange:key:queue`, as the conventions for RabbitMQ demand, without empty and repeated names."""
    return ":".join(dict.fromkeys(each for each in names if each))


def _span_destination(message: Message[Any], tag: str) -> str:
    """Return the queue of a message; the part that is random in the name of a private one is left out."""
    delivery = message.delivery
    return tag if delivery is None else _PRIVATE_QUEUE_SUFFIX.sub("", delivery.queue)
