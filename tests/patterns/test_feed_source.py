"""Feeds as sources of endpoints, on recado and on RabbitMQ, and their deliveries."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import recado.feeds
from recado.client import Delivery
from recado.feeds.connection import FeedConnection
from recado.feeds.transport.memory import MemoryFeedTransport, MemoryHub
from recado.patterns import (
    CircuitBreaker,
    CompositionError,
    FeedSource,
    Filter,
    Message,
    Messaging,
    Retry,
)
from recado.patterns.feed_source import FeedIntake
from tests.client.faulty import faulty_wire
from tests.client.running import in_a_loop, soon
from tests.feeds.io.town import FAST as FAST_IN_MEMORY
from tests.patterns.collected import Collected
from tests.patterns.feed_victim import FAST
from tests.patterns.test_reconnection import url_of
from workshop.peers import Server
from workshop.time_limit import scale

Name = Callable[[str], str]


def make_app(server: Server, name: Name) -> Messaging:
    return Messaging(server.url, dead_letter=name("dead"), invalid=name("invalid"))


def source_of(feed: str) -> FeedSource:
    return FeedSource(feed, "desk", recovery="pessimistic", options=FAST)


@asynccontextmanager
async def archived_feed(server: Server, name: str, folder: Path) -> AsyncIterator[Any]:
    async with (
        recado.feeds.connect(server.url, options=FAST) as connection,
        connection.archive(name, folder),
    ):
        yield connection.feed(name)


@in_a_loop
async def test_missed_and_live_messages_that_match_reach_the_handler(
    server: Server, name: Name, tmp_path: Path
) -> None:
    """PFS3, and the archive knows what the handler has handled."""
    name_of_feed, seen = name("quotes"), Collected()

    def app() -> Messaging:
        app = make_app(server, name)

        @app.subscribe(source_of(name_of_feed), selector="json.price > 10 AND headers.venue = 'B3'")
        async def trade(message: Message[dict[str, int]]) -> None:
            seen.add((message.body["price"], message.key, message.headers["x-feed-certainty"]))

        return app

    async with archived_feed(server, name_of_feed, tmp_path) as feed:

        async def publish(*prices: int) -> None:
            for price in prices:
                await feed.publish(b'{"price": %d}' % price, key="PETR4", headers={"venue": "B3"})
                await feed.publish(b'{"price": %d}' % (price + 100), headers={"venue": "NYSE"})
            await feed.flush()

        await publish(5, 20)
        async with app() as first:
            await seen.wait(1)
            await publish(6, 30)
            await seen.wait(2)
            assert first.health().is_healthy
            assert first.endpoints["trade"].processor.handled_count == 2
        await publish(7, 40)
        async with app():
            await seen.wait(3)
            await publish(50)
            found: list[Any] = await seen.wait(4)
    assert [price for price, *_ in found] == [20, 30, 40, 50]
    assert {key for _, key, _ in found} == {"PETR4"}
    assert [certainty for *_, certainty in found][1:] == ["LIVE", "MISSED", "LIVE"]


@in_a_loop
async def test_a_failed_message_is_parked_and_the_next_one_handled(
    server: Server, name: Name, tmp_path: Path
) -> None:
    """It is acknowledged then; it came from no queue to which a replay could return it."""
    name_of_feed, seen = name("quotes"), Collected()
    dead, invalid = name("dead"), name("invalid")

    def app() -> Messaging:
        app = Messaging(server.url, dead_letter=dead, invalid=invalid)

        @app.subscribe(source_of(name_of_feed))
        async def handle(number: int) -> None:
            seen.add(number)
            if number == 1:
                raise ValueError("not this one")

        return app

    async with archived_feed(server, name_of_feed, tmp_path) as feed:
        async with app() as first:
            await feed.publish_many([b"1", b"no number", b"2"])
            await seen.wait(2)
            async with first.consume(dead) as parked:
                assert parked is not None
                assert parked.body == 1
                assert parked.headers["x-failure-reason"] == "ValueError: not this one"
                assert parked.headers["x-feed-sequence"] == 1
                assert "x-failure-queue" not in parked.headers
            async with first.consume(invalid, bytes) as malformed:
                assert malformed is not None
                assert malformed.headers["x-feed-sequence"] == 2
        await feed.publish(b"3")
        await feed.flush()
        async with app():
            assert await seen.wait(3) == [1, 2, 3]


@in_a_loop
async def test_a_flow_forwards_a_feed_to_a_queue_where_retries_work(
    server: Server, name: Name, tmp_path: Path
) -> None:
    app, work, seen = make_app(server, name), name("work"), Collected()
    name_of_feed = name("quotes")
    app.flow(source_of(name_of_feed), Filter("json.price > 10"), to=work, body_type=dict)

    @app.subscribe(work, retry=Retry(2, backoff=0.01))
    async def handle(message: Message[dict[str, int]]) -> None:
        if message.attempt == 1:
            raise ValueError("attempted again")
        seen.add(message.body["price"])

    async with archived_feed(server, name_of_feed, tmp_path) as feed, app:
        await feed.publish_many([b'{"price": 5}', b'{"price": 20}'])
        await feed.publish(b'{"price": 30}')
        assert sorted(await seen.wait(2)) == [20, 30]  # type: ignore[type-var]


@in_a_loop
async def test_a_lost_connection_is_restored_and_the_application_stops_without_one(
    server: Server, name: Name, tmp_path: Path
) -> None:
    name_of_feed, seen = name("numbers"), Collected()
    async with (
        faulty_wire(server.port) as wire,
        archived_feed(server, name_of_feed, tmp_path) as feed,
    ):
        app = Messaging(url_of(wire) + "?heartbeat=1", shutdown_timeout=0.5)

        @app.subscribe(source_of(name_of_feed))
        async def handle(number: int) -> None:
            seen.add(number)

        async with app:
            await feed.publish(b"0")
            await seen.wait(1)
            wire.cut()
            await feed.publish_many([b"%d" % number for number in range(1, 20)])
            assert await seen.wait(20) == list(range(20))
            async with asyncio.timeout(scale(30)):
                while not app.health().is_healthy:  # noqa: ASYNC110  there is no event for it
                    await asyncio.sleep(0.01)
                wire.stall()
                while not any("'handle'" in problem for problem in app.health().problems):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            await soon(app.stop())


@in_a_loop
async def test_an_endpoint_waits_for_an_archive_and_health_reports_it(
    recado_server: Server, name: Name, tmp_path: Path
) -> None:
    name_of_feed, seen = name("numbers"), Collected()
    app = make_app(recado_server, name)
    options = msgspec.structs.replace(FAST, recovery_timeout=0.2)

    @app.subscribe(FeedSource(name_of_feed, "desk", recovery="pessimistic", options=options))
    async def handle(number: int) -> None:
        seen.add(number)

    async with app:
        async with asyncio.timeout(scale(30)):
            while not any("archive" in problem for problem in app.health().problems):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with archived_feed(recado_server, name_of_feed, tmp_path) as feed:
            await feed.publish(b"1")
            assert await seen.wait(1) == [1]
            assert app.health().is_healthy


@in_a_loop
async def test_a_paused_endpoint_continues_after_its_vector(
    server: Server, name: Name, tmp_path: Path
) -> None:
    """Also if its recovery began at one: messages that were handled are not received again."""
    name_of_feed, seen = name("numbers"), Collected()
    app = make_app(server, name)
    start = recado.feeds.Vector.from_text("")
    source = FeedSource(name_of_feed, "desk", recovery=start, options=FAST)

    @app.subscribe(source)
    async def handle(number: int) -> None:
        seen.add(number)

    async with archived_feed(server, name_of_feed, tmp_path) as feed, app:
        endpoint = app.endpoints["handle"]
        await feed.publish_many([b"1", b"2"])
        await seen.wait(2)
        await endpoint.pause()
        await feed.publish_many([b"3", b"4"])
        await feed.flush()
        endpoint.resume()
        assert await seen.wait(4) == [1, 2, 3, 4]


@contextmanager
def victim(*arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.patterns.feed_victim", *map(str, arguments)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:
        try:
            yield process
        finally:
            process.kill()


def _read_lines(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def _read_table(path: Path) -> list[int]:
    connection = sqlite3.connect(path)
    try:
        return [number for (number,) in connection.execute("SELECT number FROM exact")]
    finally:
        connection.close()


@in_a_loop
async def test_a_message_is_handled_again_after_a_kill_and_has_its_effect_once(
    server: Server, name: Name, tmp_path: Path
) -> None:
    """PFS1: at least once, and PIN1: with a transaction once."""
    archive, folder = tmp_path / "archive", tmp_path / "victim"
    folder.mkdir()
    numbers, name_of_feed = [1, 2, 3, 4, 5], name("numbers")
    async with archived_feed(server, name_of_feed, archive) as feed:
        for number in numbers:
            await feed.publish(b"%d" % number)
            await feed.flush()  # a batch of its own
        with victim(server.url, name_of_feed, folder, 3) as process:
            assert await asyncio.to_thread(process.wait, scale(60)) == -signal.SIGKILL
        assert _read_lines(folder / "plain") == _read_table(folder / "state.db") == [1, 2, 3]
        with victim(server.url, name_of_feed, folder, 0):
            async with asyncio.timeout(scale(60)):
                while (  # noqa: ASYNC110
                    5 not in _read_lines(folder / "plain")
                    or 5 not in _read_table(folder / "state.db")
                ):
                    await asyncio.sleep(0.02)
    lines = _read_lines(folder / "plain")
    assert sorted(set(lines)) == numbers
    assert lines.count(3) == 2
    assert _read_table(folder / "state.db") == numbers


# ── deliveries ────────────────────────────────────────────────────────────────────────────────────────────


class Desk:
    """An intake, and a feed on which to publish."""

    def __init__(self) -> None:
        self.connection = FeedConnection.over_transport(
            MemoryFeedTransport(MemoryHub()), options=FAST_IN_MEMORY
        )
        self.feed = self.connection.feed("quotes")
        self.subscription = self.feed.subscribe("desk")
        self.intake = FeedIntake(self.connection, self.subscription)

    async def publish(self, *bodies: bytes) -> None:
        """Publish one batch."""
        await self.feed.publish_many(bodies)
        await self.feed.flush()

    async def take(self) -> Delivery:
        return await soon(anext(self.intake))

    @property
    def position(self) -> int:
        """The sequence up to which the feed has acknowledgements."""
        return self.subscription.vector.get(self.feed.publisher, 0)


@asynccontextmanager
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    async with desk.connection, desk.subscription:
        yield desk


@in_a_loop
async def test_only_acknowledged_messages_count_as_processed() -> None:
    """PFS1: those before the first one that is not acknowledged."""
    for acknowledged, position in (((), 0), ((0,), 1), ((0, 2), 1), ((1, 2), 0), ((0, 1, 2), 3)):
        async with desk() as each:
            await each.publish(b"1", b"2", b"3")
            deliveries = [await each.take() for _ in range(3)]
            for number in acknowledged:
                deliveries[number].ack()
            await each.intake.close()
            assert each.position == position
            assert deliveries[0].is_stale


@in_a_loop
async def test_a_rejected_delivery_comes_again_before_the_next_batch() -> None:
    """PFS2"""
    async with desk() as each:
        await each.publish(b"1")
        await each.publish(b"2")
        first = await each.take()
        waiting = asyncio.create_task(each.take())
        await asyncio.sleep(0)
        first.nack()
        again = await soon(waiting)
        assert (again.body, again.redelivered, first.redelivered) == (b"1", True, False)
        again.ack()
        assert (await each.take()).body == b"2"


@in_a_loop
async def test_cancelling_waits_for_the_message_that_is_handled_and_drops_the_others() -> None:
    async with desk() as each:
        await each.publish(b"1", b"2")
        first = await each.take()
        await each.intake.cancel()
        first.ack()
        with pytest.raises(StopAsyncIteration):
            await each.take()
        await each.intake.close()
        assert each.position == 1
    async with desk() as each:
        waiting = asyncio.create_task(each.intake.next_batch())
        await asyncio.sleep(0)
        await each.intake.cancel()
        assert await soon(waiting) == []


@in_a_loop
async def test_a_message_that_amqp_cannot_carry_has_the_place_in_its_feed_only() -> None:
    async with desk() as each:
        await each.feed.publish(b"1", message_id="i" * 300, headers={"venue": "B3"})
        await each.feed.publish(b"2", message_id="own", headers={"venue": "B3"})
        await each.feed.publish(b"3")
        found = []
        for _ in range(3):
            delivery = await each.take()
            found.append(delivery.properties)
            delivery.ack()
    identity = each.feed.publisher.hex()
    assert [each.message_id for each in found] == [f"{identity}-1", "own", f"{identity}-3"]
    assert [(each.headers or {}).get("venue") for each in found] == [None, "B3", None]
    assert [(each.headers or {})["x-feed-sequence"] for each in found] == [1, 2, 3]


# ── compositions ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("recovery", "options", "problem"),
    [
        ("pessimistic", {"retry": 3}, "cannot be attempted again later"),
        (None, {"breaker": CircuitBreaker()}, "messages of feed 'quotes' would be lost"),
        ("pessimistic", {"key": "a"}, "key and subscriber belong to an exchange"),
        ("pessimistic", {"subscriber": "desk"}, "key and subscriber belong to an exchange"),
        ("pessimistic", {"offset": "first"}, "offset belongs to a LogStream"),
        ("pessimistic", {"selector": "json.price >"}, "expected a value"),
        ("pessimistic", {"selector": "offset > 3"}, "messages of a feed have no offset"),
    ],
)
def test_compositions_that_cannot_work_are_refused(
    recovery: Any, options: dict[str, Any], problem: str
) -> None:
    app = Messaging("amqp://localhost")

    def handle(body: int) -> None: ...

    with pytest.raises(CompositionError, match=problem):
        app.subscribe(FeedSource("quotes", "desk", recovery=recovery), **options)(handle)


def test_a_feed_source_with_invalid_names_is_refused() -> None:
    for arguments in (("", "desk"), ("quotes", ""), ("quotes.archive", "desk")):
        with pytest.raises(CompositionError, match="name of"):
            FeedSource(*arguments)
    with pytest.raises(CompositionError, match="recovery must be"):
        FeedSource("quotes", "desk", recovery="all")  # type: ignore[arg-type]


@in_a_loop
async def test_a_stack_that_cannot_work_is_refused_at_the_start(server: Server, name: Name) -> None:
    app = make_app(server, name)
    source = FeedSource(name("quotes"), "desk", stack="NONSENSE:AMQP")

    @app.subscribe(source)
    async def handle(body: int) -> None: ...

    with pytest.raises(CompositionError, match="NONSENSE"):
        await soon(app.start())


def test_the_document_of_the_endpoints_names_the_feed() -> None:
    app = Messaging("amqp://localhost")

    @app.subscribe(FeedSource("quotes", "desk"))
    def handle(body: int) -> None: ...

    document = app.asyncapi(version="1")
    assert document["channels"]["quotes"]["x-feed"] == "quotes"
