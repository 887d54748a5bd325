"""The objects on the broker are those of the report, and the feed's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

import recado
from recado.apps.chat.server import ServerOptions
from tests.brokers import BROKERS
from tests.console.http import Api
from workshop import peers
from workshop.time_limit import scale

from .browser import Browser
from .conftest import chat_in_thread

PATIENCE_S = 30.0


class Scene(NamedTuple):
    url: str
    broker_url: str
    read: Callable[[], set[str]]


@pytest.fixture(scope="module", params=BROKERS)
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A chat on a broker, and a function that reads the objects of the broker."""
    with ExitStack() as stack:
        if request.param == "recado":
            broker = stack.enter_context(recado.Broker(config={"management": {"port": 0}}))
            broker_url, port = broker.url, broker.management_port
        else:
            server = stack.enter_context(peers.rabbitmq(management=True))
            broker_url, port = server.url, server.http_port
        assert port is not None
        api = Api(port)
        before = wait_for(lambda: read_objects(api), None)
        running = stack.enter_context(chat_in_thread(ServerOptions(url=broker_url)))
        yield Scene(running.url, broker_url, lambda: read_objects(api) - before)


def read_objects(api: Api) -> set[str]:
    """Return exchanges, queues and bindings, without those that every broker has."""
    found = {
        f"exchange {each['name']} {each['type']} durable={each['durable']}"
        for each in api.get("/api/exchanges/%2F")
        if each["name"] and not each["name"].startswith("amq.")
    }
    found |= {
        f"queue {name_of_queue(each['name'])} durable={each['durable']}"
        for each in api.get("/api/queues/%2F")
    }
    found |= {
        f"binding {each['source']} {each['routing_key']} {name_of_queue(each['destination'])}"
        for each in api.get("/api/bindings/%2F")
        if each["source"]
    }
    return found


def name_of_queue(name: str) -> str:
    return "NAMED BY THE BROKER" if name.startswith("amq.gen") else name


def wait_for(read: Callable[[], set[str]], expected: set[str] | None) -> set[str]:
    """Read until it succeeds, and until the objects are the expected ones; return the last ones read."""
    deadline = time.monotonic() + scale(PATIENCE_S)
    while True:
        try:
            found = read()
            if expected is None or found == expected or time.monotonic() > deadline:
                return found
        except OSError:  # the HTTP API of RabbitMQ starts after its AMQP
            if time.monotonic() > deadline:
                raise
        time.sleep(0.05)


def without_feed(objects: set[str]) -> set[str]:
    """Return the objects that are not those of the feed (docs/feeds.md, "Objects on the broker")."""
    return {each for each in objects if "feed.chat" not in each and "NAMED BY" not in each}


def feed_objects(objects: set[str]) -> set[str]:
    return {each for each in objects - without_feed(objects) if not each.startswith("binding")}


def test_the_objects_are_exactly_those_of_the_report(scene: Scene) -> None:
    def expect(objects: set[str]) -> None:
        assert without_feed(wait_for(lambda: without_feed(scene.read()), objects)) == objects

    async def use() -> None:
        start = scene.read()
        assert without_feed(start) == set()
        assert {each for each in start if each.startswith("exchange")} == {
            "exchange feed.chat topic durable=True",
            "exchange feed.chat.archive direct durable=True",
        }
        assert "queue feed.chat.archive.chat durable=True" in start

        async with Browser(scene.url) as ana, Browser(scene.url) as bob:
            await ana.sign_in("Ana")
            objects = {
                "exchange private-messages direct durable=True",
                f"queue {ana.id} durable=True",
                f"binding private-messages {ana.id} {ana.id}",
            }
            expect(objects)
            await ana.join("tea")
            objects |= {"exchange tea topic durable=True", f"binding tea # {ana.id}"}
            expect(objects)
            await bob.sign_in("Bob", ("tea",))
            objects |= {
                f"queue {bob.id} durable=True",
                f"binding private-messages {bob.id} {bob.id}",
                f"binding tea # {bob.id}",
            }
            expect(objects)
            await ana.open(bob.id)
            await ana.send(f"user:{bob.id}", "psst")
            await ana.send("room:tea", "hello")
            await bob.expect_text("hello")
            expect(objects)
            await ana.say("leave", room="tea")
            await ana.expect("left")
            objects -= {f"binding tea # {ana.id}"}
            expect(objects)
            async with bob.http.delete(scene.url + "api/session") as response:
                assert response.status == 200
            objects -= {each for each in objects if bob.id in each}
            expect(objects)
            assert feed_objects(scene.read()) == feed_objects(start)

    asyncio.run(use())


def test_what_an_operator_deletes_is_made_again(scene: Scene) -> None:
    """Exchange of a room, and the queue of a user: messages arrive nevertheless, live ones after that as well."""

    async def use() -> None:
        async with Browser(scene.url) as ana, Browser(scene.url) as bob:
            await ana.sign_in("Ana", ("milk",))
            await bob.sign_in("Bob", ("milk",))
            async with recado.connect(scene.broker_url) as connection:
                channel = await connection.channel()
                await channel.delete_exchange("milk")
                for number in range(3):
                    await ana.send("room:milk", f"without exchange {number}")
                await read_texts(bob, [f"without exchange {number}" for number in range(3)])
                expected = {f"binding milk # {user.id}" for user in (ana, bob)}
                assert wait_for(lambda: scene.read() & expected, expected) == expected
                await channel.delete_queue(bob.id)
                await ana.send("room:milk", "without queue")
                await read_texts(bob, ["without queue"])
                expected = {f"binding milk # {bob.id}", f"queue {bob.id} durable=True"}
                assert wait_for(lambda: scene.read() & expected, expected) == expected
                await ana.send("room:milk", "as before")
                await read_texts(bob, ["as before"])

    asyncio.run(use())


async def read_texts(browser: Browser, expected: list[str]) -> None:
    """Take messages, pushed live or as missed, until the expected ones have come."""
    texts: list[str] = []
    while len(texts) < len(expected):
        frame = await browser.expect_any("message", "missed")
        messages = [frame["message"]] if "message" in frame else frame["messages"]
        texts += [each["text"] for each in messages]
    assert texts == expected
