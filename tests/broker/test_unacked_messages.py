"""Listing the unacknowledged deliveries of a queue, and requeueing some of them."""

from __future__ import annotations

import pytest

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.events import ContentReceived
from recado.amqp.methods import BasicGetOk
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.steps import STEP_UNITS_MAX, run_to_completion
from recado.broker.unacked_messages import (
    REQUEUED_MESSAGES_MAX,
    ChosenDelivery,
    RequeueProgress,
    UnackedMessage,
    list_unacked,
    requeue_deliveries,
)
from recado.broker.work_queue import WorkQueue

from .stage import Peer, consume, new_queue, open_channel, run_of


@pytest.fixture
def queue(broker: Broker) -> WorkQueue:
    made = new_queue(broker)
    assert isinstance(made, WorkQueue)
    return made


def unacked(queue: WorkQueue, channel: Channel, count: int = 1_000) -> list[UnackedMessage]:
    return run_to_completion(list_unacked(queue, channel, count))


def requeue(queue: WorkQueue, *chosen: tuple[Channel, int, int]) -> int:
    progress = RequeueProgress()
    deliveries = [ChosenDelivery(*each) for each in chosen]
    run_to_completion(requeue_deliveries(queue, deliveries, progress))
    return progress.requeued


def test_the_list_has_the_deliveries_of_one_queue(broker: Broker, queue: WorkQueue) -> None:
    other = new_queue(broker, "other")
    channel = open_channel(broker)
    queue.publish(run_of([b"got"]), 0)
    assert channel.get(queue, no_ack=False, now=0)
    consume(channel, queue, "c")
    consume(channel, other, "d")
    for size in (1, 2, 3):
        queue.publish(run_of([b"x" * size]), 0)
        other.publish(run_of([b"y"]), 0)
    channel.settle(Settlement.ACK, 4, 0, multiple=False)
    found = [
        (each.delivery_tag, each.consumer_tag, each.position, each.body_bytes, each.redelivered)
        for each in unacked(queue, channel)
    ]
    assert found == [(1, "", 0, 3, False), (2, "c", 1, 1, False), (6, "c", 3, 3, False)]
    assert [each.delivery_tag for each in unacked(queue, channel, 2)] == [1, 2]
    assert [each.delivery_tag for each in unacked(queue, open_channel(broker))] == []


@pytest.mark.parametrize("alike", [False, True])
def test_a_run_is_listed_message_by_message(
    broker: Broker, queue: WorkQueue, *, alike: bool
) -> None:
    channels = [open_channel(broker) for _ in range(2)]
    for channel in channels:  # which share the run message by message
        consume(channel, queue)
    queue.publish(run_of([b"%03d" % number for number in range(300)], alike=alike), 0)
    for index, channel in enumerate(channels):
        found = unacked(queue, channel)
        assert [each.position for each in found] == list(range(index, 300, 2))
        assert {each.body_bytes for each in found} == {3}


def test_settled_messages_of_a_run_are_not_listed(broker: Broker, queue: WorkQueue) -> None:
    channel = open_channel(broker)
    consume(channel, queue)
    queue.publish(run_of([b"%d" % number for number in range(6)]), 0)
    for tag in (2, 5):
        channel.settle(Settlement.ACK, tag, 0, multiple=False)
    assert [each.delivery_tag for each in unacked(queue, channel)] == [1, 3, 4, 6]
    assert [each.position for each in unacked(queue, channel)] == [0, 2, 3, 5]


def test_steps_of_the_list_are_bounded(broker: Broker, queue: WorkQueue) -> None:
    channel = open_channel(broker)
    consume(channel, queue)
    for number in range(2_000):
        queue.publish(run_of([b"x" * (number % 2)]), 0)
    steps = list(list_unacked(queue, channel, 1_500))
    assert len(steps) > 1
    assert max(steps) <= 2 * STEP_UNITS_MAX


def test_chosen_messages_are_requeued_in_order(broker: Broker, queue: WorkQueue) -> None:
    first, second, peer = Peer(), Peer(), Peer()
    holders = [open_channel(broker, each) for each in (first, second)]
    consumers = [consume(each, queue, prefetch=2) for each in holders]
    queue.publish(run_of([b"0", b"1", b"2", b"3"]), 0)
    assert first.bodies() + second.bodies() == [b"0", b"2", b"1", b"3"]
    for consumer in consumers:
        consumer.channel.remove_consumer(consumer, 0)
    assert requeue(queue, (holders[1], 2, 3), (holders[0], 1, 0), (holders[0], 9, 9)) == 2
    assert (queue.ready, queue.unacked) == (2, 2)
    consume(open_channel(broker, peer), queue)
    assert [(method.redelivered, body) for method, body in peer.delivered()] == [
        (True, b"0"),
        (True, b"3"),
    ]
    # The other deliveries are settled as usual, and a channel that closes returns only what it still has.
    holders[0].settle(Settlement.ACK, 2, 0, multiple=False)
    run_to_completion(holders[1].close())
    assert peer.bodies() == [b"1"]


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("settlement", list(Settlement))
def test_ch6_a_late_settlement_is_ignored_once(
    broker: Broker, queue: WorkQueue, settlement: Settlement, *, multiple: bool
) -> None:
    channel = open_channel(broker)
    consumer = consume(channel, queue)
    queue.publish(run_of([b"a", b"b"]), 0)
    channel.remove_consumer(consumer, 0)
    assert requeue(queue, (channel, 2, 1)) == 1
    channel.settle(settlement, 2, 0, multiple=multiple)
    assert queue.unacked == (0 if multiple else 1)
    with pytest.raises(PreconditionFailedError, match="unknown delivery tag 2"):
        channel.settle(settlement, 2, 0, multiple=multiple)


