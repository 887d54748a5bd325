"""Alteration: a queue gets other settings, and keeps its messages, bindings and consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from recado.amqp.errors import (
    AccessRefusedError,
    NotFoundError,
    PreconditionFailedError,
)
from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.amqp.traits import MessageTraits
from recado.amqp.values import FieldTable, Int64
from recado.broker.access import Permission, User
from recado.broker.alteration import (
    AlteredSettings,
    SettingChange,
    alter,
    compare_settings,
    plan_alteration,
)
from recado.broker.arguments import QueueSettings, parse_queue_arguments
from recado.broker.channel import Channel, Settlement
from recado.broker.declarations import declare_queue
from recado.broker.errors import InvalidAlterationError
from recado.broker.exchange import Exchange
from recado.broker.policy import Policy
from recado.broker.priority_bucket import ReadLimits
from recado.broker.queue import Queue
from recado.broker.ready_messages import ReadyMessages
from recado.broker.routing import VhostAccess
from recado.broker.run import Run
from recado.broker.steps import STEP_UNITS_MAX, Steps, run_to_completion
from recado.broker.store import MessageStore
from recado.broker.stream import Stream
from recado.broker.work_queue import WorkQueue

from .stage import Peer, consume, new_broker, open_channel, published, run_of
from .stores import PagingStore

PERSISTENT = Properties(delivery_mode=2)


class Stage:
    """A queue `q`, declared like this."""

    def __init__(
        self, store: MessageStore | None = None, *, durable: bool = True, **arguments: object
    ) -> None:
        self.broker = new_broker(store)
        self.vhost = self.broker.vhosts["/"]
        self.channel = open_channel(self.broker)
        self.queue = self.declare(durable=durable, **arguments)

    @property
    def access(self) -> VhostAccess:
        return self.channel.access

    def declare(self, *, durable: bool = True, **arguments: object) -> Queue:
        return declare_queue(
            self.broker,
            self.access,
            "q",
            durable=durable,
            arguments=table(**arguments),
            connection=None,
            now=0,
        )

    def alter(self, now: int = 0, **altered: Any) -> dict[str, SettingChange]:
        if "arguments" in altered:
            altered["arguments"] = table(**altered["arguments"])
        settings = plan_alteration(self.access, self.queue, AlteredSettings(**altered))
        changes = compare_settings(self.queue.declared_settings, settings)
        self.broker.background.begin_turn(now)
        run_to_completion(alter(self.broker, self.queue, settings))
        self.broker.check()
        assert not self.queue.is_altering
        return changes

    def publish(self, *bodies: bytes, now: int = 0, **properties: Any) -> None:
        wanted = Properties(**{"delivery_mode": 2, **properties})
        for body in bodies:
            self.channel.publisher.publish(published("q", body, properties=wanted), now)

    def consume(self, tag: str = "c", number: int = 2, **options: Any) -> tuple[Peer, Channel]:
        peer = Peer()
        channel = open_channel(self.broker, peer, number)
        consume(channel, self.queue, tag, **options)
        return peer, channel

    def bodies(self, now: int = 0) -> list[bytes]:
        found = iter(lambda: self.queue.get(now), None)
        return [extract_body(content) for run in found for content in run.contents()]


def table(**arguments: object) -> FieldTable:
    return {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}  # type: ignore[misc]


@pytest.fixture(params=["memory", "disk", "paged out"])
def store(request: pytest.FixtureRequest) -> MessageStore:
    if request.param == "memory":
        return MessageStore()
    return PagingStore(0 if request.param == "paged out" else 1 << 30)


# ── what stays ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("durable", "old", "altered"),
    [
        (True, {}, {"queue_type": "quorum"}),
        (True, {"queue_type": "quorum"}, {"queue_type": "classic"}),
        (False, {}, {"durable": True}),
        (True, {}, {"durable": False}),
        (False, {}, {"durable": True, "queue_type": "quorum"}),
        (True, {"max_length": 100}, {"arguments": {"message_ttl": 10**9}}),
        (True, {}, {"arguments": {"max_length_bytes": 10**6, "overflow": "reject-publish"}}),
        (True, {}, {"arguments": {"message_deduplication": True}}),
    ],
)
def test_messages_and_deliveries_stay(
    store: MessageStore, durable: bool, old: dict[str, object], altered: dict[str, Any]
) -> None:
    stage = Stage(store, durable=durable, **old)
    stage.vhost.bind_queue("q", "amq.topic", "a.#")
    stage.publish(*(b"%d" % i for i in range(10)))
    stage.publish(b"transient", delivery_mode=1)
    peer, channel = stage.consume(prefetch=3)
    assert peer.delivered()[0][1] == b"0"
    (consumer,) = stage.queue.consumers
    assert stage.alter(**altered)
    assert list(stage.queue.consumers) == [consumer]
    assert (consumer.in_flight, stage.queue.unacked, stage.queue.ready) == (3, 3, 8)
    assert [each.source for each in stage.vhost.bindings_to(stage.queue)] == ["amq.topic"]
    stage.publish(b"new")
    channel.settle(Settlement.ACK, 1, 0, multiple=False)
    channel.settle(Settlement.REQUEUE, 3, 0, multiple=False)
    delivered = peer.delivered()
    assert [(body, method.redelivered) for method, body in delivered[:2]] == [
        (b"3", False),
        (b"2", True),
    ]
    stage.broker.cancel(consumer, 0)
    run_to_completion(channel.close())
    assert stage.bodies() == [*(b"%d" % i for i in range(1, 10)), b"transient", b"new"]
    if isinstance(store, PagingStore) and stage.queue.survives_restart:
        is_quorum = stage.queue.declared_settings.queue_type == "quorum"
        assert store.live[stage.queue] >= {*range(1, 10), *([10] if is_quorum else []), 11}


def test_a_redeclaration_needs_the_new_settings() -> None:
    stage = Stage(max_length=5)
    stage.alter(arguments={"max_length": 7, "message_ttl": 1000})
    assert stage.declare(max_length=7, message_ttl=1000) is stage.queue
    with pytest.raises(PreconditionFailedError, match="inequivalent arg 'x-max-length'"):
        stage.declare(max_length=5, message_ttl=1000)
    stage.alter(durable=False)
    with pytest.raises(PreconditionFailedError, match="inequivalent arg 'durable'"):
        stage.declare(max_length=7, message_ttl=1000)
    assert stage.declare(durable=False, max_length=7, message_ttl=1000) is stage.queue


def test_the_type_in_the_arguments() -> None:
    stage = Stage()
    assert stage.alter(queue_type="classic") == {}
    changes = stage.alter(queue_type="quorum")
    assert changes == {"type": SettingChange("classic", "quorum")}
    assert stage.queue.declared_settings.arguments == {"x-queue-type": "quorum"}
    stage.alter(arguments={"max_length": 3})
    assert stage.queue.declared_settings.queue_type == "quorum"
    assert stage.declare(queue_type="quorum", max_length=3) is stage.queue
    stage.alter(queue_type="classic")
    assert stage.declare(max_length=3) is stage.queue
    stage.alter(arguments={"queue_type": "quorum"})
    assert stage.queue.declared_settings.queue_type == "quorum"
    with pytest.raises(InvalidAlterationError, match="type: 'classic' contradicts"):
        stage.alter(queue_type="classic", arguments={"queue_type": "quorum"})


def test_the_changes() -> None:
    stage = Stage(max_length=5, message_ttl=10)
    changes = stage.alter(auto_delete=True, arguments={"max_length": Int64(5), "expires": 7})
    assert changes == {
        "auto_delete": SettingChange(False, True),
        "x-message-ttl": SettingChange(10, None),
        "x-expires": SettingChange(None, 7),
    }


# ── what follows ────────────────────────────────────────────────────────────────────────────────────


def test_a_lower_limit(store: MessageStore) -> None:
    stage = Stage(store)
    stage.publish(*(b"%d" % i for i in range(10)))
    stage.alter(arguments={"max_length": 8})
    stage.broker.tick(1)
    assert stage.queue.ready == 8
    stage.alter(now=2, arguments={"max_length_bytes": 3})
    for now in range(3, 20):
        stage.broker.tick(now)
    assert stage.bodies(20) == [b"7", b"8", b"9"]


def test_measuring_while_the_queue_is_used(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recado.broker.alteration.SURVEY_LIMITS", ReadLimits(3, 1 << 20, 2))
    stage = Stage(store, max_priority=3)
    for i in range(60):
        stage.publish(b"x" * (i + 1), priority=i % 5)
    _, channel = stage.consume(prefetch=4)
    settings = plan_alteration(
        stage.access,
        stage.queue,
        AlteredSettings(arguments=table(max_priority=3, max_length_bytes=10**6)),
    )
    tag = 0
    for number, _ in enumerate(alter(stage.broker, stage.queue, settings)):
        tag += 1
        settlement = Settlement.REQUEUE if number % 3 else Settlement.ACK
        channel.settle(settlement, tag, 0, multiple=False)
        stage.publish(b"y" * number, priority=number % 4)
        stage.queue.get(0)
    assert tag > 5
    queue = stage.queue
    assert isinstance(queue, WorkQueue)
    measured = queue._ready_bytes
    queue._measure_ready_bytes()
    assert measured == queue._ready_bytes > 0


def test_a_policy_sets_the_limit_while_it_is_measured() -> None:
    stage = Stage()
    stage.publish(*(b"%d" % i for i in range(10)))
    queue = stage.queue
    assert isinstance(queue, WorkQueue)
    altered = AlteredSettings(arguments=table(max_length_bytes=100))
    steps = alter(stage.broker, queue, plan_alteration(stage.access, queue, altered))
    next(steps)
    policy = Policy(name="p", pattern="^q$", definition={"max-length-bytes": 50})
    stage.broker.set_policies("/", [policy], 0)
    run_to_completion(steps)
    assert (queue.settings.max_length_bytes, queue._ready_bytes) == (50, 10)


def test_a_policy_that_measures_the_queue_ends_the_measuring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise each message would count twice for the limit."""
    monkeypatch.setattr("recado.broker.alteration.SURVEY_LIMITS", ReadLimits(1, 1 << 20, 1))
    stage = Stage()
    stage.publish(*(b"%d" % i for i in range(10)))
    queue = stage.queue
    assert isinstance(queue, WorkQueue)
    steps = start(stage, arguments=table(max_length_bytes=100))
    for _ in range(3):
        next(steps)
    policy = Policy(name="p", pattern="^q$", definition={"max-length-bytes": 50})
    stage.broker.set_policies("/", [policy], 0)
    run_to_completion(steps)
    assert (queue.settings.max_length_bytes, queue._ready_bytes) == (50, 10)


