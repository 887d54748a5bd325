"""Traces over HTTP: the path of a message through exchanges, queues, dead letters and its reply."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import recado
from recado.console import message_trace, trace_table

from .http import Api

DEADLINE_S = 30.0


@pytest.fixture
def channel(broker: recado.Broker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def start(api: Api, **body: Any) -> str:
    reply = api.post("/api/traces", {"vhost": "/", **body})
    assert reply.status == 201, reply
    return str(reply.body["id"])


def messages(api: Api, trace: str) -> list[Any]:
    found: list[Any] = api.get(f"/api/traces/{trace}")["messages"]
    return found


def events(api: Api, trace: str, number: int = 1) -> list[str]:
    """Return the path of a message as words."""
    (message,) = [
        each
        for each in api.get(f"/api/traces/{trace}/messages/{number}")["messages"]
        if each["number"] == number
    ]
    return [
        " ".join(
            str(each[name])
            for name in ("kind", "exchange", "queue", "offset", "reason")
            if name in each
        )
        for each in message["events"]
    ]


def test_the_path_of_a_dead_letter(channel: BlockingChannel, api: Api) -> None:
    channel.exchange_declare("dead", "fanout")
    channel.queue_declare("dead.letters")
    channel.queue_bind("dead.letters", "dead")
    channel.queue_declare("jobs", arguments={"x-dead-letter-exchange": "dead"})
    trace = start(api, message_id="m-1")
    for number in range(3):
        properties = pika.BasicProperties(message_id=f"m-{number}", headers={"n": number})
        channel.basic_publish("", "jobs", b"body", properties)
    for _ in range(2):
        method, _, _ = channel.basic_get("jobs")
        assert method is not None
    channel.basic_nack(2, requeue=False)
    channel.basic_ack(1)
    method, _, _ = channel.basic_get("dead.letters", auto_ack=True)
    assert method is not None
    (found,) = messages(api, trace)
    assert (found["number"], found["message_id"], found["queues"]) == (
        1,
        "m-1",
        ["jobs", "dead.letters"],
    )
    assert events(api, trace) == [
        "published ",
        "entered  jobs 1",
        "delivered jobs 1",
        "rejected jobs 1",
        "forwarded dead jobs 1 rejected",
        "entered dead dead.letters 0",
        "delivered dead.letters 0",
    ]
    path = api.get(f"/api/traces/{trace}/messages/1")["messages"][0]
    assert path["payload"] == "body"
    assert path["properties"]["headers"] == {"n": 1}
    assert path["events"][0]["user"] == "guest"
    assert path["events"][0]["queues"] == ["jobs"]
    assert "->" in path["events"][0]["connection"]
    assert path["events"][-1]["is_settled"] is True


def test_a_request_and_its_reply_are_one_path(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("rpc")
    trace = start(api, correlation_id="c-7")
    replies: list[bytes] = []
    channel.basic_consume(
        "amq.rabbitmq.reply-to", lambda *each: replies.append(each[3]), auto_ack=True
    )
    request = pika.BasicProperties(correlation_id="c-7", reply_to="amq.rabbitmq.reply-to")
    channel.basic_publish("", "rpc", b"request", request)
    _, properties, _ = channel.basic_get("rpc", auto_ack=True)
    assert properties is not None
    reply = pika.BasicProperties(correlation_id="c-7")
    channel.basic_publish("", properties.reply_to, b"reply", reply)
    deadline = time.monotonic() + DEADLINE_S
    while not replies and time.monotonic() < deadline:
        channel.connection.process_data_events(1)
    path = api.get(f"/api/traces/{trace}/messages/1")["messages"]
    assert [each["payload"] for each in path] == ["request", "reply"]
    kinds = [[event["kind"] for event in each["events"]] for each in path]
    assert kinds == [["published", "entered", "delivered"]] * 2


def test_a_selector_chooses_messages_without_an_id(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    trace = start(api, selector="json.price < 10 and routing_key = 'q'")
    for price in (5, 50, 7):
        channel.basic_publish("", "q", b'{"price": %d}' % price)
    channel.basic_publish("", "nowhere", b'{"price": 1}')
    assert [each["number"] for each in messages(api, trace)] == [2, 1]
    assert events(api, trace, 2) == ["published ", "entered  q 2"]
    assert api.post("/api/traces", {"vhost": "/", "selector": "price <"}).status == 400


def test_unroutable_and_purged_messages(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    trace = start(api)
    channel.basic_publish("", "none", b"1")
    channel.basic_publish("", "q", b"2")
    channel.queue_purge("q")
    channel.basic_publish("", "q", b"3")
    channel.queue_delete("q")
    assert events(api, trace, 1) == ["published ", "unroutable dropped"]
    assert events(api, trace, 2)[-1] == "purged q 0 the queue was purged"
    assert events(api, trace, 3)[-1] == "purged q 1 the queue was deleted"


def test_a_trace_ends(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    trace = start(api)
    channel.basic_publish("", "q", b"1")
    assert api.post(f"/api/traces/{trace}/stop", {}).status == 204
    channel.basic_publish("", "q", b"2")
    assert len(messages(api, trace)) == 1
    short = start(api, duration=1)
    deadline = time.monotonic() + DEADLINE_S
    while api.get(f"/api/traces/{short}")["running"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    channel.basic_publish("", "q", b"3")
    assert messages(api, short) == []
    assert [each["id"] for each in api.get("/api/traces")] == [short, trace]
    assert api.delete(f"/api/traces/{trace}") == 204
    assert api.request("GET", f"/api/traces/{trace}").status == 404


def test_traces_are_limited(
    channel: BlockingChannel, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_trace, "MESSAGES_MAX_COUNT", 10)
    monkeypatch.setattr(message_trace, "EVENTS_OF_MESSAGE_MAX_COUNT", 8)
    channel.queue_declare("q")
    trace = start(api)
    for number in range(30):
        channel.basic_publish("", "q", str(number).encode())
    found = api.get(f"/api/traces/{trace}")
    assert [each["number"] for each in found["messages"]] == list(range(30, 20, -1))
    assert found["forgotten"] == 20
    for _ in range(21):
        channel.basic_get("q", auto_ack=True)
    for _ in range(5):
        method, _, _ = channel.basic_get("q")
        assert method is not None
        assert method.delivery_tag is not None
        channel.basic_nack(method.delivery_tag)
    last = api.get(f"/api/traces/{trace}/messages/22")["messages"][0]
    assert (len(last["events"]), last["omitted_events"]) == (8, 4)
    assert last["events"][0]["kind"] == "published"
    assert last["events"][-1]["kind"] == "requeued"
    for _ in range(trace_table.TRACES_MAX_COUNT - 1):
        start(api)
    assert api.post("/api/traces", {"vhost": "/"}).status == 429
    assert api.post(f"/api/traces/{trace}/stop", {}).status == 204
    start(api)
    assert api.request("GET", f"/api/traces/{trace}").status == 404


def test_only_administrators_who_may_read_see_messages(
    broker: recado.Broker, channel: BlockingChannel, api: Api
) -> None:
    assert broker.management_port is not None
    channel.queue_declare("q")
    trace = start(api)
    channel.basic_publish("", "q", b"secret")
    for name, tags in (("mona", "monitoring"), ("adam", "administrator")):
        assert api.put(f"/api/users/{name}", {"password": "a long one", "tags": tags}) == 201
        nothing = {"configure": "", "write": "", "read": "^none$"}
        assert api.put(f"/api/permissions/%2F/{name}", nothing) == 201
    mona = Api(broker.management_port, "mona", "a long one")
    assert mona.request("GET", "/api/traces").status == 401
    assert mona.request("POST", "/api/traces", {"vhost": "/"}).status == 401
    adam = Api(broker.management_port, "adam", "a long one")
    (seen,) = adam.get(f"/api/traces/{trace}/messages/1")["messages"]
    assert "payload" not in seen
    assert "properties" not in seen
    assert "access to queue 'q'" in seen["content_refusal"]
