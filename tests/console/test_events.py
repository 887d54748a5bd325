"""The event stream: its format, every type of event from a real action, visibility, resumption and its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pika
import pytest

import recado
from recado.console.events import figures, streams
from recado.console.events.log import KEYS_MAX_COUNT, PAYLOADS_MAX_COUNT
from recado.console.events.types import EVENT_TYPES
from workshop.time_limit import scale

from .events import Event, EventStream
from .http import Api, segment

ALL = {"configure": ".*", "write": ".*", "read": ".*"}
POLICY = {"pattern": "^p", "definition": {"max-length": 5}}
LAST = {"name": "last"}


@pytest.fixture(scope="module", autouse=True)
def _short_interval() -> Iterator[None]:
    """Take figures more often, so that the tests take less time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "INTERVAL_S", 0.2)
        patch.setattr(figures, "INTERVAL_S", 0.2)
        yield


@pytest.fixture(scope="module")
def broker(_short_interval: None) -> Iterator[recado.Broker]:
    with recado.Broker(config={"management": {"port": 0}}) as running:
        yield running


@pytest.fixture(scope="module")
def api(broker: recado.Broker) -> Api:
    assert broker.management_port is not None
    return Api(broker.management_port)


@pytest.fixture(scope="module")
def ana(api: Api) -> str:
    """A user with the tag management, for the vhost `/`."""
    assert api.put("/api/users/ana", {"password": "p", "tags": "management"}) == 201
    assert api.put("/api/permissions/%2F/ana", ALL) == 201
    return "ana"


def connect(broker: recado.Broker, user: str = "guest", vhost: str = "%2F") -> Any:
    password = "guest" if user == "guest" else "p"
    url = f"amqp://{user}:{password}@127.0.0.1:{broker.port}/{vhost}"
    return pika.BlockingConnection(pika.URLParameters(url))


def mark(api: Api) -> None:
    """Cause an event that every stream ends a comparison with."""
    api.put("/api/exchanges/%2F/last", {})
    api.delete("/api/exchanges/%2F/last")


def follow(stream: EventStream, api: Api) -> list[tuple[str, Any]]:
    """Return the events up to now, without their time."""
    mark(api)
    found = stream.find_all("exchange.created", **LAST)
    return [(each.type, {**each.data, "at": 0}) for each in found if "last" not in str(each.data)]


# ── format ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_format_is_that_of_server_sent_events(api: Api) -> None:
    with EventStream(api.port) as stream:
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "retry: 2000" in stream.lines
        assert stream.opened.data["resumed"] is False
        api.put("/api/queues/%2F/a%0Ab", {})
        created = stream.find("queue.created", name="a\nb")
        assert [line.partition(":")[0] for line in stream.lines] == ["id", "event", "data", ""]
        assert created.data["at"] > time.time() * 1_000 - 60_000
        api.delete("/api/queues/%2F/a%0Ab")
        deleted = stream.find("queue.deleted", name="a\nb")
        (epoch, first), (same, second) = created.id.split("-"), deleted.id.split("-")
        assert (epoch, int(first) + 1) == (same, int(second))


def test_a_head_request_has_no_body(api: Api) -> None:
    reply = api.request("HEAD", "/api/events")
    assert (reply.status, reply.headers["content-type"][:17]) == (200, "text/event-stream")


def test_other_sites_cannot_use_up_the_streams_of_a_user(api: Api) -> None:
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert api.request("GET", "/api/events", None, headers).status == 403
    same = {"origin": f"http://127.0.0.1:{api.port}", "sec-fetch-site": "same-origin"}
    assert api.request("HEAD", "/api/events", None, same).status == 200


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("types=quue", 400, "types: there are no events 'quue'"),
        ("types=queue.opened", 400, "types: there are no events 'queue.opened'"),
        ("vhost=none", 404, "vhost: 'none' not found"),
        ("watch=q", 400, "watch: 'q' is not VHOST/NAME"),
        ("watch=%252F%2F", 400, "watch: '%2F/' is not VHOST/NAME"),
        ("watch=" + ",".join(f"v/{n}" for n in range(101)), 400, "watch: 101 queues, at most 100"),
    ],
)
def test_invalid_parameters_are_refused(api: Api, query: str, status: int, reason: str) -> None:
    reply = api.request("GET", f"/api/events?{query}")
    assert (reply.status, reply.body["reason"][: len(reason)]) == (status, reason)


