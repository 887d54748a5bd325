"""`/api/feeds`: feeds by their exchanges, and what the archives of the node know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

import recado
import recado.feeds
from workshop.time_limit import scale

from .http import Api

PATIENCE_S = scale(30.0)
ALL = {"configure": ".*", "write": ".*", "read": ".*"}


def configured(data: Path) -> dict[str, dict[str, object]]:
    return {
        "node": {"data": str(data)},
        "management": {"port": 0},
        "feeds": {"archives": {"keep-1": {"feed": "quotes"}}},
    }


async def until(read: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    """Read in a thread until a condition holds; each request is a turn of the loop that serves it."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds(value := await asyncio.to_thread(read)):
            pass
    return value


def test_a_feed_with_an_archive_of_the_node(tmp_path: Path) -> None:
    async def run() -> None:
        async with recado.Broker(config=configured(tmp_path)) as broker:
            assert broker.management_port is not None
            api = Api(broker.management_port)
            async with recado.feeds.connect(broker.url) as link:
                feed = link.feed("quotes")
                async with feed.subscribe("ana") as subscription:
                    for number in range(3):
                        await feed.publish(str(number).encode())
                    await feed.flush()
                    messages = aiter(subscription)
                    for _ in range(3):
                        await anext(messages)
                    found = await until(
                        lambda: api.get("/api/feeds/%2F/quotes"),
                        lambda found: found["messages_stored"] == 3 and found["member_count"] == 2,
                    )
                    (row,) = await asyncio.to_thread(api.get, "/api/feeds")
            (archive,) = found["archives"]
            assert row["name"] == "quotes"
            assert row["archive_count"] == 1
            assert row["view"] == archive["view"]["number"]
            assert (archive["name"], archive["is_storing"]) == ("keep-1", True)
            assert (archive["first_offset"], archive["next_offset"]) == (0, 3)
            assert [each["last"] for each in archive["publishers"]] == [3]
            members = archive["view"]["members"]
            assert {(each["name"], each["role"]) for each in members} == {
                ("keep-1", "archive"),
                ("ana", "subscriber"),
            }
            assert archive["past_views"][0]["number"] < archive["view"]["number"]
            assert {queue["archive"] for queue in found["queues"]} == {"keep-1", None}
            path = "/api/feeds/%2F/quotes/subscribers"
            # When the subscriber has left, a later view or its last acknowledgement tells what it has received.
            known = await until(
                lambda: api.get(f"{path}/ana"),
                lambda known: (
                    known["archives"][0]["publishers"][0]["ranges"][0]["certainty"] == "delivered"
                ),
            )
            assert known["archives"][0]["publishers"][0]["ranges"] == [
                {"first": 1, "last": 3, "certainty": "delivered"}
            ]
            assert (await asyncio.to_thread(api.request, "GET", f"{path}/bea")).status == 404

    asyncio.run(run())


def declare_feed(broker: recado.Broker, name: str, vhost: str = "%2F") -> None:
    url = broker.url.removesuffix("%2F") + vhost
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(f"feed.{name}", "topic", durable=True)
        channel.exchange_declare(f"feed.{name}.archive", "direct", durable=True)


def test_without_an_archive_the_rest_is_unknown(broker: recado.Broker, api: Api) -> None:
    declare_feed(broker, "quotes")
    api.put("/api/queues/%2F/feed.quotes.archive.far", {})
    api.request(
        "POST", "/api/bindings/%2F/e/feed.quotes/q/feed.quotes.archive.far", {"routing_key": "#"}
    )
    # Exchanges that are no feeds.
    api.put("/api/exchanges/%2F/feed.", {"type": "topic"})
    api.put("/api/exchanges/%2F/feed.alone", {"type": "topic"})
    api.put("/api/exchanges/%2F/feed.other", {"type": "fanout"})
    api.put("/api/exchanges/%2F/feed.other.archive", {"type": "direct"})
    (row,) = api.get("/api/feeds")
    assert row == {
        "name": "quotes",
        "vhost": "/",
        "exchange": "feed.quotes",
        "queue_count": 1,
        "archive_count": 0,
        "view": None,
        "member_count": None,
        "publisher_count": None,
        "messages_stored": None,
        "messages_unsynced": None,
        "archive_lag": None,
    }
    found = api.get("/api/feeds/%2F/quotes")
    assert found["archives"] is None
    assert found["queues"] == [
        {"name": "feed.quotes.archive.far", "archive": "far", "messages": 0, "consumers": 0}
    ]
    for path in ("none", "alone", "other", "quotes.archive", "quotes/subscribers/ana"):
        assert api.request("GET", f"/api/feeds/%2F/{path}").status == 404


def test_lists_have_sort_pages_and_only_visible_vhosts(broker: recado.Broker, api: Api) -> None:
    api.put("/api/vhosts/closed", {})
    for name in ("b", "a", "c"):
        declare_feed(broker, name)
    declare_feed(broker, "secret", "closed")
    rows = api.get("/api/feeds/%2F?sort=name&sort_reverse=true&columns=name")
    assert rows == [{"name": name} for name in "cba"]
    page = api.get("/api/feeds?page=1&page_size=2")
    assert [row["name"] for row in page["items"]] == ["a", "b"]
    assert page["total_count"] == 4
    for tag, sees_all in (("management", False), ("monitoring", True)):
        api.put(f"/api/users/{tag}", {"password": "p", "tags": tag})
        api.put(f"/api/permissions/%2F/{tag}", ALL)
        user = Api(api.port, tag, "p")
        assert len(user.get("/api/feeds")) == (4 if sees_all else 3)
        expected = 200 if sees_all else 401
        assert user.request("GET", "/api/feeds/closed").status == expected
        assert user.request("GET", "/api/feeds/closed/secret").status == expected


def test_a_selector_is_tried_on_an_archive(tmp_path: Path) -> None:
    async def run() -> None:
        async with recado.Broker(config=configured(tmp_path)) as broker:
            assert broker.management_port is not None
            api = Api(broker.management_port)
            async with recado.feeds.connect(broker.url) as link:
                feed = link.feed("quotes")
                for number in range(20):
                    body = f'{{"price": {number}}}'.encode()
                    await feed.publish(body, key=f"k{number % 2}", headers={"n": number})
                await feed.flush()
                await until(
                    lambda: api.get("/api/feeds/%2F/quotes"),
                    lambda found: found["messages_stored"] == 20,
                )

                async def search(**body: Any) -> Any:
                    path = "/api/feeds/%2F/quotes/search"
                    return await asyncio.to_thread(api.post, path, body)

                reply = await search(selector="json.price >= 15 and key = 'k1'", count=2)
                assert reply.status == 200, reply
                found = reply.body
                assert (found["examined"], found["matched"], found["complete"]) == (20, 3, True)
                assert found["archive"] == "keep-1"
                assert found["folder"].endswith("keep-1")
                assert [each["payload"] for each in found["messages"]] == [
                    '{"price": 15}',
                    '{"price": 17}',
                ]
                first = found["messages"][0]
                assert (first["offset"], first["sequence"], first["routing_key"]) == (15, 16, "k1")
                assert first["properties"]["headers"] == {"n": 15}
                assert (await search(rows=5)).body["first_offset"] == 15
                since = await search(since=first["published_at"] + 3_600_000)
                assert (since.body["examined"], since.body["matched"]) == (0, 0)
                everything = await search(since=0, rows=1_000)
                assert everything.body["examined"] == 20
                assert (await search(selector="price >")).status == 400
                assert (await search(archive="none")).status == 404

    asyncio.run(run())
