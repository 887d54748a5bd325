"""The consumer ring: by priority, then round-robin; sleeping consumers are skipped."""

from recado.broker.arguments import ConsumerSettings
from recado.broker.channel import Channel
from recado.broker.consumer import Consumer
from recado.broker.consumer_ring import ConsumerRing
from recado.broker.queue import Queue

from .stage import new_broker, new_queue, open_channel


def _consumer(channel: Channel, queue: Queue, tag: str, priority: int = 0) -> Consumer:
    settings = ConsumerSettings(priority=priority)
    return Consumer(channel, queue, tag, settings, no_ack=False, exclusive=False, prefetch=0)


def tags(ring: ConsumerRing) -> list[str] | None:
    front_group = ring.front_group
    return None if front_group is None else [consumer.tag for consumer in front_group]


def test_turns() -> None:
    broker = new_broker()
    channel, queue = open_channel(broker), new_queue(broker)
    ring = ConsumerRing()
    low, a, b, high = (
        _consumer(channel, queue, tag, priority)
        for tag, priority in (("low", -1), ("a", 0), ("b", 0), ("high", 7))
    )
    assert tags(ring) is None
    for consumer in (low, a, b, high):
        ring.wake(consumer)
    assert tags(ring) == ["high"]
    ring.wake(high)
    assert tags(ring) == ["high"]
    ring.sleep(high)
    ring.sleep(high)
    assert tags(ring) == ["a", "b"]
    ring.sleep(a)
    ring.wake(a)
    assert tags(ring) == ["b", "a"]
    ring.sleep(a)
    ring.sleep(b)
    assert tags(ring) == ["low"]
    ring.sleep(low)
    assert tags(ring) is None
