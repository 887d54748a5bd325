"""Whose turn it is: by priority, then in order; those who sleep are not asked."""

from recado.broker.arguments import ConsumerSettings
from recado.broker.channel import Channel
from recado.broker.consumer import Consumer
from recado.broker.consumer_ring import ConsumerRing
from recado.broker.queue import Queue

from .stage import new_broker, new_queue, open_channel


def _consumer(channel: Channel, queue: Queue, tag: str, priority: int = 0) -> Consumer:
    settings = ConsumerSettings(priority=priority)
    return Consumer(channel, queue, tag, settings, no_ack=False, exclusive=False, prefetch=0)


def tags(rota: ConsumerRing) -> list[str] | None:
    foremost = rota.front_group
    return None if foremost is None else [consumer.tag for consumer in foremost]


def test_turns() -> None:
    broker = new_broker()
    channel, queue = open_channel(broker), new_queue(broker)
    rota = ConsumerRing()
    low, a, b, high = (
        _consumer(channel, queue, tag, priority)
        for tag, priority in (("low", -1), ("a", 0), ("b", 0), ("high", 7))
    )
    assert tags(rota) is None
    for consumer in (low, a, b, high):
        rota.wake(consumer)
    assert tags(rota) == ["high"]
    rota.wake(high)
    assert tags(rota) == ["high"]
    rota.sleep(high)
    rota.sleep(high)
    assert tags(rota) == ["a", "b"]
    rota.sleep(a)
    rota.wake(a)
    assert tags(rota) == ["b", "a"]
    rota.sleep(a)
    rota.sleep(b)
    assert tags(rota) == ["low"]
    rota.sleep(low)
    assert tags(rota) is None
