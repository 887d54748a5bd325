"""What handlers, producers and queues can do to an endpoint, on both brokers: it must go on, and lose nothing."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

import recado
from recado.amqp.properties import Properties, encode_properties
from recado.client import ClientError, RobustChannel
from recado.patterns import (
    CompositionError,
    Destination,
    FlowStep,
    LogStream,
    MemoryStore,
    Message,
    Messaging,
    NotConfirmedError,
    Outputs,
    PointToPoint,
    PublishSubscribe,
    RecipientList,
    ReplyError,
    Retry,
    StatefulStep,
    StateTransaction,
)
from recado.patterns.publisher import EncodedPublish
from tests.client.running import in_a_loop, soon
from tests.patterns.collected import Collected
from tests.patterns.test_messaging import message_of
from workshop.peers import Server

Name = Callable[[str], str]

HEADERS_BYTES = 130_000  # nearly a frame


class OddError(BaseException):
    """Not an `Exception`, as those of some libraries."""


class MuteError(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture
def app(server: Server, name: Name) -> Messaging:
    return Messaging(server.url, dead_letter=name("dead"), invalid=name("invalid"))


_unused_delays = itertools.count(31)


@pytest.fixture
def unused_delay() -> float:
    """A delay whose queue no other test uses on RabbitMQ, in case this test breaks it."""
    return next(_unused_delays) / 1000


async def raise_cancelled() -> None:
    """As a handler does that waits for a task that somebody else has cancelled."""
    raise asyncio.CancelledError


async def raise_odd() -> None:
    raise OddError("odd")


async def raise_mute() -> None:
    raise MuteError


async def raise_surrogate() -> None:
    raise FileNotFoundError("no file \udcff")


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("fail", [raise_cancelled, raise_odd, raise_mute, raise_surrogate])
@in_a_loop
async def test_whatever_a_handler_raises_is_a_failure(
    app: Messaging, name: Name, fail: Callable[[], Any], concurrency: int
) -> None:
    queue, seen = name("numbers"), Collected()

    @app.subscribe(queue, concurrency=concurrency)
    async def handle(number: int) -> None:
        seen.add(number)
        if number == 0:
            await fail()

    async with app:
        await app.publish_many(queue, [0, 0, 0, 1])
        async with message_of(app, app.dead_letter.name) as dead:
            assert dead.body == b"0"
        await soon(seen.wait(4))
        await app.publish(queue, 2)
        await soon(seen.wait(5))
        assert app.health().is_healthy
    assert sorted(map(str, seen.items)) == [*"00012"]


@in_a_loop
async def test_a_plain_function_that_raises_stop_iteration(app: Messaging, name: Name) -> None:
    queue = name("numbers")

    @app.subscribe(queue)
    def handle(number: int) -> None:
        next(iter(()))

    async with app:
        await app.publish(queue, 0)
        async with asyncio.timeout(30), message_of(app, app.dead_letter.name) as dead:
            assert "StopIteration" in str(dead.headers["x-failure-reason"])


@pytest.mark.parametrize("retry", [1, 3])
@in_a_loop
async def test_a_reply_that_cannot_be_encoded_dead_letters_the_request(
    app: Messaging, name: Name, retry: int
) -> None:
    queue, seen = name("requests"), Collected()

    @app.subscribe(queue, retry=Retry(retry, backoff=0.01))
    async def handle(number: int) -> object:
        seen.add(number)
        return threading.Lock()

    async with app:
        with pytest.raises(ReplyError, match="lock"):
            await app.request(queue, 7, timeout=30)
        async with message_of(app, app.dead_letter.name) as dead:
            assert dead.body == b"7"
            assert "TranslationError" in str(dead.headers["x-failure-reason"])
    assert seen.items == [7]


@in_a_loop
async def test_a_reply_that_the_queue_refuses_is_a_failure(app: Messaging, name: Name) -> None:
    queue, full, seen = name("requests"), name("full"), Collected()

    @app.subscribe(queue, retry=Retry(2, backoff=0.01))
    async def handle(number: int) -> int:
        seen.add(number)
        return number

    async with app:
        async with await app.open_channel() as channel:
            await channel.declare_queue(
                full, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
            )
        await app.publish_many(full, [0])
        await app.publish(queue, Message(body=7, reply_to=full))
        async with message_of(app, app.dead_letter.name) as dead:
            assert "NotConfirmedError" in str(dead.headers["x-failure-reason"])
    assert seen.items == [7, 7]


@pytest.mark.parametrize("message_id", [None, "an-id"])
@in_a_loop
async def test_a_dead_letter_queue_that_was_deleted_is_declared_again(
    app: Messaging, name: Name, message_id: str | None
) -> None:
    queue, calls = name("numbers"), Collected()

    @app.subscribe(queue)
    async def handle(number: int) -> None:
        calls.add(number)
        raise ValueError("no")

    async with app:
        await app.delete(app.dead_letter)
        properties = encode_properties(Properties(message_id=message_id))
        await app.publish_encoded(EncodedPublish("", queue, b"7", properties, ""))
        await soon(calls.wait(1))
        async with message_of(app, app.dead_letter.name) as dead:
            assert dead.body == b"7"
    assert calls.items == [7]


@in_a_loop
async def test_while_the_dead_letter_queue_is_full_the_handler_is_not_called_in_a_loop(
    app: Messaging, name: Name
) -> None:
    queue, full, calls = name("numbers"), name("full"), Collected()

    @app.subscribe(queue, dead_letter=full)
    async def handle(number: int) -> None:
        calls.add(number)
        raise ValueError("no")

    async with app:
        await app.delete(full)
        async with await app.open_channel() as channel:
            await channel.declare_queue(
                full, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
            )
        await app.publish(full, 0)
        await app.publish(queue, 7)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.wait_for(calls.wait(3), 60)
        assert loop.time() - began > 1.0
        async with message_of(app, full) as first:
            assert first.body == b"0"
        async with message_of(app, full) as dead:
            assert dead.body == b"7"


@in_a_loop
async def test_retries_go_on_after_the_queue_was_deleted(app: Messaging, name: Name) -> None:
    queue, seen = name("numbers"), Collected()

    @app.subscribe(queue, retry=Retry(2, backoff=0.01))
    async def handle(message: Message[int]) -> None:
        seen.add((message.body, message.attempt))
        if message.attempt == 1:
            raise ValueError("no")

    async with app:
        await app.publish(queue, 1)
        await soon(seen.wait(2))
        await app.delete(queue)
        await app.publish(queue, 2)
        await soon(seen.wait(4))
    assert seen.items == [(1, 1), (1, 2), (2, 1), (2, 2)]


HOSTILE_HEADERS: list[dict[str, Any]] = [
    {"x-attempt": "many"},
    {"x-attempt": -(2**31)},
    {"x-attempt": 2**62},
    {"x-attempt": True},
    {"x-attempt": [1]},
    {"x-delivery-count": "x"},
    {"x-failure-history": "no list"},
    {"x-failure-history": [1, {"a": [None, 2.5]}, b"\xff"]},
    {"x-failure-reason": 5, "x-failure-queue": ["a"]},
    {"x-padding": "x" * HEADERS_BYTES},
    {"x-failure-history": ["x" * (HEADERS_BYTES // 20)] * 20},
]


@pytest.mark.parametrize("number", range(len(HOSTILE_HEADERS)))
@in_a_loop
async def test_hostile_headers_get_all_attempts_and_a_place(
    app: Messaging, name: Name, number: int
) -> None:
    queue, seen = name("numbers"), Collected()

    @app.subscribe(queue, retry=Retry(2, backoff=0.01))
    async def handle(message: Message[int]) -> None:
        seen.add(message.attempt)
        raise ValueError("no" * 2000)

    async with app:
        properties = encode_properties(Properties(headers=HOSTILE_HEADERS[number]))
        await app.publish_encoded(EncodedPublish("", queue, b"7", properties, ""))
        async with asyncio.timeout(30), message_of(app, app.dead_letter.name) as dead:
            assert dead.body == b"7"
            assert str(dead.headers["x-failure-reason"]).startswith("ValueError: no")
        assert app.health().is_healthy
    assert seen.items == [1, 2]


@pytest.mark.parametrize("deaths", [None, "text", [1, 2]])
@in_a_loop
async def test_forged_deaths_are_no_part_of_a_retry(
    app: Messaging, name: Name, deaths: Any, unused_delay: float
) -> None:
    """RabbitMQ drops a dead-lettered message that seems to be in a cycle; malformed entries crash its queue."""
    queue, seen = name("numbers"), Collected()
    cycle = [
        {"queue": queue, "reason": "expired", "count": 1, "exchange": "", "routing-keys": [""]}
    ]

    @app.subscribe(queue, retry=Retry(2, backoff=unused_delay))
    async def handle(message: Message[int]) -> None:
        seen.add(message.attempt)
        if message.attempt == 1:
            raise ValueError("no")

    async with app:
        await app.publish(queue, Message(body=7, headers={"x-death": deaths or cycle}))
        assert await soon(seen.wait(2)) == [1, 2]


@in_a_loop
async def test_a_message_that_is_sent_on_goes_to_no_other_queues(
    app: Messaging, name: Name
) -> None:
    """By CC, a producer could write to any queue with the permissions of this program, and let it run in a loop."""
    queue, steps, sent_on, copies = name("numbers"), name("steps"), name("sent"), name("copies")
    seen, parked = Collected(), Collected()

    @app.subscribe(queue, retry=Retry(2, backoff=0.01))
    async def handle(message: Message[int]) -> None:
        seen.add((message.attempt, message.headers.get("CC")))
        raise ValueError("no")

    @app.subscribe(app.dead_letter)
    async def collect(message: Message[int]) -> None:
        parked.add(message.body)

    class PassOn(FlowStep):
        def process(self, message: Message[int]) -> Outputs:
            return [message]

    app.flow(steps, PassOn(), to=sent_on)
    async with app:
        await app.declare(copies)
        await app.publish(queue, Message(body=7, headers={"CC": [queue, copies]}))
        await soon(parked.wait(1))
        await app.publish(steps, Message(body=8, headers={"CC": [steps, copies]}))
        async with message_of(app, sent_on) as message:
            assert message.body == b"8"
        for body in (7, 8):  # one copy of each
            async with message_of(app, copies) as message:
                assert message.body == b"%d" % body
        async with app.consume(copies) as more:
            assert more is None
        await app.publish(queue, 9)
        assert await soon(parked.wait(2)) == [7, 9]
    assert seen.items == [(1, None), (2, None)] * 2


@in_a_loop
async def test_properties_that_are_no_text(app: Messaging, name: Name) -> None:
    """A broker does not look whether texts are UTF-8."""
    queue, seen = name("numbers"), Collected()

    @app.subscribe(queue, retry=2)
    async def handle(message: Message[int]) -> None:
        seen.add(message.body)

    async with app:
        broken = b"\x80\x00\x03\xff\xfe\xfd"  # the content type
        try:
            await app.publish_encoded(EncodedPublish("", queue, b"7", broken, ""))
        except Exception:  # noqa: BLE001 - a broker that refuses it is right
            pass
        else:
            async with asyncio.timeout(30), message_of(app, app.invalid.name) as invalid:
                assert invalid.body == b"7"
        await app.publish(queue, 8)
        await soon(seen.wait(1))
    assert seen.items == [8]


def nest(levels_count: int) -> bytes:
    """Return properties with headers that are tables in tables."""
    table = b"\0\0\0\0"
    for _ in range(levels_count):
        entry = b"\x01aF" + table
        table = len(entry).to_bytes(4, "big") + entry
    return b"\x20\0" + table


@pytest.mark.parametrize("kind", ["handler", "flow", "polling"])
@in_a_loop
async def test_headers_that_cannot_be_decoded(
    rabbitmq_server: Server, name: Name, kind: str
) -> None:
    """RabbitMQ forwards what recado refuses when it is published."""
    url, queue, seen = rabbitmq_server.url, name("numbers"), Collected()
    app = Messaging(url, dead_letter=name("dead"), invalid=name("invalid"), store=MemoryStore())

    class Note(FlowStep):
        def process(self, message: Message[int]) -> Outputs:
            seen.add(message.body)
            return []

    if kind == "handler":

        @app.subscribe(queue, retry=2)
        async def handle(number: int) -> None:
            seen.add(number)

    elif kind == "flow":
        app.flow(queue, Note())
    async with app:
        await app.declare(queue)
        await app.publish_encoded(EncodedPublish("", queue, b"7", nest(100), ""))
        await app.publish(queue, 8)
        if kind == "polling":
            async with message_of(app, queue) as message:
                seen.add(int(message.body))  # type: ignore[call-overload]
        await soon(seen.wait(1))
        async with message_of(app, app.invalid.name) as invalid:
            assert invalid.body == b"7"
            reason = invalid.headers["x-failure-reason"]
            assert reason.startswith(
                "TranslationError: the properties of a message cannot be decoded: "
            )
            # RabbitMQ has perhaps added its count of deliveries in front.
            assert nest(99)[2:] in invalid.headers["x-original-properties"]
    assert seen.items == [8]


@in_a_loop
async def test_two_requests_with_one_message_id(app: Messaging, name: Name) -> None:
    queue = name("requests")

    @app.subscribe(queue, concurrency=2)
    async def handle(number: int) -> int:
        return number

    async with app:
        requests = [
            app.request(queue, Message(body=number, message_id="same"), timeout=30)
            for number in range(2)
        ]
        assert await asyncio.gather(*requests) == [0, 1]


@in_a_loop
async def test_a_message_that_cannot_be_published_fails_alone(app: Messaging, name: Name) -> None:
    queue = name("numbers")
    async with app:
        await app.declare(queue)
        bad = EncodedPublish("", "k" * 300, b"", encode_properties(Properties()), "")
        fine = EncodedPublish("", queue, b"1", encode_properties(Properties()), "")
        headers = encode_properties(Properties(headers={"x": "x" * 200_000}))
        huge = EncodedPublish("", queue, b"1", headers, "")  # the broker would close the connection
        # The first one closes the channel, and the others wait for the next one.
        missing = EncodedPublish(name("missing"), "", b"", encode_properties(Properties()), "")
        outcomes = await soon(
            asyncio.gather(
                *(app.publish_encoded(each) for each in (missing, fine, bad, huge, fine)),
                return_exceptions=True,
            )
        )
        assert [each is None for each in outcomes] == [False, True, False, False, True]
        await soon(app.publish(queue, 2))


@pytest.mark.parametrize("make", [PointToPoint, PublishSubscribe])
@in_a_loop
async def test_a_declaration_that_is_cancelled_leaves_no_channel(
    app: Messaging, name: Name, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], Destination]
) -> None:
    """The broker limits the number of channels, so a program that cancels often could open no more."""
    opened: list[RobustChannel] = []
    asked = asyncio.Event()

    async def wait_forever(channel: RobustChannel, name: str, **_: object) -> None:
        opened.append(channel)
        asked.set()
        await asyncio.Event().wait()

    async with app:
        for method in ("declare_queue", "declare_exchange"):
            monkeypatch.setattr(RobustChannel, method, wait_forever)
        publishing = asyncio.create_task(app.publish(make(name("new")), 1))
        await soon(asked.wait())
        publishing.cancel()
        await asyncio.wait([publishing])
        assert [each.is_open for each in opened] == [False]


@pytest.mark.parametrize("make", [PointToPoint, PublishSubscribe, LogStream])
def test_a_destination_with_an_impossible_name(make: Callable[[str], object]) -> None:
    assert make("\u00e4" * 127 + "a")
    with pytest.raises(
        CompositionError, match=r"the name has 256 bytes, but at most 255 are possible"
    ):
        make("\u00e4" * 128)
    with pytest.raises(CompositionError, match="the name is not valid text"):
        make("\ud800")


@in_a_loop
async def test_a_message_that_names_an_impossible_recipient_is_a_dead_letter(
    app: Messaging, name: Name
) -> None:
    queue = name("news")
    app.flow(queue, RecipientList(lambda message: [f"{queue}.{message.body}"]))
    async with app:
        for recipient in ("x" * 300, "ana"):
            await app.publish(queue, recipient)
        async with message_of(app, f"{queue}.ana") as message:
            assert message.body == b'"ana"'
        async with message_of(app, app.dead_letter.name) as dead:
            assert dead.headers["x-failure-reason"].startswith("CompositionError: queue 'news-")


@in_a_loop
async def test_two_starts_and_a_stop_meanwhile(app: Messaging, name: Name) -> None:
    @app.subscribe(name("numbers"))
    async def handle(number: int) -> None: ...

    results = await soon(
        asyncio.gather(app.start(), app.start(), app.stop(), app.stop(), return_exceptions=True)
    )
    assert [type(each) for each in results] == [type(None), RuntimeError, type(None), type(None)]
    assert app.endpoints == {}
    async with app:
        assert app.health().is_healthy


@in_a_loop
async def test_attempts_do_not_travel_with_a_message_that_is_sent_on(
    app: Messaging, name: Name
) -> None:
    queue, following, seen = name("numbers"), name("following"), Collected()

    @app.subscribe(queue, retry=Retry(3, backoff=0.01))
    async def handle(message: Message[int]) -> None:
        if message.attempt < 3:
            raise ValueError("not yet")
        await app.publish(following, message.as_new())

    @app.subscribe(following, retry=2)
    async def follow(message: Message[int]) -> None:
        seen.add(message.attempt)

    async with app:
        await app.publish(queue, 7)
        assert await soon(seen.wait(1)) == [1]


@in_a_loop
async def test_an_application_stops_while_its_broker_is_away(name: Name) -> None:
    queue = name("numbers")
    async with recado.Broker() as server:
        app = Messaging(server.url, shutdown_timeout=0.5)

        @app.subscribe(queue)
        async def handle(number: int) -> None: ...

        await app.start()
    publishing = asyncio.create_task(app.publish(queue, 1))
    await asyncio.sleep(0)
    await soon(app.stop())
    with pytest.raises((NotConfirmedError, ClientError)):
        await soon(publishing)


class FailingStep(FlowStep):
    def __init__(self, error: BaseException) -> None:
        self._error = error

    def process(self, message: Message[Any]) -> Outputs:
        if message.body == 0:
            raise self._error
        return [message]


class FailingStatefulStep(StatefulStep):
    table = "failing"

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        if message.body == 0:
            raise self._error
        return [message]


@pytest.mark.parametrize("error", [OddError, asyncio.CancelledError])
@pytest.mark.parametrize("step", [FailingStep, FailingStatefulStep])
@in_a_loop
async def test_whatever_a_step_raises_is_a_failure(
    server: Server,
    name: Name,
    step: type[FailingStep | FailingStatefulStep],
    error: type[BaseException],
) -> None:
    dead, queue, following, seen = name("dead"), name("numbers"), name("following"), Collected()
    app = Messaging(server.url, dead_letter=dead, store=MemoryStore())
    app.flow(queue, step(error()), to=following)

    @app.subscribe(following)
    async def follow(number: int) -> None:
        seen.add(number)

    async with app:
        await app.publish_many(queue, [0, 1])
        async with asyncio.timeout(30), message_of(app, dead) as parked:
            assert parked.body == b"0"
        assert await soon(seen.wait(1)) == [1]
