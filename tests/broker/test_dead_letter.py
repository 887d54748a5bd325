"""Dead letters: their headers, their routes, cycles, and many at once."""

from typing import Any

import pytest

from recado.amqp.frames import extract_body, extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import FieldTable, Int64, Timestamp
from recado.broker.broker import Broker
from recado.broker.channel import Settlement
from recado.broker.queue import Queue

from .stage import Peer, consume, new_broker, new_queue, open_channel, published, run_of


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def dying(broker: Broker, name: str = "dying", **settings: object) -> Queue:
    """A queue that dead-letters to the queue of that name."""
    chosen: dict[str, Any] = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    return new_queue(broker, name, **(chosen | settings))


def dead_letters(queue: Queue, now: int = 0) -> list[tuple[bytes, Properties, str, str]]:
    """Return the messages in a queue: body, properties, exchange and key."""
    found = []
    while (run := queue.get(now)) is not None:
        content = run.contents()[0]
        properties = decode_properties(extract_properties(content))
        found.append(
            (extract_body(content), properties, run.origin.exchange, run.origin.routing_key)
        )
    return found


def headers_of(queue: Queue) -> list[FieldTable]:
    return [properties.headers or {} for _, properties, _, _ in dead_letters(queue)]


# ── the letter ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dead_letter_tells_of_its_death(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    queue = dying(broker)
    queue.publish(run_of([b"x"], Properties(expiration="5", message_id="m", priority=2)), 1_000)
    broker.tick(2_500)
    ((body, properties, exchange, key),) = dead_letters(dead)
    assert (body, exchange, key) == (b"x", "", "dead")
    assert (properties.expiration, properties.message_id, properties.priority) == (None, "m", 2)
    assert properties.headers == {
        "x-death": [
            {
                "count": Int64(1),
                "reason": "expired",
                "queue": "dying",
                "time": Timestamp(2),
                "exchange": "",
                "routing-keys": ["key"],
                "original-expiration": "5",
            }
        ],
        "x-first-death-reason": "expired",
        "x-first-death-queue": "dying",
        "x-first-death-exchange": "",
    }