def test_heartbeats_and_ids_of_a_quiet_stream(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.0)
    with EventStream(api.port, types="alarm") as stream:
        assert stream.response.readline() == b": heartbeat\n"
        mark(api)  # filtered, but the id goes on
        while (line := stream.response.readline()) != b"":
            if line.startswith(b"id: ") and not line.endswith(f"{stream.last_id}\n".encode()):
                break


# ── types ───────────────────────────────────────────────────────────────────────────────────────────


def test_every_type_of_change_has_its_action(broker: recado.Broker, api: Api) -> None:
    with EventStream(api.port) as stream:
        everything_happens(broker, api)
        seen = stream.find_all("exchange.created", **LAST)
    for event in seen:
        msgspec.convert(event.data, EVENT_TYPES[event.type].data, strict=True)
    found = {event.type for event in seen}
    expected = {
        name
        for name in EVENT_TYPES
        if name.partition(".")[0] not in ("stream", "rates", "alarm")
        and name not in ("connection.blocked", "connection.unblocked")
    }
    assert expected - found == set()
    by_type = {event.type: event.data for event in seen}
    binding = by_type["binding.deleted"]
    assert (binding["source"], binding["destination"], binding["routing_key"]) == ("x", "pq", "k")
    assert by_type["consumer.deleted"]["channel"] == by_type["channel.closed"]["name"]
    assert by_type["consumer.created"]["consumer_tag"] == "tag"
    assert by_type["connection.closed"]["name"] == by_type["channel.closed"]["connection"]
    assert by_type["parameter.changed"]["component"] == "vhost-limits"
    assert by_type["queue.created"]["type"] == "quorum"


def everything_happens(broker: recado.Broker, api: Api) -> None:
    """Cause each type of change."""
    quorum = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    assert api.put("/api/vhosts/v", {}) == 201
    assert api.put("/api/vhosts/v", {"description": "d"}) == 204
    for value in (10, 20, -1):
        assert api.put("/api/vhost-limits/v/max-queues", {"value": value}) == 204
    assert api.put("/api/exchanges/v/x", {"type": "topic"}) == 201
    assert api.put("/api/queues/v/pq", quorum) == 201
    assert api.post("/api/bindings/v/e/x/q/pq", {"routing_key": "k"}).status == 201
    alternate = {"pattern": "^x", "definition": {"alternate-exchange": "amq.fanout"}}
    assert api.put("/api/policies/v/a", alternate) == 201
    for kind in ("policies", "operator-policies"):
        assert api.put(f"/api/{kind}/v/p", POLICY) == 201
        assert api.put(f"/api/{kind}/v/p", {**POLICY, "priority": 1}) == 204
        assert api.delete(f"/api/{kind}/v/p") == 204
    for value in (1, 2):
        api.put("/api/global-parameters/g", {"value": value})
        api.put("/api/users/eva", {"password": "p", "tags": "management" * (value - 1)})
        api.put("/api/permissions/v/eva", {**ALL, "configure": str(value)})
        api.put("/api/topic-permissions/v/eva", {"exchange": "x", "write": str(value), "read": ""})
    assert api.delete("/api/global-parameters/g") == 204
    connection = connect(broker, "eva", "v")
    channel = connection.channel()
    channel.basic_consume("pq", lambda *_: None, consumer_tag="tag")
    connection.close()
    assert api.delete("/api/topic-permissions/v/eva") == 204
    assert api.delete("/api/permissions/v/eva") == 204
    assert api.delete("/api/users/eva") == 204
    assert api.delete("/api/queues/v/pq") == 204
    assert api.delete("/api/exchanges/v/x") == 204
    assert api.delete("/api/vhosts/v") == 204
    mark(api)


