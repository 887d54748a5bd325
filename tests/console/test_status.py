"""`/api/actors` and `/api/pipelines` of a node that collects status records over AMQP."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

import recado
from recado.actors import Actor, ActorSystem, publish_status
from recado.client import Connection
from recado.status.publisher import StatusPublisher, ThreadedStatusPublisher
from recado.status.record import (
    STATUS_EXCHANGE,
    ActorStatus,
    FailureStatus,
    PeerStatus,
    StatusRecord,
    encode_record,
    routing_key,
)
from workshop.time_limit import scale

from .http import Api
from .status_records import actors_status, encode, pipeline_status

CONFIG: dict[str, dict[str, object]] = {"management": {"port": 0, "status": True}}
ALL = {"configure": ".*", "write": ".*", "read": ".*"}
PATIENCE_S = scale(30.0)


@pytest.fixture
def broker() -> Iterator[recado.Broker]:
    with recado.Broker(config=CONFIG) as running:
        yield running


def collect(broker: recado.Broker) -> None:
    """Collect the records that wait, as the node does once in a second."""
    running = broker._running
    assert running is not None
    assert running.management is not None
    collector = running.management.console.collector
    assert collector is not None
    asyncio.run_coroutine_threadsafe(collector.collect(), running.server.loop).result(PATIENCE_S)


def publish(broker: recado.Broker, *records: StatusRecord, vhost: str = "%2F") -> None:
    """Publish records as any client can."""
    bodies = [(routing_key(record), encode_record(record)) for record in records]
    publish_bodies(broker, bodies, vhost)


def publish_bodies(
    broker: recado.Broker, bodies: list[tuple[str, bytes]], vhost: str = "%2F"
) -> None:
    url = broker.url.removesuffix("%2F") + vhost
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for key, body in bodies:
            channel.basic_publish(STATUS_EXCHANGE, key, body)
    collect(broker)


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


def test_lists_and_single_sources(broker: recado.Broker, api: Api) -> None:
    record = actors_status(
        "ex/change",
        waiting=3,
        peers=(PeerStatus("other", True),),
        failures=(FailureStatus(5, "book", "restarted", "ValueError: x"),),
        actors=(ActorStatus(1, "book", "Book", "started", 3, 1, 9, None, 0),),
    )
    publish(broker, record, pipeline_status())
    (row,) = api.get("/api/actors")
    assert (row["name"], row["vhost"], row["stale"]) == ("ex/change", "/", False)
    assert (row["waiting"], row["peer_count"]) == (3, 1)
    assert row["last_failure"]["error"] == "ValueError: x"
    assert "actors" not in row
    found = api.get("/api/actors/ex%2Fchange")
    assert found["actors"][0]["name"] == "book"
    assert found["peers"] == [{"node": "other", "unreachable": True}]
    (row,) = api.get("/api/pipelines")
    assert (row["state"], row["lag"], row["rows_per_second"]) == ("running", 7, 2.5)
    assert api.get("/api/pipelines/bars")["run"] == "r1"
    for path in ("/api/actors/none", "/api/pipelines/ex%2Fchange"):
        assert api.request("GET", path).status == 404


class Book(Actor[int]):
    def receive(self, message: int) -> int:
        return message


async def run_system(url: str, name: str) -> None:
    async with ActorSystem(name) as system:
        shelf = await system.spawn(Book, name="shelf")
        book = await system.spawn(Book, name="book", supervisor=shelf)
        await book.ask(1)  # type: ignore[arg-type]  # any type is a message at run time
        async with publish_status(system, url):
            pass


def test_a_real_actor_system(broker: recado.Broker, api: Api) -> None:
    asyncio.run(run_system(broker.url, "exchange"))
    collect(broker)
    (row,) = api.get("/api/actors")
    assert (row["name"], row["state"], row["actor_count"], row["handled"]) == (
        "exchange",
        "closed",
        2,
        1,
    )
    shelf, book = api.get("/api/actors/exchange")["actors"]
    assert (shelf["name"], book["name"], book["depth"]) == ("shelf", "book", 1)
    assert book["supervisor"] == shelf["uid"]


def test_a_broker_that_never_answers_delays_the_end_of_a_system_only_briefly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://127.0.0.1:{silent.getsockname()[1]}"
        asyncio.run(asyncio.wait_for(run_system(url, "exchange"), PATIENCE_S))


def test_sort_columns_and_pages(broker: recado.Broker, api: Api) -> None:
    publish(broker, *(actors_status(f"s{number}", waiting=number) for number in range(5)))
    rows = api.get("/api/actors?sort=waiting&sort_reverse=true&columns=name,waiting")
    assert rows == [{"name": f"s{number}", "waiting": number} for number in range(4, -1, -1)]
    page = api.get("/api/actors?page=2&page_size=2")
    assert names(page["items"]) == ["s2", "s3"]
    assert names(api.get("/api/actors?page=1&name=s[34]&use_regex=true")["items"]) == ["s3", "s4"]


def test_records_are_seen_by_users_of_the_vhost_only(broker: recado.Broker, api: Api) -> None:
    api.put("/api/vhosts/closed", {})
    collect(broker)  # declares the exchange there
    publish(broker, actors_status("open"), actors_status("both"))
    publish(broker, actors_status("secret"), actors_status("both", waiting=9), vhost="closed")
    for tag, expected in (
        ("management", {"open", "both"}),
        ("policymaker", {"open", "both"}),
        ("monitoring", {"open", "both", "secret"}),
        ("administrator", {"open", "both", "secret"}),
    ):
        api.put(f"/api/users/{tag}", {"password": "p", "tags": tag})
        api.put(f"/api/permissions/%2F/{tag}", ALL)
        user = Api(api.port, tag, "p")
        assert set(names(user.get("/api/actors"))) == expected, tag
        sees_all = "secret" in expected
        assert user.request("GET", "/api/actors/secret").status == (200 if sees_all else 404)
        assert user.request("GET", "/api/actors?vhost=closed").body == [] or sees_all
        assert user.get("/api/actors/both")["waiting"] == (9 if sees_all else 0)
        assert user.get("/api/actors/both?vhost=%2F")["waiting"] == 0
    no_tag = {"password": "p", "tags": ""}
    api.put("/api/users/none", no_tag)
    for path in ("actors", "actors/open", "pipelines", "pipelines/x", "feeds"):
        assert Api(api.port, "none", "p").request("GET", f"/api/{path}").status == 401
    api.delete("/api/vhosts/closed")
    collect(broker)
    assert set(names(api.get("/api/actors"))) == {"open", "both"}


def test_without_the_setting_nothing_is_collected(api: Api) -> None:
    with recado.Broker(config={"management": {"port": 0}}) as other:
        assert other.management_port is not None
        plain = Api(other.management_port)
        assert plain.get("/api/actors") == plain.get("/api/pipelines") == []
        exchanges = {row["name"] for row in plain.get("/api/exchanges")}
        assert STATUS_EXCHANGE not in exchanges


def test_a_publisher_needs_only_the_permission_to_write(broker: recado.Broker, api: Api) -> None:
    api.put("/api/users/ana", {"password": "p", "tags": "management"})
    api.put("/api/permissions/%2F/ana", {"configure": "", "write": "^recado.status$", "read": ""})
    url = broker.url.replace("guest:guest", "ana:p")
    publisher = ThreadedStatusPublisher(url, actors_status("ana"))
    publisher.close()
    api.put("/api/permissions/%2F/ana", {"configure": "", "write": "", "read": ".*"})
    refused = ThreadedStatusPublisher(url, actors_status("refused"))
    refused.close()
    collect(broker)
    assert names(api.get("/api/actors")) == ["ana"]


def test_topic_permissions_restrict_the_sources(broker: recado.Broker, api: Api) -> None:
    api.put("/api/users/ana", {"password": "p", "tags": "management"})
    api.put("/api/permissions/%2F/ana", ALL)
    limit = {"exchange": STATUS_EXCHANGE, "write": r"^actors\.mine$", "read": ""}
    api.put("/api/topic-permissions/%2F/ana", limit)
    url = broker.url.replace("guest:guest", "ana:p")
    for name in ("mine", "yours"):
        ThreadedStatusPublisher(url, actors_status(name)).close()
    collect(broker)
    assert names(api.get("/api/actors")) == ["mine"]


def test_the_queue_of_the_collector_cannot_be_used(broker: recado.Broker, api: Api) -> None:
    (binding,) = api.get(f"/api/exchanges/%2F/{STATUS_EXCHANGE}/bindings/source")
    queue = binding["destination"]
    assert api.delete(f"/api/queues/%2F/{queue}") in (400, 405)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            connection.channel().basic_consume(queue, lambda *_: None)
        assert refused.value.reply_code == 405
    publish(broker, actors_status())
    assert names(api.get("/api/actors")) == ["exchange"]


def test_a_deleted_exchange_is_declared_again(broker: recado.Broker, api: Api) -> None:
    assert api.delete(f"/api/exchanges/%2F/{STATUS_EXCHANGE}") == 204
    collect(broker)
    publish(broker, actors_status())
    assert names(api.get("/api/actors")) == ["exchange"]


def test_an_exchange_of_another_type_is_left_alone(
    broker: recado.Broker, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    assert api.delete(f"/api/exchanges/%2F/{STATUS_EXCHANGE}") == 204
    assert api.put(f"/api/exchanges/%2F/{STATUS_EXCHANGE}", {"type": "fanout"}) == 201
    for _ in range(3):
        collect(broker)
    assert [each.message.partition(":")[0] for each in caplog.records] == [
        "status records not collected"
    ]
    assert api.get("/api/actors") == []


def test_ten_thousand_hostile_sources(broker: recado.Broker, api: Api) -> None:
    publish(broker, actors_status("honest"), vhost="%2F")
    hostile = [(f"actors.h{n}", encode(actors_status(f"h{n}"))) for n in range(10_000)]
    hostile += [("actors.x", b"\xff"), ("", b"{}"), ("pipeline.x", b"[" * 200_000)]
    publish_bodies(broker, hostile)
    for _ in range(5):
        collect(broker)
    rows = api.get("/api/actors")
    assert len(rows) <= 1_000
    publish(broker, actors_status("honest"))
    assert api.get("/api/actors/honest")["stale"] is False
    queues = api.get("/api/queues")
    assert [queue["messages"] for queue in queues] == [0]


def test_properties_that_cannot_be_read(broker: recado.Broker, api: Api) -> None:
    """A message with properties of any kind is stored or counted, and those after it are read."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        headers = {"x": {"y": [1, "z" * 5_000]}}
        properties = pika.BasicProperties(headers=headers, expiration="60000", priority=9)
        channel.basic_publish(STATUS_EXCHANGE, "actors.a", encode(actors_status("a")), properties)
    publish(broker, actors_status("b"))
    assert names(api.get("/api/actors")) == ["a", "b"]


