"""Dead letters of a vhost over HTTP: which queues have them, where they come from, and why they died."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import recado

from .http import Api


@pytest.fixture
def channel(broker: recado.Broker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def declare(channel: BlockingChannel, name: str, exchange: str = "", key: str = "") -> None:
    arguments: dict[str, object] = {"x-dead-letter-exchange": exchange} if exchange or key else {}
    if key:
        arguments["x-dead-letter-routing-key"] = key
    channel.queue_declare(name, arguments=arguments)


def reject_all(channel: BlockingChannel, queue: str) -> None:
    while (method := channel.basic_get(queue)[0]) is not None:
        assert method.delivery_tag is not None
        channel.basic_nack(method.delivery_tag, requeue=False)


def test_where_dead_letters_go(channel: BlockingChannel, api: Api) -> None:
    channel.exchange_declare("dead", "topic", arguments={"alternate-exchange": "rest"})
    channel.exchange_declare("rest", "fanout")
    channel.exchange_declare("empty", "fanout")
    for name in ("dead.a", "dead.b", "dead.rest", "dead.direct", "plain"):
        declare(channel, name)
    channel.queue_bind("dead.a", "dead", "a.#")
    channel.queue_bind("dead.b", "dead", "b.#")
    channel.queue_bind("dead.rest", "rest")
    declare(channel, "any", "dead")
    declare(channel, "only-a", "dead", "a.x")
    declare(channel, "by-name", "", "dead.direct")
    declare(channel, "to-own-key", "", "")
    declare(channel, "gone", "none")
    declare(channel, "nowhere", "empty")
    channel.basic_publish("", "dead.b", b"x")
    found = api.get("/api/dead-letters")
    sources = {each["name"]: sorted(each["sources"]) for each in found["queues"]}
    assert sources == {
        "dead.a": ["any", "only-a"],
        "dead.b": ["any"],
        "dead.rest": ["any"],
        "dead.direct": ["by-name"],
    }
    assert found["queues"][0]["name"] == "dead.b", "the longest first"
    assert found["queues"][0]["source_count"] == 1
    lost = {each["name"]: each["dead_letter_exchange"] for each in found["lost"]}
    assert lost == {"gone": "none", "nowhere": "empty"}
    assert found["lost_count"] == 2
    assert api.get("/api/dead-letters?vhost=none")["queues"] == []


def test_why_they_died_and_how_often_they_were_replayed(channel: BlockingChannel, api: Api) -> None:
    channel.exchange_declare("dead", "fanout")
    declare(channel, "dead.letters")
    channel.queue_bind("dead.letters", "dead")
    declare(channel, "jobs", "dead")
    for body in (b"1", b"2", b"3"):
        channel.basic_publish("", "jobs", body)
    reject_all(channel, "jobs")
    reply = api.post("/api/queues/%2F/dead.letters/replay", {"selector": "body = '1'"})
    assert reply.body["replayed"] == 1
    reject_all(channel, "jobs")
    channel.basic_publish("", "dead.letters", b"put there by hand")
    channel.basic_publish("", "jobs", b"4", pika.BasicProperties(expiration="0"))
    found = api.get("/api/dead-letters/%2F/dead.letters")
    assert (found["examined"], found["messages_ready"]) == (5, 5)
    groups = {each["reason"]: each for each in found["groups"]}
    rejected = groups["rejected"]
    assert (rejected["count"], rejected["deaths"]) == (3, 2)
    assert rejected["replays"] == {"0": 2, "1": 1}
    assert (rejected["queue"], rejected["exchange"], rejected["routing_key"]) == (
        "jobs",
        "",
        "jobs",
    )
    assert rejected["first_at"] <= rejected["last_at"]
    assert groups["expired"]["count"] == 1
    assert groups[None]["count"] == 1
    assert groups[None]["queue"] is None


def test_permissions(broker: recado.Broker, channel: BlockingChannel, api: Api) -> None:
    assert broker.management_port is not None
    declare(channel, "q", "none")
    assert api.put("/api/users/ana", {"password": "a long one", "tags": "management"}) == 201
    ana = Api(broker.management_port, "ana", "a long one")
    assert ana.get("/api/dead-letters")["lost"] == []
    nothing = {"configure": "", "write": "", "read": "^none$"}
    assert api.put("/api/permissions/%2F/ana", nothing) == 201
    assert len(ana.get("/api/dead-letters")["lost"]) == 1
    assert ana.request("GET", "/api/dead-letters/%2F/q").status == 401