def test_policies_are_combined_with_the_new_settings() -> None:
    stage = Stage(max_length=10)
    policy = Policy(name="p", pattern="^q$", definition={"max-length": 5, "message-ttl": 9})
    stage.broker.set_policies("/", [policy], 0)
    stage.alter(arguments={"max_length": 3})
    assert (stage.queue.settings.max_length, stage.queue.settings.message_ttl_ms) == (3, 9)
    stage.alter(arguments={"max_length": 100})
    assert stage.queue.settings.max_length == 5
    stage.broker.delete_policy("/", "p", 0)
    assert stage.queue.settings.max_length == 100
    assert stage.queue.settings.message_ttl_ms is None


def test_messages_keep_their_time_to_live() -> None:
    stage = Stage(message_ttl=10)
    stage.publish(b"old")
    stage.alter(arguments={"message_ttl": 1000})
    stage.publish(b"new")
    stage.broker.tick(11)
    assert stage.bodies(11) == [b"new"]


def test_expiry_of_the_queue_begins_anew() -> None:
    stage = Stage(expires=100)
    stage.alter(now=90, arguments={"expires": 50})
    stage.broker.tick(139)
    assert not stage.queue.deleted
    stage.broker.tick(140)
    assert stage.queue.deleted


def test_auto_delete_begins_with_the_next_consumer_that_leaves() -> None:
    stage = Stage()
    stage.alter(auto_delete=True)
    assert not stage.queue.deleted
    _, channel = stage.consume()
    stage.broker.cancel(channel.consumers["c"], 0)
    assert stage.queue.deleted