def test_a_publisher_survives_the_loss_of_its_broker() -> None:
    """Nothing is raised while no broker listens; the next one gets the records."""

    async def run() -> None:
        reads = 0
        was_read = asyncio.Event()

        async def read() -> StatusRecord:
            nonlocal reads
            reads += 1
            was_read.set()
            return actors_status("node", handled=reads)

        async with recado.Broker() as broker:
            port = broker.port
            publisher = StatusPublisher(broker.url, "node", read, 0.1)
            publisher.start()
            async with asyncio.timeout(PATIENCE_S):
                while not publisher.published_count:
                    was_read.clear()
                    await was_read.wait()
        reads_before = reads
        async with asyncio.timeout(PATIENCE_S):
            while reads < reads_before + 3:
                was_read.clear()
                await was_read.wait()
        async with recado.Broker(port=port, config={"management": {"port": 0}}) as broker:
            connection = await Connection.open(broker.url)
            channel = await connection.channel()
            await channel.declare_exchange(STATUS_EXCHANGE, "topic", durable=True)
            queue = await channel.declare_queue(exclusive=True)
            await channel.bind_queue(queue.name, STATUS_EXCHANGE, "actors.*")
            consumer = await channel.consume(queue.name, no_ack=True)
            async with asyncio.timeout(PATIENCE_S):
                (delivery, *_) = await consumer.next_batch()
            assert json.loads(delivery.body)["name"] == "node"
            await publisher.close()
            await connection.close()

    asyncio.run(run())


