"""A queue, case by case: the state machine covers these only by chance."""

import pytest

from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.broker.broker import Broker
from recado.broker.channel import Settlement
from recado.broker.queue import Queue

from .stage import Peer, close_channel, consume, new_broker, new_queue, open_channel, run_of


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def left(queue: Queue, now: int = 0) -> list[bytes]:
    """Return the remaining messages in order."""
    bodies = []
    while (run := queue.get(now)) is not None:
        bodies.append(extract_body(run.contents()[0]))
    return bodies


def consumer_of(broker: Broker, queue: Queue, prefetch: int = 0, **settings: object) -> Peer:
    peer = Peer()
    consume(open_channel(broker, peer), queue, prefetch=prefetch, **settings)  # type: ignore[arg-type]
    return peer


# ── turns ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_consumers_take_turns_whether_messages_come_singly_or_not(broker: Broker) -> None:
    queue = new_queue(broker)
    peers = [consumer_of(broker, queue) for _ in range(3)]
    for bodies in ([b"0"], [b"1", b"2", b"3"], [b"4"], [b"5", b"6"]):
        queue.publish(run_of(bodies), 0)
    assert [peer.bodies() for peer in peers] == [
        [b"0", b"3", b"6"],
        [b"1", b"4"],
        [b"2", b"5"],
    ]


def test_prefetch_is_kept_to_and_turns_stay_fair(broker: Broker) -> None:
    queue = new_queue(broker)
    peers = [consumer_of(broker, queue, prefetch) for prefetch in (1, 2, 3)]
    queue.publish(run_of([b"%d" % i for i in range(8)]), 0)
    assert [len(peer.bodies()) for peer in peers] == [1, 2, 3]
    assert queue.ready == 2


def test_thousands_of_consumers_get_one_each(broker: Broker) -> None:
    queue = new_queue(broker)
    peers = [consumer_of(broker, queue, 1) for _ in range(2000)]
    queue.publish(run_of([b"%d" % i for i in range(2000)]), 0)
    assert [len(peer.bodies()) for peer in peers] == [1] * 2000


def test_the_highest_priority_is_served_first(broker: Broker) -> None:
    queue = new_queue(broker)
    low, high = consumer_of(broker, queue), consumer_of(broker, queue, 2, priority=9)
    queue.publish(run_of([b"0", b"1", b"2", b"3"]), 0)
    assert (high.bodies(), low.bodies()) == ([b"0", b"1"], [b"2", b"3"])


def test_one_consumer_is_active_and_the_next_takes_over(broker: Broker) -> None:
    queue = new_queue(broker, single_active_consumer=True)
    first, second, third = Peer(), Peer(), Peer()
    channels = [open_channel(broker, peer) for peer in (first, second, third)]
    for channel, priority in zip(channels, (0, 0, 5), strict=True):
        consume(channel, queue, prefetch=2, priority=priority)
    queue.publish(run_of([b"0", b"1", b"2"]), 0)
    assert (first.bodies(), second.bodies(), third.bodies()) == ([b"0", b"1"], [], [])
    channels[1].resume(0)
    assert second.bodies() == []
    close_channel(channels[0])
    assert (second.bodies(), third.bodies()) == ([], [b"0", b"1"])


def test_a_channel_that_settles_is_served_again(broker: Broker) -> None:
    queue = new_queue(broker)
    peer = Peer()
    channel = open_channel(broker, peer)
    consume(channel, queue, prefetch=2)
    queue.publish(run_of([b"%d" % i for i in range(6)], alike=True), 0)
    assert peer.bodies() == [b"0", b"1"]
    channel.settle(Settlement.ACK, 2, 0, multiple=True)
    assert peer.bodies() == [b"2", b"3"]
    channel.settle(Settlement.REQUEUE, 3, 0, multiple=False)
    assert peer.bodies() == [b"2"]
    channel.settle(Settlement.REJECT, 4, 0, multiple=False)
    assert peer.bodies() == [b"4"]


# ── order ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_urgent_messages_leave_first(broker: Broker) -> None:
    queue = new_queue(broker, max_priority=3)
    for priority in (0, 2, 9, 1, 3, 2):
        queue.publish(run_of([b"%d" % priority], Properties(priority=priority)), 0)
    assert left(queue) == [b"9", b"3", b"2", b"2", b"1", b"0"]


def test_what_returns_goes_back_to_its_place(broker: Broker) -> None:
    queue = new_queue(broker)
    channels = [open_channel(broker) for _ in range(2)]
    for channel in channels:
        consume(channel, queue, prefetch=3)
    queue.publish(run_of([b"%d" % i for i in range(8)], alike=True), 0)
    channels[0].consumers["c"].channel.connection.congested = True
    channels[1].consumers["c"].channel.connection.congested = True
    channels[1].settle(Settlement.REQUEUE, 3, 0, multiple=True)
    channels[0].settle(Settlement.REQUEUE, 2, 0, multiple=False)
    assert queue.unacked == 2
    run = queue.get(0)
    assert run is not None
    assert run.redelivered
    assert left(queue) == [b"2", b"3", b"5", b"6", b"7"]


