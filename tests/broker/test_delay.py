"""Delayed messages: valid delays, due times, and the routes at that time."""

from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.events import Acked, ContentReceived, Published
from recado.amqp.frames import FRAME_MIN_BYTES, extract_properties
from recado.amqp.methods import BasicReturn
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import FieldTable, Float32, Int8, Int64, Timestamp, UInt8, UInt32
from recado.broker.broker import Broker
from recado.broker.checks import MAX_EXPIRY_MS
from recado.broker.delay import read_delay_ms
from recado.broker.delayed_queue import DelayedQueue
from recado.broker.policy import Policy
from recado.broker.queue import Queue
from recado.broker.route_search import find_queues
from recado.broker.steps import run_to_completion
from recado.broker.vhost import Vhost

from .delayed_exchanges import bodies, bound, delayed, held, messages, publish
from .stage import Peer, new_broker, new_queue, open_channel, published, run_of
from .stores import RecordingStore


@pytest.fixture
def broker() -> Broker:
    return new_broker()


# ── what is asked for ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "delay"),
    [
        (5, 5),
        (Int8(5), 5),
        (UInt32(4_294_967_295), 4_294_967_295),
        (Int64(7), 7),
        (7.9, 7),
        (Float32(2.5), 2),
        ("250", 250),
        (0, 0),
        (-5, 0),
        (-0.5, 0),
        (float("nan"), 0),
        (float("inf"), MAX_EXPIRY_MS),
        (Int64(2**63 - 1), MAX_EXPIRY_MS),
        ("9" * 18, MAX_EXPIRY_MS),
        ("9" * 19, 0),
        ("-5", 0),
        ("soon", 0),
        ("٣", 0),
        ("", 0),
        (True, 0),
        (None, 0),
        ([5], 0),
        (Timestamp(5), 0),
        (datetime(2030, 1, 1, tzinfo=UTC), 0),
    ],
)
def test_numbers_and_what_is_none(value: Any, delay: int) -> None:
    assert read_delay_ms({"x-delay": value}) == delay


def test_no_header_is_no_delay() -> None:
    assert read_delay_ms({}) == 0


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "no-such"}, {"x-delayed-type": 5}])
def test_the_type_must_be_one_of_the_others(broker: Broker, arguments: FieldTable) -> None:
    with pytest.raises(
        PreconditionFailedError, match="existing exchange type: direct, fanout, headers"
    ):
        broker.vhosts["/"].declare_exchange("x", "x-delayed-message", arguments=arguments)


def test_the_type_cannot_be_its_own(broker: Broker) -> None:
    with pytest.raises(PreconditionFailedError, match="can't be used"):
        delayed(broker, kind="x-delayed-message")


def test_a_second_declaration_finds_it(broker: Broker) -> None:
    assert delayed(broker) is delayed(broker)
    with pytest.raises(PreconditionFailedError, match="inequivalent arg 'durable'"):
        delayed(broker, durable=True)


def test_a_vhost_by_itself_delays_nothing() -> None:
    vhost: Vhost[Queue] = Vhost("/")
    arguments: FieldTable = {"x-delayed-type": "fanout"}
    exchange = vhost.declare_exchange("x", "x-delayed-message", arguments=arguments)
    assert run_to_completion(find_queues(vhost, exchange, "", {"x-delay": 5})) == []
    vhost.delete_exchange("x")


# ── when it comes ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_comes_when_it_is_due(broker: Broker) -> None:
    exchange = delayed(broker)
    queue = bound(broker)
    publish(broker, b"x", 100, now=1_000)
    assert (held(exchange), broker.deadline()) == (1, 1_100)
    broker.tick(1_099)
    assert queue.ready == 0
    broker.tick(1_100)
    assert messages(queue) == [(b"x", {"x-delay": -100})]
    assert (held(exchange), broker.deadline()) == (0, None)


@pytest.mark.parametrize("delay", [None, 0, -5, "soon"])
def test_without_a_delay_it_comes_at_once_and_as_it_was(broker: Broker, delay: Any) -> None:
    delayed(broker)
    queue = bound(broker)
    publish(broker, b"x", delay)
    assert messages(queue) == [(b"x", {} if delay is None else {"x-delay": delay})]


