"""Expensive publishes: none exceeds its budget per turn, and changes between two turns."""

from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import pytest

from recado.amqp.events import Acked, Event, MethodReceived, Published
from recado.amqp.frames import extract_body
from recado.amqp.methods import BasicAck, BasicNack
from recado.amqp.properties import Properties
from recado.amqp.values import FieldTable, FieldValue
from recado.broker.broker import TIMER_UNITS_MAX, Broker
from recado.broker.channel import Channel
from recado.broker.policy import Policy
from recado.broker.queue import Queue
from recado.broker.route_search import find_queues
from recado.broker.steps import STEP_UNITS_MAX, TURN_UNITS_MAX, StepTask
from recado.broker.work_queue import DROPPED_RUNS_MAX, DROPPED_RUNS_MIN

from .at_least_once_queues import let_pass, reject, source, take_all, target
from .delayed_exchanges import bound, delayed
from .delayed_exchanges import publish as publish_delayed
from .stage import Peer, found, new_broker, new_queue, open_channel, published, run_of
from .stores import PagingStore

OVERSHOOT = 3 * STEP_UNITS_MAX  # the last step of a turn


WORDS = "abcdefghijklmnopqr"
HOSTILE_KEY = ".".join(WORDS[i % len(WORDS)] for i in range(125))


def bind_hostile(broker: Broker, exchange: str = "x", queue: str = "q") -> None:
    """Topic bindings that match no key, but each word of a long key reaches most of them: two turns of
    work.
    """
    vhost = broker.vhosts["/"]
    if exchange not in vhost.exchanges:
        vhost.declare_exchange(exchange, "topic")
    for a, b in product(WORDS, WORDS):
        vhost.bind_queue(queue, exchange, f"#.{a}.#.{b}.#.*.z")


def turns(
    channel: Channel,
    event: Published,
    between: Callable[[], object] = lambda: None,
    budget: int = TURN_UNITS_MAX,
) -> list[int]:
    """Return the cost of each turn until the publish is complete."""
    costs: list[int] = []
    rest: Published | None = event
    while rest is not None:
        if costs:
            between()
        rest, cost = channel.publisher.publish(rest, 0, budget)
        costs.append(cost)
    return costs


def confirms(events: list[Event]) -> list[object]:
    return [
        BasicAck(event.first_tag, False) if isinstance(event, Acked) else event.method
        for event in events
        if isinstance(event, Acked | MethodReceived)
    ]


def bodies(queue: Queue, now: int = 0) -> list[bytes]:
    found = []
    while (run := queue.get(now)) is not None:
        found.append(extract_body(run.contents()[0]))
    return found


# ── deleting ──────────────────────────────────────────────────────────────────────────────────────────────


def deletion_costs(broker: Broker, exchange: str) -> list[int]:
    """Delete an exchange; return the cost of each step after the first part."""
    vhost = broker.vhosts["/"]
    vhost.delete_exchange(exchange)
    costs = []
    for work in vhost.background.newest(1):
        while not work.is_done:
            costs.append(work.advance(1))
    return costs


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers", "regex"])
def test_the_bindings_of_a_deleted_exchange_leave_its_matcher_in_steps(
    broker: Broker, kind: str
) -> None:
    """Otherwise all of them would be freed at once at the end: 100 ms for 100,000 long topics."""
    vhost = broker.vhosts["/"]
    new_queue(broker)
    vhost.declare_exchange("x", kind)
    exchange = vhost.exchanges["x"]
    for i in range(1000):
        vhost.bind_queue("q", "x", f"a.{i}.b", {"number": i})
    assert found(exchange._primary_matcher, "a.7.b", {"number": 7})
    assert len(deletion_costs(broker, "x")) > 400
    assert not found(exchange._primary_matcher, "a.7.b", {"number": 7})