def test_alarms_and_blocked_connections() -> None:
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        server = broker._require_running().server
        used = 0
        server._read_used_memory = lambda: used

        def use(memory_bytes: int) -> None:
            nonlocal used
            used = memory_bytes
            server.loop.call_soon_threadsafe(server.check_resources)

        with EventStream(broker.management_port) as stream:
            connection = connect(broker)
            channel = connection.channel()
            use(server.memory_limit_bytes + 1)
            assert stream.find("alarm.set").data["resource"] == "memory"
            channel.basic_publish("", "q", b"x")
            blocked = stream.find("connection.blocked", user="guest")
            use(0)
            stream.find("connection.unblocked", name=blocked.data["name"])
            assert stream.find("alarm.cleared").data["reason"] == "low on memory"
            connection.close()


def test_direct_replies_and_wire_taps_are_not_shown(broker: recado.Broker, api: Api) -> None:
    with EventStream(api.port, types="queue,consumer,exchange") as stream:
        connection = connect(broker)
        channel = connection.channel()
        channel.basic_consume("amq.rabbitmq.reply-to", lambda *_: None, auto_ack=True)
        channel.queue_declare("tapped", auto_delete=True)
        channel.basic_consume(
            "tapped", lambda *_: None, auto_ack=True, arguments={"x-wire-tap": True}
        )
        connection.close()
        assert [name for name, _ in follow(stream, api)] == ["queue.created"]
    api.delete("/api/queues/%2F/tapped")


# ── figures ─────────────────────────────────────────────────────────────────────────────────────────


def test_figures_of_the_node_and_of_watched_queues(broker: recado.Broker, api: Api) -> None:
    name = "a/b, é"
    assert api.put(f"/api/queues/%2F/{segment(name)}", {}) == 201
    watch = f"%2F/{segment(name)},%2F/missing"
    with EventStream(api.port, types="rates", watch=watch) as stream:
        overview = stream.find("rates.overview").data
        assert overview["rates"] is None
        connection = connect(broker)
        channel = connection.channel()
        for _ in range(100):
            channel.basic_publish("", name, b"x")
        assert channel.basic_get(name, auto_ack=True)[2] == b"x"
        (queue,) = stream.find("rates.queues").data["queues"]
        while queue["rates"] is None or queue["messages"] != 99:
            (queue,) = stream.find("rates.queues").data["queues"]
        published = 0.0
        for _ in range(100):
            channel.basic_publish("", name, b"x")
        while published < 1:  # a rate is an average of its interval
            node = stream.find("rates.node").data
            watched_figures = stream.find("rates.queues").data
            (queue,) = watched_figures["queues"]
            published = queue["rates"]["publish"] * watched_figures["interval"]
        while published < 99.5:
            watched_figures = stream.find("rates.queues").data
            (queue,) = watched_figures["queues"]
            published += queue["rates"]["publish"] * watched_figures["interval"]
        assert 99 < published < 101
        assert node["event_loop_lag"]["count"] > 0
        assert node["mem_used"] > 0
        assert node["fsync"] is None
        watched = {"queues": [{"vhost": "/", "name": "other"}]}
        assert api.put("/api/queues/%2F/other", {}) == 201
        assert api.put(f"/api/events/{stream.name}/watch", watched) == 204
        while stream.find("rates.queues").data["queues"][0]["name"] != "other":
            pass
        connection.close()
    assert api.put(f"/api/events/{stream.name}/watch", watched) == 404


