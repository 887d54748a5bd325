"""Actions on many queues or messages concern exactly those of the snapshot, and survive the request."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import recado
from recado.console import snapshots

from .http import Api

DEADLINE_S = 30.0


@pytest.fixture
def channel(broker: recado.Broker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def take(api: Api, **body: Any) -> Any:
    reply = api.post("/api/snapshots", body)
    assert reply.status == 201, reply
    return reply.body


def run(api: Api, snapshot: Any, **body: Any) -> Any:
    """Run an action, and return the snapshot when it has ended."""
    reply = api.post(f"/api/snapshots/{snapshot['id']}/run", body)
    assert reply.status == 200, reply
    deadline = time.monotonic() + DEADLINE_S
    while (found := api.get(f"/api/snapshots/{snapshot['id']}"))["running"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def declare(channel: BlockingChannel, *names: str, **arguments: Any) -> None:
    for name in names:
        channel.queue_declare(name, arguments=arguments)


def publish(channel: BlockingChannel, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body)


def lengths(api: Api) -> dict[str, int]:
    return {each["name"]: each["messages_ready"] for each in api.get("/api/queues")}


def drain(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies = []
    while (body := channel.basic_get(queue, auto_ack=True)[2]) is not None:
        bodies.append(body)
    return bodies


def test_queues_declared_later_are_not_concerned(channel: BlockingChannel, api: Api) -> None:
    declare(channel, "tmp.1", "TMP.2", "tmp.3", "other")
    publish(channel, "tmp.1", b"a", b"b")
    taken = take(api, name_contains="tmp")
    assert (taken["kind"], taken["count"], taken["message_count"]) == ("queues", 3, 2)
    assert sorted(each["name"] for each in taken["sample"]) == ["TMP.2", "tmp.1", "tmp.3"]
    declare(channel, "tmp.later")
    channel.queue_delete("tmp.3")
    declare(channel, "tmp.3")
    found = run(api, taken, action="delete")
    assert sorted(lengths(api)) == ["other", "tmp.3", "tmp.later"]
    progress = found["progress"]
    assert (progress["done"], progress["failed"]) == (3, 1)
    assert progress["errors"] == [
        {"vhost": "/", "name": "tmp.3", "reason": "the queue was deleted"}
    ]
    assert progress["ended_at"] >= progress["started_at"]
    assert api.post(f"/api/snapshots/{taken['id']}/run", {"action": "purge"}).status == 409


def test_queues_are_purged_and_moved(channel: BlockingChannel, api: Api) -> None:
    declare(channel, "q.1", "q.2", "to")
    for queue in ("q.1", "q.2"):
        publish(channel, queue, b"a", b"b")
    chosen = [{"vhost": "/", "name": name} for name in ("q.1", "q.2", "none")]
    found = run(api, take(api, queues=chosen), action="move", destination="to")
    assert found["progress"]["totals"] == {"moved": 4}
    assert lengths(api) == {"q.1": 0, "q.2": 0, "to": 4}
    run(api, take(api, name_contains="to", vhost="/"), action="purge")
    assert lengths(api)["to"] == 0


def test_chosen_messages_are_deleted_moved_and_replayed(channel: BlockingChannel, api: Api) -> None:
    declare(channel, "to")
    channel.exchange_declare("dead", "fanout")
    declare(channel, "dead.letters")
    channel.queue_bind("dead.letters", "dead")
    declare(channel, "q", **{"x-dead-letter-exchange": "dead"})
    publish(channel, "q", *(b'{"n": %d}' % number for number in range(6)))
    taken = take(api, vhost="/", queue="q", selector="json.n >= 4")
    assert (taken["kind"], taken["count"], taken["queue"]) == ("messages", 2, "q")
    assert [each["payload"] for each in taken["sample"]] == ['{"n": 4}', '{"n": 5}']
    publish(channel, "q", b'{"n": 9}')
    assert channel.basic_get("q", auto_ack=True)[2] == b'{"n": 0}'
    assert run(api, taken, action="delete")["progress"]["totals"] == {"deleted": 2}
    taken = take(api, vhost="/", queue="q", selector="json.n = 2")
    run(api, taken, action="move", destination="to")
    assert drain(channel, "to") == [b'{"n": 2}']
    for _ in range(3):
        method, _, _ = channel.basic_get("q")
        assert method is not None
        assert method.delivery_tag is not None
        channel.basic_nack(method.delivery_tag, requeue=False)
    taken = take(api, vhost="/", queue="dead.letters", selector="json.n in (1, 9)")
    found = run(api, taken, action="replay", max_replays=3)
    assert found["progress"]["totals"] == {"replayed": 2}
    assert drain(channel, "q") == [b'{"n": 1}', b'{"n": 9}']
    assert drain(channel, "dead.letters") == [b'{"n": 3}']


def test_messages_that_left_are_not_missed(channel: BlockingChannel, api: Api) -> None:
    declare(channel, "q", **{"x-max-priority": 5})
    for priority in (1, 5, 3, 5, 0):
        properties = pika.BasicProperties(priority=priority)
        channel.basic_publish("", "q", b"%d" % priority, properties)
    taken = take(api, vhost="/", queue="q")
    assert channel.basic_get("q", auto_ack=True)[2] == b"5"
    channel.basic_publish("", "q", b"new", pika.BasicProperties(priority=5))
    assert run(api, taken, action="delete")["progress"]["totals"] == {"deleted": 4}
    assert drain(channel, "q") == [b"new"]


def test_permissions_count_for_each_queue(
    broker: recado.Broker, channel: BlockingChannel, api: Api
) -> None:
    assert broker.management_port is not None
    declare(channel, "mine", "theirs")
    assert api.put("/api/users/ana", {"password": "a long one", "tags": "management"}) == 201
    own = {"configure": "^mine$", "write": "", "read": "^mine$"}
    assert api.put("/api/permissions/%2F/ana", own) == 201
    ana = Api(broker.management_port, "ana", "a long one")
    taken = take(ana, name_contains="")
    assert taken["count"] == 2
    assert api.request("GET", f"/api/snapshots/{taken['id']}").status == 404, "of another user"
    found = run(ana, taken, action="delete")
    assert list(lengths(api)) == ["theirs"]
    (error,) = found["progress"]["errors"]
    assert "theirs" in error["reason"]
    assert ana.post("/api/snapshots", {"vhost": "/", "queue": "theirs"}).status == 401
    assert ana.post("/api/snapshots", {"vhost": "none", "queue": "q"}).status == 404


def test_snapshots_are_limited(
    channel: BlockingChannel, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(channel, "a", "b")
    first = take(api, name_contains="")
    for _ in range(snapshots.SNAPSHOTS_OF_USER_MAX_COUNT):
        last = take(api, name_contains="")
    assert api.request("GET", f"/api/snapshots/{first['id']}").status == 404
    listed = api.get("/api/snapshots")
    assert len(listed) == snapshots.SNAPSHOTS_OF_USER_MAX_COUNT
    assert listed[0]["id"] == last["id"]
    assert api.delete(f"/api/snapshots/{last['id']}") == 204
    monkeypatch.setattr(snapshots, "KEPT_S", -1)
    assert api.get("/api/snapshots") == []


def test_wrong_requests(channel: BlockingChannel, api: Api) -> None:
    declare(channel, "q", **{"x-queue-type": "classic"})
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    for body in (
        {},
        {"name_contains": "", "queue": "q"},
        {"vhost": "/", "queue": "s"},
        {"vhost": "/", "queue": "q", "selector": "n >"},
    ):
        assert api.post("/api/snapshots", body).status == 400, body
    taken = take(api, vhost="/", queue="q")
    for body in ({"action": "purge"}, {"action": "move"}, {"action": "delete", "destination": "x"}):
        assert api.post(f"/api/snapshots/{taken['id']}/run", body).status == 400, body
    path = "/api/queues/%2F/q/delete-messages"
    assert api.post(path, {"snapshot": "none"}).status == 400
    assert api.post(path, {"snapshot": taken["id"], "selector": "priority = 1"}).status == 400
    assert api.post("/api/queues/%2F/s/delete-messages", {}).status == 400
    assert api.post("/api/snapshots/none/run", {"action": "purge"}).status == 404