@pytest.mark.parametrize(
    ("key", "arguments"), [("a." * 127, {}), ("k", {"list": list[FieldValue](range(300))})]
)
def test_long_bindings_cost_more_to_remove(
    broker: Broker, key: str, arguments: dict[str, FieldValue]
) -> None:
    vhost = broker.vhosts["/"]
    new_queue(broker)
    vhost.declare_exchange("x", "topic")
    for i in range(600):
        vhost.bind_queue("q", "x", key[:-1] + str(i % 10), arguments | {"number": i})
    assert sum(deletion_costs(broker, "x")) > 600 * 10


# ── searching ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_search_that_is_long_goes_on_in_the_next_turn(broker: Broker, channel: Channel) -> None:
    queue = new_queue(broker)
    bind_hostile(broker)
    new_queue(broker, "all")
    broker.vhosts["/"].bind_queue("all", "x", "#")
    event = published(HOSTILE_KEY, b"1", exchange="x")
    costs = turns(channel, event)
    assert len(costs) > 1
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    assert (queue.ready, broker.vhosts["/"].queues["all"].ready) == (0, 1)
    assert turns(channel, event) == [1]  # it is cached now


def test_each_of_many_keys_counts(broker: Broker, channel: Channel) -> None:
    new_queue(broker)
    bind_hostile(broker)
    keys: list[FieldValue] = [f"{i}.{HOSTILE_KEY}" for i in range(20)]
    event = published("z", b"1", exchange="x", properties=Properties(headers={"CC": keys}))
    costs = turns(channel, event)
    assert len(costs) > 20
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT


@pytest.mark.parametrize("exchange", ["", "amq.direct", "amq.topic", "amq.fanout"])
def test_keys_count_that_are_found_at_once(channel: Channel, exchange: str) -> None:
    """1,000 keys take 0.6 to 1.6 ms: twelve such messages fill a turn."""
    keys: list[FieldValue] = [f"k{i}" for i in range(1000)]
    properties = Properties(headers={"CC": keys})
    event = published("z", b"1", exchange=exchange, properties=properties)
    assert sum(turns(channel, event)) * 12 > TURN_UNITS_MAX


def test_a_route_that_changed_while_it_was_found_is_not_remembered(
    broker: Broker, channel: Channel
) -> None:
    new_queue(broker)
    bind_hostile(broker)
    event = published(HOSTILE_KEY, b"1", exchange="x")
    assert len(turns(channel, event, lambda: new_queue(broker, f"n{broker.vhosts['/'].epoch}"))) > 1
    assert len(turns(channel, event)) > 1
    assert len(turns(channel, event)) == 1


