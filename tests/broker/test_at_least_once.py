"""At-least-once dead letters: they wait, are retried, and are settled after that."""

from typing import Any

import msgspec
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.frames import extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import FieldTable, Timestamp
from recado.broker import at_least_once
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.channel import Settlement
from recado.broker.policy import Policy
from recado.broker.queue import Queue
from recado.broker.store import MessageStore

from .at_least_once_queues import (
    PERSISTENT,
    let_pass,
    parsed,
    reject,
    source,
    take,
    take_all,
    target,
)
from .stage import Peer, consume, new_broker, new_queue, open_channel, run_of
from .stores import PagingStore, RecordingStore


@pytest.fixture
def store() -> PagingStore:
    return PagingStore(page_out_bytes=1 << 30)


@pytest.fixture
def broker(store: PagingStore) -> Broker:
    return keeping(store)


def keeping(store: MessageStore) -> Broker:
    broker = Broker(iter("abc").__next__, store=store)
    broker.add_user(new_broker().users["guest"])
    return broker


# ── what it takes ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "otherwise",
    [
        {"dead_letter_strategy": "at-most-once"},
        {"queue_type": "classic"},
        {"overflow": "drop-head"},
        {"dead_letter_exchange": None},
    ],
)
def test_it_takes_a_quorum_queue_that_refuses_and_has_an_exchange(
    broker: Broker, otherwise: dict[str, Any]
) -> None:
    queue = source(broker, **otherwise)
    assert not queue.settings.is_at_least_once
    reject(queue, b"x")
    assert (queue.held_dead_letters, broker.deadline()) == (0, None)


