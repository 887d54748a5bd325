"""Message counters, of closed and of open channels."""

from __future__ import annotations

from recado.broker.broker import MessageCounters
from recado.broker.channel import Settlement
from tests.broker.stage import consume, new_broker, new_queue, open_channel, published


def counts(tally: MessageCounters) -> tuple[int, int, int, int]:
    return tally.published, tally.confirmed, tally.delivered, tally.acknowledged


def publish_counts(tally: MessageCounters) -> tuple[int, int, int, int]:
    return tally.published_for_confirm, tally.routed, tally.dropped, tally.returned


def test_the_counters_of_a_deleted_queue_are_added_to_a_total() -> None:
    broker = new_broker()
    queue = new_queue(broker)
    channel = open_channel(broker)
    channel.publisher.publish(published("q", b"1", b"2"), 0)
    consume(channel, queue)
    queue.dispatch(0)
    before = broker.deleted_queue_counters["classic"].copy()
    broker.delete_queue(queue, 0)
    total = broker.deleted_queue_counters["classic"]
    assert (before.published_count, before.delivered_count) == (0, 0)
    assert (total.published_count, total.delivered_count) == (2, 2)
    assert (total.ready, total.unacked) == (0, 0)
    assert broker.deleted_queue_counters["quorum"].published_count == 0


def test_what_goes_through_a_channel_is_counted_once() -> None:
    broker = new_broker()
    queue = new_queue(broker)
    publishing, consuming = open_channel(broker), open_channel(broker, number=2)
    publishing.publisher.publish(published("q", b"before"), 0)
    publishing.publisher.enable_confirms()
    publishing.publisher.publish(published("q", b"1", b"2", b"3"), 0)
    publishing.publisher.publish(published("nowhere", b"4"), 0)
    publishing.publisher.send_confirms()
    publishing.publisher.enable_confirms()  # again: numbers continue
    publishing.publisher.publish(published("q", b"5"), 0)
    consume(consuming, queue)
    queue.dispatch(0)
    consuming.settle(Settlement.ACK, 2, 0, multiple=True)
    consuming.settle(Settlement.REQUEUE, 3, 0, multiple=False)  # and redelivered
    consuming.settle(Settlement.REJECT, 4, 0, multiple=False)
    both = broker.counters.total_with([publishing, consuming])
    assert counts(both) == (6, 4, 6, 2)
    assert publish_counts(both) == (5, 5, 1, 0)
    assert counts(broker.counters) == (0, 0, 0, 0)
    broker.counters.add_channel(publishing)
    assert broker.counters.total_with([consuming]) == both
