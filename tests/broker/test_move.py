"""Move: messages of one queue enter another, in order, and none is lost."""

from __future__ import annotations

from typing import Any

import pytest

from recado.amqp.frames import extract_body, extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import FieldTable
from recado.broker.arguments import DeduplicationSettings
from recado.broker.broker import Broker
from recado.broker.message_filter import MessageFilter
from recado.broker.move import (
    BATCH_LIMITS,
    DESTINATION_DELETED,
    DESTINATION_FULL,
    MoveProgress,
    move,
)
from recado.broker.queue import Queue
from recado.broker.ready_messages import QUEUE_DELETED
from recado.broker.run import Run
from recado.broker.steps import STEP_UNITS_MAX, run_to_completion
from recado.broker.store import MessageStore
from recado.broker.stream import Stream
from recado.broker.work_queue import WorkQueue

from .stage import Peer, consume, new_broker, new_queue, open_channel, published, run_of
from .stores import PagingStore


class Stage:
    """A source `q` and a destination `to`."""

    def __init__(self, store: MessageStore | None = None, **settings: Any) -> None:
        self.broker = new_broker(store)
        self.source = work_queue(self.broker, "q", durable=True)
        self.destination = work_queue(self.broker, "to", durable=True, **settings)
        self.channel = open_channel(self.broker)

    def publish(self, *bodies: bytes, key: str = "q", now: int = 0, **properties: Any) -> None:
        for body in bodies:
            wanted = Properties(**{"delivery_mode": 2, **properties})
            self.channel.publisher.publish(published(key, body, properties=wanted), now)

    def move(self, destination: Queue | None = None, now: int = 0, **options: Any) -> MoveProgress:
        progress = MoveProgress()
        self.broker.background.now = now
        to = destination or self.destination
        run_to_completion(move(self.source, to, progress, **options))
        return progress


def work_queue(broker: Broker, name: str, **settings: Any) -> WorkQueue:
    queue = new_queue(broker, name, **settings)
    assert isinstance(queue, WorkQueue)
    return queue


def take(queue: Queue, now: int = 0) -> list[Run]:
    found = []
    while (run := queue.get(now)) is not None:
        found.append(run)
    return found


def bodies(queue: Queue, now: int = 0) -> list[bytes]:
    return [extract_body(content) for run in take(queue, now) for content in run.contents()]


@pytest.fixture(params=["memory", "disk", "paged out"])
def stage(request: pytest.FixtureRequest) -> Stage:
    if request.param == "memory":
        return Stage()
    return Stage(PagingStore(0 if request.param == "paged out" else 1 << 30))


def test_all_messages_are_moved_in_order(stage: Stage) -> None:
    sent = [b"%d" % i for i in range(3 * BATCH_LIMITS.message_count)]
    stage.publish(b"before", key="to")
    stage.publish(*sent)
    assert stage.move() == MoveProgress(len(sent))
    assert (stage.source.ready, stage.destination.ready) == (0, len(sent) + 1)
    assert bodies(stage.destination) == [b"before", *sent]
    if isinstance(stage.broker.store, PagingStore):
        assert not stage.broker.store.live[stage.source]


def test_a_moved_message_is_as_it_was_published(stage: Stage) -> None:
    headers: FieldTable = {"n": 1}
    stage.publish(b"0", headers=headers, priority=3, message_id="m", type="t")
    run = stage.source.get(0)
    assert run is not None
    stage.source.requeue([run], 0)
    stage.move()
    (moved,) = take(stage.destination)
    assert not moved.redelivered
    assert (moved.origin.exchange, moved.origin.routing_key) == ("", "q")
    assert decode_properties(extract_properties(moved.contents()[0])) == Properties(
        headers=headers, delivery_mode=2, priority=3, message_id="m", type="t"
    )
    assert moved.traits.persistent
    assert moved.traits.priority == 3


def test_matching_messages_are_moved_and_the_others_stay(stage: Stage) -> None:
    for i in range(400):
        stage.publish(b"%d" % i, priority=i % 3)
    chosen = MessageFilter("priority = 1 AND body <> '7'")
    assert stage.move(message_filter=chosen).moved == 132
    stage.publish(b"later", priority=1)
    assert stage.source.ready == 269
    assert bodies(stage.destination) == [b"%d" % i for i in range(400) if i % 3 == 1 and i != 7]
    assert bodies(stage.source) == [
        *(b"%d" % i for i in range(400) if i % 3 != 1 or i == 7),
        b"later",
    ]