def test_a_queue_that_is_deleted_meanwhile_gets_nothing(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    new_queue(broker)
    bind_hostile(broker)
    gone, kept = new_queue(broker, "gone"), new_queue(broker, "kept")
    for name in ("gone", "kept"):
        broker.vhosts["/"].bind_queue(name, "x", "a.#")
    channel.publisher.enable_confirms()

    def delete() -> None:
        if not gone.deleted:
            broker.delete_queue(gone, 0)

    assert len(turns(channel, published(HOSTILE_KEY, b"1", exchange="x"), delete)) > 1
    assert (gone.ready, kept.ready) == (0, 1)
    channel.publisher.send_confirms()
    assert confirms(peer.received()) == [BasicAck(1, False)]


def test_an_exchange_that_is_deleted_meanwhile_leads_nowhere(
    broker: Broker, channel: Channel
) -> None:
    vhost = broker.vhosts["/"]
    queue = new_queue(broker)
    bind_hostile(broker)
    for name in ("first", "next"):
        vhost.declare_exchange(name, "fanout")
    for name in ("x", "next"):
        vhost.bind_exchange(name, "first", "")
    vhost.bind_queue("q", "next", "")
    event = published(HOSTILE_KEY, b"1", exchange="first", mandatory=True)
    assert len(turns(channel, event, lambda: vhost.delete_exchange("next"))) > 1
    assert queue.ready == 0


@pytest.mark.parametrize("kind", ["direct", "fanout", "headers", "regex", "topic"])
def test_many_bindings_are_followed_in_steps_and_in_order(
    broker: Broker, channel: Channel, kind: str
) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange("x", kind)
    names = [f"q{i:04}" for i in range(3000)]
    for name in reversed(names):
        new_queue(broker, name)
        vhost.bind_queue(name, "x", "k")
    work, costs = StepTask(find_queues(vhost, vhost.exchanges["x"], "k")), []
    while not work.is_done:
        costs.append(work.advance(1))
    assert [queue.name for queue in work.result] == names[::-1]
    assert max(costs) <= OVERSHOOT
    assert sum(costs) >= 3000 // 16


# ── giving ────────────────────────────────────────────────────────────────────────────────────────────────


def fan_out(broker: Broker, count: int, **settings: Any) -> list[Queue]:
    queues = [new_queue(broker, f"f{i}", **settings) for i in range(count)]
    for queue in queues:
        broker.vhosts["/"].bind_queue(queue.name, "amq.fanout", "")
    return queues


def test_many_queues_are_given_a_message_in_several_turns(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    queues = fan_out(broker, 5000)
    channel.publisher.enable_confirms()
    event = published("", b"1", exchange="amq.fanout")
    confirmed = []

    def look() -> None:
        channel.publisher.send_confirms()
        confirmed.extend(confirms(peer.received()))

    costs = turns(channel, event, look)
    assert len(costs) > 2
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    assert confirmed == []
    assert all(queue.ready == 1 for queue in queues)
    look()
    assert confirmed == [BasicAck(1, False)]


def test_large_messages_cost_more_than_small_ones(broker: Broker, channel: Channel) -> None:
    fan_out(broker, 100)
    small = sum(turns(channel, published("", b"x", exchange="amq.fanout")))
    large = turns(channel, published("", bytes(10 << 20), exchange="amq.fanout"))
    run = turns(channel, published("", *[b"x"] * 3000, exchange="amq.fanout"))
    assert sum(large) > 100 * small
    assert sum(run) > 100 * small
    assert max(large + run) <= TURN_UNITS_MAX + 1000  # a queue is not divided


def test_one_queue_refuses_what_the_others_take(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    fan_out(broker, 300, max_length=1, overflow="reject-publish")
    roomy = new_queue(broker, "roomy")
    broker.vhosts["/"].bind_queue("roomy", "amq.fanout", "")
    channel.publisher.enable_confirms()
    assert len(turns(channel, published("", b"1", b"2", exchange="amq.fanout"), budget=64)) > 2
    channel.publisher.send_confirms()
    assert confirms(peer.received()) == [BasicAck(1, False), BasicNack(2, False, False)]
    assert bodies(roomy) == [b"1", b"2"]


def test_messages_of_one_channel_keep_their_order(broker: Broker, channel: Channel) -> None:
    queues = fan_out(broker, 700)
    for body in (b"1", b"2"):
        turns(channel, published("", body, exchange="amq.fanout"), budget=STEP_UNITS_MAX)
    assert all(bodies(queue) == [b"1", b"2"] for queue in queues)


def test_a_queue_that_is_deleted_before_its_turn_is_left_out(
    broker: Broker, channel: Channel
) -> None:
    queues = fan_out(broker, 400)

    def delete() -> None:
        if not queues[-1].deleted:
            broker.delete_queue(queues[-1], 0)

    turns(channel, published("", b"1", exchange="amq.fanout"), delete, budget=STEP_UNITS_MAX)
    assert [queue.ready for queue in queues] == [1] * 399 + [0]


# ── duplicates ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_that_is_overtaken_by_its_duplicate_is_one(
    broker: Broker, channel: Channel
) -> None:
    """While the first is being routed by a hostile exchange, the second has a cached route."""
    vhost = broker.vhosts["/"]
    once = {"x-message-deduplication": True, "x-cache-size": 10}
    vhost.declare_exchange("once", "fanout", arguments={**once})
    vhost.declare_exchange("long", "fanout")
    vhost.bind_exchange("once", "long", "")
    queue, aside = new_queue(broker), new_queue(broker, "aside")
    bind_hostile(broker)
    vhost.bind_exchange("x", "long", "")
    vhost.bind_queue("q", "once", "")
    vhost.bind_queue("aside", "long", "")
    other = open_channel(broker)
    properties = Properties(message_id="one")
    overtaking = published("", b"1", exchange="once", properties=properties)
    event = published(HOSTILE_KEY, b"1", exchange="long", properties=properties)
    assert len(turns(channel, event, lambda: turns(other, overtaking))) > 1
    assert (queue.ready, aside.ready) == (1, 1)


def test_where_duplicates_are_found_all_queues_are_given_a_message_at_once(
    broker: Broker, channel: Channel
) -> None:
    vhost = broker.vhosts["/"]
    once = {"x-message-deduplication": True, "x-cache-size": 10}
    vhost.declare_exchange("once", "fanout", arguments={**once})
    vhost.bind_exchange("amq.fanout", "once", "")
    queues = fan_out(broker, 400)
    event = published("", b"1", exchange="once", properties=Properties(message_id="one"))
    other = open_channel(broker)
    turns(channel, event, lambda: turns(other, event), budget=16)
    assert [queue.ready for queue in queues] == [1] * 400


# ── transactions ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_is_prepared_in_steps(broker: Broker, channel: Channel) -> None:
    new_queue(broker)
    bind_hostile(broker)
    all_, gone = new_queue(broker, "all"), new_queue(broker, "gone")
    for name in ("all", "gone"):
        broker.vhosts["/"].bind_queue(name, "x", "#")
    channel.publisher.transaction = []
    copies = Properties(headers={"CC": [f"1.{HOSTILE_KEY}"]})
    for properties in (Properties(), copies):
        event = published(HOSTILE_KEY, b"1", exchange="x", properties=properties)
        turns(channel, event)
    steps = list(channel.publisher.prepare_commit())
    assert max(steps) <= OVERSHOOT
    assert sum(steps) > 2 * TURN_UNITS_MAX
    assert channel.publisher.is_prepared
    broker.delete_queue(gone, 0)
    channel.commit(0)
    assert (all_.ready, gone.ready) == (2, 0)
    assert not channel.publisher.is_prepared


def test_a_transaction_finds_duplicates_among_its_own(broker: Broker, channel: Channel) -> None:
    once = {"x-message-deduplication": True, "x-cache-size": 10}
    broker.vhosts["/"].declare_exchange("once", "fanout", arguments={**once})
    queue = new_queue(broker)
    broker.vhosts["/"].bind_queue("q", "once", "")
    channel.publisher.transaction = []
    for name in ("one", "one", "two"):
        event = published("", b"1", exchange="once", properties=Properties(message_id=name))
        turns(channel, event)
    list(channel.publisher.prepare_commit())
    channel.commit(0)
    assert queue.ready == 2


def test_what_was_prepared_is_forgotten_with_the_transaction(
    broker: Broker, channel: Channel
) -> None:
    queue = new_queue(broker)
    channel.publisher.transaction = []
    turns(channel, published("q", b"1"))
    list(channel.publisher.prepare_commit())
    channel.rollback()
    assert not channel.publisher.is_prepared
    turns(channel, published("q", b"2"))
    channel.commit(0)
    assert bodies(queue) == [b"2"]


# ── letters and what was delayed ──────────────────────────────────────────────────────────────────────────


def test_the_way_of_a_dead_letter_is_found_in_steps(broker: Broker) -> None:
    new_queue(broker)
    bind_hostile(broker)
    all_ = new_queue(broker, "all")
    broker.vhosts["/"].bind_queue("all", "x", "#")
    dying = new_queue(
        broker, "dying", dead_letter_exchange="x", dead_letter_routing_key=HOSTILE_KEY
    )
    dying.publish(run_of([b"1"], Properties(expiration="5")), 0)
    broker.tick(5)
    ticks = 0
    while broker.deadline() == 0:
        assert all_.ready == 0
        broker.tick(6 + ticks)
        ticks += 1
    assert ticks >= 1
    assert bodies(all_) == [b"1"]


def test_the_way_of_an_at_least_once_dead_letter_is_found_in_steps() -> None:
    broker = new_broker(PagingStore(1 << 20))
    new_queue(broker)
    bind_hostile(broker)
    dead = target(broker)
    queue = source(broker, dead_letter_exchange="x", dead_letter_routing_key=HOSTILE_KEY)
    reject(queue, b"1", b"2")
    assert broker.deadline() == 0
    broker.vhosts["/"].bind_queue("dead", "x", "#")
    now = let_pass(broker, 0, 3)
    assert queue.held_dead_letters == 0
    assert sorted(take_all(dead, now)) == [b"1", b"2"]


def test_dead_letters_that_are_on_their_way_are_not_forgotten_at_a_look() -> None:
    broker = new_broker(PagingStore(1 << 20))
    new_queue(broker)
    bind_hostile(broker)
    queue = source(broker, dead_letter_exchange="x", dead_letter_routing_key=HOSTILE_KEY)
    dead = target(broker)
    reject(queue, b"1")
    let_pass(broker, 0)  # there is no target
    broker.vhosts["/"].bind_queue("dead", "x", "#")
    broker.tick(200)  # checks, and starts a retry
    assert broker.deadline() == 0
    broker.tick(400)  # checks again
    let_pass(broker, 400, 3)
    assert take_all(dead, 1000) == [b"1"]


def test_dead_letters_to_many_queues_are_given_in_steps(broker: Broker) -> None:
    queues = fan_out(broker, 3000)
    dying = new_queue(broker, "dying", dead_letter_exchange="amq.fanout")
    dying.publish(run_of([b"1"], Properties(expiration="5")), 0)
    broker.tick(5)
    assert broker.deadline() == 0
    broker.delete_queue(queues[-1], 5)
    while broker.deadline() == 0:
        broker.tick(6)
    assert [queue.ready for queue in queues] == [1] * 2999 + [0]


def test_at_least_once_dead_letters_to_many_queues_are_given_in_steps() -> None:
    broker = new_broker(PagingStore(1 << 20))
    queues = fan_out(broker, 3000)
    queue = source(broker, dead_letter_exchange="amq.fanout")
    reject(queue, b"1")
    assert broker.deadline() == 0
    broker.delete_queue(queues[-1], 0)
    let_pass(broker, 0)
    assert [each.ready for each in queues] == [1] * 2999 + [0]
    assert queue.held_dead_letters == 0


def test_what_was_delayed_is_routed_in_steps(broker: Broker) -> None:
    exchange = delayed(broker, kind="topic")
    queue = bound(broker, key="#")
    bind_hostile(broker, "later")
    for body in (b"1", b"2"):
        publish_delayed(broker, body, 10, key=HOSTILE_KEY)
    now = 10
    broker.tick(now)
    assert queue.ready == 0
    while broker.deadline() is not None:
        now += 1
        broker.tick(now)
    assert now > 12
    assert bodies(queue) == [b"1", b"2"]
    assert exchange.delayed_queue is not None


def test_what_is_on_its_way_goes_with_the_delayed_exchange(broker: Broker) -> None:
    delayed(broker, kind="topic")
    queue = bound(broker, key="#")
    bind_hostile(broker, "later")
    publish_delayed(broker, b"1", 10, key=HOSTILE_KEY)
    broker.tick(10)
    broker.vhosts["/"].delete_exchange("later")
    for now in range(11, 40):
        broker.tick(now)
    assert queue.ready == 0


# ── dropping ──────────────────────────────────────────────────────────────────────────────────────────────

MANY_RUNS = 3 * DROPPED_RUNS_MAX


def publish_singly(queue: Queue, count: int, *, ttl_ms: int | None = None) -> None:
    """Each message is a run of its own."""
    expiration = None if ttl_ms is None else str(ttl_ms)
    for i in range(count):
        properties = Properties(expiration=expiration, priority=i % 2)
        queue.publish(run_of([b"%d" % i], properties), 0)


@pytest.mark.parametrize("settings", [{}, {"dead_letter_exchange": ""}])
def test_messages_that_expire_together_are_dropped_in_several_turns(
    broker: Broker, settings: dict[str, Any]
) -> None:
    queue = new_queue(broker, **settings)
    publish_singly(queue, MANY_RUNS, ttl_ms=5)
    broker.tick(5)
    assert queue.ready == MANY_RUNS - DROPPED_RUNS_MAX
    for now in (6, 7):
        assert broker.deadline() in (0, now)
        broker.tick(now)
    assert queue.ready == 0


def test_what_is_behind_many_expired_messages_is_found_some_turns_later(broker: Broker) -> None:
    queue = new_queue(broker)
    queue.publish(run_of([b"first"]), 0)
    publish_singly(queue, MANY_RUNS, ttl_ms=5)
    queue.publish(run_of([b"last"]), 0)
    assert bodies(queue, 10) == [b"first"]
    assert queue.ready == MANY_RUNS - DROPPED_RUNS_MAX + 1
    for now in range(11, 14):
        broker.tick(now)
    assert bodies(queue, 14) == [b"last"]


def test_a_long_queue_that_is_given_a_limit_is_shortened_in_several_turns(broker: Broker) -> None:
    queue = new_queue(broker)
    publish_singly(queue, MANY_RUNS)
    policy = Policy(name="short", pattern="q", definition={"max-length": 10})
    broker.set_policies("/", [policy], 0)
    assert queue.ready == MANY_RUNS - DROPPED_RUNS_MAX
    before = queue.ready
    queue.publish(run_of([b"x"]), 0)
    assert queue.ready == before + 1 - DROPPED_RUNS_MIN
    for now in (1, 2):
        broker.tick(now)
    assert queue.ready == 10


def test_a_queue_at_its_limit_stays_there(broker: Broker) -> None:
    queue = new_queue(broker, max_length=10)
    publish_singly(queue, DROPPED_RUNS_MAX + 100)
    assert queue.ready == 10
    fleeting = new_queue(broker, "fleeting")
    publish_singly(fleeting, DROPPED_RUNS_MAX + 100, ttl_ms=0)
    assert fleeting.ready == 0


@pytest.mark.parametrize("settings", [{"message_ttl_ms": 5}, {"expires_ms": 5}])
def test_many_queues_whose_time_has_come_take_several_turns(
    broker: Broker, settings: dict[str, Any]
) -> None:
    queues = fan_out(broker, 3000, **settings)
    turns(open_channel(broker), published("", b"1", exchange="amq.fanout"))
    left, now = [], 5
    while broker.deadline() is not None:
        broker.tick(now)
        left.append(sum(queue.ready for queue in queues if not queue.deleted))
        now += 1
    assert len(left) > 2
    assert left[-1] == 0
    assert max(a - b for a, b in pairwise([3000, *left])) <= TIMER_UNITS_MAX


def test_delayed_messages_of_many_exchanges_take_several_turns(broker: Broker) -> None:
    names = [f"x{i}" for i in range(100)]
    queue = new_queue(broker)
    for name in names:
        arguments: FieldTable = {"x-delayed-type": "fanout"}
        broker.vhosts["/"].declare_exchange(name, "x-delayed-message", arguments=arguments)
        broker.vhosts["/"].bind_queue("q", name, "")
        later = Properties(headers={"x-delay": 10})
        turns(open_channel(broker), published("", b"1", exchange=name, properties=later))
    broker.tick(10)
    assert 0 < queue.ready < 100
    broker.tick(10)
    assert queue.ready == 100
