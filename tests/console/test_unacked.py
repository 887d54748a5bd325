"""Unacknowledged deliveries over HTTP: who holds them and how long, and requeueing some of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

import recado
from recado.broker.channel import Channel
from recado.console import console
from recado.console.delivery_ages import MARKS_MAX, DeliveryAges
from recado.console.sampler import Sampler

from .http import Api

FULL = {"configure": ".*", "write": ".*", "read": ".*"}
PATH = "/api/queues/%2F/q/unacked"


@pytest.fixture
def broker() -> Iterator[recado.Broker]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "Sampler", partial(Sampler, interval=0.05))
        with recado.Broker(config={"management": {"port": 0}}) as running:
            yield running


@contextmanager
def connected(broker: recado.Broker, user: str = "guest") -> Iterator[BlockingChannel]:
    parameters = pika.URLParameters(broker.url)
    parameters.credentials = pika.PlainCredentials(user, user)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def take(channel: BlockingChannel, count: int, queue: str = "q") -> None:
    for _ in range(count):
        assert channel.basic_get(queue)[0] is not None


def name_of(api: Api, user: str) -> str:
    (found,) = [each["name"] for each in api.get("/api/channels") if each["user"] == user]
    return str(found)


def chosen(*held: dict[str, Any]) -> dict[str, Any]:
    return {
        "deliveries": [
            {
                "channel": each["channel_details"]["name"],
                "delivery_tag": each["delivery_tag"],
                "offset": each["offset"],
            }
            for each in held
        ]
    }


def test_deliveries_with_their_holders(broker: recado.Broker, api: Api) -> None:
    assert api.put("/api/users/ana", {"password": "ana", "tags": "management"}) == 201
    assert api.put("/api/permissions/%2F/ana", FULL) == 201
    with connected(broker) as first, connected(broker, "ana") as second:
        first.queue_declare("q")
        for size in range(4):
            first.basic_publish("", "q", b"x" * size)
        take(first, 2)
        second.basic_qos(prefetch_count=5)
        second.basic_consume("q", lambda *_: None, consumer_tag="c")
        while len(found := api.get(PATH)) < 4:
            pass
        assert [each["offset"] for each in found] == [0, 1, 2, 3]
        held = found[3]
        assert held.pop("channel_details") == {
            **api.get("/api/queues/%2F/q")["consumer_details"][0]["channel_details"]
        }
        assert held.pop("unacked_for_seconds") >= 0
        assert held == {
            "delivery_tag": 2,
            "offset": 3,
            "redelivered": False,
            "delivery_count": 0,
            "payload_bytes": 3,
            "consumer_tag": "c",
        }
        assert [each["consumer_tag"] for each in found] == ["", "", "c", "c"]
        assert api.get(f"{PATH}?count=1") == found[:1]
        assert len(api.get(f"{PATH}?columns=offset&sort=offset&sort_reverse=true")) == 4
        # Users that are no monitors see their own deliveries.
        assert broker.management_port is not None
        ana = Api(broker.management_port, "ana", "ana")
        assert [each["offset"] for each in ana.get(PATH)] == [2, 3]
    for wrong in ("0", "1001", "-1", "x", ""):
        assert api.request("GET", f"{PATH}?count={wrong}").status == 400
    assert api.request("GET", "/api/queues/%2F/missing/unacked").status == 404


def test_the_oldest_are_first(broker: recado.Broker, api: Api) -> None:
    with ExitStack() as stack:
        channels = [stack.enter_context(connected(broker)) for _ in range(3)]
        channels[0].queue_declare("q")
        for number in range(3):
            channels[0].basic_publish("", "q", b"%d" % number)
        for channel in reversed(channels):
            take(channel, 1)
            seen = api.get(PATH)
            while api.get(PATH)[0] == seen[0] and seen[0]["unacked_for_seconds"] < 1:
                pass  # until samples tell the deliveries apart
        found = api.get(PATH)
        assert [each["offset"] for each in found] == [0, 1, 2]
        ages = [each["unacked_for_seconds"] for each in found]
        assert ages == sorted(ages, reverse=True)
        assert [each["offset"] for each in api.get(f"{PATH}?count=2")] == [0, 1]


def test_chosen_messages_are_requeued(
    broker: recado.Broker, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="recado.audit")
    with connected(broker) as channel:
        channel.queue_declare("q")
        for number in range(3):
            channel.basic_publish("", "q", b"%d" % number)
        take(channel, 3)
        first, second, third = api.get(PATH)
        caplog.clear()
        body = chosen(third, first)
        body["deliveries"].append({**body["deliveries"][0], "channel": "gone (1)"})
        reply = api.post("/api/queues/%2F/q/requeue", body)
        assert (reply.status, reply.body) == (200, {"requeued": 2, "settled": 1})
        lines = [json.loads(each.message) for each in caplog.records]
        assert [each.get("details") for each in lines] == [
            None,
            {"requeued": 2, "channels": [name_of(api, "guest"), "gone (1)"]},
        ]
        assert [each["offset"] for each in api.get(PATH)] == [second["offset"]]
        method, _, payload = channel.basic_get("q", auto_ack=True)
        assert method is not None
        assert (method.redelivered, payload) == (True, b"0")
        # The client does not know, and its channel stays open.
        for each in (first, second, third):
            channel.basic_ack(each["delivery_tag"])
        channel.basic_publish("", "q", b"4")
        assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(2)] == [b"2", b"4"]
        assert api.post("/api/queues/%2F/q/requeue", chosen(second)).body == {
            "requeued": 0,
            "settled": 1,
        }


def test_who_may_requeue(broker: recado.Broker, api: Api) -> None:
    assert broker.management_port is not None
    for name, tags in (("ana", "management"), ("rui", "monitoring"), ("root", "administrator")):
        assert api.put(f"/api/users/{name}", {"password": name, "tags": tags}) == 201
        assert api.put(f"/api/permissions/%2F/{name}", FULL) == 201
    ana, rui, root = (Api(broker.management_port, name, name) for name in ("ana", "rui", "root"))
    with connected(broker) as others, connected(broker, "ana") as own:
        others.queue_declare("q")
        for number in range(3):
            others.basic_publish("", "q", b"%d" % number)
        take(others, 2)
        take(own, 1)
        found = api.get(PATH)
        mine = [each for each in found if each["channel_details"]["user"] == "ana"]
        theirs = [each for each in found if each["channel_details"]["user"] == "guest"]
        for user in (ana, rui):
            reply = user.post("/api/queues/%2F/q/requeue", chosen(*mine, *theirs))
            assert reply.status == 401
            assert "only an administrator" in reply.body["reason"]
        assert len(api.get(PATH)) == 3, "none is requeued if one may not be"
        none = {"configure": "", "write": "", "read": ""}
        assert api.put("/api/permissions/%2F/ana", none) == 204
        assert ana.post("/api/queues/%2F/q/requeue", chosen(*mine)).status == 401
        assert api.put("/api/permissions/%2F/ana", FULL) == 204
        assert ana.post("/api/queues/%2F/q/requeue", chosen(*mine)).body["requeued"] == 1
        # As closing the connection, this needs no permission of an administrator.
        assert api.put("/api/permissions/%2F/root", none) == 204
        assert root.post("/api/queues/%2F/q/requeue", chosen(*theirs)).body["requeued"] == 2


def test_a_stream_has_none(broker: recado.Broker, api: Api) -> None:
    with connected(broker) as channel:
        channel.queue_declare("q", durable=True, arguments={"x-queue-type": "stream"})
        channel.basic_publish("", "q", b"x")
        channel.basic_qos(prefetch_count=1)
        arguments = {"x-stream-offset": "first"}
        channel.basic_consume("q", lambda *_: None, arguments=arguments)
        channel.connection.process_data_events(0)
        assert api.get(PATH) == []
        delivery = {"channel": name_of(api, "guest"), "delivery_tag": 1, "offset": 0}
        reply = api.post("/api/queues/%2F/q/requeue", {"deliveries": [delivery]})
        assert (reply.status, reply.body["error"]) == (400, "bad_request")


@pytest.mark.parametrize(
    "deliveries",
    [[], {}, [1], [{"channel": "c", "delivery_tag": 0, "offset": 0}], [{"channel": "c"}]],
)
def test_wrong_bodies(broker: recado.Broker, api: Api, deliveries: Any) -> None:
    api.put("/api/queues/%2F/q", {})
    assert api.post("/api/queues/%2F/q/requeue", {"deliveries": deliveries}).status == 400


# ── ages ────────────────────────────────────────────────────────────────────────────────────────────


class FakeUnacked:
    def __init__(self) -> None:
        self.oldest_tag = 0

    def oldest(self) -> Any:
        return SimpleNamespace(oldest_tag=self.oldest_tag) if self.oldest_tag else None


def sample(ages: DeliveryAges, channel: Any, at_ms: int) -> None:
    list(ages.sample([channel], at_ms))


def new_channel() -> tuple[Any, Channel]:
    fake = SimpleNamespace(next_tag=1, unacked=FakeUnacked())
    hashable = type("Fake", (), vars(fake))()
    return hashable, cast(Channel, hashable)


def test_da1_ages_are_those_of_the_samples_around_a_delivery() -> None:
    ages, (fake, channel) = DeliveryAges(), new_channel()
    assert ages.age_ms(channel, 1, 1_000) == 0
    sample(ages, fake, 1_000)
    fake.next_tag, fake.unacked.oldest_tag = 3, 1  # two deliveries
    assert ages.age_ms(channel, 1, 3_000) == 1_000
    sample(ages, fake, 5_000)
    sample(ages, fake, 10_000)
    fake.next_tag = 4  # the third
    sample(ages, fake, 15_000)
    assert [ages.age_ms(channel, tag, 20_000) for tag in (1, 2, 3)] == [17_000, 17_000, 7_500]
    assert ages.age_ms(channel, 4, 20_000) == 2_500
    list(ages.sample([], 25_000))
    assert ages.age_ms(channel, 1, 26_000) == 0, "of a closed channel"


def test_marks_are_few() -> None:
    ages, (fake, channel) = DeliveryAges(), new_channel()
    for number in range(1_000):  # everything is acknowledged at once
        fake.next_tag = number + 1
        sample(ages, fake, number * 5_000)
    assert len(ages._marks[channel]) == 1
    fake.unacked.oldest_tag = 1_000
    for number in range(1_000, 20_000):  # the first stays, others come and go
        fake.next_tag = number + 1
        sample(ages, fake, number * 5_000)
    assert len(ages._marks[channel]) <= MARKS_MAX
    now_ms = 20_000 * 5_000
    for tag in (19_990, 19_500, 15_000, 1_000):
        true_ms = now_ms - tag * 5_000
        assert ages.age_ms(channel, tag, now_ms) == pytest.approx(true_ms, rel=0.3, abs=5_000)