def test_purging_leaves_what_is_out(broker: Broker) -> None:
    queue = new_queue(broker, max_length_bytes=100)
    consumer_of(broker, queue, 1)
    queue.publish(run_of([b"0", b"1", b"2"]), 0)
    assert queue.purge() == 2
    assert (queue.ready, queue.unacked, left(queue)) == (0, 1, [])


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"max_length": 2}, [b"11", b"22"]),
        ({"max_length": 0}, []),
        ({"max_length_bytes": 3}, [b"22"]),
        ({"max_length": 2, "max_length_bytes": 2}, [b"22"]),
    ],
)
def test_the_head_is_dropped(broker: Broker, settings: dict[str, int], kept: list[bytes]) -> None:
    queue = new_queue(broker, "q", 0, **settings)
    queue.publish(run_of([b"00", b"11", b"22"]), 0)
    assert left(queue) == kept


@pytest.mark.parametrize("limit", ["max_length", "max_length_bytes"])
def test_a_full_queue_refuses(broker: Broker, limit: str) -> None:
    most = 2 if limit == "max_length" else 5
    queue = new_queue(broker, "q", 0, **{limit: most}, overflow="reject-publish")
    assert list(queue.publish(run_of([b"00", b"11", b"22"]), 0)) == [2]
    assert left(queue) == [b"00", b"11"]


def test_what_is_refused_may_be_a_dead_letter(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    queue = new_queue(
        broker,
        max_length=1,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
    )
    assert list(queue.publish(run_of([b"0", b"1"]), 0)) == [1]
    assert (left(queue), left(dead)) == ([b"0"], [b"1"])


def test_what_returns_to_a_full_queue_is_dropped_from_the_head(broker: Broker) -> None:
    queue = new_queue(broker, max_length=1)
    channel = open_channel(broker)
    consumer = consume(channel, queue, prefetch=1)
    queue.publish(run_of([b"0"]), 0)
    queue.publish(run_of([b"1"]), 0)
    channel.remove_consumer(consumer, 0)
    channel.settle(Settlement.REQUEUE, 1, 0, multiple=False)
    assert left(queue) == [b"1"]


# ── time ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_shorter_time_counts(broker: Broker) -> None:
    queue = new_queue(broker, message_ttl_ms=20)
    queue.publish(run_of([b"0"], Properties(expiration="5")), 0)
    queue.publish(run_of([b"1"], Properties(expiration="50")), 0)
    broker.tick(5)
    assert queue.ready == 1
    broker.tick(20)
    assert queue.ready == 0


@pytest.mark.parametrize("priority", [None, 1])
def test_what_is_late_is_not_given_away(broker: Broker, priority: int | None) -> None:
    """Without a timer: basic.get returns the first message that has not expired."""
    queue = new_queue(broker, max_priority=priority)
    for expiration in ("5", "50", None):
        queue.publish(run_of([b"x"], Properties(expiration=expiration)), 0)
    peer = consumer_of(broker, queue, 1, now=10)
    assert queue.ready == 1
    assert len(peer.bodies()) == 1
    assert left(queue, 100) == [b"x"]
    queue.publish(run_of([b"y"], Properties(expiration="5")), 100)
    assert left(queue, 200) == []
    queue.publish(run_of([b"y"], Properties(expiration="5")), 200)
    assert len(consumer_of(broker, queue, 1, now=300).bodies()) == 0


@pytest.mark.parametrize("settings", [{}, {"max_length": 5}])
def test_a_message_with_no_time_goes_to_who_waits_or_to_nobody(
    broker: Broker, settings: dict[str, int]
) -> None:
    queue = new_queue(broker, "q", 0, **settings)
    no_time = Properties(expiration="0")
    queue.publish(run_of([b"0"], no_time), 0)
    assert queue.ready == 0
    peer = consumer_of(broker, queue)
    queue.publish(run_of([b"1", b"2"], no_time), 0)
    assert peer.bodies() == [b"1", b"2"]


def test_a_message_with_no_time_that_returns_is_late(broker: Broker) -> None:
    """However soon; a message with some time left is redelivered."""
    queue = new_queue(broker)
    peer = Peer()
    channel = open_channel(broker, peer)
    consume(channel, queue)
    for expiration in ("0", "1"):
        queue.publish(run_of([expiration.encode()], Properties(expiration=expiration)), 0)
    assert peer.bodies() == [b"0", b"1"]
    channel.settle(Settlement.REQUEUE, 2, 0, multiple=True)
    assert peer.bodies() == [b"1"]
    channel.settle(Settlement.REQUEUE, 3, 1, multiple=False)
    assert peer.bodies() == []
    assert (queue.ready, queue.unacked) == (0, 0)


# ── wire taps ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tap_beside_a_consumer_on_one_channel_sees_each_first(broker: Broker) -> None:
    queue = new_queue(broker)
    peer = Peer()
    channel = open_channel(broker, peer)
    consume(channel, queue, "c")
    consume(channel, queue, "tap", no_ack=True, wire_tap=True)
    queue.publish(run_of([b"0", b"1"]), 0)
    seen = [(method.consumer_tag, body) for method, body in peer.delivered()]
    assert seen == [("tap", b"0"), ("c", b"0"), ("tap", b"1"), ("c", b"1")]