def test_they_come_in_the_order_in_which_they_are_due(broker: Broker) -> None:
    delayed(broker)
    queue = bound(broker)
    delays = [500, 100, 300, 200, 100, 400]
    for i, delay in enumerate(delays):
        publish(broker, b"%d" % i, delay)
    for now in (100, 200, 500):
        broker.tick(now)
    assert bodies(queue) == [b"1", b"4", b"3", b"2", b"5", b"0"]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 100)), max_size=30),
    st.lists(st.integers(0, 200), max_size=6),
)
def test_never_early_and_all_in_order(wanted: list[tuple[int, int]], looks: list[int]) -> None:
    broker = new_broker()
    delayed(broker)
    queue = bound(broker)
    wanted = sorted(wanted, key=itemgetter(0))
    due = [now + delay for now, delay in wanted]
    got: list[int] = []
    for now in sorted({*looks, *(now for now, _ in wanted), 1_000}):
        broker.tick(now)
        for i, (at, delay) in enumerate(wanted):
            if at == now:
                publish(broker, b"%d" % i, delay, now)
        got += map(int, bodies(queue, now))
        assert sorted(got) == [i for i in range(len(due)) if due[i] <= now and wanted[i][0] <= now]
    assert got == sorted(got, key=lambda i: (due[i], i))


def test_many_due_at_once_leave_in_turns_and_in_order(broker: Broker) -> None:
    exchange = delayed(broker)
    queue = bound(broker)
    channel = open_channel(broker)
    wanted = [b"%04d" % i for i in range(1000)]
    properties = Properties(headers={"x-delay": 10})
    rest: Published | None = published("key", *wanted, exchange="later", properties=properties)
    while rest is not None:
        rest, _ = channel.publisher.publish(rest, 0)
    broker.tick(10)
    assert 0 < queue.ready < 1000
    assert held(exchange) == 1000 - queue.ready
    now = 10
    while held(exchange):
        assert broker.deadline() == now + 1
        now += 1
        broker.tick(now)
    assert bodies(queue) == wanted


def test_what_comes_after_some_have_left_is_not_lost(broker: Broker) -> None:
    """Like messages are held as one run, and a part of it may be released already."""
    delayed(broker)
    queue = bound(broker)
    for now in (0, 0, 10, 10):
        publish(broker, b"%d" % now, 10, now)
        broker.tick(now)
    broker.tick(20)
    assert bodies(queue) == [b"0", b"0", b"10", b"10"]


def test_those_alike_are_held_together(broker: Broker) -> None:
    exchange = delayed(broker)
    channel = open_channel(broker)
    properties = Properties(headers={"x-delay": 9})
    event = published("key", *[b"x"] * 500, exchange="later", properties=properties)
    channel.publisher.publish(event, 0)
    assert isinstance(exchange.delayed_queue, DelayedQueue)
    assert len(exchange.delayed_queue._heap) == 1


def test_a_message_lives_from_when_it_comes(broker: Broker) -> None:
    delayed(broker)
    queue = bound(broker)
    publish(broker, b"x", 100, expiration="50")
    broker.tick(120)
    broker.tick(169)
    assert queue.ready == 1
    broker.tick(170)
    assert queue.ready == 0


def test_a_header_that_just_fitted_still_comes(broker: Broker) -> None:
    delayed(broker)
    queue = bound(broker)
    peer = Peer(FRAME_MIN_BYTES)
    headers: FieldTable = {"x-delay": UInt8(5), "a": "x" * (FRAME_MIN_BYTES - 46)}
    run = run_of([b"x"], Properties(headers=headers), frame_max=FRAME_MIN_BYTES)
    assert FRAME_MIN_BYTES - 8 < len(extract_properties(run.payloads[0])) + 20 <= FRAME_MIN_BYTES
    event = published("key", b"x", exchange="later", properties=Properties(headers=headers))
    open_channel(broker, peer).publisher.publish(event, 0)
    broker.tick(5)
    ((body, after),) = messages(queue)
    assert (body, after["x-delay"]) == (b"x", -5)


# ── where it goes ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_bindings_of_then_decide(broker: Broker) -> None:
    delayed(broker)
    before = bound(broker, "before")
    publish(broker, b"x", 10)
    after = bound(broker, "after")
    broker.vhosts["/"].unbind_queue("before", "later", "key")
    broker.tick(10)
    assert (before.ready, after.ready) == (0, 1)