@pytest.mark.parametrize("alike", [False, True])
def test_a_limited_number_of_messages_is_moved(alike: bool) -> None:
    stage = Stage()
    stage.source.publish(run_of([b"%03d" % i for i in range(300)], alike=alike), 0)
    assert stage.move(count_max=0).moved == 0
    assert stage.move(count_max=200) == MoveProgress(200)
    assert stage.move(count_max=3, message_filter=MessageFilter("offset >= 250")).moved == 3
    assert bodies(stage.destination) == [b"%03d" % i for i in (*range(200), 250, 251, 252)]
    assert bodies(stage.source) == [b"%03d" % i for i in (*range(200, 250), *range(253, 300))]


def test_priorities_are_moved_first() -> None:
    stage = Stage()
    source = work_queue(stage.broker, "ranked", max_priority=5)
    stage.publish(b"low", key="ranked", priority=1)
    stage.publish(b"high", key="ranked", priority=9)
    run_to_completion(move(source, stage.destination, MoveProgress()))
    assert bodies(stage.destination) == [b"high", b"low"]


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"])
def test_the_move_ends_when_the_destination_is_full(overflow: str) -> None:
    """Its messages are not dropped either."""
    stage = Stage(max_length=5, overflow=overflow)
    stage.publish(b"a", b"b", key="to")
    stage.publish(*(b"%d" % i for i in range(9)))
    assert stage.move() == MoveProgress(3, DESTINATION_FULL)
    assert stage.move() == MoveProgress(0, DESTINATION_FULL)
    assert bodies(stage.destination) == [b"a", b"b", b"0", b"1", b"2"]
    assert bodies(stage.source) == [b"3", b"4", b"5", b"6", b"7", b"8"]


def test_the_move_ends_at_a_limit_in_bytes() -> None:
    stage = Stage(max_length=9, max_length_bytes=10)
    stage.publish(b"123", b"4567", b"8", b"90", b"x")
    assert stage.move() == MoveProgress(4, DESTINATION_FULL)
    assert stage.destination.count_fitting([]) == 0
    assert bodies(stage.source) == [b"x"]
    stage = Stage(max_length_bytes=2)
    stage.publish(b"1", key="to")
    stage.publish(b"22")
    assert stage.move() == MoveProgress(0, DESTINATION_FULL)
    assert stage.source.ready == 1


def test_a_limit_that_is_exceeded_already() -> None:
    """For instance because it was lowered by a policy while messages could not be dropped."""
    stage = Stage(max_length=1)
    stage.destination.held_dead_letters = 5
    assert stage.destination.count_fitting([1]) == 0


def test_messages_that_enter_meanwhile_stay() -> None:
    stage = Stage()
    stage.publish(*(b"%d" % i for i in range(300)))
    progress = MoveProgress()
    for _ in move(stage.source, stage.destination, progress):
        stage.publish(b"new")
    assert progress.moved == 300
    assert set(bodies(stage.source)) == {b"new"}


def test_consumers_go_on_meanwhile() -> None:
    stage = Stage()
    stage.publish(*(b"%d" % i for i in range(300)))
    seen = []
    for _ in move(stage.source, stage.destination, MoveProgress()):
        run = stage.source.get(0)
        seen += [extract_body(run.contents()[0])] if run is not None else []
    seen += bodies(stage.destination)
    assert sorted(map(int, seen)) == list(range(300))


@pytest.mark.parametrize("which", ["q", "to"])
def test_a_queue_is_deleted_meanwhile(which: str) -> None:
    stage = Stage()
    stage.publish(*(b"%d" % i for i in range(300)))
    progress = MoveProgress()
    steps = move(stage.source, stage.destination, progress)
    next(steps)
    stage.broker.delete_queue(stage.broker.vhosts["/"].queues[which], 0)
    run_to_completion(steps)
    assert progress.moved == BATCH_LIMITS.message_count
    assert progress.stop_reason == (QUEUE_DELETED if which == "q" else DESTINATION_DELETED)