def test_queues_that_live_shortly_count_in_the_rates(broker: recado.Broker, api: Api) -> None:
    connection = connect(broker)
    channel = connection.channel()
    with EventStream(api.port, types="rates.overview") as stream:
        while stream.find("rates.overview").data["rates"] is None:
            pass
        for _ in range(20):
            channel.queue_declare("short")
            channel.basic_publish("", "short", b"x")
            assert channel.basic_get("short", auto_ack=True)[2] == b"x"
            channel.queue_delete("short")
        delivered = 0.0
        while delivered < 19.5:
            data = stream.find("rates.overview").data
            delivered += data["rates"]["deliver_get"] * data["interval"]
        assert delivered < 20.5
    connection.close()


# ── visibility ──────────────────────────────────────────────────────────────────────────────────────


def test_events_are_those_that_the_lists_of_a_user_would_show(
    broker: recado.Broker, api: Api
) -> None:
    users = ("management", "policymaker", "monitoring", "administrator")
    api.put("/api/vhosts/v", {})
    for tag in users:
        api.put(f"/api/users/{tag}", {"password": "p", "tags": tag})
        api.put(f"/api/permissions/%2F/{tag}", ALL)
        if tag in ("management", "policymaker"):
            api.put(f"/api/permissions/v/{tag}", ALL)
    opened = {tag: EventStream(api.port, tag, "p") for tag in users}
    insider = connect(broker, "management")
    try:
        api.put("/api/vhosts/secret", {})
        api.put("/api/queues/secret/secret", {})
        api.put("/api/queues/v/q", {})
        api.put("/api/vhost-limits/v/max-queues", {"value": 10})
        api.put("/api/global-parameters/g", {"value": 1})
        api.put("/api/users/other", {"tags": ""})
        guest = connect(broker)
        guest.channel().basic_consume(guest_queue(api), lambda *_: None)
        insider.channel().basic_consume("shared", lambda *_: None)
        seen = {tag: follow(stream, api) for tag, stream in opened.items()}
        guest.close()
    finally:
        insider.close()
        for stream in opened.values():
            stream.__exit__()
        api.delete("/api/vhosts/secret")
        api.delete("/api/vhosts/v")
        for tag in users:
            api.delete(f"/api/users/{tag}")
    for tag in ("management", "policymaker"):
        assert "secret" not in str(seen[tag])
        assert "other" not in str(seen[tag])
        assert not any(name.startswith(("user", "permission")) for name, _ in seen[tag])
    own = [name for name, data in seen["management"] if data.get("user") == "management"]
    assert own == ["connection.opened", "channel.opened", "consumer.created"]
    assert not any("guest" in str(data) for _, data in seen["management"])
    types = {tag: [name for name, _ in events] for tag, events in seen.items()}
    for tag, parameter, global_parameter, connections in (
        ("management", False, False, 1),
        ("policymaker", True, True, 0),
        ("monitoring", False, False, 2),
        ("administrator", True, True, 2),
    ):
        assert ("parameter.created" in types[tag]) is parameter
        assert ("global_parameter.created" in types[tag]) is global_parameter
        assert types[tag].count("connection.opened") == connections
    # A monitor sees the names of all vhosts, all connections and consumers, but no queues in other vhosts.
    assert types["monitoring"].count("vhost.created") == 1
    assert types["monitoring"].count("consumer.created") == 2
    assert ("queue.created", "secret") not in [
        (name, data.get("vhost")) for name, data in seen["monitoring"]
    ]
    assert ("queue.created", "secret") in [
        (name, data.get("vhost")) for name, data in seen["administrator"]
    ]
    assert ("user.created", {"at": 0, "name": "other"}) in seen["administrator"]


def guest_queue(api: Api) -> str:
    api.put("/api/queues/%2F/shared", {})
    return "shared"