def test_a_single_active_consumer() -> None:
    stage = Stage()
    one, _ = stage.consume("one", 2, prefetch=1)
    two, second = stage.consume("two", 3, prefetch=5, priority=1)
    stage.alter(arguments={"single_active_consumer": True})
    assert stage.queue.active_consumer_tag == "two"
    stage.publish(b"1", b"2")
    assert (one.bodies(), two.bodies()) == ([], [b"1", b"2"])
    stage.alter(arguments={})
    assert not stage.queue.active_consumer_tag
    second.settle(Settlement.ACK, 2, 0, multiple=True)
    stage.publish(*(b"%d" % i for i in range(6)))
    assert (one.bodies(), two.bodies()) == ([b"5"], [b"%d" % i for i in range(5)])


def test_the_deduplication_window() -> None:
    stage = Stage(message_deduplication=True, cache_size=5000)
    for i in range(3000):
        stage.publish(b"%d" % i, message_id=f"{i}")
    arguments: dict[str, object] = {"message_deduplication": True, "cache_size": 2}
    stage.alter(arguments=arguments)
    stage.publish(b"again", message_id="2999")
    for i in range(2):
        stage.publish(b"other", message_id=f"other {i}")
    assert stage.queue.ready == 3002
    window = stage.queue.deduplication_window
    assert window is not None
    assert len(window.ids()) == 2
    stage.publish(b"again", message_id="2999")
    assert stage.queue.ready == 3003, "forgotten"
    stage.alter(arguments={})
    stage.publish(b"again", message_id="2999")
    assert stage.queue.ready == 3004
    stage.alter(arguments={**arguments, "cache_ttl": 10})
    stage.publish(b"once", message_id="m")
    stage.publish(b"again", message_id="m", now=9)
    assert stage.queue.ready == 3005
    stage.publish(b"later", message_id="m", now=11)
    assert stage.queue.ready == 3006


