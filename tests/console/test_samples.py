"""Samples of the node and of all queues, as the web console loads them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pika
import pytest

import recado
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.console import console
from recado.console.node_history import FIELDS, SampleRing, pause_after
from recado.console.resources.samples import QUEUE_COLUMNS
from recado.console.sampler import Sampler

from .http import Api

DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "Sampler", partial(Sampler, interval=0.2))


@pytest.fixture
def broker(short_interval: None) -> Iterator[recado.Broker]:
    with recado.Broker(config={"management": {"port": 0}}) as running:
        yield running


def wait_for(read: Callable[[], Any], is_right: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + DEADLINE_S
    while not is_right(found := read()):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def rows(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    named = [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]
    return {each["name"]: each for each in named}


def test_a_ring_returns_its_newest_samples_in_order() -> None:
    ring = SampleRing(("a", "b"), 3)
    assert (len(ring), ring.newest_at_ms, dict(ring.read(0))) == (
        0,
        0,
        {"at": [], "a": [], "b": []},
    )
    for number in range(1, 6):
        ring.append(number * 1_000, (number, -number))
        held = list(range(max(1, number - 2), number + 1))
        assert dict(ring.read(0)) == {
            "at": [each * 1_000 for each in held],
            "a": held,
            "b": [-each for each in held],
        }
    assert dict(ring.read(4_000)) == {"at": [5_000], "a": [5], "b": [-5]}
    assert dict(ring.read(5_000)) == {"at": [], "a": [], "b": []}
    assert (len(ring), ring.newest_at_ms) == (3, 5_000)


def test_the_node_is_sampled_every_second(broker: recado.Broker, api: Api) -> None:
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        for _ in range(3):
            channel.basic_publish("", "q", b"x")
        channel.basic_publish("", "nowhere", b"x")
        assert channel.basic_get("q")[2] == b"x"
        found = wait_for(
            lambda: api.get("/api/samples/node"),
            lambda found: bool(found["publish"]) and found["publish"][-1] == 4,
        )
    assert list(found) == ["at", *FIELDS]
    assert len({len(column) for column in found.values()}) == 1
    last = {name: column[-1] for name, column in found.items()}
    assert (last["messages_ready"], last["messages_unacknowledged"]) == (2, 1)
    assert (last["deliver_get"], last["ack"], last["unroutable"]) == (1, 0, 1)
    assert (last["queues"], last["connections"], last["channels"]) == (1, 1, 1)
    assert last["mem_used"] > 0
    further = wait_for(
        lambda: api.get(f"/api/samples/node?since={last['at']}"), lambda found: bool(found["at"])
    )
    assert further["at"][0] > last["at"]
    assert api.get("/api/samples/node?resolution=minute").keys() == found.keys()


def test_only_queues_that_changed_are_sent_again(broker: recado.Broker, api: Api) -> None:
    for name in ("busy", "idle"):
        assert api.put(f"/api/queues/%2F/{name}", {"durable": name == "busy"}) == 201
    full = wait_for(lambda: api.get("/api/samples/queues"), lambda found: len(found["rows"]) == 2)
    assert full["since"] is None
    assert tuple(full["columns"]) == QUEUE_COLUMNS
    busy = rows(full)["busy"]
    assert (busy["features"], busy["type"], busy["policy"]) == ("D", "classic", None)
    message = {"properties": {}, "routing_key": "busy", "payload": "", "payload_encoding": "string"}
    assert api.post("/api/exchanges/%2F/amq.default/publish", message).body == {"routed": True}
    assert api.delete("/api/queues/%2F/idle") == 204
    at = full["at"]
    removed: list[list[str]] = []
    changed: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + DEADLINE_S
    while not removed or not changed:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        answer = api.get(f"/api/samples/queues?since={at}")
        assert answer["since"] == at
        at = answer["at"]
        removed += answer["removed"]
        changed |= rows(answer)
    assert removed == [["/", "idle"]]
    assert changed["busy"]["messages_ready"] == 1
    assert api.get("/api/samples/queues?since=1")["since"] is None, "not a sample: all queues"


def test_queues_of_other_vhosts_are_not_shown(api: Api) -> None:
    assert api.put("/api/vhosts/v", {}) == 201
    assert api.put("/api/users/ana", {"password": "p", "tags": "management"}) == 201
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.put("/api/permissions/v/ana", everything) == 201
    for path in ("%2F/hidden", "v/shown"):
        assert api.put(f"/api/queues/{path}", {}) == 201
    wait_for(lambda: api.get("/api/samples/queues"), lambda found: len(found["rows"]) == 2)
    ana = Api(api.port, "ana", "p")
    assert rows(ana.get("/api/samples/queues")).keys() == {"shown"}
    assert ana.request("GET", "/api/samples/node").status == 401


def test_a_vhost_that_is_deleted_during_a_sample() -> None:
    broker = Broker(lambda: "name")
    broker.add_vhost("v")
    broker.create_queue(broker.vhosts["v"], "q", QueueSettings(), None, 0)

    async def run_and_delete(steps: Generator[None, None, Any]) -> Any:
        if "v" in broker.vhosts:
            broker.delete_vhost("v", 0, lambda: None)
        try:
            while True:
                next(steps)
        except StopIteration as done:
            return done.value

    server = cast(Any, SimpleNamespace(broker=broker, connections=()))
    sampled = Sampler(server, cast(Any, SimpleNamespace(run=run_and_delete)))
    asyncio.run(sampled.sample())
    assert sampled.vhosts.latest("v") is not None, "its queues were read"
    asyncio.run(sampled.sample())
    assert sampled.vhosts.latest("v") is None


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.001, 0.1), (0.01, 1.0), (0.05, 5.0)])
def test_samples_take_one_percent_of_the_time(cost_s: float, pause_s: float) -> None:
    assert pause_after(cost_s) == pytest.approx(pause_s)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("node?since=x", "since: expected milliseconds since 1970"),
        ("queues?since=-1", "since: expected milliseconds since 1970"),
        ("node?resolution=hour", "resolution: expected one of second, minute"),
    ],
)
def test_wrong_parameters_are_named(api: Api, path: str, reason: str) -> None:
    reply = api.request("GET", f"/api/samples/{path}")
    assert (reply.status, reply.body["reason"]) == (400, reason)
