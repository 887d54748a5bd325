"""The memory of purged and deleted messages is freed in portions."""

from collections import deque

import pytest

from recado.amqp.properties import Properties
from recado.broker import memory_reclaimer as module
from recado.broker.channel import Settlement
from recado.broker.memory_reclaimer import IMMEDIATE_RUNS_MAX, MemoryReclaimer
from recado.broker.queue import Queue
from recado.broker.run import Run

from .stage import new_broker, new_queue, open_channel, published, run_of
from .stores import PagingStore

PRIORITIES = [Properties(priority=each) for each in (1, 2)]


def runs(count: int, messages: int = 1) -> deque[Run]:
    return deque(run_of([b"x"] * messages) for _ in range(count))


def portions(reclaimer: MemoryReclaimer) -> int:
    """Return the number of portions until all is freed."""
    count = 0
    while reclaimer.pending:
        reclaimer.advance()
        count += 1
    return count


def test_few_runs_are_freed_at_once() -> None:
    reclaimer, few = MemoryReclaimer(), runs(IMMEDIATE_RUNS_MAX)
    reclaimer.add(few)
    assert not reclaimer.pending
    assert not few


@pytest.mark.parametrize(("messages", "cost"), [(1, 9), (100, 108)])
def test_many_are_freed_in_portions(
    monkeypatch: pytest.MonkeyPatch, messages: int, cost: int
) -> None:
    monkeypatch.setattr(module, "PORTION_MESSAGES_MAX", 10 * cost)
    reclaimer, many = MemoryReclaimer(), runs(100, messages)
    reclaimer.add(many)
    reclaimer.add([(run.first_position, run) for run in runs(100, messages)])
    reclaimer.advance()
    assert portions(reclaimer) == 19 + 1, "the last one finds nothing more"
    assert not many


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_a_queue_is_empty_before_its_messages_are_freed(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(module, "PORTION_MESSAGES_MAX", 500)
    broker = new_broker()
    queue = new_queue(broker)
    channel = open_channel(broker)
    for i in range(200):  # of two kinds, so that no two form a run
        channel.publisher.publish(published("q", b"x", properties=PRIORITIES[i % 2]), 0)
    if how == "purge":
        assert queue.purge() == 200
        assert not channel.get(queue, no_ack=True, now=0)
    else:
        broker.delete_queue(queue, 0)
    ticks = 0
    while broker.deadline() == 0:
        broker.tick(0)
        ticks += 1
    assert ticks > 2


def test_a_purge_settles_what_never_left_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Independently of the number of runs; a requeued one is settled separately."""
    store = PagingStore(1 << 30)
    broker = new_broker(store)
    queue = new_queue(broker, durable=True)
    channel = open_channel(broker)
    for i in range(100):
        properties = Properties(delivery_mode=2, priority=i % 2)
        channel.publisher.publish(published("q", b"x", properties=properties), 0)
    for _ in range(2):
        assert channel.get(queue, no_ack=False, now=0)
    channel.settle(Settlement.REQUEUE, 1, 0, multiple=False)
    settled: list[tuple[int, int]] = []
    settle = store.settle

    def note(of: Queue, first: int, count: int, step: int) -> None:
        settled.append((first, count))
        settle(of, first, count, step)

    monkeypatch.setattr(store, "settle", note)
    assert queue.purge() == 99
    assert sorted(settled) == [(0, 1), (2, 98)]
    assert store.live[queue] == {1}, "it is out with a client"
