"""Quorum queues count redeliveries: consumers see the count, and the delivery limit applies."""

from typing import Any

import msgspec
import pytest

from recado.amqp.events import ContentReceived
from recado.amqp.frames import FRAME_MIN_BYTES, extract_body, extract_properties
from recado.amqp.methods import BasicDeliver, BasicGetOk
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import Int64
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.queue import Queue

from .stage import Peer, close_channel, consume, new_broker, new_queue, open_channel, run_of
from .stores import PagingStore

HEADER = "x-delivery-count"


def quorum(broker: Broker, **settings: Any) -> Queue:
    return new_queue(broker, durable=True, queue_type="quorum", **settings)


def seen(peer: Peer) -> list[tuple[bytes, bool, Properties]]:
    """Body, redelivered flag and properties of delivered messages."""
    return [
        (
            extract_body(event.content),
            event.method.redelivered,
            decode_properties(extract_properties(event.content)),
        )
        for event in peer.received()
        if isinstance(event, ContentReceived)
        and isinstance(event.method, BasicDeliver | BasicGetOk)
    ]


def counts(peer: Peer) -> list[object]:
    return [(properties.headers or {}).get(HEADER) for _, _, properties in seen(peer)]


def requeue(channel: Channel) -> None:
    channel.settle(Settlement.REQUEUE, 0, 0, multiple=True)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_what_comes_again_says_how_often(alike: bool, number: int) -> None:
    broker = new_broker()
    queue, peer = quorum(broker), Peer()
    channel = open_channel(broker, peer, number)
    consume(channel, queue)
    properties = Properties(headers={HEADER: 77, "a": 1}, content_type="text/plain")
    queue.publish(run_of([b"one", b"two"], properties, alike=alike), 0)
    assert seen(peer) == [(b"one", False, properties), (b"two", False, properties)]
    for count in (1, 2):
        requeue(channel)
        told = Properties(headers={HEADER: Int64(count), "a": 1}, content_type="text/plain")
        assert seen(peer) == [(b"one", True, told), (b"two", True, told)]


def test_a_message_that_is_asked_for_says_it_too() -> None:
    broker = new_broker()
    queue, peer = quorum(broker), Peer()
    channel = open_channel(broker, peer, 7)
    queue.publish(run_of([b"one"]), 0)
    for expected in (None, 1, 2):
        channel.get(queue, no_ack=False, now=0)
        assert counts(peer) == [expected]
        requeue(channel)


def test_the_end_of_a_channel_counts_and_a_cancel_does_not() -> None:
    broker = new_broker()
    queue, first, second = quorum(broker), Peer(), Peer()
    channel = open_channel(broker, first)
    consumer = consume(channel, queue)
    queue.publish(run_of([b"one"]), 0)
    channel.remove_consumer(consumer, 0)
    assert queue.unacked == 1
    close_channel(channel)
    consume(open_channel(broker, second), queue)
    assert counts(second) == [1]


def test_a_classic_queue_does_not_count() -> None:
    broker = new_broker()
    queue, peer = new_queue(broker), Peer()
    channel = open_channel(broker, peer)
    consume(channel, queue)
    queue.publish(run_of([b"one"]), 0)
    requeue(channel)
    assert [(again, properties.headers) for _, again, properties in seen(peer)] == [
        (False, None),
        (True, None),
    ]


def test_a_header_that_would_not_fit_stays_as_it_is() -> None:
    broker = new_broker()
    queue, peer = quorum(broker), Peer(FRAME_MIN_BYTES)
    channel = open_channel(broker, peer)
    consume(channel, queue)
    large = Properties(headers={"a": "x" * (FRAME_MIN_BYTES - 50)})
    queue.publish(run_of([b"one"], large, frame_max=FRAME_MIN_BYTES), 0)
    requeue(channel)
    assert seen(peer) == [(b"one", False, large), (b"one", True, large)]


# ── the limit ─────────────────────────────────────────────────────────────────────────────────────────────


def test_beyond_the_limit_it_is_a_dead_letter_as_its_publisher_wrote_it() -> None:
    broker = new_broker()
    dead = new_queue(broker, "dead")
    queue = quorum(
        broker, delivery_limit=2, dead_letter_exchange="", dead_letter_routing_key="dead"
    )
    channel, peer = open_channel(broker), Peer()
    consume(channel, queue)
    queue.publish(run_of([b"one"], Properties(headers={HEADER: 77})), 0)
    for _ in range(2):
        requeue(channel)
        assert (queue.unacked, dead.ready) == (1, 0)
    requeue(channel)
    assert (queue.ready, queue.unacked, dead.ready) == (0, 0, 1)
    consume(open_channel(broker, peer), dead)
    ((_, _, properties),) = seen(peer)
    assert properties.headers is not None
    assert properties.headers["x-first-death-reason"] == "delivery_limit"
    assert properties.headers[HEADER] == 77


def test_without_dead_letters_it_is_dropped() -> None:
    store = PagingStore(1 << 20)
    broker = new_broker(store)
    queue = quorum(broker, delivery_limit=0)
    channel = open_channel(broker)
    consume(channel, queue)
    queue.publish(run_of([b"one", b"two"], Properties(delivery_mode=2)), 0)
    assert store.live[queue] == {0, 1}
    channel.settle(Settlement.REQUEUE, 1, 0, multiple=False)
    assert (queue.ready, queue.unacked) == (0, 1)
    assert store.live[queue] == {1}


def test_what_returned_less_often_goes_on() -> None:
    broker = new_broker()
    queue, peer = quorum(broker, delivery_limit=1), Peer()
    channel = open_channel(broker, peer)
    consume(channel, queue)
    queue.publish(run_of([b"old"]), 0)
    requeue(channel)
    queue.publish(run_of([b"new"]), 0)
    peer.bodies()
    requeue(channel)
    assert [(body, again) for body, again, _ in seen(peer)] == [(b"new", True)]
    assert queue.unacked == 1


def test_what_was_out_too_often_before_a_restart_is_not_delivered_again() -> None:
    """The store returns the number of deliveries; nothing is loaded before it is needed."""
    store = PagingStore(1 << 20)
    broker = new_broker(store)
    dead = new_queue(broker, "dead")
    queue = quorum(
        broker, delivery_limit=1, dead_letter_exchange="", dead_letter_routing_key="dead"
    )
    for first, returns in ((0, 2), (1, 1)):
        run = run_of([b"message %d" % first], Properties(delivery_mode=2))
        run.first_position, run.delivery_count, run.redelivered = first, returns, True
        store.page_out(queue, run, 0, durable=True)
    queue.restore(2, {0: 2}, 0, has_ttl=False)
    assert (queue.ready, dead.ready) == (2, 0)
    peer = Peer()
    consume(open_channel(broker, peer), queue)
    assert [(body, again) for body, again, _ in seen(peer)] == [(b"message 1", True)]
    assert dead.ready == 1


def test_a_limit_that_a_policy_brings_holds_for_what_is_there() -> None:
    broker = new_broker()
    queue, peer = quorum(broker), Peer()
    channel = open_channel(broker, peer)
    queue.publish(run_of([b"one"]), 0)
    for _ in range(3):
        channel.get(queue, no_ack=False, now=0)
        requeue(channel)
    queue.reconfigure(msgspec.structs.replace(queue.settings, delivery_limit=2), 0)
    assert not channel.get(queue, no_ack=False, now=0)
    assert queue.ready == 0