def test_the_caller_stops_a_move() -> None:
    stage = Stage()
    stage.publish(*(b"%d" % i for i in range(300)))
    progress = MoveProgress()
    steps = move(stage.source, stage.destination, progress)
    next(steps)
    progress.stop_reason = "low on disk"
    run_to_completion(steps)
    assert stage.source.ready == 300 - BATCH_LIMITS.message_count


def test_a_move_that_is_closed_loses_nothing() -> None:
    stage = Stage()
    stage.publish(*(b"%d" % i for i in range(300)))
    steps = move(stage.source, stage.destination, MoveProgress())
    next(steps)
    steps.close()
    assert sorted(map(int, bodies(stage.source) + bodies(stage.destination))) == list(range(300))


def test_a_time_to_live_begins_anew() -> None:
    """Also for messages that had lost their traits on disk, and never with that of the source."""
    stage = Stage(message_ttl_ms=50)
    for alike in (False, True):
        run = run_of([b"short", b"quick"], Properties(expiration="10"), alike=alike)
        stage.source.publish(run, 0)
    run = run_of([b"a", b"b"], Properties(message_id="m"))
    stage.source.publish(run, 0)
    for run in stage.source.buckets[0].runs():
        run.traits = run_of([b""]).traits
    assert stage.move(now=9).moved == 6
    runs = list(stage.destination.buckets[0].runs())
    assert {run.expires_at for run in runs} == {19, 59}
    assert sum(len(run) for run in runs if run.expires_at == 19) == 4


def test_expired_messages_are_not_moved() -> None:
    stage = Stage()
    stage.publish(b"stays", b"too")
    stage.publish(b"gone", expiration="5")
    stage.publish(b"late", expiration="500")
    assert stage.move(now=5).moved == 3
    assert bodies(stage.destination, 5) == [b"stays", b"too", b"late"]


def test_moved_messages_are_no_duplicates() -> None:
    stage = Stage(deduplication=DeduplicationSettings(100, None))
    stage.publish(b"seen", key="to", message_id="m")
    stage.publish(b"seen again", key="to", message_id="m")
    stage.publish(b"moved", message_id="m")
    assert stage.move().moved == 1
    assert bodies(stage.destination) == [b"seen", b"moved"]


def test_consumers_of_the_destination_get_the_messages() -> None:
    stage, peer = Stage(max_length=2), Peer()
    consume(open_channel(stage.broker, peer), stage.destination, no_ack=True)
    stage.publish(*(b"%d" % i for i in range(5)))
    assert stage.move() == MoveProgress(2, DESTINATION_FULL), "the limit counts for a batch"
    assert peer.bodies() == [b"0", b"1"]
    assert stage.move().moved == 2


def test_a_batch_is_one_atomic_group() -> None:
    store = PagingStore(1 << 30)
    stage = Stage(store)
    stage.publish(b"0", b"1")
    store.notes.clear()
    stage.move()
    assert store.notes == ["begin", "2 to to", "end"]
    store.notes.clear()
    assert stage.move() == MoveProgress()
    assert store.notes == []


def test_to_a_stream() -> None:
    stage = Stage()
    stream = new_queue(stage.broker, "s", queue_type="stream", durable=True)
    assert isinstance(stream, Stream)
    stage.publish(*(b"%d" % i for i in range(5)))
    assert stage.move(stream, message_filter=MessageFilter("offset <> 2")).moved == 4
    found = [extract_body(content) for run in stream.read(0, 9) for content in run.contents()]
    assert found == [b"0", b"1", b"3", b"4"]
    assert bodies(stage.source) == [b"2"]


def test_steps_are_bounded() -> None:
    stage = Stage(max_length=1_000_000, dead_letter_exchange="amq.fanout")
    stage.source.publish(run_of([b"x" * 3000] * 1000, alike=True), 0)
    stage.source.publish(run_of([b"%d" % i for i in range(1000)]), 0)
    progress = MoveProgress()
    costs = list(move(stage.source, stage.destination, progress))
    assert progress.moved == 2000
    assert len(costs) >= 15
    assert max(costs) <= 3 * STEP_UNITS_MAX