def test_a_delivery_limit() -> None:
    stage = Stage(queue_type="quorum")
    stage.publish(b"poison")
    for _ in range(3):
        run = stage.queue.get(0)
        assert run is not None
        stage.queue.requeue([run], 0)
    stage.alter(arguments={"delivery_limit": 2})
    assert stage.bodies() == []


def test_totals_of_a_type_never_decrease() -> None:
    stage = Stage()
    stage.publish(b"1", b"2")
    stage.bodies()
    stage.alter(queue_type="quorum")
    stage.publish(b"3")
    counters = stage.broker.deleted_queue_counters
    assert counters["classic"].published_count == 2
    assert counters["quorum"].published_count + stage.queue.published_count == 1


def test_streams() -> None:
    stage = Stage(queue_type="stream", max_age="1h")
    stage.publish(b"1")
    changes = stage.alter(arguments={"queue_type": "stream", "max_age": "2h"})
    assert changes == {"x-max-age": SettingChange("1h", "2h")}
    assert stage.queue.settings.max_age_ms == 2 * 3_600_000
    assert isinstance(stage.queue, Stream)
    assert stage.queue.ready == 1


# ── refusals ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("old", "altered", "reason"),
    [
        ({}, {"queue_type": "stream"}, "type: a queue of type classic cannot become"),
        ({"queue_type": "stream"}, {"queue_type": "classic"}, "type: a queue of type stream"),
        ({}, {"queue_type": "quorum", "durable": False}, "invalid property 'non-durable'"),
        ({"queue_type": "quorum"}, {"auto_delete": True}, "invalid property 'auto-delete'"),
        ({}, {"arguments": {"message_ttl": -1}}, "invalid arg 'x-message-ttl'"),
        ({"max_priority": 3}, {"queue_type": "quorum"}, "invalid arg 'x-max-priority'"),
        ({}, {"arguments": {"delivery_limit": 3}}, "invalid arg 'x-delivery-limit'"),
        ({}, {"arguments": {"dead_letter_routing_key": "k"}}, "no_dlx_defined"),
    ],
)
def test_what_makes_no_sense(old: dict[str, object], altered: dict[str, Any], reason: str) -> None:
    stage = Stage(None, durable=True, **old)
    before = stage.queue.declared_settings
    with pytest.raises((InvalidAlterationError, PreconditionFailedError), match=reason):
        stage.alter(**altered)
    assert stage.queue.declared_settings == before


