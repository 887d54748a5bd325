"""Traces of messages, on recado and on RabbitMQ."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from recado.client import ChannelClosedByBrokerError
from recado.patterns import (
    Aggregator,
    Harness,
    Message,
    Messaging,
    PointToPoint,
    PublishSubscribe,
    ReplyError,
    Retry,
    Splitter,
    Tracing,
)
from tests.client.running import in_a_loop
from tests.patterns.collected import Collected
from workshop.peers import Server

Name = Callable[[str], str]

EXTERNAL_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Recording:
    """A tracer provider that keeps its spans in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def spans(self, prefix: str = "") -> list[ReadableSpan]:
        finished = self._exporter.get_finished_spans()
        return [each for each in finished if each.name.startswith(prefix)]

    def span(self, prefix: str) -> ReadableSpan:
        (found,) = self.spans(prefix)
        return found


@pytest.fixture
def recording() -> Recording:
    return Recording()


def context_id(span: ReadableSpan) -> int:
    assert span.context is not None
    found: int = span.context.span_id
    return found


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def link_ids(span: ReadableSpan) -> list[int]:
    return [each.context.span_id for each in span.links]


def trace_count(spans: list[ReadableSpan]) -> int:
    return len({each.context.trace_id for each in spans if each.context is not None})


@in_a_loop
async def test_publish_handle_and_reply_are_one_trace(
    server: Server, name: Name, recording: Recording
) -> None:
    app, orders, notes, noted = Messaging(server.url), name("orders"), name("notes"), Collected()
    app.intercept(Tracing(recording.provider))

    @app.subscribe(orders)
    def handle(order: dict[str, int]) -> str:  # in a thread
        with recording.tracer.start_as_current_span("work"):
            return "accepted"

    @app.subscribe(notes)
    async def note(order: dict[str, int]) -> None:
        await app.request(orders, order, timeout=60)
        noted.add(order)

    async with app:
        with recording.tracer.start_as_current_span("root"):
            await app.publish(notes, {"id": 1})
        await noted.wait(1)

    root, reply = recording.span("root"), recording.span("create reply")
    note_sent, note_handled = recording.span("create notes"), recording.span("process notes")
    request, handled = recording.span("create orders"), recording.span("process orders")
    path = [root, note_sent, note_handled, request, handled]
    assert trace_count(recording.spans()) == 1
    assert [parent_id(each) for each in path] == [None, *map(context_id, path[:-1])]
    assert parent_id(recording.span("work")) == context_id(handled)
    assert parent_id(reply) == context_id(handled)
    assert link_ids(handled) == [context_id(request)]
    assert (request.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert request.attributes is not None
    message_id = request.attributes["messaging.message.id"]
    assert dict(request.attributes) == {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.destination.name": orders,
        "messaging.rabbitmq.destination.routing_key": orders,
        "messaging.message.id": message_id,
        "messaging.message.conversation_id": message_id,
    }
    assert handled.attributes is not None
    assert dict(handled.attributes) == {
        **request.attributes,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.body.size": len(b'{"id":1}'),
        "recado.endpoint": "handle",
        "recado.attempt": 1,
    }
    assert reply.attributes is not None
    assert reply.attributes["messaging.message.conversation_id"] == message_id


@in_a_loop
async def test_a_combined_message_is_linked_to_all_parts(
    server: Server, name: Name, recording: Recording, tmp_path: Path
) -> None:
    app = Messaging(server.url, store=tmp_path / "state.sqlite")
    orders, lines, totals, seen = name("orders"), name("lines"), name("totals"), Collected()
    app.intercept(Tracing(recording.provider))
    app.flow(orders, Splitter(), to=lines)
    app.flow(lines, Aggregator(lambda parts: sum(part.body for part in parts)), to=totals)

    @app.subscribe(totals)
    async def handle(message: Message[int]) -> None:
        seen.add(message)

    async with app:
        await app.publish(orders, [1, 2, 3])
        (message,) = await seen.wait(1)
    assert isinstance(message, Message)
    assert message.body == 6
    assert set(message.headers) == {"traceparent"}
    whole, parts = recording.span("create orders"), recording.spans("create lines")
    splitting = recording.span("process orders")
    assert parent_id(splitting) == context_id(whole)
    assert [parent_id(part) for part in parts] == [context_id(splitting)] * 3
    assert link_ids(recording.span("create totals")) == [context_id(part) for part in parts]
    assert trace_count(recording.spans()) == 1


@in_a_loop
async def test_errors_and_attempts_are_recorded(recording: Recording) -> None:
    app = Messaging()
    app.intercept(Tracing(recording.provider))

    @app.subscribe("orders", retry=Retry(2))
    async def handle(order: int) -> None:
        raise ValueError("no such order")

    async with Harness(app) as harness:
        with recording.tracer.start_as_current_span("root"):
            await app.publish("orders", 1)
        await harness.settled()
    created, attempts = recording.span("create orders"), recording.spans("process orders")
    assert [parent_id(each) for each in attempts] == [context_id(created)] * 2
    assert [(each.attributes or {})["recado.attempt"] for each in attempts] == [1, 2]
    for each in attempts:
        assert (each.attributes or {})["error.type"] == "ValueError"
        assert each.status.status_code is StatusCode.ERROR
        assert [event.name for event in each.events] == ["exception"]


@in_a_loop
async def test_error_replies_belong_to_the_trace_of_their_request(recording: Recording) -> None:
    app = Messaging()
    app.intercept(Tracing(recording.provider))

    @app.subscribe("orders")
    async def handle(order: int) -> int:
        raise ValueError("no such order")

    async with Harness(app):
        with pytest.raises(ReplyError, match="no such order"):
            await app.request("orders", 1, timeout=60)
        with pytest.raises(ReplyError, match="int"):
            await app.request("orders", "one", timeout=60)  # not handled, so no span is its parent
    failed, untranslated = recording.spans("create reply")
    assert parent_id(failed) == context_id(recording.span("process orders"))
    assert parent_id(untranslated) is None


@in_a_loop
async def test_names_of_spans_have_no_random_part(recording: Recording) -> None:
    app, seen = Messaging(), Collected()
    app.intercept(Tracing(recording.provider))

    @app.subscribe(PublishSubscribe("news"), tag="reader")
    async def handle(text: str) -> None:
        seen.add(text)

    async with Harness(app):
        await app.publish(PublishSubscribe("news"), "rain", key="weather")
        await seen.wait(1)
        (queue,) = [each.queue for each in app.endpoints.values()]
    created, handled = recording.span("create"), recording.span("process")
    assert (created.name, handled.name) == ("create news", "process news.reader")
    assert (created.attributes or {})["messaging.destination.name"] == "news:weather"
    assert (handled.attributes or {})["messaging.destination.name"] == f"news:weather:{queue}"


def traced(headers: dict[str, Any], recording: Recording) -> ReadableSpan:
    Tracing(recording.provider).publish(Message(body=1, headers=headers), PointToPoint("orders"))
    return recording.span("create orders")


def test_a_message_of_another_trace_stays_in_it(recording: Recording) -> None:
    with recording.tracer.start_as_current_span("forwarding") as current:
        span = traced({"traceparent": EXTERNAL_PARENT, "tracestate": "a=1"}, recording)
    assert parent_id(span) == 0xB7AD6B7169203331
    assert link_ids(span) == [current.get_span_context().span_id]
    assert span.context is not None
    assert span.context.trace_state["a"] == "1"


@pytest.mark.parametrize("value", [7, b"\xff", None, "nonsense", [EXTERNAL_PARENT], "00-0-0-0"])
def test_invalid_headers_are_ignored(value: Any, recording: Recording) -> None:
    headers = {"traceparent": value, "tracestate": value, "recado.trace-links": [value, value]}
    span = traced(headers, recording)
    assert span.parent is None
    assert link_ids(span) == []


def test_the_number_of_links_is_bounded(recording: Recording) -> None:
    span = traced({"recado.trace-links": [EXTERNAL_PARENT] * 1000}, recording)
    assert len(span.links) == 128


def test_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(
        ImportError, match=r"opentelemetry is not installed: pip install 'recado\[otel\]'"
    ):
        Tracing()


@in_a_loop
async def test_sending_and_flows_have_spans_with_links(
    server: Server, name: Name, recording: Recording
) -> None:
    app, orders, shipped, seen = Messaging(server.url), name("orders"), name("shipped"), Collected()
    app.intercept(Tracing(recording.provider))
    app.flow(orders, Splitter(lambda order: order), to=shipped, tag="flow")

    @app.subscribe(shipped)
    async def collect(item: str) -> None:
        seen.add(item)

    async with app:
        with recording.tracer.start_as_current_span("program") as program:
            await app.publish_many(orders, [["a"], ["b", "c"]])
            await app.publish(shipped, "d")
        assert sorted(await seen.wait(4)) == ["a", "b", "c", "d"]  # type: ignore[type-var]
    created = recording.spans(f"create {orders}")
    sent = recording.span(f"send {orders}")
    assert sent.kind is SpanKind.CLIENT
    assert sent.parent is not None
    assert sent.parent.span_id == program.get_span_context().span_id
    assert [each.context.span_id for each in sent.links] == [context_id(each) for each in created]
    assert sent.attributes is not None
    assert sent.attributes["messaging.batch.message_count"] == 2
    assert sent.attributes["messaging.operation.type"] == "send"
    single = recording.span(f"send {shipped}")
    assert single.attributes is not None
    assert "messaging.batch.message_count" not in single.attributes
    batches = recording.spans(f"process {orders}")
    linked = [each.context.span_id for batch in batches for each in batch.links]
    assert linked == [context_id(each) for each in created]
    assert all(each.kind is SpanKind.CONSUMER for each in batches)


@in_a_loop
async def test_a_message_that_cannot_be_sent_is_an_error_of_its_span(
    server: Server, name: Name, recording: Recording
) -> None:
    app = Messaging(server.url)
    app.intercept(Tracing(recording.provider))
    async with app:
        with pytest.raises(ChannelClosedByBrokerError):
            await app.publish(PublishSubscribe("", type="direct"), Message(body=1, user_id="eve"))
    sent = recording.span("send")
    assert sent.status.status_code is StatusCode.ERROR
    assert sent.attributes is not None
    assert sent.attributes["error.type"] == "ChannelClosedByBrokerError"
