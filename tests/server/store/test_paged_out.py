"""Paged-out messages: their size, without paging them in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.broker.arguments import QueueSettings
from recado.broker.channel import Settlement
from recado.broker.ready_messages import PORTION_LIMITS
from recado.broker.steps import STEP_UNITS_MAX
from recado.broker.work_queue import WorkQueue
from recado.journal.record import CorruptJournalError
from recado.server.store import paged_out
from recado.server.store.compaction import Compactor

from .test_journal_store import Node

FLEETING = Properties(delivery_mode=1)


def in_memory(node: Node, name: str = "q") -> int:
    """Return the number of messages that a queue has in memory."""
    (index,) = [
        each for each in node.store.queue_indexes.values() if each.queue is node.queue(name)
    ]
    paged_out_count = sum(held.stored_count for held in index.paged_out.values())
    return node.queue(name).ready - paged_out_count


@pytest.mark.parametrize("max_priority", [0, 2])
def test_a_limit_in_bytes_leaves_a_queue_paged_out(max_priority: int) -> None:
    """After a restart; messages beyond the limit are dropped by the same count as before."""
    node = Node()
    node.declare(max_length_bytes=200_000, max_priority=max_priority)
    for i in range(400):
        properties = Properties(delivery_mode=2, priority=i % 3)
        node.publish(b"%03d" % i + bytes(997), properties=properties)
    assert node.queue().ready == 200
    node.restart()
    assert node.queue().ready == 200
    assert in_memory(node) == 0
    node.publish(bytes(1001))
    assert node.queue().ready == 199, "two of 1,000 bytes had to go for one of 1,001"


def test_a_policy_that_limits_bytes_leaves_a_queue_paged_out() -> None:
    node = Node(room=5000)
    node.declare()
    for _ in range(100):
        node.publish(bytes(1000))
    node.store.write()
    node.publish(bytes(1000))  # not in the journal yet
    few = in_memory(node)
    assert few < 20
    node.queue().reconfigure(QueueSettings(durable=True, max_length_bytes=101_000), 0)
    assert (node.queue().ready, in_memory(node)) == (101, few)
    node.publish(b"1")
    assert node.queue().ready == 101, "one had to go"


def test_a_long_priority_queue_is_purged_in_steps() -> None:
    """Messages of other queues in between stay, and segments may be dropped between the steps."""
    node = Node(room=0, segment_size=20_000)
    node.declare(max_priority=2)
    node.declare("other")
    for i in range(1500):
        node.publish(b"%d" % i, properties=Properties(delivery_mode=2, priority=i % 3))
        node.publish(b"other", key="other")
    node.sync()
    held = [node.get(no_ack=False) for _ in range(20)]
    assert node.queue().purge() == 1480
    node.publish(b"new", properties=Properties(delivery_mode=2, priority=1))
    cleaner, left, steps = Compactor(node.store), [], 0
    while node.broker.background:
        node.sync()
        cleaner.compact(low_on_disk=True)
        left.append(live_in(node))
        node.broker.background.advance(STEP_UNITS_MAX)
        steps += 1
    assert steps > 10
    assert left == sorted(left, reverse=True)
    node.restart()
    assert sorted(node.bodies()) == sorted([*map(bytes, filter(None, held)), b"new"])
    assert len(node.bodies("other")) == 1500


def live_in(node: Node, name: str = "q") -> int:
    (index,) = [
        each for each in node.store.queue_indexes.values() if each.queue is node.queue(name)
    ]
    return index.stored_end - index.settled.size


def test_a_purge_in_steps_ends_with_its_queue() -> None:
    node = Node(room=0)
    node.declare(max_priority=2)
    for i in range(1500):
        node.publish(b"%d" % i, properties=Properties(delivery_mode=2, priority=i % 3))
    node.store.write()
    node.queue().purge()
    assert node.broker.background
    node.broker.delete_queue(node.queue(), 0)
    while node.broker.background:
        node.broker.background.advance()
    node.restart()
    assert "q" not in node.broker.vhosts["/"].queues


@given(
    messages=st.lists(
        st.tuples(
            st.lists(st.binary(max_size=30), min_size=1, max_size=4),
            st.integers(0, 3),
            st.booleans(),
            st.booleans(),
        ),
        max_size=12,
    ),
    max_priority=st.sampled_from((0, 2)),
    acked=st.sets(st.integers(1, 20)),
    fetched=st.integers(0, 5),
    restarted=st.booleans(),
)
def test_the_size_equals_that_of_the_messages_paged_in(
    messages: list[tuple[list[bytes], int, bool, bool]],
    max_priority: int,
    acked: set[int],
    fetched: int,
    restarted: bool,
) -> None:
    node = Node(room=0)
    queue = node.declare(max_priority=max_priority)
    node.declare("other")
    for name in ("q", "other"):
        node.broker.vhosts["/"].bind_queue(name, "amq.fanout", "")
    for bodies, priority, shared, written in messages:
        properties = Properties(delivery_mode=2, priority=priority)
        where = "amq.fanout" if shared else ""
        node.publish(*bodies, exchange=where, properties=properties)
        if written:
            node.store.write()
    for _ in range(20):
        node.get(no_ack=False)
    for tag in acked:
        if tag < node.channel.next_tag:
            node.channel.settle(Settlement.ACK, tag, 0, multiple=False)
    if restarted:
        node.restart()
        queue = node.queue()
    else:
        node.publish(b"last")
    for _ in range(fetched):
        node.get(no_ack=False)
    store = node.store
    (index,) = [each for each in store.queue_indexes.values() if each.queue is queue]
    weighed = store.paged_out_bytes(queue)
    runs = []
    for priority in list(index.paged_out):
        while priority in index.paged_out:
            runs += store.page_in(queue, priority)
    assert weighed == sum(sum(run.body_sizes()) for run in runs)
    assert store.paged_out_bytes(queue) == 0


def test_a_queue_that_the_store_does_not_know_has_nothing_paged_out() -> None:
    node = Node()
    queue = node.declare(durable=False)
    node.publish(b"1")
    assert node.store.paged_out_bytes(queue) == 0


def test_transient_messages_weigh_too() -> None:
    node = Node(room=0)
    queue = node.declare(durable=False)
    node.publish(b"12345", properties=FLEETING)
    node.store.write()
    assert node.store.paged_out_bytes(queue) == 5


def test_a_message_whose_size_cannot_be_read_is_reported() -> None:
    node = Node(room=0)
    node.declare()
    node.publish(b"wanted")
    node.store.write()
    reasons: list[str] = []
    node.store.on_failure = reasons.append
    node.flip_a_bit_of(b"wanted")
    with pytest.raises(CorruptJournalError):
        node.store.paged_out_bytes(node.queue())
    assert "'q'" in reasons[0]


def test_weighing_reads_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged_out, "_READ_MAX_BYTES", 2000)
    node = Node(room=0)
    queue = node.declare()
    for _ in range(30):
        node.publish(bytes(500))
        node.store.write()
    assert node.store.paged_out_bytes(queue) == 15_000


# ── reading without paging in ───────────────────────────────────────────────────────────────────────────


def work_queue(node: Node) -> WorkQueue:
    queue = node.queue()
    assert isinstance(queue, WorkQueue)
    return queue


def read_bodies(node: Node, priority: int = 0) -> list[bytes]:
    return [
        extract_body(content)
        for runs, _ in work_queue(node).read_paged_out(priority, PORTION_LIMITS)
        for run in runs
        for content in run.contents()
    ]


@pytest.mark.parametrize("is_written", [False, True])
def test_paged_out_messages_are_read_and_stay(is_written: bool) -> None:
    node = Node(room=0)
    node.declare(max_priority=2)
    node.declare("other")
    for i in range(300):
        node.publish(b"%d" % i, properties=Properties(delivery_mode=2, priority=i % 3))
        node.publish(b"other", key="other")
    if is_written:
        node.sync()
    assert read_bodies(node, 1) == [b"%d" % i for i in range(1, 300, 3)]
    assert read_bodies(node, 1) == read_bodies(node, 1)
    assert node.queue().ready == 300
    assert sorted(map(int, node.bodies())) == list(range(300))


def test_reading_goes_on_while_messages_are_paged_in() -> None:
    node = Node(room=0, segment_size=20_000)
    node.declare()
    for i in range(1000):
        node.publish(b"%04d" % i * 20, properties=Properties(delivery_mode=2, message_id=str(i)))
    node.sync()
    seen: list[int] = []
    costs = []
    for runs, cost in work_queue(node).read_paged_out(0, PORTION_LIMITS):
        seen += [int(extract_body(content)[:4]) for run in runs for content in run.contents()]
        costs.append(cost)
        for _ in range(20):
            node.get()
        node.sync()
        Compactor(node.store).compact(low_on_disk=True)
    assert max(costs) < 2 * STEP_UNITS_MAX
    assert seen == sorted(set(seen))
    assert seen[-1] == 999
    assert len(seen) > 500


def test_reading_ends_with_its_queue() -> None:
    node = Node(room=0)
    node.declare()
    for i in range(1000):
        node.publish(b"%d" % i, properties=Properties(delivery_mode=2, message_id=str(i)))
    reading = work_queue(node).read_paged_out(0, PORTION_LIMITS)
    assert next(reading)
    node.broker.delete_queue(node.queue(), 0)
    assert next(reading, None) is None


def test_damage_is_reported_while_reading() -> None:
    node = Node(room=0)
    node.declare()
    node.publish(b"a message")
    node.sync()
    failures: list[str] = []
    node.store.on_failure = failures.append
    node.flip_a_bit_of(b"a message")
    with pytest.raises(CorruptJournalError):
        list(work_queue(node).read_paged_out(0, PORTION_LIMITS))
    assert len(failures) == 1


@pytest.mark.parametrize("max_priority", [0, 2])
@pytest.mark.parametrize("every", [1, 3])
def test_taken_messages_are_not_paged_in(max_priority: int, every: int) -> None:
    """Also before they are settled, and the purge of the others does not settle them."""
    node = Node(room=0)
    queue = node.declare(max_priority=max_priority)
    for i in range(30):
        node.publish(b"%02d" % i)
    node.sync()
    assert isinstance(queue, WorkQueue)
    taken = []
    for runs, _ in queue.read_paged_out(0, PORTION_LIMITS):
        taken += [run.slice(i, i + 1) for run in runs for i in range(0, len(run), every)]
    queue.remove_ready(taken, 0, paged_out=True)
    left = [b"%02d" % i for i in range(30) if i % every]
    assert queue.ready == len(left)
    assert node.store.paged_out_bytes(queue) == 2 * len(left)
    assert read_bodies(node) == left
    if left:
        assert node.bodies() == left
    node.publish(b"new")
    assert queue.purge() == 1
    node.restart()
    assert node.bodies() == [b"%02d" % i for i in range(0, 30, every)], "they were never settled"


@pytest.mark.parametrize("max_priority", [0, 2])
def test_a_purge_leaves_taken_messages(max_priority: int) -> None:
    node = Node(room=0)
    queue = node.declare(max_priority=max_priority)
    for i in range(10):
        node.publish(b"%d" % i)
    node.sync()
    assert isinstance(queue, WorkQueue)
    ((runs, _),) = queue.read_paged_out(0, PORTION_LIMITS)
    queue.remove_ready([runs[0].slice(3, 5)], 0, paged_out=True)
    assert queue.purge() == 8
    node.restart()
    assert node.bodies() == [b"3", b"4"]


@pytest.mark.parametrize("max_priority", [0, 2])
def test_the_size_of_paged_out_messages_is_known(max_priority: int) -> None:
    """After a restart it is an estimate."""
    node = Node(room=0)
    node.declare(max_priority=max_priority)
    node.declare("other")
    for i in range(100):
        node.publish(bytes(1000), properties=Properties(delivery_mode=2, priority=i % 3))
    node.publish(bytes(1000), key="other")
    assert node.queue().paged_out_count == 100
    size = node.queue().paged_out_bytes
    assert 100 * 1000 <= size < 100 * 1200
    node.restart()
    assert node.queue().paged_out_count == 100
    assert node.queue().paged_out_bytes == pytest.approx(size, rel=0.1)
    assert len(node.bodies()) == 100
    assert (node.queue().paged_out_count, node.queue().paged_out_bytes) == (0, 0)
    node.get("other")
    node.restart()
    assert (node.queue("other").paged_out_count, node.queue("other").paged_out_bytes) == (0, 0)