def test_permissions() -> None:
    stage = Stage()
    stage.broker.add_user(User("ana", permissions={"/": Permission("^q$", "^q$", "^q$")}))
    access = stage.broker.grant_access(stage.broker.users["ana"], "/")
    plan_alteration(access, stage.queue, AlteredSettings(arguments=table(max_length=1)))
    redirected = AlteredSettings(arguments=table(dead_letter_exchange="elsewhere"))
    with pytest.raises(AccessRefusedError, match="access to exchange 'elsewhere'"):
        plan_alteration(access, stage.queue, redirected)
    stage.broker.add_user(User("ana", permissions={"/": Permission("", ".*", ".*")}))
    access = stage.broker.grant_access(stage.broker.users["ana"], "/")
    with pytest.raises(AccessRefusedError, match="access to queue 'q'"):
        plan_alteration(access, stage.queue, AlteredSettings(auto_delete=True))


def test_an_exclusive_consumer() -> None:
    stage = Stage()
    stage.consume("mine", exclusive=True)
    with pytest.raises(InvalidAlterationError, match="the consumer 'mine' uses the queue excl"):
        stage.alter(arguments={"single_active_consumer": True})


def start(stage: Stage, **altered: Any) -> Any:
    settings = plan_alteration(stage.access, stage.queue, AlteredSettings(**altered))
    return alter(stage.broker, stage.queue, settings)


def test_the_queue_is_deleted_meanwhile() -> None:
    stage = Stage(PagingStore(0), durable=False)
    stage.publish(b"1", b"2")
    steps = start(stage, durable=True, arguments=table(max_length_bytes=10))
    next(steps)
    stage.broker.delete_queue(stage.queue, 0)
    with pytest.raises(NotFoundError, match="no queue 'q' in vhost '/': it was deleted"):
        run_to_completion(steps)


class SteppedStore(PagingStore):
    """Takes several steps to prepare what it stores late."""

    def begin_storing(self, queue: Queue, end_position: int) -> Steps[None]:
        yield 1

    def store_paged_out_late(
        self, queue: Queue, stores_late: Callable[[MessageTraits], bool], end_position: int
    ) -> Steps[None]:
        yield 1


