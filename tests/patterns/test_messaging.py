"""Applications on recado and on RabbitMQ: publish, handle, request, poll, tap, and what happens to failures."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from recado.amqp.properties import Properties, encode_properties
from recado.client import ChannelClosedByBrokerError
from recado.patterns.delay import delay_queue_arguments
from recado.patterns.destination import LogStream, PublishSubscribe
from recado.patterns.errors import (
    CompositionError,
    HandlerTimeoutError,
    RejectMessageError,
    ReplyError,
    RequestTimeoutError,
)
from recado.patterns.limits import CircuitBreaker
from recado.patterns.message import Message
from recado.patterns.messaging import Messaging
from recado.patterns.publisher import EncodedPublish
from recado.patterns.retry import Retry
from tests.client.running import in_a_loop
from tests.patterns.collected import Collected
from workshop.peers import Server

Name = Callable[[str], str]


class Order(msgspec.Struct):
    id: int
    amount: float = 1.0


class Receipt(msgspec.Struct):
    order_id: int


@pytest.fixture
def app(server: Server, name: Name) -> Messaging:
    return Messaging(server.url, dead_letter=name("dead"), invalid=name("invalid"))


@asynccontextmanager
async def message_of(app: Messaging, queue: str) -> AsyncIterator[Message[object]]:
    """Take a message of a queue, as soon as there is one."""
    async with asyncio.timeout(60):
        while True:
            async with app.consume(queue, bytes) as message:
                if message is not None:
                    yield message
                    return
            await asyncio.sleep(0.02)  # polling is what is tested


@in_a_loop
async def test_a_handler_gets_typed_bodies_in_order(app: Messaging, name: Name) -> None:
    orders, seen = name("orders"), Collected()

    @app.subscribe(orders)
    async def handle(order: Order) -> None:
        seen.add(order)

    async with app:
        await app.publish_many(orders, [Order(number) for number in range(500)])
        await app.publish(orders, Order(500, 2.5))
        assert await seen.wait(501) == [*(Order(number) for number in range(500)), Order(500, 2.5)]


@in_a_loop
async def test_a_message_has_its_properties(app: Messaging, name: Name) -> None:
    events, seen = PublishSubscribe(name("events")), Collected()

    @app.subscribe(events, key="orders.*")
    async def handle(message: Message[dict[str, int]]) -> None:
        seen.add(message)

    async with app:
        sent = Message(
            body={"n": 1},
            headers={"colour": "red"},
            priority=3,
            correlation_id="c",
            type="note",
            content_type="application/msgpack",
            expiration=30.0,
        )
        await app.publish(events, Message(body={"n": 0}), key="people.new")
        await app.publish(events, sent, key="orders.new")
        (got,) = await seen.wait(1)
    assert isinstance(got, Message)
    assert got.body == {"n": 1}
    assert got.key == "orders.new"
    assert (got.headers, got.priority, got.correlation_id) == ({"colour": "red"}, 3, "c")
    assert (got.type, got.content_type, got.expiration) == ("note", "application/msgpack", 30.0)
    assert got.message_id
    assert got.timestamp
    assert got.persistent
    assert got.attempt == 1
    assert got.delivery is not None
    assert got.delivery.exchange == events.name


@in_a_loop
async def test_a_returned_value_is_the_reply(app: Messaging, name: Name) -> None:
    orders = name("orders")

    @app.subscribe(orders, concurrency=4)
    async def handle(order: Order) -> Receipt:
        return Receipt(order.id)

    async with app:
        requests = [app.request(orders, Order(n), Receipt, timeout=60) for n in range(100)]
        assert await asyncio.gather(*requests) == [Receipt(n) for n in range(100)]


@in_a_loop
async def test_a_request_fails_with_its_handler(app: Messaging, name: Name) -> None:
    orders = name("orders")

    @app.subscribe(orders)
    async def handle(order: Order) -> Receipt:
        raise ValueError("no such product")

    async with app:
        with pytest.raises(ReplyError, match="ValueError: no such product"):
            await app.request(orders, Order(1), Receipt, timeout=60)
        async with message_of(app, app.dead_letter.name) as parked:
            assert parked.headers["x-failure-reason"] == "ValueError: no such product"


@in_a_loop
async def test_a_request_that_nothing_handles_times_out_and_expires(
    app: Messaging, name: Name
) -> None:
    orders = name("orders")
    async with app:
        await app.declare(orders)
        with pytest.raises(RequestTimeoutError, match=orders):
            await app.request(orders, Order(1), timeout=0.05)
        async with asyncio.timeout(30):
            while True:
                async with app.consume(orders) as message:
                    if message is None:
                        break


@in_a_loop
async def test_failures_are_attempted_again_later_and_counted(app: Messaging, name: Name) -> None:
    orders, attempts = name("orders"), Collected()

    @app.subscribe(orders, retry=Retry(3, backoff=0.02))
    async def handle(message: Message[Order]) -> None:
        attempts.add((message.body.id, message.attempt))
        if message.body.id == 13 or message.attempt == 1:
            raise ValueError(f"unlucky {message.body.id}")

    async with app:
        await app.publish_many(orders, [Order(13), Order(7)])
        async with message_of(app, app.dead_letter.name) as parked:
            headers = parked.headers
        await attempts.wait(5)
        assert sorted(attempts.items) == [(7, 1), (7, 2), (13, 1), (13, 2), (13, 3)]  # type: ignore[type-var]
    assert headers["x-attempt"] == 3
    assert headers["x-failure-queue"] == orders
    assert headers["x-failure-handler"] == "handle"
    assert [line.partition(" ")[2] for line in headers["x-failure-history"]] == [
        f"attempt {number}: ValueError: unlucky 13" for number in (1, 2, 3)
    ]
    assert "raise ValueError" in headers["x-failure-traceback"]


@in_a_loop
async def test_rabbitmq_removes_a_delayed_message_when_its_queue_has_it(
    rabbitmq_server: Server, name: Name
) -> None:
    """A restart loses the messages that a classic queue dead-letters at that moment (`bench patterns-siege`)."""
    app, orders, attempts = Messaging(rabbitmq_server.url), name("orders"), Collected()

    @app.subscribe(orders, retry=Retry(3, backoff=0.0))
    async def handle(message: Message[Order]) -> None:
        attempts.add(message.attempt)
        raise ValueError("unlucky")

    async with app:
        await app.publish(orders, Order(1))
        assert await attempts.wait(3) == [1, 2, 3]
        arguments = delay_queue_arguments(0)
        assert arguments["x-dead-letter-strategy"] == "at-least-once"
        async with await app.open_channel() as channel:
            # RabbitMQ refuses other arguments than those that the queue has.
            await channel.declare_queue("recado.delay.0ms", durable=True, arguments=arguments)


@in_a_loop
async def test_a_rejected_message_is_not_attempted_again(app: Messaging, name: Name) -> None:
    orders, attempts = name("orders"), Collected()

    @app.subscribe(orders, retry=5)
    async def handle(order: Order) -> None:
        attempts.add(order.id)
        raise RejectMessageError("sold out")

    async with app:
        await app.publish(orders, Order(1))
        async with message_of(app, app.dead_letter.name) as parked:
            assert parked.headers["x-failure-reason"] == "RejectMessageError: sold out"
    assert attempts.items == [1]


@in_a_loop
async def test_a_handler_that_takes_too_long_fails(app: Messaging, name: Name) -> None:
    orders = name("orders")

    @app.subscribe(orders, timeout=0.05)
    async def handle(order: Order) -> None:
        await asyncio.Event().wait()

    async with app:
        await app.publish(orders, Order(1))
        async with message_of(app, app.dead_letter.name) as parked:
            assert parked.headers["x-failure-reason"].startswith(HandlerTimeoutError.__name__)


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b'{"id": "x"}', "application/json", "Expected `int`, got `str` - at `$.id`"),
        (b"{", "application/json", "cannot be decoded"),
        (b"{}", "application/x-unheard-of", "unknown content type"),
        (b"\xff", "text/plain", "text is read as str"),
    ],
)
@in_a_loop
async def test_messages_that_cannot_be_translated_are_invalid(
    app: Messaging, name: Name, body: bytes, content_type: str, reason: str
) -> None:
    orders, seen = name("orders"), Collected()

    @app.subscribe(orders, retry=3)
    async def handle(order: Order) -> None:
        seen.add(order)

    async with app:
        await app.publish(orders, Message(body=body, content_type=content_type))
        await app.publish(orders, Order(2))
        async with message_of(app, app.invalid.name) as invalid:
            assert reason in invalid.headers["x-failure-reason"]
            assert invalid.body == body
            assert invalid.content_type == content_type
        assert await seen.wait(1) == [Order(2)]


@in_a_loop
async def test_bodies_are_compressed(server: Server, name: Name) -> None:
    """A handler, a flow, a polling consumer and a requester get what was sent; a bomb is an invalid message."""
    app = Messaging(server.url, invalid=name("invalid"), compress_bytes=1000)
    texts, polled, flowing = name("texts"), name("polled"), name("flowing")
    text, seen = "compress me " * 1000, Collected()

    @app.subscribe(texts)
    async def handle(message: Message[str]) -> str:
        assert message.delivery is not None
        seen.add((len(message.body), len(message.delivery.raw_body) < 1000))
        return message.body

    app.flow(flowing, to=texts)
    async with app:
        assert await app.request(texts, text, str, timeout=60) == text
        await app.publish(flowing, Message(body=text, content_encoding="deflate"))
        assert await seen.wait(2) == [(len(text), True)] * 2
        await app.publish(polled, text)
        channel = await app.open_channel()
        delivery = await channel.get(polled)
        assert delivery is not None
        assert delivery.properties.content_encoding == "gzip"
        assert gzip.decompress(delivery.body).decode() == f'"{text}"'
        await channel.close()
        async with app.consume(polled) as message:
            assert message is not None
            assert (message.body, message.content_encoding) == (text, None)
        bomb = encode_properties(Properties(content_encoding="gzip", message_id="bomb"))
        zeros = gzip.compress(bytes(20 << 20))
        await app.publish_encoded(EncodedPublish("", texts, zeros, bomb, "bomb"))
        async with message_of(app, app.invalid.name) as invalid:
            assert "larger than 16777216 bytes" in invalid.headers["x-failure-reason"]
            assert (invalid.body, invalid.content_encoding) == (zeros, "gzip")
        await app.publish(texts, "short")
        assert (await seen.wait(3))[2] == (5, True)


@in_a_loop
async def test_a_durable_subscriber_gets_what_it_missed(app: Messaging, name: Name) -> None:
    events, seen = PublishSubscribe(name("events")), Collected()

    async def handle(body: int) -> None:
        seen.add(body)

    async with app:
        app.subscribe(events, subscriber="billing", tag="first")(handle)
        await app.wait_ready()
        await app.publish(events, 1)
        await seen.wait(1)
        await app.stop_endpoint("first")
        await app.publish(events, 2)
        app.subscribe(events, subscriber="billing", tag="second")(handle)
        assert await seen.wait(2) == [1, 2]


@in_a_loop
async def test_a_selector_of_a_private_subscription_drops_messages(
    app: Messaging, name: Name
) -> None:
    events, seen = PublishSubscribe(name("events"), "fanout"), Collected()

    @app.subscribe(events, selector="priority > 3 AND json.n < 3")
    async def handle(message: Message[dict[str, int]]) -> None:
        seen.add((message.priority, message.body["n"]))

    async with app:
        for number in range(4):
            for priority in (3, 4):
                await app.publish(events, Message(body={"n": number}, priority=priority))
        assert await seen.wait(3) == [(4, 0), (4, 1), (4, 2)]


@in_a_loop
async def test_a_selector_on_a_queue_needs_it_alone(
    app: Messaging, server: Server, name: Name
) -> None:
    orders, seen = name("orders"), Collected()

    @app.subscribe(orders, selector="json.id > 1")
    async def handle(order: Order) -> None:
        seen.add(order.id)

    async with app:
        await app.publish_many(orders, [Order(1), Order(2)])
        assert await seen.wait(1) == [2]
        async with message_of(app, app.dead_letter.name) as unselected:
            assert unselected.body == b'{"id":1,"amount":1.0}'
        second = Messaging(server.url)
        second.subscribe(orders, selector="json.id > 1")(handle)
        with pytest.raises(CompositionError, match=r"has another consumer.*ContentRouter"):
            await second.start()


@in_a_loop
async def test_a_stream_is_read_from_any_offset_with_a_selector(app: Messaging, name: Name) -> None:
    log, seen = LogStream(name("log")), Collected()

    @app.subscribe(log, offset="first", selector="json.id > 1")
    async def handle(message: Message[Order]) -> None:
        seen.add((message.body.id, message.headers["x-stream-offset"]))

    async with Messaging(app.url) as publisher:
        await publisher.publish_many(log, [Order(1), Order(2), Order(3)])
    async with app:
        assert await seen.wait(2) == [(2, 1), (3, 2)]


@in_a_loop
async def test_a_polled_message_returns_to_the_head_if_its_block_raises(
    app: Messaging, name: Name
) -> None:
    orders = name("orders")
    async with app:
        await app.publish_many(orders, [Order(1), Order(2)])
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - raised in the block
            async with app.consume(orders, Order) as message:
                assert message is not None
                assert message.body == Order(1)
                raise ZeroDivisionError
        for number in (1, 2):
            async with app.consume(orders, Order) as message:
                assert message is not None
                assert message.body == Order(number)
        async with app.consume(orders, Order) as message:
            assert message is None


@in_a_loop
async def test_dead_letter_bindings_get_what_matches_nothing_else(
    app: Messaging, name: Name
) -> None:
    events, known, lost = PublishSubscribe(name("events")), name("known"), name("lost")
    async with app:
        await app.bind(events, known, "orders.#")
        await app.bind_dead_letters(events, lost, "#")
        await app.publish(events, 1, key="orders.new")
        await app.publish(events, 2, key="people.new")
        async with app.consume(known, int) as message:
            assert message is not None
            assert message.body == 1
        async with app.consume(lost, int) as message:
            assert message is not None
            assert message.body == 2
        await app.unbind_dead_letters(events, lost, "#")
        await app.publish(events, 3, key="people.new")
        async with app.consume(lost, int) as message:
            assert message is None
        await app.delete(events)


@in_a_loop
async def test_a_wire_tap_sees_copies(app: Messaging, name: Name) -> None:
    events, orders = PublishSubscribe(name("events")), name("orders")
    tapped, handled = Collected(), Collected()

    @app.listen(orders, bindings=[(events, "orders.#")])
    async def observe(order: Order) -> None:
        tapped.add(order.id)
        raise ValueError("a failing tap harms nothing")

    @app.subscribe(orders)
    async def handle(order: Order) -> None:
        handled.add(order.id)

    async with app:
        await app.bind(events, orders, "orders.#")
        for number in range(5):
            await app.publish(events, Order(number), key="orders.new")
        assert await handled.wait(5) == list(range(5))
        assert await tapped.wait(5) == list(range(5))


@in_a_loop
async def test_a_plain_function_runs_beside_the_loop(app: Messaging, name: Name) -> None:
    orders = name("orders")
    entered = asyncio.Event()
    loop = asyncio.get_running_loop()

    @app.subscribe(orders)
    def handle(order: Order) -> Receipt:
        asyncio.run_coroutine_threadsafe(_set(entered), loop).result(30)
        return Receipt(order.id)

    async with app:
        assert await app.request(orders, Order(5), Receipt, timeout=60) == Receipt(5)
    assert entered.is_set()


async def _set(event: asyncio.Event) -> None:
    event.set()


@in_a_loop
async def test_publishing_to_a_deleted_queue_declares_it(app: Messaging, name: Name) -> None:
    orders = name("orders")
    async with app, Messaging(app.url) as another:
        await app.publish(orders, Order(1))
        await another.delete(orders)
        await app.publish(orders, Order(2))
        async with message_of(app, orders) as message:
            assert message.body == b'{"id":2,"amount":1.0}'


@in_a_loop
async def test_a_message_that_the_broker_refuses_fails_alone(app: Messaging, name: Name) -> None:
    orders, gone = name("orders"), PublishSubscribe(name("gone"))
    async with app, Messaging(app.url) as another:
        await app.declare(orders, gone)
        await another.delete(gone)
        results = await asyncio.gather(
            *(app.publish(orders, Order(number)) for number in range(10)),
            app.publish(gone, 1),
            *(app.publish(orders, Order(number)) for number in range(10, 20)),
            return_exceptions=True,
        )
        assert results == [None] * 21  # the exchange is declared again
        seen = set()
        while True:
            async with app.consume(orders, Order) as message:
                if message is None:
                    break
                seen.add(message.body.id)
        assert seen == set(range(20))


@pytest.mark.parametrize("harm", ["delete", "close"])
@in_a_loop
async def test_an_endpoint_consumes_again(app: Messaging, name: Name, harm: str) -> None:
    """Proved by a message: the queue was deleted, or the channel closed by an error of its own."""
    orders, seen = name("orders"), Collected()

    @app.subscribe(orders)
    async def handle(order: Order) -> None:
        seen.add(order.id)

    async with app, Messaging(app.url) as another:
        await app.publish(orders, Order(1))
        await seen.wait(1)
        if harm == "close":
            channel = app.endpoints["handle"].channel
            assert channel is not None
            with pytest.raises(ChannelClosedByBrokerError):
                await channel.declare_queue("missing", passive=True)
        else:
            await another.delete(orders)
        async with asyncio.timeout(60):
            while len(seen.items) < 2:  # RabbitMQ confirms messages to a queue that it is deleting
                await another.publish(orders, Order(2))
                await asyncio.sleep(0.1)
        assert seen.items[:2] == [1, 2]
        assert app.health().is_healthy


class AddUser:
    """Adds the name of a user, unless the message has one."""

    def __init__(self, name: str) -> None:
        self.name = name

    def should_apply(self, message: Message[object]) -> bool:
        return "user" not in message.headers

    def apply(self, message: Message[object]) -> Message[object]:
        return message.with_headers(user=self.name)


@in_a_loop
async def test_enrichers_are_applied_in_order(app: Messaging, name: Name) -> None:
    orders, seen = name("orders"), Collected()

    async def count(message: Message[object]) -> Message[object]:
        return message.with_headers(letters=len(message.headers["user"]))

    @app.subscribe(orders)
    async def handle(message: Message[Order]) -> None:
        seen.add((message.headers["user"], message.headers["letters"]))

    app.enrich(AddUser("Ana"))
    app.enrich(AddUser("never applied"))
    app.enrich(count)
    async with app:
        await app.publish(orders, Order(1))
        await app.publish_many(orders, [Message(body=Order(2), headers={"user": "Li"})])
        assert await seen.wait(2) == [("Ana", 3), ("Li", 2)]


def test_compositions_that_cannot_work_are_refused() -> None:
    app = Messaging()

    async def handle(order: Order) -> None: ...

    for message, options in (
        ("key and subscriber belong to an exchange", {"key": "#"}),
        ("offset belongs to a LogStream", {"offset": "first"}),
        ("concurrency=0 must be at least 1", {"concurrency": 0}),
        ("invalid selector", {"selector": "priority >"}),
        ("dead_letter must be a queue", {"dead_letter": PublishSubscribe("x")}),
    ):
        with pytest.raises(CompositionError, match=message):
            app.subscribe("orders", **options)(handle)
    with pytest.raises(CompositionError, match="stays in the stream"):
        app.subscribe(LogStream("log"), retry=3)(handle)
    with pytest.raises(CompositionError, match="shared by its programs"):
        app.subscribe(PublishSubscribe("x"), subscriber="s", selector="priority > 1")(handle)
    app.subscribe("orders")(handle)
    with pytest.raises(CompositionError, match="two endpoints with the tag 'handle'"):
        app.subscribe("orders")(handle)
    with pytest.raises(CompositionError, match="must accept one argument"):
        app.subscribe("others")(lambda: None)


def test_options_that_do_not_exist_are_refused() -> None:
    app = Messaging("amqp://localhost")
    with pytest.raises(TypeError, match="unexpected option 'concurency'"):
        app.subscribe("orders", concurency=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected option 'concurrency'"):
        app.flow("orders", concurrency=3)  # type: ignore[call-arg]


@in_a_loop
async def test_a_breaker_suspends_an_endpoint(app: Messaging, name: Name) -> None:
    orders, attempts = name("orders"), Collected()
    works = asyncio.Event()

    @app.subscribe(orders, breaker=CircuitBreaker(failures=2, reset=0.3))
    async def handle(order: Order) -> None:
        attempts.add(order.id)
        if not works.is_set():
            raise ValueError("the database is down")

    async with app:
        await app.publish_many(orders, [Order(n) for n in range(10)])
        await attempts.wait(2)
        async with asyncio.timeout(30):
            while app.health().is_healthy:  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(0.005)
        assert "endpoint 'handle' has no consumer" in app.health().problems[0]
        works.set()
        assert sorted(set(await attempts.wait(10))) == list(range(10))  # type: ignore[type-var]
        async with asyncio.timeout(30):
            while not app.health().is_healthy:  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(0.005)


@in_a_loop
async def test_a_pause_waits_for_handlers_of_a_suspended_endpoint(
    app: Messaging, name: Name
) -> None:
    orders, ended, release = name("orders"), Collected(), asyncio.Event()

    @app.subscribe(orders, concurrency=2, breaker=CircuitBreaker(failures=1, reset=30.0))
    async def handle(order: Order) -> None:
        if order.id == 13:
            raise ValueError("unlucky")
        await release.wait()
        ended.add(order.id)

    async with app:
        endpoint = app.endpoints["handle"]
        await app.publish(orders, Order(1))
        await app.publish(orders, Order(13))
        async with asyncio.timeout(30):
            while not endpoint.processor.failed_count:  # noqa: ASYNC110  there is no event for it
                await asyncio.sleep(0.01)
        pausing = asyncio.create_task(endpoint.pause())
        done, _ = await asyncio.wait([pausing], timeout=0.2)
        assert not done
        release.set()
        await pausing
        assert ended.items == [1]
        assert endpoint.processor.running_count == 0


@in_a_loop
async def test_a_rate_is_a_maximum(app: Messaging, name: Name) -> None:
    orders, seen = name("orders"), Collected()

    @app.subscribe(orders, rate=50.0)
    async def handle(order: Order) -> None:
        seen.add(asyncio.get_running_loop().time())

    async with app:
        await app.publish_many(orders, [Order(n) for n in range(6)])
        times = await seen.wait(6)
    assert isinstance(times[0], float)
    assert isinstance(times[-1], float)
    assert times[-1] - times[0] > 5 / 50 * 0.9
