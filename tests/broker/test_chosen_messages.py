"""Messages that were chosen once are found again by their positions, and can be deleted."""

from __future__ import annotations

from typing import Any

import pytest

from recado.amqp.properties import Properties
from recado.broker.chosen_messages import ChosenPositions, delete_messages, find_positions
from recado.broker.message_filter import MessageFilter
from recado.broker.move import MoveProgress
from recado.broker.ready_messages import ReadyMessages
from recado.broker.steps import run_to_completion
from recado.broker.store import MessageStore
from recado.broker.work_queue import WorkQueue

from .stage import new_broker, new_queue, open_channel, published, run_of
from .stores import PagingStore
from .test_move import bodies


class Stage:
    def __init__(self, store: MessageStore | None, **settings: Any) -> None:
        self.broker = new_broker(store)
        queue = new_queue(self.broker, "q", durable=True, **settings)
        assert isinstance(queue, WorkQueue)
        self.queue = queue
        self.channel = open_channel(self.broker)

    def publish(self, *bodies: bytes, **properties: Any) -> None:
        wanted = Properties(**{"delivery_mode": 2, **properties})
        self.channel.publisher.publish(published("q", *bodies, properties=wanted), 0)

    def find(self, selector: str | None = None, count_max: int = 100, now: int = 0) -> list[int]:
        chosen = MessageFilter(selector) if selector else None
        reader = ReadyMessages(self.queue)
        return list(run_to_completion(find_positions(reader, chosen, count_max, now)))

    def delete(self, positions: list[int] | None = None, count_max: int | None = None) -> int:
        progress = MoveProgress()
        selection = ChosenPositions(positions) if positions is not None else None
        run_to_completion(delete_messages(self.queue, progress, count_max, selection))
        return progress.moved


@pytest.fixture(params=["memory", "disk", "paged out"])
def stage(request: pytest.FixtureRequest) -> Stage:
    if request.param == "memory":
        return Stage(None)
    return Stage(PagingStore(0 if request.param == "paged out" else 1 << 30))


def test_chosen_messages_are_deleted_and_no_others(stage: Stage) -> None:
    stage.publish(*(b"%d" % number for number in range(10)))
    assert stage.find() == list(range(10))
    chosen = stage.find("body in ('2', '3', '7')")
    assert chosen == [2, 3, 7]
    assert stage.find("body > '4'", count_max=2) == [5, 6]
    taken = stage.queue.get(0)
    assert taken is not None
    stage.publish(b"7")
    assert stage.delete([0, *chosen]) == 3
    assert bodies(stage.queue) == [b"1", b"4", b"5", b"6", b"8", b"9", b"7"]


def test_the_first_messages_are_deleted(stage: Stage) -> None:
    stage.publish(b"a", b"b", b"c")
    assert stage.delete(count_max=2) == 2
    assert stage.queue.ready == 1
    assert stage.delete() == 1
    assert stage.delete() == 0
    assert stage.queue.ready == 0


def test_positions_of_several_priorities_are_in_order() -> None:
    stage = Stage(None, max_priority=5)
    for priority in (1, 5, 0, 5):
        stage.publish(b"x", priority=priority)
    assert stage.find() == [0, 1, 2, 3]
    assert stage.delete([1, 2]) == 2
    assert stage.find() == [0, 3]


def test_expired_messages_are_not_chosen() -> None:
    stage = Stage(None, message_ttl_ms=5)
    stage.publish(b"x")
    assert stage.find(now=4) == [0]
    assert stage.find(now=5) == []


def test_positions_with_gaps() -> None:
    run = run_of([b"a", b"b", b"c", b"d"])
    run.first_position, run.stride = 10, 3
    chosen = ChosenPositions([9, 10, 11, 13, 16, 19, 22])
    assert chosen.select(run, 0, 4, 100)[:2] == ([0, 1, 2, 3], 4)
    assert chosen.select(run, 1, 3, 100)[:2] == ([1, 2], 3)
    assert chosen.select(run, 0, 4, 2)[:2] == ([0, 1], 2)
    assert ChosenPositions([]).select(run, 0, 4, 5)[:2] == ([], 4)