def test_the_queue_is_deleted_at_any_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is stored for it from then on."""
    monkeypatch.setattr("recado.broker.work_queue._RUNS_PER_STEP", 2)
    monkeypatch.setattr("recado.broker.work_queue._LATE_RUNS_PER_STEP", 2)
    for step_count in range(1, 1000):
        store = SteppedStore(1 << 30)
        stage = Stage(store, durable=False, message_deduplication=True)
        for i in range(6):
            stage.publish(b"%d" % i, message_id=f"{i}")
        _, channel = stage.consume(prefetch=3)
        stage.broker.cancel(channel.consumers["c"], 0)
        for tag in (1, 2, 3):
            channel.settle(Settlement.REQUEUE, tag, 0, multiple=False)
        steps = start(stage, durable=True, arguments=table(max_length_bytes=10))
        for _ in range(step_count):
            if next(steps, None) is None:
                assert store.live[stage.queue] == set(range(6))
                assert step_count > 10
                return
        stage.broker.delete_queue(stage.queue, 0)
        with pytest.raises(NotFoundError):
            run_to_completion(steps)
        assert stage.queue not in store.live
    raise AssertionError("the alteration does not end")


def hold_in_another_vhost(stage: Stage) -> None:
    """Let a channel have an unsettled delivery that has nothing to do with the queue."""
    broker = stage.broker
    broker.add_vhost("other")
    broker.add_user(User("ana", permissions={"other": Permission(".*", ".*", ".*")}))
    elsewhere = broker.create_queue(broker.vhosts["other"], "q", QueueSettings(), None, 0)
    channel = Channel(1, Peer(), broker.grant_access(broker.users["ana"], "other"))
    consume(channel, elsewhere)
    elsewhere.publish(run_of([b"other"]), 0)
    assert channel in broker.consumer_timeouts.channels


def test_deliveries_of_a_channel_that_is_being_closed_are_waited_for() -> None:
    """They return to the queue in steps, and are stored then."""
    store = PagingStore(1 << 30)
    stage = Stage(store, durable=False)
    count = 5000
    hold_in_another_vhost(stage)
    _, channel = stage.consume(prefetch=0)
    for i in range(count):
        stage.publish(b"x", priority=i % 2)  # so that each is a run
    stage.broker.cancel(channel.consumers["c"], 0)
    stage.broker.close_channel(channel, 0)
    assert stage.broker.background, "not done at once"
    requeued_before = stage.queue.ready
    for number, _ in enumerate(start(stage, durable=True)):
        if number % 10 == 9:
            stage.broker.tick(0)
    assert requeued_before < count == stage.queue.ready
    assert store.live[stage.queue] == set(range(count))


def test_large_messages_are_stored_late_in_bounded_steps() -> None:
    store = PagingStore(1 << 30)
    stage = Stage(store, durable=False)
    for i in range(40):
        stage.publish(bytes(100_000), priority=i % 2)  # so that each is a run
    costs = []
    for cost in start(stage, durable=True):
        costs.append(cost)
        stage.publish(b"new")
    assert max(costs) <= 2 * STEP_UNITS_MAX
    assert store.live[stage.queue] == set(range(stage.queue.ready))


class IdStore(PagingStore):
    """Records the ids of deduplication."""

    def __init__(self) -> None:
        super().__init__(1 << 30)
        self.ids: list[bytes] = []

    def record_message_id(
        self,
        vhost: str,
        owner: Queue | Exchange[Any],
        message_id: bytes,
        seen_at: int,
        targets: Iterable[Queue],
    ) -> None:
        self.ids.append(message_id)


def test_ids_of_deduplication_are_stored_once() -> None:
    """Those of persistent messages: a transient one may be published again after a restart."""
    store = IdStore()
    stage = Stage(store, durable=False, message_deduplication=True)
    for i in range(100):
        stage.publish(b"old", message_id=f"{i}", delivery_mode=1 if i == 7 else 2)
    assert store.ids == []
    for number, _ in enumerate(
        start(stage, durable=True, arguments=table(message_deduplication=True))
    ):
        stage.publish(b"new", message_id=f"new {number}")
    stage.publish(b"last", message_id="last")
    stage.publish(b"again", message_id="99")
    expected = {b"%d" % i for i in range(100) if i != 7}
    assert expected < set(store.ids)
    assert store.ids[-1] == b"last"
    assert len(store.ids) == len(set(store.ids)) == stage.queue.ready - 1


def test_a_plain_alteration_is_abandoned(store: MessageStore) -> None:
    stage = Stage(store, durable=False)
    stage.publish(b"1", b"2")
    steps = start(stage, durable=True, arguments=table(max_length_bytes=10))
    next(steps)
    steps.close()
    assert not stage.queue.is_altering
    assert not stage.queue.should_store(run_of([b""], PERSISTENT).traits)
    assert stage.bodies() == [b"1", b"2"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_alteration_is_abandoned(store: MessageStore, count: int) -> None:
    stage = Stage(store, durable=False, message_deduplication=True)
    for key in "abc":
        stage.vhost.bind_queue("q", "amq.fanout", key)
    stage.publish(b"1", b"2", message_id="m")
    before = stage.queue.declared_settings
    steps = start(stage, durable=True, arguments=table(max_length_bytes=10))
    for _ in range(count):
        next(steps)
    assert bool(stage.queue.is_altering)
    steps.close()
    assert stage.queue.declared_settings is before
    assert not stage.queue.is_altering
    assert not stage.queue.should_store(run_of([b""], PERSISTENT).traits)
    stage.publish(b"3")
    assert stage.bodies() == [b"1", b"3"]


def test_an_import_in_progress_is_waited_for() -> None:
    stage = Stage()
    stage.broker.definitions_locked = True
    steps = start(stage, auto_delete=True)
    for _ in range(3):
        next(steps)
    assert not stage.queue.settings.auto_delete
    stage.broker.definitions_locked = False
    run_to_completion(steps)
    assert stage.queue.settings.auto_delete


def test_steps_are_bounded() -> None:
    stage = Stage(PagingStore(1 << 30), durable=False)
    for i in range(1000):
        stage.vhost.bind_queue("q", "amq.topic", f"key.{i}")
    stage.queue.publish(run_of([b"x" * 100] * 4000, alike=True), 0)
    for i in range(1000):
        stage.publish(b"%d" % i, headers={"n": i})
    stage.consume("c", prefetch=2000)
    costs = list(start(stage, durable=True, arguments=table(max_length_bytes=10**7)))
    assert len(costs) > 1000
    assert max(costs) <= 2 * STEP_UNITS_MAX


def test_settings_of_a_declaration_and_of_an_alteration_are_equal() -> None:
    stage = Stage()
    stage.alter(queue_type="quorum", arguments={"max_length": 3})
    assert stage.queue.declared_settings == parse_queue_arguments(
        "q",
        "/",
        durable=True,
        exclusive=False,
        auto_delete=False,
        arguments=table(max_length=3, queue_type="quorum"),
    )


# ── priorities ──────────────────────────────────────────────────────────────────────────────────────


def ranked() -> Stage:
    stage = Stage()
    for i in range(300):
        stage.publish(b"%d" % i, priority=i % 3)
    return stage


def until_frozen(stage: Stage, **altered: Any) -> Any:
    """Return the steps of an alteration that has begun to distribute the messages."""
    steps = start(stage, **altered)
    next(steps)
    assert stage.queue.delivery_pauses == 1
    return steps


def by_rank(numbers: range, highest: int) -> list[bytes]:
    return [b"%d" % i for i in sorted(numbers, key=lambda i: (-min(i % 3, highest), i))]


def test_priorities() -> None:
    stage = ranked()
    assert stage.alter(arguments={"max_priority": 1}) == {"x-max-priority": SettingChange(None, 1)}
    stage.publish(b"300", priority=0)
    stage.publish(b"301", priority=1)
    expected = by_rank(range(302), 1)
    assert [extract_body(run.contents()[0]) for run in take(stage, 100)] == expected[:100]
    stage.alter(arguments={})
    assert stage.bodies() == [b"%d" % i for i in range(302) if b"%d" % i not in expected[:100]]


def take(stage: Stage, count: int) -> list[Run]:
    found = [stage.queue.get(0) for _ in range(count)]
    return [run for run in found if run is not None]


def test_nothing_is_delivered_while_messages_change_priority() -> None:
    stage = ranked()
    steps = until_frozen(stage, arguments=table(max_priority=2, max_length=200))
    peer, _ = stage.consume(no_ack=True)
    assert stage.queue.get(0) is None
    stage.publish(b"300", priority=2)
    stage.broker.tick(1)
    assert (peer.bodies(), stage.queue.ready) == ([], 301)
    stage.broker.background.begin_turn(1)
    run_to_completion(steps)
    assert peer.bodies() == by_rank(range(300), 2)[100:], "the most urgent are dropped"


def test_messages_that_expire_meanwhile_are_dropped_after_it() -> None:
    stage = Stage()
    for i in range(600):
        stage.publish(b"short", expiration="5", priority=i % 3)
    steps = until_frozen(stage, arguments=table(max_priority=2))
    stage.broker.tick(5)
    assert stage.queue.ready == 600
    run_to_completion(steps)
    stage.broker.tick(6)
    assert stage.queue.ready == 0


def test_a_purge_waits_for_no_client() -> None:
    """It completes the change first."""
    stage = ranked()
    steps = until_frozen(stage, arguments=table(max_priority=2))
    assert stage.queue.purge() == 300
    assert stage.queue.settings.max_priority == 2
    run_to_completion(steps)
    stage.publish(b"low", b"", priority=0)
    stage.publish(b"high", priority=2)
    assert stage.bodies() == [b"high", b"low", b""]


def test_a_policy_that_measures_the_queue_while_messages_change_priority() -> None:
    stage = ranked()
    steps = until_frozen(stage, arguments=table(max_priority=2))
    policy = Policy(name="p", pattern="^q$", definition={"max-length-bytes": 10})
    stage.broker.set_policies("/", [policy], 0)
    run_to_completion(steps)
    for now in range(1, 5):
        stage.broker.tick(now)
    assert stage.bodies() == [b"291", b"294", b"297"]


def test_the_queue_is_deleted_while_messages_change_priority() -> None:
    stage = ranked()
    steps = until_frozen(stage, arguments=table(max_priority=2))
    stage.broker.delete_queue(stage.queue, 0)
    with pytest.raises(NotFoundError):
        run_to_completion(steps)
    assert not stage.broker.definitions_locked


def test_a_client_that_leaves_does_not_stop_messages_that_change_priority() -> None:
    stage = ranked()
    steps = until_frozen(stage, arguments=table(max_priority=2))
    steps.close()
    while stage.broker.background:
        stage.broker.tick(0)
    assert not stage.queue.is_altering
    assert stage.queue.settings.max_priority == 2
    assert not stage.broker.definitions_locked
    assert stage.bodies() == by_rank(range(300), 2)


def test_a_client_leaves_and_the_queue_is_deleted_while_messages_change_priority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recado.broker.work_queue._RUNS_PER_STEP", 2)
    stage = ranked()
    until_frozen(stage, arguments=table(max_priority=2)).close()
    broker, queue = stage.broker, stage.queue
    assert queue.is_altering
    broker.delete_queue(queue, 0)
    while broker.background:
        broker.tick(0)
    assert (queue.is_altering, broker.definitions_locked) == (False, False)
    assert stage.queue.settings.max_priority is None


def test_readers_end_when_priorities_change() -> None:
    stage = ranked()
    queue = stage.queue
    assert isinstance(queue, WorkQueue)
    reader = ReadyMessages(queue, ReadLimits(10, 1 << 20, 10))
    assert reader.read() is not None
    stage.alter(arguments={"max_priority": 2})
    assert reader.read() is None


def test_no_import_begins_while_messages_change_priority() -> None:
    stage = ranked()
    steps = until_frozen(stage, arguments=table(max_priority=2))
    assert stage.broker.definitions_locked
    run_to_completion(steps)
    assert not stage.broker.definitions_locked
