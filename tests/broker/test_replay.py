"""Replay: dead letters return to the queue where they died."""

from __future__ import annotations

from typing import Any

import pytest

from recado.amqp.frames import extract_body, extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import FieldTable, FieldValue
from recado.broker.broker import Broker
from recado.broker.channel import Settlement
from recado.broker.message_filter import MessageFilter
from recado.broker.queue import Queue
from recado.broker.ready_messages import QUEUE_DELETED
from recado.broker.replay import BATCH_LIMITS, ReplayProgress, replay
from recado.broker.run import Run
from recado.broker.steps import STEP_UNITS_MAX, run_to_completion
from recado.broker.store import MessageStore
from recado.broker.work_queue import WorkQueue

from .stage import Peer, new_broker, new_queue, open_channel, published, run_of
from .stores import PagingStore


class Stage:
    """Queues `a` and `b`, and `dead` for their dead letters."""

    def __init__(self, store: MessageStore | None = None, **settings: Any) -> None:
        self.broker = new_broker(store)
        self.dead = work_queue(self.broker, "dead")
        self.queues = {
            name: work_queue(
                self.broker,
                name,
                dead_letter_exchange="",
                dead_letter_routing_key="dead",
                **settings,
            )
            for name in "ab"
        }
        self.broker.vhosts["/"].bind_queue("a", "amq.topic", "#")
        self.channel = open_channel(self.broker, Peer())

    def kill(self, name: str, *bodies: bytes, **properties: Any) -> None:
        """Let a consumer reject messages."""
        wanted = Properties(**{"delivery_mode": 2, **properties})
        for body in bodies:
            event = published(name, body, properties=wanted)
            self.channel.publisher.publish(event, 0)
        self.reject(name)

    def reject(self, name: str) -> None:
        while self.channel.get(self.queues[name], no_ack=False, now=0):
            last = self.channel.next_tag - 1
            self.channel.settle(Settlement.REJECT, last, 0, multiple=False)
            self.broker.tick(0)

    def replay(
        self, now: int = 0, source: WorkQueue | None = None, **options: Any
    ) -> ReplayProgress:
        progress = ReplayProgress()
        self.broker.background.now = now
        may_write = options.pop("may_write", lambda name: True)
        steps = replay(source or self.dead, progress, may_write, **options)
        run_to_completion(steps)
        return progress


def work_queue(broker: Broker, name: str, **settings: Any) -> WorkQueue:
    queue = new_queue(broker, name, durable=True, **settings)
    assert isinstance(queue, WorkQueue)
    return queue


def take(queue: Queue) -> list[Run]:
    found = []
    while (run := queue.get(0)) is not None:
        found.append(run)
    return found


def bodies(queue: Queue) -> list[bytes]:
    return [extract_body(content) for run in take(queue) for content in run.contents()]


def headers_of(run: Run) -> FieldTable:
    return decode_properties(extract_properties(run.contents()[0])).headers or {}


def dead_letter(**headers: FieldValue) -> Run:
    return run_of([b"x"], Properties(headers=headers))


@pytest.fixture(params=["memory", "paged out"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(None if request.param == "memory" else PagingStore(0))


def test_dead_letters_return_in_order(stage: Stage) -> None:
    stage.kill("a", b"1", b"2", priority=1)
    stage.kill("b", b"3")
    stage.kill("a", b"4")
    progress = stage.replay()
    assert (progress.moved, progress.kept, progress.stop_reason) == (4, {}, None)
    assert stage.dead.ready == 0
    assert bodies(stage.queues["a"]) == [b"1", b"2", b"4"]
    assert bodies(stage.queues["b"]) == [b"3"]


def test_a_replayed_message_is_as_before_its_death(stage: Stage) -> None:
    event = published(
        "first.key", b"0", exchange="amq.topic", properties=Properties(headers={"n": 1}, type="t")
    )
    stage.channel.publisher.publish(event, 0)
    stage.reject("a")
    stage.replay()
    (run,) = take(stage.queues["a"])
    assert (run.origin.exchange, run.origin.routing_key) == ("amq.topic", "first.key")
    assert not run.redelivered
    headers = headers_of(run)
    assert (headers["n"], headers["x-replay-count"]) == (1, 1)
    deaths: Any = headers["x-death"]
    assert [(death["queue"], death["count"]) for death in deaths] == [("a", 1)]


def test_replays_are_counted_and_limited() -> None:
    stage = Stage()
    stage.kill("a", b"0")
    for count in (1, 2, 3):
        assert stage.replay(replays_max=3).moved == 1
        (run,) = stage.queues["a"].buckets[0].runs()
        assert headers_of(run)["x-replay-count"] == count
        stage.reject("a")
    progress = stage.replay(replays_max=3)
    assert (progress.moved, progress.kept) == (0, {"replayed_too_often": 1})
    assert stage.replay().moved == 1


def test_a_queue_in_which_a_dead_letter_died_again() -> None:
    """Not where it is now, but where it died before."""
    stage = Stage()
    last = work_queue(stage.broker, "last")
    stage.queues["dead"] = dead = work_queue(
        stage.broker, "middle", dead_letter_exchange="", dead_letter_routing_key="last"
    )
    stage.kill("a", b"0")
    run_to_completion(replay_all(stage.dead, dead))
    stage.reject("dead")
    assert last.ready == 1
    progress = stage.replay(source=last)
    assert progress.moved == 1
    assert dead.ready == 1
    assert stage.replay(source=dead).moved == 1
    assert bodies(stage.queues["a"]) == [b"0"]


def replay_all(source: WorkQueue, destination: WorkQueue) -> Any:
    from recado.broker.move import MoveProgress, move

    return move(source, destination, MoveProgress())


def test_messages_that_cannot_return_stay() -> None:
    stage = Stage()
    stage.kill("a", b"0")
    stage.kill("b", b"1")
    stage.dead.publish(run_of([b"never died", b"neither"]), 0)
    stage.broker.delete_queue(stage.queues["a"], 0)
    progress = stage.replay(may_write=lambda name: name != "b")
    assert progress.moved == 0
    assert progress.kept == {"queue_gone": 1, "not_permitted": 1, "no_x_death": 2}
    assert bodies(stage.dead) == [b"0", b"1", b"never died", b"neither"]


def test_an_exclusive_queue_is_as_if_it_were_gone() -> None:
    stage = Stage()
    stage.kill("a", b"0")
    stage.queues["a"].owner = stage.broker
    assert stage.replay().kept == {"queue_gone": 1}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-death": "a"},
        {"x-death": []},
        {"x-death": ["a", {}]},
        {"x-death": [{"queue": 5}]},
        {"x-death": [{"queue": "q" * 300}]},
        {"x-death": [{"queue": "dead"}]},
        {"x-death": [{"queue": b"\xff"}]},
    ],
)
def test_forged_deaths(headers: FieldTable) -> None:
    stage = Stage()
    stage.dead.publish(dead_letter(**headers), 0)
    assert stage.replay().kept == {"no_x_death": 1}