def test_records_are_collected_after_a_restart(tmp_path: Path) -> None:
    """The exchange is durable; the queue of the collector is not."""
    for number in range(2):
        with recado.Broker(data=tmp_path, config=CONFIG) as broker:
            assert broker.management_port is not None
            api = Api(broker.management_port)
            assert api.get("/api/actors") == []
            assert len(api.get("/api/queues")) == 1
            publish(broker, actors_status(f"s{number}"))
            assert names(api.get("/api/actors")) == [f"s{number}"]


def test_large_records_take_the_loop_for_some_milliseconds_only(
    broker: recado.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = broker._running
    assert running is not None
    run_on_broker, durations = running.server.run_on_broker, []

    def measure(action: Any) -> Any:
        started = time.thread_time()
        try:
            return run_on_broker(action)
        finally:
            durations.append(time.thread_time() - started)

    actor = ActorStatus(1, "n" * 200, "t" * 200, "started", 0, 0, 0, None, 0)
    large = [actors_status(f"l{number}", actors=(actor,) * 450) for number in range(15)]
    small = [actors_status(f"s{number}") for number in range(900)]
    monkeypatch.setattr(running.server, "run_on_broker", measure)
    publish(broker, *large, *small)
    publish(broker, *large)
    assert len(durations) > 10
    assert max(durations) < scale(0.05)  # a slice is a millisecond, and ends after a whole record