def test_figures_are_limited_to_visible_vhosts(api: Api, ana: str) -> None:
    api.put("/api/vhosts/closed", {})
    api.put("/api/queues/closed/q", {})
    message = {"properties": {}, "routing_key": "q", "payload": "", "payload_encoding": "string"}
    api.post("/api/exchanges/closed/amq.default/publish", message)
    with (
        EventStream(api.port, ana, "p", types="rates", watch="closed/q") as stream,
        EventStream(api.port, vhost="closed") as limited,
        EventStream(api.port, types="rates.overview") as everything,
    ):
        seen: dict[str, Any] = {"at": 0}
        assert stream.find("rates.queues").data["queues"] == []
        while (one := limited.find("rates.overview").data)["messages"] == 0:
            pass
        assert (one["queues"], one["exchanges"], one["messages"]) == (1, 7, 1)
        total = everything.find("rates.overview").data
        while total["at"] < one["at"]:
            total = everything.find("rates.overview").data
        while seen["at"] < total["at"]:
            seen = stream.find("rates.overview").data
        assert seen["consumers"] is None
        assert (seen["connections"], seen["channels"]) == (0, 0)
        assert total["queues"] == seen["queues"] + 1
        watch = {"queues": [{"vhost": "/", "name": "q"}]}
        assert Api(api.port, ana, "p").put(f"/api/events/{limited.name}/watch", watch) == 404
    assert Api(api.port, ana, "p").request("GET", "/api/events?vhost=closed").status == 404
    assert api.delete("/api/vhosts/closed") == 204


def test_filters_by_type_and_vhost(api: Api) -> None:
    api.put("/api/vhosts/one", {})
    with EventStream(api.port, types="queue.created,user,exchange", vhost="one") as stream:
        api.put("/api/queues/one/q", {})
        api.put("/api/queues/%2F/elsewhere", {})
        api.delete("/api/queues/one/q")
        api.put("/api/users/eva", {"tags": ""})
        api.put("/api/exchanges/one/last", {})
        found = stream.find_all("exchange.created", **LAST)
        assert [event.type for event in found] == ["queue.created", "user.created"]
    api.delete("/api/users/eva")
    api.delete("/api/queues/%2F/elsewhere")
    api.delete("/api/vhosts/one")


def test_changed_permissions_apply_at_once(api: Api, ana: str) -> None:
    with (
        EventStream(api.port, ana, "p", types="queue") as stream,
        EventStream(api.port, types="queue") as everything,
    ):
        api.put("/api/queues/%2F/seen", {})
        assert stream.read().data["name"] == "seen"
        assert api.delete("/api/permissions/%2F/ana") == 204
        api.put("/api/queues/%2F/unseen", {})
        assert stream.read().data["reason"] == "access_changed"
        everything.find("queue.created", name="unseen")
        mark(api)
        assert api.put("/api/permissions/%2F/ana", ALL) == 201
        assert stream.read().data["reason"] == "access_changed"
        for name in ("seen", "unseen"):
            api.delete(f"/api/queues/%2F/{name}")
            event = stream.read()
            assert (event.type, event.data["name"]) == ("queue.deleted", name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("DELETE", "/api/users/eva", None), "user_deleted"),
        (
            ("PUT", "/api/users/eva", {"password": "new", "tags": "management"}),
            "credentials_changed",
        ),
    ],
)
def test_the_stream_of_a_changed_user_ends(api: Api, change: Any, reason: str) -> None:
    api.put("/api/users/eva", {"password": "p", "tags": "management"})
    with EventStream(api.port, "eva", "p", types="stream") as stream:
        api.request(*change)
        assert [(each.type, each.data["reason"]) for each in stream] == [("stream.closed", reason)]
    api.delete("/api/users/eva")


def test_the_stream_of_a_user_without_tags_ends(broker: recado.Broker, api: Api) -> None:
    api.put("/api/users/eva", {"password": "p", "tags": "management"})
    with EventStream(api.port, "eva", "p", types="stream") as stream:
        definitions = broker.export_definitions()
        (user,) = [each for each in definitions["users"] if each["name"] == "eva"]
        broker.import_definitions({"users": [{**user, "tags": []}]})
        assert [each.data["reason"] for each in stream] == ["access_lost"]
    api.delete("/api/users/eva")