def test_a_client_asks_for_it_by_arguments() -> None:
    arguments: FieldTable = {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once"}
    assert not parsed("q", arguments).is_at_least_once
    arguments |= {"x-overflow": "reject-publish", "x-dead-letter-exchange": ""}
    assert parsed("q", arguments).is_at_least_once


def test_a_dead_letter_that_is_taken_at_once_waits_for_nothing(
    broker: Broker, store: PagingStore
) -> None:
    dead = target(broker)
    queue = source(broker)
    reject(queue, b"1", b"2")
    assert (queue.held_dead_letters, queue.held_dead_letter_bytes, broker.deadline()) == (
        0,
        0,
        None,
    )
    assert take_all(dead) == [b"1", b"2"]
    assert not store.live[queue]


# ── what is kept before what is settled ───────────────────────────────────────────────────────────────────


class Ordered(PagingStore):
    """Records the order in which messages were stored and settled."""

    def __init__(self) -> None:
        super().__init__(page_out_bytes=1 << 30)
        self.told: list[tuple[str, str]] = []

    def append_run(self, queue: Queue, run: Any) -> None:
        super().append_run(queue, run)
        self.told.append((queue.name, "entered"))

    def settle(self, queue: Queue, first_position: int, count: int, stride: int) -> None:
        super().settle(queue, first_position, count, stride)
        self.told.append((queue.name, "settled"))


@pytest.mark.parametrize("strategy", ["at-most-once", "at-least-once"])
@pytest.mark.parametrize("death", ["expired", "rejected", "maxlen"])
def test_a_dead_letter_is_kept_before_its_original_is_settled(strategy: str, death: str) -> None:
    """MS2, for every reason of death."""
    store = Ordered()
    broker = keeping(store)
    target(broker)
    more: dict[str, Any] = {"dead_letter_strategy": strategy}
    if death == "expired":
        more["message_ttl_ms"] = 5
    elif death == "maxlen":
        more |= {"max_length": 0, "overflow": "drop-head"}
    queue = source(broker, **more)
    queue.publish(run_of([b"x"], PERSISTENT), 0)
    if death == "rejected":
        run = queue.get(0)
        assert run is not None
        queue.reject([run], 0)
    broker.tick(5)
    assert store.told == [("source", "entered"), ("dead", "entered"), ("source", "settled")]


# ── waiting ───────────────────────────────────────────────────────────────────────────────────────────────


def test_it_waits_while_its_receiver_is_full(broker: Broker, store: PagingStore) -> None:
    dead = target(broker, max_length=1)
    queue = source(broker)
    reject(queue, b"1", b"2", b"3")
    assert (queue.held_dead_letters, queue.held_dead_letter_bytes) == (2, 2)
    assert len(store.live[queue]) == 2
    now = let_pass(broker, 0, pauses=100)
    assert (dead.ready, queue.held_dead_letters) == (1, 2)
    assert take(dead) == b"1"
    now = let_pass(broker, now)
    assert take(dead) == b"2"
    let_pass(broker, now)
    assert take_all(dead) == [b"3"]
    assert (queue.held_dead_letters, queue.held_dead_letter_bytes) == (0, 0)
    assert not store.live[queue]
    let_pass(broker, now, pauses=2)
    assert broker.deadline() is None


def test_it_waits_for_room_in_bytes(broker: Broker) -> None:
    dead = target(broker, max_length_bytes=10)
    queue = source(broker)
    reject(queue, b"x" * 8, b"y" * 8)
    let_pass(broker, 0)
    assert take_all(dead) == [b"x" * 8]
    let_pass(broker, 100)
    assert take_all(dead) == [b"y" * 8]


def test_it_waits_for_a_route(broker: Broker) -> None:
    queue = source(broker)
    reject(queue, b"x")
    now = let_pass(broker, 0, pauses=10)
    assert queue.held_dead_letters == 1
    dead = target(broker)
    let_pass(broker, now)
    assert take_all(dead) == [b"x"]


def test_it_waits_for_an_exchange(broker: Broker) -> None:
    dead = target(broker)
    queue = source(broker, dead_letter_exchange="not yet")
    reject(queue, b"x")
    now = let_pass(broker, 0)
    assert queue.held_dead_letters == 1
    broker.vhosts["/"].declare_exchange("not yet", "fanout")
    broker.vhosts["/"].bind_queue("dead", "not yet", "")
    let_pass(broker, now)
    assert take_all(dead) == [b"x"]


def test_it_tells_of_the_time_when_it_died(broker: Broker) -> None:
    queue = source(broker)
    reject(queue, b"x", now=5_000)
    dead = target(broker)
    broker.tick(90_000)
    run = dead.get(90_000)
    assert run is not None
    headers = decode_properties(extract_properties(run.contents()[0])).headers or {}
    assert isinstance(headers["x-death"], list)
    assert isinstance(headers["x-death"][0], dict)
    assert headers["x-death"][0]["time"] == Timestamp(5)


def test_only_those_who_refused_it_are_asked_again(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    ample, full = target(broker, "ample"), target(broker, "full", max_length=0)
    for name in ("ample", "full"):
        vhost.bind_queue(name, "amq.fanout", "")
    queue = source(broker, dead_letter_exchange="amq.fanout")
    reject(queue, b"x")
    now = let_pass(broker, 0, pauses=3)
    target(broker, "late")
    vhost.bind_queue("late", "amq.fanout", "")
    now = let_pass(broker, now, pauses=3)
    assert (ample.ready, queue.held_dead_letters) == (1, 1)
    assert vhost.queues["late"].ready == 1
    vhost.unbind_queue("full", "amq.fanout", "")
    let_pass(broker, now, pauses=3)
    assert (ample.ready, full.ready, queue.held_dead_letters) == (1, 0, 0)


def test_with_one_receiver_left_that_took_it_a_missing_route_is_no_reason_to_wait(
    broker: Broker,
) -> None:
    vhost = broker.vhosts["/"]
    ample = target(broker, "ample")
    target(broker, "full", max_length=0)
    for name in ("ample", "full"):
        vhost.bind_queue(name, "amq.fanout", "")
    queue = source(broker, dead_letter_exchange="amq.fanout")
    reject(queue, b"x")
    for name in ("ample", "full"):
        vhost.unbind_queue(name, "amq.fanout", "")
    let_pass(broker, 0)
    assert (ample.ready, queue.held_dead_letters) == (1, 0)


def test_what_a_receiver_refuses_to_its_own_dead_letters_is_taken(broker: Broker) -> None:
    end = target(broker, "end")
    target(
        broker,
        max_length=0,
        overflow="reject-publish-dlx",
        dead_letter_exchange="",
        dead_letter_routing_key="end",
    )
    queue = source(broker)
    reject(queue, b"x")
    let_pass(broker, 0, pauses=3)
    assert (end.ready, queue.held_dead_letters) == (1, 0)


def test_what_goes_in_circles_is_dropped(broker: Broker) -> None:
    queue = source(broker, dead_letter_routing_key="source", message_ttl_ms=5)
    queue.publish(run_of([b"x"], PERSISTENT), 0)
    broker.tick(5)
    assert (queue.ready, queue.held_dead_letters) == (0, 0)


def test_a_dead_letter_whose_header_no_longer_fits_is_let_go(broker: Broker) -> None:
    target(broker)
    queue = source(broker)
    run = run_of([b"x"], Properties(headers={"a": "x" * 4000}), frame_max=4096)
    queue.reject([run], 0)
    assert queue.held_dead_letters == 0


def test_others_get_their_dead_letters_meanwhile(broker: Broker) -> None:
    """One full target does not delay other targets, unless very many dead letters wait for it."""
    target(broker, "full", max_length=0)
    ample = target(broker, "ample")
    queue = source(broker, dead_letter_exchange="amq.headers", dead_letter_routing_key=None)
    for name in ("full", "ample"):
        broker.vhosts["/"].bind_queue(name, "amq.headers", "", {"to": name})
    for i in range(at_least_once.OFFERED_DEAD_LETTERS_MAX + 2):
        to = "ample" if i in (0, 5, at_least_once.OFFERED_DEAD_LETTERS_MAX + 1) else "full"
        run = run_of([b"%d" % i], Properties(headers={"to": to}))
        queue.reject([run], 0)
    assert take_all(ample) == [b"0", b"5", b"%d" % (at_least_once.OFFERED_DEAD_LETTERS_MAX + 1)]
    run = run_of([b"late"], Properties(headers={"to": "full"}))
    queue.reject([run, run_of([b"last"], Properties(headers={"to": "ample"}))], 0)
    queue.reject([run_of([b"%d" % i], Properties(headers={"to": "full"})) for i in range(9)], 0)
    let_pass(broker, 0)
    assert take_all(ample) == []
    broker.vhosts["/"].unbind_queue("full", "amq.headers", "", {"to": "full"})
    broker.vhosts["/"].bind_queue("ample", "amq.headers", "", {"to": "full"})
    let_pass(broker, 100)
    assert queue.held_dead_letters == 0
    assert b"last" in take_all(ample)


def test_a_new_dead_letter_does_not_overtake_one_with_hope(broker: Broker) -> None:
    dead = target(broker, max_length=1)
    queue = source(broker)
    reject(queue, b"1", b"2")
    assert take(dead) == b"1"
    reject(queue, b"3")
    assert take(dead) == b"2"
    let_pass(broker, 0)
    assert take(dead) == b"3"


# ── many ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_dead_letters_count_for_the_limit_of_their_queue(broker: Broker) -> None:
    queue = source(broker, max_length=3, max_length_bytes=5)
    reject(queue, b"1", b"2")
    assert list(queue.publish(run_of([b"3", b"4"]), 0)) == [1]
    assert take(queue) == b"3"
    assert list(queue.publish(run_of([b"long"]), 0)) == [0]


def test_a_queue_with_too_many_stalls_until_half_are_gone(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_least_once, "HELD_DEAD_LETTERS_MAX", 4)
    queue = source(broker)
    peer = Peer()
    channel = open_channel(broker, peer)
    consume(channel, queue, prefetch=1)
    queue.publish(run_of([b"%d" % i for i in range(8)], PERSISTENT), 0)
    seen = []
    while got := peer.delivered():
        ((method, body),) = got
        seen.append(body)
        channel.settle(Settlement.REJECT, method.delivery_tag, 0, multiple=False)
    assert seen == [b"0", b"1", b"2", b"3"]
    assert (queue.held_dead_letters, queue.ready, queue.stalled) == (4, 4, True)
    assert queue.get(0) is None
    queue.publish(run_of([b"8"], PERSISTENT), 0)
    assert peer.delivered() == []
    target(broker)
    let_pass(broker, 0)
    assert not queue.stalled
    assert peer.bodies() == [b"4"]


def test_bytes_stall_it_too(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_least_once, "HELD_BYTES_MAX", 10)
    queue = source(broker)
    states = []
    for _ in range(2):
        reject(queue, b"x" * 5)
        states.append(queue.stalled)
    dead = target(broker, max_length=1)
    now = let_pass(broker, 0)
    states.append(queue.stalled)
    assert states == [False, True, False]
    take(dead)
    let_pass(broker, now)
    assert queue.held_dead_letters == 0


def test_what_has_expired_in_a_stalled_queue_stays_in_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_least_once, "HELD_DEAD_LETTERS_MAX", 2)
    queue = source(broker, message_ttl_ms=5)
    for i in range(5):
        queue.publish(run_of([b"%d" % i], Properties(delivery_mode=2, message_id=str(i))), i)
    broker.tick(100)
    assert (queue.held_dead_letters, queue.ready) == (2, 3)
    assert queue.get(100) is None
    consume(open_channel(broker), queue, now=100)
    assert queue.unacked == 0
    dead = target(broker)
    let_pass(broker, 100)
    assert (queue.held_dead_letters, queue.ready) == (0, 0)
    assert take_all(dead) == [b"%d" % i for i in range(5)]


def test_it_stalls_while_it_deals(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Expired messages are found when the next message is requested."""
    monkeypatch.setattr(at_least_once, "HELD_DEAD_LETTERS_MAX", 2)
    queue = source(broker, message_ttl_ms=5)
    for i in range(3):
        queue.publish(run_of([b"%d" % i], Properties(delivery_mode=2, message_id=str(i))), i)
    assert queue.get(100) is None
    assert (queue.held_dead_letters, queue.ready) == (2, 1)


def test_many_are_tried_in_turns_and_come_in_order(broker: Broker) -> None:
    dead = target(broker)
    queue = source(broker, message_ttl_ms=5)
    wanted = [b"%04d" % i for i in range(1000)]
    queue.publish(run_of(wanted, PERSISTENT), 0)
    broker.tick(5)
    assert 0 < dead.ready < 1000
    assert broker.deadline() == 0
    while broker.deadline() == 0:
        broker.tick(5)
    assert take_all(dead) == wanted


def test_queues_take_turns(broker: Broker) -> None:
    dead = target(broker)
    queues = [source(broker, name, message_ttl_ms=5) for name in ("a", "b")]
    for queue in queues:
        queue.publish(run_of([queue.name.encode()] * 1000, PERSISTENT), 0)
    broker.tick(5)
    take_all(dead, 5)
    broker.tick(6)
    arrived = take_all(dead, 6)
    assert abs(arrived.count(b"a") - arrived.count(b"b")) <= 1


def test_what_cannot_go_is_not_even_written(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = source(broker)
    reject(queue, *[b"x"] * 100)
    now = let_pass(broker, 0)
    monkeypatch.setattr(at_least_once.QueueDeadLetters, "pop_next", None)
    let_pass(broker, now, pauses=10)
    assert queue.held_dead_letters == 100


def test_a_look_is_at_some_queues_and_the_next_at_others(broker: Broker) -> None:
    count = at_least_once._QUEUES_PER_RETRY + 10
    queues = [source(broker, f"q{i}") for i in range(count)]
    for queue in queues:
        reject(queue, b"x")
    broker.tick(0)
    dead = target(broker)
    now = let_pass(broker, 0)
    assert dead.ready == at_least_once._QUEUES_PER_RETRY
    let_pass(broker, now)
    assert dead.ready == count


# ── the ends of it ────────────────────────────────────────────────────────────────────────────────────────


def test_dead_letters_go_with_their_queue(broker: Broker, store: PagingStore) -> None:
    queue, other = source(broker), source(broker, "other")
    reject(queue, *[b"x"] * 100)
    reject(other, b"y")
    with pytest.raises(PreconditionFailedError, match="not empty"):
        broker.delete_queue(queue, 0, if_empty=True)
    broker.delete_queue(queue, 0)
    dead = target(broker)
    let_pass(broker, 0)
    let_pass(broker, 100)
    assert take_all(dead) == [b"y"]
    let_pass(broker, 200)
    assert broker.deadline() is None


def test_purging_is_for_what_lives(broker: Broker) -> None:
    queue = source(broker)
    reject(queue, b"x")
    queue.publish(run_of([b"y"], PERSISTENT), 0)
    assert queue.purge() == 1
    dead = target(broker)
    let_pass(broker, 0)
    assert take_all(dead) == [b"x"]


def test_settings_may_change_while_they_wait(broker: Broker) -> None:
    queue = source(broker)
    reject(queue, b"x")
    elsewhere = target(broker, "elsewhere")
    now = let_pass(broker, 0)
    assert queue.held_dead_letters == 1
    changed = msgspec.structs.replace(queue.settings, dead_letter_routing_key="elsewhere")
    queue.reconfigure(changed, now)
    let_pass(broker, now)
    assert (elsewhere.ready, queue.held_dead_letters) == (1, 0)


def test_without_an_exchange_any_more_they_are_dropped(broker: Broker) -> None:
    definition: dict[str, Any] = {
        "dead-letter-exchange": "",
        "dead-letter-strategy": "at-least-once",
        "overflow": "reject-publish",
    }
    policy = Policy(name="p", pattern="^source$", definition=definition, apply_to="queues")
    broker.set_policies("/", [policy], 0)
    queue = new_queue(broker, "source", durable=True, queue_type="quorum")
    assert queue.settings.is_at_least_once
    reject(queue, b"x")
    assert queue.held_dead_letters == 1
    broker.delete_policy("/", "p", 0)
    let_pass(broker, 0)
    assert queue.held_dead_letters == 0


@pytest.mark.parametrize("ttl", [5, None])
def test_after_a_restart_the_message_is_in_its_queue(ttl: int | None) -> None:
    """An expired message expires again; a rejected one is redelivered."""
    diary = RecordingStore()
    queue = source(keeping(diary), message_ttl_ms=ttl)
    if ttl is None:
        reject(queue, b"x")
    else:
        queue.publish(run_of([b"x"], PERSISTENT), 0)
        queue.on_timer(5)
    assert queue.held_dead_letters == 1
    after = keeping(diary)
    dead, queue = target(after), source(after, message_ttl_ms=ttl)
    queue.restore(1, {0: 1}, 10, has_ttl=ttl is not None)
    queue.finish_restore(10)
    after.tick(10)
    assert (queue.ready, dead.ready) == ((1, 0) if ttl is None else (0, 1))


class AtLeastOnceMachine(RuleBasedStateMachine):
    """Whatever happens to its targets, each dead message is in its target once, or waiting."""

    @initialize(room=st.integers(0, 3))
    def begin(self, room: int) -> None:
        self.store = PagingStore(page_out_bytes=1 << 30)
        self.broker = keeping(self.store)
        self.vhost = self.broker.vhosts["/"]
        self.queue = source(
            self.broker, dead_letter_exchange="amq.fanout", dead_letter_routing_key=None
        )
        self.receivers = [target(self.broker, name, max_length=room) for name in "ab"]
        self.bound: set[str] = set()
        self.got: dict[str, list[int]] = {"a": [], "b": []}
        self.now = 0
        self.count = 0

    @rule(count=st.integers(1, 5))
    def die(self, count: int) -> None:
        reject(self.queue, *(b"%d" % (self.count + i) for i in range(count)), now=self.now)
        self.count += count

    @rule(name=st.sampled_from("ab"))
    def bind(self, name: str) -> None:
        self.vhost.bind_queue(name, "amq.fanout", "")
        self.bound.add(name)

    @rule(name=st.sampled_from("ab"))
    def unbind(self, name: str) -> None:
        self.vhost.unbind_queue(name, "amq.fanout", "")
        self.bound.discard(name)

    @rule(at=st.integers(0, 1))
    def empty(self, at: int) -> None:
        queue = self.receivers[at]
        self.got[queue.name] += map(int, take_all(queue, self.now))

    @rule(pauses=st.integers(1, 3))
    def wait(self, pauses: int) -> None:
        self.now = let_pass(self.broker, self.now, pauses)

    @invariant()
    def what_waits_is_kept(self) -> None:
        assert len(self.store.live[self.queue]) == self.queue.held_dead_letters
        assert self.queue.held_dead_letter_bytes >= self.queue.held_dead_letters

    def teardown(self) -> None:
        """When all targets have space, each message has been delivered, and none twice."""
        if not hasattr(self, "queue"):
            return
        self.bind("a")
        for receiver in self.receivers:
            receiver.reconfigure(QueueSettings(durable=True), self.now)
        for at in (0, 1):
            self.wait(3)
            self.empty(at)
        assert self.queue.held_dead_letters == 0
        assert {*self.got["a"], *self.got["b"]} == set(range(self.count))
        for numbers in self.got.values():
            assert len(numbers) == len(set(numbers))
            assert numbers == sorted(numbers)


TestAtLeastOnceMachine = AtLeastOnceMachine.TestCase
TestAtLeastOnceMachine.settings = hypothesis_settings(max_examples=60, stateful_step_count=30)
