"""Live views of queues over HTTP: copies of what enters, bounded, with the number of skipped messages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import recado
from recado.amqp.properties import Properties
from recado.broker.work_queue import WorkQueue
from recado.console import queue_tap
from recado.console.queue_tap import BODY_MAX_BYTES, KEPT_MAX_BYTES, KEPT_MAX_COUNT, QueueTap
from tests.broker.stage import new_broker, new_queue, open_channel, published

from .http import Api

DEADLINE_S = 30.0


@pytest.fixture
def channel(broker: recado.Broker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def open_tap(api: Api, queue: str, **body: Any) -> str:
    reply = api.post(f"/api/queues/%2F/{queue}/tap", body)
    assert reply.status == 201, reply
    return str(reply.body["id"])


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_messages_are_shown_and_stay(channel: BlockingChannel, api: Api, kind: str) -> None:
    channel.queue_declare("q", durable=True, arguments={"x-queue-type": kind})
    channel.basic_publish("", "q", b"before")
    tap = open_tap(api, "q")
    for body in (b"one", b"\xff"):
        channel.basic_publish("", "q", body, pika.BasicProperties(headers={"n": 1}))
    found = api.get(f"/api/taps/{tap}")
    assert (found["entered"], found["skipped"], found["queue_deleted"]) == (2, 0, False)
    assert [each.pop("at") > 0 for each in found["messages"]] == [True, True]
    assert found["messages"] == [
        {
            "number": number,
            "offset": number,
            "exchange": "",
            "routing_key": "q",
            "payload_bytes": size,
            "properties": {"headers": {"n": 1}},
            "payload": payload,
            "payload_encoding": encoding,
        }
        for number, size, payload, encoding in ((1, 3, "one", "string"), (2, 1, "/w==", "base64"))
    ]
    assert len(api.get(f"/api/taps/{tap}?after=1")["messages"]) == 1
    assert api.get(f"/api/taps/{tap}?after=2")["messages"] == []
    assert api.get("/api/queues/%2F/q")["messages"] == 3
    assert api.delete(f"/api/taps/{tap}") == 204
    assert api.request("GET", f"/api/taps/{tap}").status == 404


def test_a_selector_chooses(channel: BlockingChannel, api: Api) -> None:
    channel.queue_declare("q")
    tap = open_tap(api, "q", selector="json.n > 1")
    for number in range(4):
        channel.basic_publish("", "q", b'{"n": %d}' % number)
    found = api.get(f"/api/taps/{tap}")
    assert [each["payload"] for each in found["messages"]] == ['{"n": 2}', '{"n": 3}']
    assert found["entered"] == 4
    assert api.post("/api/queues/%2F/q/tap", {"selector": "n >"}).status == 400
    channel.queue_delete("q")
    assert api.get(f"/api/taps/{tap}?after=4")["queue_deleted"] is True


def test_a_tap_that_is_not_read_keeps_little() -> None:
    """A million messages, of which it keeps a hundred; the others cost a subtraction for each run."""
    broker = new_broker()
    queue, channel = new_queue(broker, "q", max_length=1), open_channel(broker)
    assert isinstance(queue, WorkQueue)
    tap = QueueTap(queue, None, "guest", iter(range(0, 1 << 30, 1_000)).__next__)
    queue.observers += (tap,)
    bodies = [b"x"] * 1_000
    for _ in range(1_000):
        channel.publisher.publish(published("q", *bodies), 0)
    kept = tap.read(0)
    assert len(kept) == KEPT_MAX_COUNT
    assert tap.entered_count == 1_000_000
    assert tap.skipped_count == 1_000_000 - KEPT_MAX_COUNT
    tap.read(kept[-1].number)
    for _ in range(200):
        channel.publisher.publish(published("q", b"x" * (4 << 20), properties=Properties()), 0)
    kept = tap.read(0)
    assert sum(len(each.body) for each in kept) <= KEPT_MAX_BYTES + BODY_MAX_BYTES
    assert {len(each.body) for each in kept} == {BODY_MAX_BYTES}
    assert {each.body_bytes for each in kept} == {4 << 20}


def test_a_run_of_messages_with_long_properties_is_limited_too() -> None:
    broker = new_broker()
    queue, channel = new_queue(broker, "q"), open_channel(broker)
    tap = QueueTap(queue, None, "guest", lambda: 0)
    queue.observers += (tap,)
    properties = Properties(headers={"h": "x" * 100_000})
    channel.publisher.publish(published("q", *[b"x"] * 40, properties=properties), 0)
    kept = tap.read(0)
    last_bytes = len(kept[-1].properties) + 1
    assert sum(len(each.properties) + 1 for each in kept) - last_bytes < KEPT_MAX_BYTES
    assert tap.skipped_count == 40 - len(kept) > 0


def test_who_may_read_a_tap(broker: recado.Broker, channel: BlockingChannel, api: Api) -> None:
    assert broker.management_port is not None
    channel.queue_declare("q")
    tap = open_tap(api, "q")
    assert api.put("/api/users/ana", {"password": "a long one", "tags": "management"}) == 201
    ana = Api(broker.management_port, "ana", "a long one")
    read = {"configure": "", "write": "", "read": "^q$"}
    assert api.put("/api/permissions/%2F/ana", read) == 201
    assert ana.request("GET", f"/api/taps/{tap}").status == 404, "it belongs to another user"
    own = open_tap(ana, "q")
    assert ana.get(f"/api/taps/{own}")["entered"] == 0
    assert api.put("/api/permissions/%2F/ana", {**read, "read": "^none$"}) == 204
    assert ana.request("GET", f"/api/taps/{own}").status == 401
    assert ana.post("/api/queues/%2F/q/tap", {}).status == 401


def test_taps_end_and_are_limited(
    channel: BlockingChannel, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel.queue_declare("q")
    for _ in range(queue_tap.TAPS_OF_USER_MAX_COUNT):
        open_tap(api, "q")
    assert api.post("/api/queues/%2F/q/tap", {}).status == 429
    monkeypatch.setattr(queue_tap, "TAPS_OF_USER_MAX_COUNT", 100)
    monkeypatch.setattr(queue_tap, "IDLE_MAX_S", 0.2)
    tap = open_tap(api, "q")
    deadline = time.monotonic() + DEADLINE_S
    while api.request("GET", f"/api/taps/{tap}").status == 200:
        assert time.monotonic() < deadline
        time.sleep(0.5)