@pytest.mark.parametrize(
    ("death", "count", "expected"),
    [
        ({}, None, ("", "", 1)),
        ({"exchange": "e" * 300, "routing-keys": "k"}, "x", ("", "", 1)),
        ({"exchange": "e", "routing-keys": []}, -4, ("e", "", 1)),
        ({"exchange": 1, "routing-keys": [1]}, 1 << 62, ("", "", 1)),
        ({"exchange": "e", "routing-keys": ["k", "l"]}, 7, ("e", "k", 8)),
    ],
)
def test_forged_details(
    death: FieldTable, count: FieldValue, expected: tuple[str, str, int]
) -> None:
    stage = Stage()
    headers: FieldTable = {"x-death": [{"queue": "a", **death}]}
    if count is not None:
        headers["x-replay-count"] = count
    stage.dead.publish(dead_letter(**headers), 0)
    assert stage.replay().moved == 1
    (run,) = take(stage.queues["a"])
    found = run.origin.exchange, run.origin.routing_key, headers_of(run)["x-replay-count"]
    assert found == expected


def test_a_header_that_would_not_fit_into_a_frame() -> None:
    stage = Stage()
    for size in (3700, 4010):
        headers: FieldTable = {"x-death": [{"queue": "a"}], "long": "x" * size}
        run = run_of([b"%d" % size], Properties(headers=headers), frame_max=4096)
        stage.dead.publish(run, 0)
    progress = stage.replay()
    assert (progress.moved, progress.kept) == (1, {"header_too_large": 1})
    assert bodies(stage.queues["a"]) == [b"3700"]


def test_a_full_queue_delays_only_its_own_dead_letters() -> None:
    stage = Stage()
    stage.kill("a", *(b"a%d" % i for i in range(5)))
    stage.kill("b", *(b"b%d" % i for i in range(5)))
    stage.queues["a"].reconfigure(
        stage.queues["a"].settings.__class__(durable=True, max_length=3), 0
    )
    progress = stage.replay()
    assert (progress.moved, progress.kept) == (8, {"queue_full": 2})
    assert bodies(stage.queues["a"]) == [b"a0", b"a1", b"a2"]
    assert bodies(stage.dead) == [b"a3", b"a4"]


def test_chosen_dead_letters_are_replayed() -> None:
    stage = Stage()
    for i in range(200):
        stage.kill("a", b"%d" % i, priority=i % 2)
    odd = MessageFilter("priority = 1")
    assert stage.replay(message_filter=odd, count_max=70).moved == 70
    assert bodies(stage.queues["a"]) == [b"%d" % i for i in range(1, 140, 2)]
    assert stage.dead.ready == 130
    assert stage.replay(count_max=0).moved == 0


def test_a_source_that_is_deleted_meanwhile() -> None:
    stage = Stage()
    stage.kill("a", *(b"%d" % i for i in range(200)))
    progress = ReplayProgress()
    steps = replay(stage.dead, progress, lambda name: True)
    next(steps)
    stage.broker.delete_queue(stage.dead, 0)
    run_to_completion(steps)
    assert (progress.moved, progress.stop_reason) == (BATCH_LIMITS.message_count, QUEUE_DELETED)


def test_a_batch_is_one_atomic_group() -> None:
    store = PagingStore(1 << 30)
    stage = Stage(store)
    stage.kill("a", b"1")
    stage.kill("b", b"2")
    store.notes.clear()
    stage.replay()
    assert store.notes == ["begin", "1 to a", "1 to b", "end"]


def test_steps_are_bounded() -> None:
    stage = Stage()
    stage.kill("a", *(b"%d" % i for i in range(1000)))
    progress = ReplayProgress()
    costs = list(replay(stage.dead, progress, lambda name: True))
    assert progress.moved == 1000
    assert max(costs) <= 4 * STEP_UNITS_MAX