def test_ch6_among_single_acks(broker: Broker, queue: WorkQueue) -> None:
    channel = open_channel(broker)
    consumer = consume(channel, queue)
    queue.publish(run_of([b"%d" % number for number in range(6)]), 0)
    channel.remove_consumer(consumer, 0)
    assert requeue(queue, (channel, 2, 1), (channel, 5, 4)) == 2
    channel.ack_each(1, 6, 0)
    assert (queue.ready, queue.unacked) == (2, 0)
    with pytest.raises(PreconditionFailedError, match="unknown delivery tag 1"):
        channel.ack_each(1, 6, 0)


def test_ch3_a_transaction_keeps_what_it_settles(broker: Broker, queue: WorkQueue) -> None:
    channel = open_channel(broker)
    consumer = consume(channel, queue)
    queue.publish(run_of([b"%d" % number for number in range(5)]), 0)
    channel.remove_consumer(consumer, 0)
    channel.publisher.transaction = []
    channel.settle(Settlement.ACK, 2, 0, multiple=True)
    channel.settle(Settlement.ACK, 4, 0, multiple=False)
    assert requeue(queue, *((channel, tag, tag - 1) for tag in range(1, 6))) == 2
    channel.settle(Settlement.ACK, 3, 0, multiple=False)  # ignored
    channel.commit(0)
    assert (queue.ready, queue.unacked) == (2, 0)
    with pytest.raises(PreconditionFailedError):
        channel.settle(Settlement.ACK, 3, 0, multiple=False)


def test_a_tag_that_means_another_message_is_left(broker: Broker, queue: WorkQueue) -> None:
    channel, other = open_channel(broker), new_queue(broker, "other")
    consume(channel, queue)
    consume(channel, other, "d")
    queue.publish(run_of([b"a"]), 0)
    other.publish(run_of([b"b"]), 0)
    assert requeue(queue, (channel, 1, 7), (channel, 2, 0), (channel, 3, 0), (channel, 0, 0)) == 0
    assert (queue.unacked, other.unacked) == (1, 1)


def test_a_quorum_queue_counts_the_delivery(broker: Broker) -> None:
    queue = new_queue(broker, queue_type="quorum", delivery_limit=1)
    assert isinstance(queue, WorkQueue)
    channel = open_channel(broker)
    consume(channel, queue, prefetch=1)
    queue.publish(run_of([b"a"]), 0)
    assert requeue(queue, (channel, 1, 0)) == 1
    (again,) = unacked(queue, channel)
    assert (again.delivery_tag, again.delivery_count, again.redelivered) == (2, 1, True)
    assert requeue(queue, (channel, 2, 0)) == 1
    assert (queue.ready, queue.unacked) == (0, 0)


def test_a_message_that_was_got_is_requeued(broker: Broker, queue: WorkQueue) -> None:
    """It has no consumer, which would get further messages instead."""
    channel, peer = open_channel(broker), Peer()
    queue.publish(run_of([b"a"]), 0)
    assert channel.get(queue, no_ack=False, now=0)
    assert requeue(queue, (channel, 1, 0)) == 1
    assert (queue.ready, queue.unacked) == (1, 0)
    assert open_channel(broker, peer).get(queue, no_ack=True, now=0)
    (event,) = peer.received()
    assert isinstance(event, ContentReceived)
    assert isinstance(event.method, BasicGetOk)
    assert event.method.redelivered


def test_ch6_the_oldest_withdrawn_tags_are_forgotten(
    broker: Broker, queue: WorkQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that never settles cannot make a channel grow; its very late settlement is an error then."""
    monkeypatch.setattr("recado.broker.channel.WITHDRAWN_TAGS_MAX", 2)
    channel = open_channel(broker)
    consumer = consume(channel, queue)
    queue.publish(run_of([b"%d" % number for number in range(4)]), 0)
    channel.remove_consumer(consumer, 0)
    assert requeue(queue, *((channel, tag, tag - 1) for tag in (1, 2, 3))) == 3
    for tag in (2, 3):
        channel.settle(Settlement.ACK, tag, 0, multiple=False)
    with pytest.raises(PreconditionFailedError, match="unknown delivery tag 1"):
        channel.settle(Settlement.ACK, 1, 0, multiple=False)
    assert (queue.ready, queue.unacked) == (3, 1)


def test_a_shared_prefetch_is_released(broker: Broker, queue: WorkQueue) -> None:
    peer = Peer()
    channel, other = open_channel(broker, peer), new_queue(broker, "other")
    channel.global_prefetch = 1
    consumer = consume(channel, queue)
    queue.publish(run_of([b"a"]), 0)
    channel.remove_consumer(consumer, 0)
    consume(channel, other, "d")
    other.publish(run_of([b"b"]), 0)
    assert peer.bodies() == [b"a"]
    assert requeue(queue, (channel, 1, 0)) == 1
    assert peer.bodies() == [b"b"]


def test_steps_of_requeueing_are_bounded(broker: Broker, queue: WorkQueue) -> None:
    channel = open_channel(broker)
    consumer = consume(channel, queue)
    count = 3 * REQUEUED_MESSAGES_MAX
    for number in range(count):
        queue.publish(run_of([b"x" * (number % 2)]), 0)
    channel.remove_consumer(consumer, 0)
    chosen = [ChosenDelivery(channel, each + 1, each) for each in reversed(range(count))]
    progress = RequeueProgress()
    costs = list(requeue_deliveries(queue, chosen, progress))
    assert len(costs) == 3
    assert max(costs) <= 2 * STEP_UNITS_MAX
    assert (progress.requeued, queue.ready) == (count, count)