# ── resumption ──────────────────────────────────────────────────────────────────────────────────────


def test_events_since_the_last_one_are_repeated(api: Api) -> None:
    with EventStream(api.port, types="queue") as stream:
        api.put("/api/queues/%2F/r1", {})
        last = stream.find("queue.created", name="r1").id
    for name in ("r1", "r2"):
        api.put(f"/api/queues/%2F/{name}", {})
        api.delete(f"/api/queues/%2F/{name}")
    expected = ["queue.deleted", "queue.created", "queue.deleted"]
    for in_header in (True, False):
        with EventStream(api.port, last_event_id=last, in_header=in_header) as stream:
            assert stream.opened.data["resumed"] is True
            assert [stream.read().type for _ in range(3)] == expected
            stream.find("rates.overview")


@pytest.mark.parametrize(
    ("last_event_id", "reason"),
    [("0-1", "restarted"), ("nonsense", "unknown_id"), ("{epoch}-999999999", "unknown_id")],
)
def test_an_unknown_id_resets_the_client(api: Api, last_event_id: str, reason: str) -> None:
    with EventStream(api.port) as stream:
        epoch = stream.last_id.partition("-")[0]
    resumed = last_event_id.replace("{epoch}", epoch)
    with EventStream(api.port, last_event_id=resumed, types="alarm") as stream:
        assert stream.opened.data["resumed"] is False
        assert stream.read().data["reason"] == reason


def test_nothing_is_observed_while_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LINGER_S", 0.0)
    with recado.Broker(config={"management": {"port": 0}}) as broker:
        assert broker.management_port is not None
        server = broker._require_running().server
        with EventStream(broker.management_port) as stream:
            last = stream.last_id
            assert type(server.broker.observer).__name__ == "ChangeRecorder"
        wait_until(lambda: type(server.broker.observer).__name__ == "ChangeObserver")
        with EventStream(broker.management_port, last_event_id=last, types="queue") as stream:
            assert stream.read().data["reason"] == "too_old"


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + scale(60)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ── end ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stop_of_the_node_ends_all_streams_promptly() -> None:
    with ThreadPoolExecutor(8) as pool:
        with recado.Broker(config={"management": {"port": 0}}) as broker:
            port = broker.management_port
            assert port is not None
            opened = list(pool.map(lambda _: EventStream(port, types="queue"), range(30)))
            ends = [pool.submit(list[Event], stream) for stream in opened]
            started_at = time.monotonic()
        elapsed_s = time.monotonic() - started_at
        for end in ends:
            (last,) = end.result(scale(60))
            assert (last.type, last.data["reason"]) == ("stream.closed", "node_stopping")
    for stream in opened:
        stream.__exit__()
    assert elapsed_s < scale(1.0)


def test_streams_of_a_user_are_limited(
    broker: recado.Broker, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    management = broker._require_running().management
    assert management is not None
    open_streams = management.console.events
    wait_until(lambda: open_streams.count == 0)
    monkeypatch.setattr(streams, "STREAMS_OF_USER_MAX_COUNT", 2)
    with EventStream(api.port) as one, EventStream(api.port):
        reply = api.request("GET", "/api/events")
        assert (reply.status, reply.headers["connection"]) == (429, "close")
        assert "2 open event streams" in reply.body["reason"]
        monkeypatch.setattr(streams, "STREAMS_OF_USER_MAX_COUNT", 100)
        monkeypatch.setattr(streams, "STREAMS_MAX_COUNT", 2)
        reply = api.request("GET", "/api/events")
        assert (reply.status, reply.headers["connection"]) == (503, "close")
        one.__exit__()
        wait_until(lambda: open_streams.count == 1)
        with EventStream(api.port):
            assert open_streams.count == 2


assert PAYLOADS_MAX_COUNT < KEYS_MAX_COUNT
