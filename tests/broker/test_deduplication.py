"""Deduplication: the window against a list, then duplicates, confirms and storage."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.events import Acked, ContentReceived, MethodReceived
from recado.amqp.methods import BasicAck, BasicNack, BasicReturn
from recado.amqp.properties import Properties, encode_properties
from recado.amqp.traits import read_message_id
from recado.broker.arguments import DeduplicationSettings
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.deduplication import DeduplicationWindow
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.broker.run import Run
from recado.broker.store import MessageStore

from .stage import (
    Peer,
    close_channel,
    consume,
    new_broker,
    new_queue,
    open_channel,
    published,
    run_of,
)
from .stores import PagingStore

LARGE = DeduplicationSettings(100, None)


def named(message_id: str | None, *, persistent: bool = True) -> Properties:
    return Properties(message_id=message_id, delivery_mode=2 if persistent else None)


class Witness(PagingStore):
    """Also records the stored ids, and that their messages were stored before."""

    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.ids: dict[str, dict[bytes, int]] = {}
        self.order: list[str] = []

    def append_run(self, queue: Queue, run: Run) -> None:
        super().append_run(queue, run)
        self.order.append("entered")

    def record_message_id(
        self,
        vhost: str,
        owner: Queue | Exchange[Any],
        message_id: bytes,
        seen_at: int,
        targets: Iterable[Queue],
    ) -> None:
        self.durable_ops += 1
        self.ids.setdefault(owner.name, {}).setdefault(message_id, seen_at)
        self.order.append(message_id.decode())

    def require_sync(self) -> None:
        self.durable_ops += 1
        self.order.append("again")


def witnessed() -> tuple[Broker, Witness]:
    store = Witness()
    broker = Broker(iter("abc").__next__, store=store)
    broker.add_user(new_broker().users["guest"])
    return broker, store


def publish(
    channel: Channel, *ids: str | None, key: str = "q", exchange: str = "", now: int = 0, **how: Any
) -> None:
    """Messages with their id as the body."""
    for each in ids:
        properties = named(each, persistent=how.get("persistent", True))
        body = b"-" if each is None else each.encode()
        mandatory = how.get("mandatory", False)
        event = published(key, body, exchange=exchange, mandatory=mandatory, properties=properties)
        channel.publisher.publish(event, now)


def bodies_in(broker: Broker, queue: Queue) -> list[bytes]:
    peer = Peer()
    channel = open_channel(broker, peer)
    consume(channel, queue, no_ack=True)
    close_channel(channel)
    return peer.bodies()


# ── the window ────────────────────────────────────────────────────────────────────────────────────────────


@given(
    size=st.integers(1, 4),
    ttl=st.none() | st.integers(1, 20),
    steps=st.lists(st.tuples(st.sampled_from(b"abcdef"), st.integers(0, 9)), max_size=60),
)
def test_a_window_is_the_last_few_that_are_not_too_old(
    size: int, ttl: int | None, steps: Sequence[tuple[int, int]]
) -> None:
    window, model, now = (
        DeduplicationWindow(size, ttl, MessageStore(), None),
        list[tuple[bytes, int]](),
        0,
    )
    for dead_letter, later in steps:
        now += later
        message_id = bytes((dead_letter,))
        model = [(each, when) for each, when in model if ttl is None or now - when <= ttl]
        known = message_id in [each for each, _ in model]
        assert window.is_duplicate(message_id, now) == known
        if not known:
            window.add(message_id, now, persistent=True)
            model = [*model, (message_id, now)][-size:]
        assert list(window.persistent_ids(window.ids())) == model


def test_a_window_is_restored_as_it_was() -> None:
    window = DeduplicationWindow(3, None, MessageStore(), None)
    window.restore([(b"a", 1), (b"b", 2), (b"b", 2), (b"c", 3), (b"d", 4)])
    assert list(window.persistent_ids(window.ids())) == [(b"b", 2), (b"c", 3), (b"d", 4)]
    assert not window.is_duplicate(b"a", 5)


@pytest.mark.parametrize(
    "properties",
    [
        Properties(message_id="the id"),
        Properties(
            content_type="a",
            content_encoding="b",
            headers={"c": [1, {"d": "e"}]},
            delivery_mode=2,
            priority=3,
            correlation_id="f",
            reply_to="g",
            expiration="5",
            message_id="the id",
            timestamp=7,
            type="h",
        ),
        Properties(headers={}, priority=0, message_id="the id", cluster_id="i"),
    ],
)
def test_the_id_is_found_wherever_it_is(properties: Properties) -> None:
    assert read_message_id(encode_properties(properties)) == b"the id"


@pytest.mark.parametrize(
    "properties", [Properties(), Properties(message_id=""), Properties(timestamp=1, type="x")]
)
def test_there_may_be_no_id(properties: Properties) -> None:
    assert read_message_id(encode_properties(properties)) is None


# ── queues ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_takes_a_message_once() -> None:
    broker = new_broker()
    queue = new_queue(broker, deduplication=LARGE)
    channel = open_channel(broker)
    publish(channel, "a", "b", "a", None, "c", None, "b", "")
    assert bodies_in(broker, queue) == [b"a", b"b", b"-", b"c", b"-", b""]
    publish(channel, "a", "d")
    assert bodies_in(broker, queue) == [b"d"], "also when the first was consumed long ago"


@pytest.mark.parametrize("alike", [False, True])
def test_of_a_run_with_one_id_the_first_is_taken(alike: bool) -> None:
    broker = new_broker()
    queue = new_queue(broker, deduplication=LARGE)
    assert queue.publish(run_of([b"1", b"2", b"3"], named("a"), alike=alike), 0) == []
    assert bodies_in(broker, queue) == [b"1"]


def test_a_run_without_ids_stays_one() -> None:
    broker = new_broker()
    queue = new_queue(broker, deduplication=LARGE)
    assert queue.publish(run_of([b"1", b"2"]), 0) == ()
    assert bodies_in(broker, queue) == [b"1", b"2"]


def test_in_a_run_some_may_have_an_id() -> None:
    broker = new_broker()
    queue = new_queue(broker, deduplication=LARGE)
    run = run_of([b"1"], named("a"))
    for body, message_id in ((b"2", None), (b"3", "a"), (b"4", "b")):
        run.payloads += run_of([body], named(message_id)).payloads
    assert queue.publish(run, 0) == []
    assert bodies_in(broker, queue) == [b"1", b"2", b"4"]


def test_after_its_time_it_is_taken_again() -> None:
    broker = new_broker()
    queue = new_queue(broker, deduplication=DeduplicationSettings(100, 50))
    channel = open_channel(broker)
    for now in (0, 50, 51, 101, 102):
        publish(channel, "a", now=now)
    assert queue.ready == 3


def test_what_was_refused_may_come_again() -> None:
    broker, peer = new_broker(), Peer()
    queue = new_queue(broker, deduplication=LARGE, max_length=1, overflow="reject-publish")
    channel = open_channel(broker, peer)
    channel.publisher.enable_confirms()
    publish(channel, "a", "b", "a")
    channel.publisher.send_confirms()
    assert _confirms(peer) == [1, -2, 3]
    assert bodies_in(broker, queue) == [b"a"]
    publish(channel, "b")
    assert bodies_in(broker, queue) == [b"b"]


def test_other_queues_get_it_as_often_as_it_comes() -> None:
    broker = new_broker()
    sifting, other = new_queue(broker, deduplication=LARGE), new_queue(broker, "other")
    for queue in ("q", "other"):
        broker.vhosts["/"].bind_queue(queue, "amq.fanout", "")
    publish(open_channel(broker), "a", "b", "a", exchange="amq.fanout")
    assert (sifting.ready, other.ready) == (2, 3)


def test_a_dead_letter_may_come_back() -> None:
    """Otherwise a retry through another queue would lose it."""
    broker = new_broker()
    settings: dict[str, Any] = {"dead_letter_exchange": "", "deduplication": LARGE}
    queue = new_queue(broker, dead_letter_routing_key="later", **settings)
    new_queue(broker, "later", message_ttl_ms=5, dead_letter_routing_key="q", **settings)
    channel = open_channel(broker)
    consume(channel, queue)
    publish(channel, "a")
    for tag in (1, 2):
        channel.settle(Settlement.REJECT, tag, 0, multiple=False)
        assert queue.unacked == 0
        broker.tick(10 * tag)
        assert queue.unacked == 1
    publish(channel, "a")
    assert queue.unacked == 1


# ── exchanges ─────────────────────────────────────────────────────────────────────────────────────────────

WANTED: dict[str, Any] = {"x-message-deduplication": True}


def sifting_exchange(broker: Broker, name: str = "x", **declared: Any) -> Queue:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange(name, "fanout", arguments=WANTED, **declared)
    queue = vhost.queues.get("q") or new_queue(broker)
    vhost.bind_queue("q", name, "")
    return queue


def test_an_exchange_routes_a_message_once() -> None:
    broker = new_broker()
    queue = sifting_exchange(broker)
    channel = open_channel(broker)
    publish(channel, "a", "b", "a", None, None, exchange="x")
    publish(channel, "a", exchange="", key="q")
    assert bodies_in(broker, queue) == [b"a", b"b", b"-", b"-", b"a"]


def test_a_duplicate_is_not_returned() -> None:
    broker, peer = new_broker(), Peer()
    sifting_exchange(broker)
    publish(open_channel(broker, peer), "a", "a", exchange="x", mandatory=True)
    assert peer.received() == []


def test_what_found_no_queue_is_returned_and_may_come_again() -> None:
    broker, peer = new_broker(), Peer()
    channel = open_channel(broker, peer)
    broker.vhosts["/"].declare_exchange("x", "fanout", arguments=WANTED)
    publish(channel, "a", "a", exchange="x", mandatory=True)
    returned = [event for event in peer.received() if isinstance(event, ContentReceived)]
    assert [type(event.method) for event in returned] == [BasicReturn] * 2
    queue = sifting_exchange(broker)
    publish(channel, "a", "a", exchange="x")
    assert queue.ready == 1


def test_what_a_queue_refused_is_routed_again() -> None:
    broker = new_broker()
    full = new_queue(broker, max_length=1, overflow="reject-publish")
    sifting_exchange(broker)
    channel = open_channel(broker)
    publish(channel, "a", "b", exchange="x")
    full.purge()
    publish(channel, "b", "a", exchange="x")
    assert bodies_in(broker, full) == [b"b"]


def test_an_exchange_behind_another_stops_only_its_own_way() -> None:
    broker = new_broker()
    vhost = broker.vhosts["/"]
    queue, other = sifting_exchange(broker), new_queue(broker, "other")
    vhost.bind_exchange("x", "amq.fanout", "")
    vhost.bind_queue("other", "amq.fanout", "")
    publish(open_channel(broker), "a", "a", exchange="amq.fanout")
    assert (queue.ready, other.ready) == (1, 2)


def test_dead_letters_pass() -> None:
    broker = new_broker()
    queue = sifting_exchange(broker)
    dying = new_queue(broker, "dying", message_ttl_ms=0, dead_letter_exchange="x")
    channel = open_channel(broker)
    publish(channel, "a", exchange="x")
    publish(channel, "a", "a", key="dying")
    assert (dying.ready, queue.ready) == (0, 3)


def test_in_a_transaction_it_counts_at_commit() -> None:
    broker = new_broker()
    queue = sifting_exchange(broker)
    channel = open_channel(broker)
    channel.publisher.transaction = []
    publish(channel, "a", "a", exchange="x")
    channel.rollback()
    publish(channel, "a", "b", "a", exchange="x")
    channel.commit(0)
    assert bodies_in(broker, queue) == [b"a", b"b"]


# ── delays ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["exchange", "queue"])
def test_what_is_delayed_comes_once_too(where: str) -> None:
    broker = new_broker()
    vhost = broker.vhosts["/"]
    window = LARGE if where == "queue" else None
    arguments = WANTED if where == "exchange" else {}
    queue = new_queue(broker, deduplication=window)
    vhost.declare_exchange(
        "later", "x-delayed-message", arguments={"x-delayed-type": "fanout", **arguments}
    )
    vhost.bind_queue("q", "later", "")
    channel = open_channel(broker)
    for message_id in "aba":
        properties = Properties(headers={"x-delay": 50}, message_id=message_id)
        event = published("", message_id.encode(), exchange="later", properties=properties)
        channel.publisher.publish(event, 0)
    assert queue.ready == 0
    broker.tick(50)
    assert bodies_in(broker, queue) == [b"a", b"b"]


def test_a_dead_letter_may_come_back_after_a_delay() -> None:
    broker = new_broker()
    vhost = broker.vhosts["/"]
    queue = new_queue(broker, deduplication=LARGE, dead_letter_exchange="later")
    vhost.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    vhost.bind_queue("q", "later", "")
    channel = open_channel(broker)
    consume(channel, queue)
    run = run_of([b"one"], Properties(headers={"x-delay": 50}, message_id="a"))
    queue.publish(run, 0)
    channel.settle(Settlement.REJECT, 1, 0, multiple=False)
    assert queue.unacked == 0
    broker.tick(50)
    assert queue.unacked == 1


# ── what lasts ────────────────────────────────────────────────────────────────────────────────────────────


def to_queue(broker: Broker) -> tuple[Queue, dict[str, Any]]:
    return new_queue(broker, durable=True, deduplication=LARGE), {}


def to_exchange(broker: Broker) -> tuple[Queue, dict[str, Any]]:
    new_queue(broker, durable=True)
    return sifting_exchange(broker, durable=True), {"exchange": "x"}


Target = Callable[[Broker], tuple[Queue, dict[str, Any]]]
both = pytest.mark.parametrize("target", [to_queue, to_exchange])


@both
def test_an_id_is_kept_behind_its_message(target: Target) -> None:
    broker, store = witnessed()
    queue, way = target(broker)
    publish(open_channel(broker), "a", "b", "a", None, now=7, **way)
    assert store.order == ["entered", "a", "entered", "b", "again", "entered"]
    assert store.ids == {"x" if way else "q": {b"a": 7, b"b": 7}}
    assert queue.ready == 3


@both
def test_a_duplicate_is_confirmed_when_what_it_repeats_is_safe(target: Target) -> None:
    broker, store = witnessed()
    _, way = target(broker)
    peers = Peer(), Peer()
    channels = [open_channel(broker, peer) for peer in peers]
    for channel in channels:
        channel.publisher.enable_confirms()
        publish(channel, "a", **way)
        channel.publisher.send_confirms()
    assert [_confirms(peer) for peer in peers] == [[], []]
    store.sync()
    assert [_confirms(peer) for peer in peers] == [[1], [1]]
    publish(channels[1], "a", **way)
    channels[1].publisher.send_confirms()
    assert _confirms(peers[1]) == [2], "it is safe by now"
    assert store.order.count("again") == 1


@both
def test_ids_of_what_does_not_last_do_not_last(target: Target) -> None:
    broker, store = witnessed()
    queue, way = target(broker)
    channel = open_channel(broker)
    publish(channel, "a", **way)
    publish(channel, "b", "b", persistent=False, **way)
    assert queue.ready == 2
    assert store.order == ["entered", "a"]
    window = (
        broker.vhosts["/"].exchanges["x"].deduplication_window
        if way
        else queue.deduplication_window
    )
    assert window is not None
    assert list(window.persistent_ids(window.ids())) == [(b"a", 0)]


@pytest.mark.parametrize("durable", [False, True])
def test_a_window_lasts_with_its_exchange(durable: bool) -> None:
    broker, store = witnessed()
    new_queue(broker, durable=True)
    queue = sifting_exchange(broker, durable=durable)
    publish(open_channel(broker), "a", "a", exchange="x")
    assert queue.ready == 1
    assert ("x" in store.ids) == durable


def _confirms(peer: Peer) -> list[int]:
    """Return the confirmed numbers; those of nacks are negative."""
    numbers: list[int] = []
    for event in peer.received():
        match event:
            case Acked(_, first, count):
                numbers += range(first, first + count)
            case MethodReceived(_, BasicAck(last, True)):
                numbers += range(abs(numbers[-1]) + 1 if numbers else 1, last + 1)
            case MethodReceived(_, BasicNack(number)):
                numbers.append(-number)
            case _:
                raise AssertionError(event)
    return numbers