@pytest.mark.parametrize(
    ("kind", "binding", "arguments", "key"),
    [
        ("direct", "a.b", {}, "a.b"),
        ("fanout", "", {}, "a.b"),
        ("topic", "a.*", {}, "a.b"),
        ("regex", "a[.]b|c", {}, "a.b"),
        ("headers", "", {"colour": "red"}, "a.b"),
    ],
)
@pytest.mark.parametrize("delay", [0, 10])
def test_it_routes_like_the_other_type(
    broker: Broker, kind: str, binding: str, arguments: FieldTable, key: str, delay: int
) -> None:
    delayed(broker, kind=kind)
    queue, other = new_queue(broker), new_queue(broker, "other")
    broker.vhosts["/"].bind_queue("q", "later", binding, arguments)
    if kind != "fanout":
        broker.vhosts["/"].bind_queue("other", "later", "elsewhere", {"colour": "blue"})
    publish(broker, b"x", delay, key=key, headers={"colour": "red"})
    broker.tick(10)
    assert (queue.ready, other.ready) == (1, 0)


def test_through_other_exchanges_and_not_held_twice(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    delayed(broker)
    second = delayed(broker, "second", "fanout")
    vhost.declare_exchange("first", "fanout")
    vhost.bind_exchange("later", "first", "")
    vhost.bind_exchange("second", "later", "key")
    queue, direct = bound(broker, exchange="second"), bound(broker, "direct", "first")
    event = published("key", b"x", exchange="first", properties=Properties(headers={"x-delay": 10}))
    open_channel(broker).publisher.publish(event, 0)
    assert messages(direct) == [(b"x", {"x-delay": 10})]
    broker.tick(10)
    assert held(second) == 0
    assert messages(queue) == [(b"x", {"x-delay": -10})]


def test_what_matches_nothing_by_then_goes_to_the_alternate_or_nowhere(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange(
        "later",
        "x-delayed-message",
        arguments={"x-delayed-type": "direct", "alternate-exchange": "amq.fanout"},
    )
    publish(broker, b"lost", 10)
    broker.tick(10)
    rest = bound(broker, "rest", "amq.fanout")
    publish(broker, b"x", 10, now=10)
    assert rest.ready == 0
    broker.tick(20)
    assert bodies(rest) == [b"x"]


def test_copies_go_along(broker: Broker) -> None:
    delayed(broker)
    queue, copy = bound(broker), bound(broker, "copy", key="copy")
    publish(broker, b"x", 10, headers={"CC": ["copy"]})
    broker.tick(10)
    assert (queue.ready, copy.ready) == (1, 1)


def test_dead_letters_are_held_too(broker: Broker) -> None:
    exchange = delayed(broker)
    queue = bound(broker)
    dying = new_queue(broker, "dying", dead_letter_exchange="later")
    dying.reject([run_of([b"1", b"2"], Properties(headers={"x-delay": 10}))], 0)
    assert held(exchange) == 2
    broker.tick(10)
    assert bodies(queue) == [b"1", b"2"]


def test_a_mandatory_message_that_is_held_is_not_returned(broker: Broker) -> None:
    delayed(broker)
    peer = Peer()
    channel = open_channel(broker, peer)
    for delay in (10, 0):
        properties = Properties(headers={"x-delay": delay})
        event = published("key", b"x", exchange="later", mandatory=True, properties=properties)
        channel.publisher.publish(event, 0)
    (returned,) = peer.received()
    assert isinstance(returned, ContentReceived)
    assert isinstance(returned.method, BasicReturn)
    assert (decode_properties(extract_properties(returned.content)).headers or {})["x-delay"] == 0


def test_it_goes_with_its_exchange(broker: Broker) -> None:
    exchange = delayed(broker)
    queue = bound(broker)
    publish(broker, b"x", 10)
    broker.vhosts["/"].delete_exchange("later")
    assert held(exchange) == 0
    delayed(broker)
    broker.vhosts["/"].bind_queue("q", "later", "key")
    broker.tick(10)
    assert queue.ready == 0


def test_an_auto_delete_exchange_takes_it_along(broker: Broker) -> None:
    exchange = delayed(broker, auto_delete=True)
    queue = bound(broker)
    publish(broker, b"x", 10)
    broker.delete_queue(queue, 0)
    assert held(exchange) == 0
    broker.tick(10)
    assert broker.deadline() is None


def test_nobody_can_reach_what_is_held(broker: Broker) -> None:
    exchange = delayed(broker)
    assert exchange.delayed_queue is not None
    assert broker.vhosts["/"].queues == {}
    event = published(exchange.delayed_queue.name, b"x", mandatory=True)
    open_channel(broker).publisher.publish(event, 0)
    assert held(exchange) == 0


# ── what is kept ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def diary() -> RecordingStore:
    return RecordingStore()


@pytest.fixture
def kept(diary: RecordingStore) -> Broker:
    broker = Broker(iter("abc").__next__, store=diary)
    broker.add_user(new_broker().users["guest"])
    return broker


def test_it_is_in_its_queue_before_it_is_settled(kept: Broker, diary: RecordingStore) -> None:
    delayed(kept, durable=True)
    bound(kept)
    publish(kept, b"x", 10, delivery_mode=2)
    kept.tick(10)
    assert diary.log == [
        "amq.delayed.later declared",
        "later declared",
        "q declared",
        "amq.delayed.later entered 0",
        "q entered 0",
        "amq.delayed.later settled 0",
    ]


@pytest.mark.parametrize(("durable", "mode"), [(False, 2), (True, 1), (True, None)])
def test_what_need_not_last_is_not_kept(
    kept: Broker, diary: RecordingStore, durable: bool, mode: int | None
) -> None:
    delayed(kept, durable=durable)
    publish(kept, b"x", 10, delivery_mode=mode)
    kept.tick(10)
    assert not [told for told in diary.log if "entered" in told or "settled" in told]


def test_it_is_confirmed_once_it_is_safe(kept: Broker, diary: RecordingStore) -> None:
    delayed(kept, durable=True)
    peer = Peer()
    publisher = open_channel(kept, peer).publisher
    publisher.confirms_enabled = True
    properties = Properties(headers={"x-delay": 10}, delivery_mode=2)
    publisher.publish(published("key", b"x", exchange="later", properties=properties), 0)
    publisher.send_confirms()
    assert peer.received() == []
    diary.durable_lsn = diary.lsn
    publisher.on_durable()
    assert peer.received() == [Acked(1, 1, 1)]


def test_after_a_restart_it_comes_when_it_was_due(kept: Broker, diary: RecordingStore) -> None:
    delayed(kept, durable=True)
    for i, delay in enumerate((300, 100, 200, 100)):
        publish(kept, b"%d" % i, delay, delivery_mode=2)
    kept.tick(100)
    held_then = len(diary.live)
    again = Broker(iter("abc").__next__, store=diary)
    delayed_queue = delayed(again, durable=True).delayed_queue
    assert delayed_queue is not None
    delayed_queue.restore(4, {0: held_then}, 150, has_ttl=True)
    delayed_queue.finish_restore(150)
    again.add_user(kept.users["guest"])
    queue = bound(again)
    publish(again, b"new", 60, now=150, delivery_mode=2)
    again.tick(199)
    assert queue.ready == 0
    again.tick(300)
    assert bodies(queue) == [b"2", b"new", b"0"]
    assert diary.live == {}


def test_nothing_held_is_nothing_to_restore(kept: Broker) -> None:
    delayed_queue = delayed(kept, durable=True).delayed_queue
    assert delayed_queue is not None
    delayed_queue.restore(7, {}, 0, has_ttl=False)
    delayed_queue.finish_restore(0)
    assert kept.deadline() is None


def test_it_is_forgotten_with_its_exchange(kept: Broker, diary: RecordingStore) -> None:
    delayed(kept, durable=True)
    kept.vhosts["/"].delete_exchange("later")
    assert diary.log[-2:] == ["later deleted", "amq.delayed.later deleted"]


def test_policies_for_queues_do_not_concern_it(broker: Broker) -> None:
    broker.set_policies("/", [Policy(name="all", pattern="", definition={"expires": 5})], 0)
    exchange = delayed(broker)
    publish(broker, b"x", 10)
    broker.tick(5)
    assert held(exchange) == 1
