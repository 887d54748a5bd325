"""Exchanges, queues, bindings, messages, connections and definitions over HTTP."""

from __future__ import annotations

import time

import pika
import pytest
from pika.exceptions import ConnectionClosedByBroker

import recado

from .http import Api, segment


def test_names_with_slashes_and_spaces(api: Api) -> None:
    path = f"/api/queues/%2F/{segment('my/q x')}"
    assert api.put(path, {"durable": True, "arguments": {"x-max-length": 10}}) == 201
    assert api.put(path, {"durable": True, "arguments": {"x-max-length": 10}}) == 204
    assert api.put(path, {"durable": True, "arguments": {"x-max-length": 11}}) == 400
    queue = api.get(path)
    assert (queue["name"], queue["vhost"], queue["arguments"]) == (
        "my/q x",
        "/",
        {"x-max-length": 10},
    )
    assert api.delete(path) == 204
    assert api.delete(path) == 404


def test_bindings_are_found_by_their_properties_key(api: Api) -> None:
    assert api.put("/api/queues/%2F/q", {}) == 201
    assert api.put("/api/exchanges/%2F/ex", {"type": "topic"}) == 201
    ends = "/api/bindings/%2F/e/ex/q/q"
    for body in ({"routing_key": "a.b"}, {"routing_key": "c d/e"}, {"routing_key": ""}):
        reply = api.post(ends, body)
        assert reply.status == 201
        key = segment(reply.headers["location"])
        assert api.get(f"{ends}/{key}")["routing_key"] == body["routing_key"]
    reply = api.post(ends, {"routing_key": "k", "arguments": {"n": 1}})
    assert len(api.get(ends)) == 4
    assert len(api.get("/api/queues/%2F/q/bindings")) == 5  # with that of the default exchange
    assert api.delete(f"{ends}/{segment(reply.headers['location'])}") == 204
    assert len(api.get("/api/exchanges/%2F/ex/bindings/source")) == 3
    assert api.get("/api/exchanges/%2F/ex/bindings/destination") == []
    assert api.request("GET", f"{ends}/no-such").status == 404
    assert api.post("/api/bindings/%2F/e/none/q/q", {}).status == 404


def test_publish_and_get(api: Api) -> None:
    assert api.put("/api/queues/%2F/q", {}) == 201
    publish = "/api/exchanges/%2F/amq.default/publish"
    message = {"properties": {}, "routing_key": "q", "payload_encoding": "string"}
    assert api.post(publish, {**message, "payload": "héllo"}).body == {"routed": True}
    assert api.post(
        publish,
        {
            "properties": {
                "headers": {"n": 1},
                "delivery_mode": 2,
                "message_id": "m",
                "timestamp": 7,
            },
            "routing_key": "q",
            "payload": "/wA=",
            "payload_encoding": "base64",
        },
    ).body == {"routed": True}
    assert api.post(publish, {**message, "payload": "x", "routing_key": "none"}).body == {
        "routed": False
    }
    get = {"count": 5, "encoding": "auto", "ackmode": "ack_requeue_true"}
    first, second = api.post("/api/queues/%2F/q/get", get).body
    assert (first["payload"], first["payload_encoding"]) == ("héllo", "string")
    assert (first["payload_bytes"], first["redelivered"]) == (6, False)
    assert (second["payload"], second["payload_encoding"]) == ("/wA=", "base64")
    assert second["properties"] == {
        "headers": {"n": 1},
        "delivery_mode": 2,
        "message_id": "m",
        "timestamp": 7,
    }
    again = api.post("/api/queues/%2F/q/get", {**get, "truncate": 2, "count": 1}).body
    assert (again[0]["redelivered"], again[0]["payload_bytes"]) == (True, 6)
    assert len(api.post("/api/queues/%2F/q/get", {**get, "ackmode": "ack_requeue_false"}).body) == 2
    assert api.post("/api/queues/%2F/q/get", get).body == []
    assert api.post("/api/queues/%2F/q/get", {**get, "ackmode": "none"}).status == 400
    assert api.post(publish, {**message, "payload": "x", "payload_encoding": "x"}).status == 400
    assert api.post("/api/exchanges/%2F/none/publish", {**message, "payload": ""}).status == 400


def test_rejected_messages_become_dead_letters(api: Api) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    assert api.put("/api/queues/%2F/q", {"arguments": arguments}) == 201
    assert api.put("/api/queues/%2F/dead", {}) == 201
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    api.post("/api/exchanges/%2F/amq.default/publish", message)
    get = {"count": 1, "encoding": "auto", "ackmode": "reject_requeue_false"}
    api.post("/api/queues/%2F/q/get", get)
    assert api.get("/api/queues/%2F/dead")["messages_ready"] == 1


def test_deletion_with_conditions_and_purge(broker: recado.Broker, api: Api) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"x")
    channel.queue_declare("q", passive=True)
    assert api.delete("/api/queues/%2F/q?if-empty=true") == 400
    assert api.delete("/api/queues/%2F/q/contents") == 204
    channel.basic_consume("q", lambda *_: None)
    assert api.delete("/api/queues/%2F/q?if-unused=true") == 400
    assert api.delete("/api/queues/%2F/q?if-empty=true") == 204
    connection.close()