def test_a_dead_letter_does_not_expire_again(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    dying(broker).publish(run_of([b"x"], Properties(expiration="5")), 0)
    broker.tick(5)
    broker.tick(1_000_000)
    assert dead.ready == 1


def test_the_same_death_is_counted(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    queue = dying(broker)
    before: FieldTable = {
        "x-death": [
            {"queue": "other", "reason": "expired", "count": Int64(1)},
            {"queue": "dying", "reason": "maxlen", "count": Int64(4)},
            {"queue": "dying", "reason": "rejected", "count": Int64(2), "time": Timestamp(9)},
            "not a death",
        ],
        "x-first-death-reason": "maxlen",
    }
    queue.reject([run_of([b"x"], Properties(headers=before))], 0)
    (headers,) = headers_of(dead)
    assert headers["x-death"] == [
        {"queue": "dying", "reason": "rejected", "count": Int64(3), "time": Timestamp(9)},
        {"queue": "other", "reason": "expired", "count": Int64(1)},
        {"queue": "dying", "reason": "maxlen", "count": Int64(4)},
        "not a death",
    ]
    assert "x-first-death-queue" not in headers


@pytest.mark.parametrize("count", ["many", Int64(-5), Int64(2**63 - 1), None])
def test_a_count_that_a_client_made_up_begins_anew(broker: Broker, count: object) -> None:
    dead = new_queue(broker, "dead")
    made_up: FieldTable = {"x-death": [{"queue": "dying", "reason": "rejected", "count": count}]}  # type: ignore[dict-item]
    dying(broker).reject([run_of([b"x"], Properties(headers=made_up))], 0)
    (headers,) = headers_of(dead)
    assert headers["x-death"] == [{"queue": "dying", "reason": "rejected", "count": Int64(1)}]


def test_deaths_that_are_no_list_begin_anew(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    dying(broker).reject([run_of([b"x"], Properties(headers={"x-death": "yes"}))], 0)
    (headers,) = headers_of(dead)
    assert isinstance(headers["x-death"], list)


def test_copies_are_named_and_go_along_unless_the_key_changes(broker: Broker) -> None:
    dead, copy = new_queue(broker, "dead"), new_queue(broker, "copy")
    cc: FieldTable = {"CC": ["copy", 5]}
    dying(broker).reject([run_of([b"x"], Properties(headers=cc))], 0)
    (headers,) = headers_of(dead)
    assert "CC" not in headers
    assert isinstance(headers["x-death"], list)
    death = headers["x-death"][0]
    assert isinstance(death, dict)
    assert death["routing-keys"] == ["key", "copy"]
    assert copy.ready == 0
    same_key = dying(broker, "same", dead_letter_routing_key=None)
    same_key.reject([run_of([b"x"], Properties(headers=cc))], 0)
    ((_, properties, _, key),) = dead_letters(copy)
    assert (properties.headers or {})["CC"] == ["copy", 5]
    assert key == "key"


def test_a_dead_letter_whose_header_no_longer_fits_is_let_go(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    headers: FieldTable = {str(i): "x" * 100 for i in range(36)}
    queue = dying(broker)
    for room in (4096, 8192):
        queue.reject([run_of([b"x"], Properties(headers=headers), frame_max=room)], 0)
    assert len(dead_letters(dead)) == 1


def test_bodies_of_several_frames_stay_whole(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    body = bytes(range(256)) * 40
    dying(broker).reject([run_of([body], frame_max=4096)], 0)
    assert [each for each, *_ in dead_letters(dead)] == [body]


# ── where it goes ─────────────────────────────────────────────────────────────────────────────────────────


def test_without_an_exchange_they_are_gone(broker: Broker) -> None:
    for queue in (new_queue(broker), dying(broker, dead_letter_exchange="no such")):
        queue.reject([run_of([b"x"])], 0)
    assert broker.deadline() is None


def test_headers_decide_for_each(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    one, two = new_queue(broker, "one"), new_queue(broker, "two")
    vhost.bind_queue("one", "amq.headers", "", {"n": 1})
    vhost.bind_queue("two", "amq.headers", "", {"n": 2})
    queue = dying(broker, dead_letter_exchange="amq.headers", dead_letter_routing_key=None)
    for n in (1, 2, 1):
        queue.publish(run_of([b"%d" % n], Properties(headers={"n": n}, expiration="1")), 0)
    broker.tick(1)
    assert [body for body, *_ in dead_letters(one)] == [b"1", b"1"]
    assert [body for body, *_ in dead_letters(two)] == [b"2"]


def test_what_goes_in_circles_is_dropped(broker: Broker) -> None:
    queue = dying(broker, dead_letter_routing_key="dying", message_ttl_ms=5)
    queue.publish(run_of([b"x"]), 0)
    broker.tick(5)
    assert queue.ready == 0


def test_what_was_rejected_may_come_again(broker: Broker) -> None:
    """A consumer has rejected it in between, so it is not a cycle."""
    dead = dying(broker, "dead", dead_letter_routing_key="dying", message_ttl_ms=5)
    queue = dying(broker)
    peer = Peer()
    channel = open_channel(broker, peer)
    consume(channel, queue)
    queue.publish(run_of([b"x"]), 0)
    for now in (0, 10, 20):
        ((method, _),) = peer.delivered()
        channel.settle(Settlement.REJECT, method.delivery_tag, now, multiple=False)
        assert dead.ready == 1
        broker.tick(now + 5)


def test_a_reply_address_is_no_place_for_it(broker: Broker) -> None:
    """Only messages of its own publisher are routed there, by key."""
    queue = dying(broker, dead_letter_routing_key="nobody")
    queue.reject([run_of([b"x"])], 0)
    assert broker.vhosts["/"].queues.keys() == {"dying"}


# ── many ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_chain_of_full_queues_costs_no_depth(broker: Broker) -> None:
    last = 300
    for i in range(last):
        new_queue(
            broker,
            f"q{i}",
            max_length=0,
            dead_letter_exchange="",
            dead_letter_routing_key=f"q{i + 1}",
        )
    end = new_queue(broker, f"q{last}")
    broker.vhosts["/"].queues["q0"].publish(run_of([b"x"]), 0)
    for _ in range(last):
        if broker.deadline() is None:
            break
        assert broker.deadline() == 0
        broker.tick(0)
    assert end.ready == 1


def test_many_are_sent_in_turns_and_in_order(broker: Broker) -> None:
    """Other clients are served in between; the rest follows in the next turn."""
    dead = new_queue(broker, "dead")
    queue = dying(broker)
    bodies = [b"%05d" % i for i in range(1000)]
    for i, body in enumerate(bodies):
        queue.publish(run_of([body], Properties(message_id=str(i), expiration="5")), 0)
    broker.tick(5)
    assert 0 < dead.ready < 1000
    assert broker.deadline() == 0
    turns = 0
    while broker.deadline() == 0:
        broker.tick(5)
        turns += 1
    assert turns > 2
    assert [body for body, *_ in dead_letters(dead, 5)] == bodies


def test_those_alike_are_less_work(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    queue = dying(broker, message_ttl_ms=5)
    bodies = [b"%05d" % i for i in range(1000)]
    queue.publish(run_of(bodies, alike=True), 0)
    broker.tick(5)
    assert dead.ready == 1000


def test_what_a_dead_letter_causes_comes_before_the_next(broker: Broker) -> None:
    end = new_queue(broker, "end")
    dying(broker, "middle", dead_letter_routing_key="end", max_length=1)
    queue = dying(broker, dead_letter_routing_key="middle", message_ttl_ms=5)
    broker.vhosts["/"].bind_queue("end", "amq.fanout", "")
    queue.publish(run_of([b"1", b"2", b"3"]), 0)
    broker.tick(5)
    assert [body for body, *_ in dead_letters(end)] == [b"1", b"2"]


def test_dead_letters_of_a_deleted_queue_are_still_sent(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    queue = dying(broker, message_ttl_ms=5)
    for i in range(500):
        queue.publish(run_of([b"x"], Properties(message_id=str(i))), 0)
    broker.tick(5)
    broker.delete_queue(queue, 5)
    while broker.deadline() == 0:
        broker.tick(5)
    assert dead.ready == 500


def test_publishes_of_a_client_die_like_others(broker: Broker) -> None:
    dead = new_queue(broker, "dead")
    dying(broker, max_length=1)
    channel = open_channel(broker)
    channel.publisher.publish(published("dying", b"1", b"2", b"3"), 0)
    assert [(body, key) for body, _, _, key in dead_letters(dead)] == [
        (b"1", "dead"),
        (b"2", "dead"),
    ]