def test_connections_channels_and_consumers(broker: recado.Broker, api: Api) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "shop"}
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=7)
    channel.queue_declare("q")
    tag = channel.basic_consume("q", lambda *_: None)
    (described,) = api.get("/api/connections")
    assert described["client_properties"]["connection_name"] == "shop"
    assert (described["user"], described["vhost"], described["state"]) == ("guest", "/", "running")
    assert described["recv_oct"] > 0
    name = segment(described["name"])
    assert api.get(f"/api/connections/{name}")["name"] == described["name"]
    (one,) = api.get(f"/api/connections/{name}/channels")
    assert (one["number"], one["consumer_count"], one["prefetch_count"]) == (1, 1, 7)
    assert (
        api.get(f"/api/channels/{segment(one['name'])}")["consumer_details"][0]["consumer_tag"]
        == tag
    )
    (consumer,) = api.get("/api/consumers/%2F")
    assert (consumer["consumer_tag"], consumer["prefetch_count"]) == (tag, 7)
    assert consumer["channel_details"]["connection_name"] == described["name"]
    reply = api.request(
        "DELETE", f"/api/connections/{name}", headers={"x-reason": "maintenance at noon"}
    )
    assert reply.status == 204
    with pytest.raises(ConnectionClosedByBroker, match="maintenance at noon"):
        connection.channel()
    assert api.request("GET", f"/api/connections/{name}").status == 404


def test_counters_and_rates(broker: recado.Broker, api: Api) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    channel.queue_declare("q")
    channel.exchange_declare("ex", "fanout")
    channel.queue_bind("q", "ex")
    channel.confirm_delivery()
    for _ in range(10):
        channel.basic_publish("ex", "", b"x")
    channel.basic_get("q")
    channel.basic_ack(1)
    channel.basic_get("q", auto_ack=True)
    channel.queue_declare("q", passive=True)
    stats = api.get("/api/queues/%2F/q")["message_stats"]
    names = ("publish", "get", "get_no_ack", "ack", "deliver_get")
    assert [stats[name] for name in names] == [10, 1, 1, 1, 2]
    assert api.get("/api/exchanges/%2F/ex")["message_stats"]["publish_in"] == 10
    overview = api.get("/api/overview")
    assert overview["queue_totals"]["messages"] == 8
    assert overview["object_totals"]["queues"] == 1
    deadline = time.monotonic() + 60
    while not api.get("/api/queues/%2F/q")["message_stats"]["publish_details"]["rate"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)  # the counters are sampled every five seconds
    series = api.get(
        "/api/queues/%2F/q?msg_rates_age=60&msg_rates_incr=5&lengths_age=60&lengths_incr=5"
    )
    assert len(series["message_stats"]["publish_details"]["samples"]) == 13
    assert len(series["messages_details"]["samples"]) == 13
    connection.close()


def test_definitions_round_trip(api: Api) -> None:
    api.put("/api/vhosts/shop", {})
    api.put("/api/queues/shop/q", {"durable": True})
    api.put("/api/exchanges/shop/ex", {"type": "topic", "durable": True})
    api.post("/api/bindings/shop/e/ex/q/q", {"routing_key": "a.*"})
    exported = api.get("/api/definitions")
    of_vhost = api.get("/api/definitions/shop")
    assert api.delete("/api/vhosts/shop") == 204
    assert api.post("/api/definitions", exported).status == 204
    assert api.get("/api/definitions") == exported
    assert api.put("/api/vhosts/copy", {}) == 201
    assert api.post("/api/definitions/copy", of_vhost).status == 204
    assert [each["name"] for each in api.get("/api/queues/copy")] == ["q"]
    broken = {**exported, "queues": [*exported["queues"], {"name": "x", "vhost": "no such"}]}
    reply = api.post("/api/definitions", broken)
    assert reply.status == 400
    assert "queues[1]" in reply.body["reason"]


def test_health(api: Api) -> None:
    anonymous = Api(api.port, user="")
    for path in ("/health/live", "/health/ready", "/health/alarms"):
        assert anonymous.get(path) == {"status": "ok"}
    assert anonymous.request("GET", "/api/overview").status == 401
    assert api.get("/api/aliveness-test/%2F") == {"status": "ok"}
    port = api.get("/api/overview")["listeners"][0]["port"]
    assert api.get(f"/api/health/checks/port-listener/{port}")["status"] == "ok"
    assert api.request("GET", "/api/health/checks/port-listener/1").status == 503
    assert api.get("/api/health/checks/protocol-listener/amqp")["status"] == "ok"
    assert api.request("GET", "/api/health/checks/protocol-listener/mqtt").status == 503


def test_a_stream_is_sorted_by_the_numbers_that_are_shown(broker: recado.Broker, api: Api) -> None:
    """Its unacknowledged messages are still in it, so they are counted once, as ready."""
    assert api.put(
        "/api/queues/%2F/log", {"durable": True, "arguments": {"x-queue-type": "stream"}}
    )
    assert api.put("/api/queues/%2F/jobs", {})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        for name, count in (("log", 2), ("jobs", 3)):
            for _ in range(count):
                channel.basic_publish("", name, b"x")
        channel.basic_qos(prefetch_count=10)
        delivered: list[bytes] = []
        channel.basic_consume(
            "log",
            lambda _channel, _method, _properties, body: delivered.append(body),
            arguments={"x-stream-offset": "first"},
        )
        while len(delivered) < 2:
            connection.process_data_events(time_limit=30)
        listed = api.get("/api/queues?sort=messages&columns=name,messages,messages_unacknowledged")
    assert listed == [
        {"name": "log", "messages": 2, "messages_unacknowledged": 0},
        {"name": "jobs", "messages": 3, "messages_unacknowledged": 0},
    ]
