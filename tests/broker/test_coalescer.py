"""Single messages of many connections that enter a queue as one run."""

import pytest

from recado.amqp.properties import Properties
from recado.broker import coalescer
from recado.broker.broker import Broker
from recado.broker.channel import Channel
from recado.broker.queue import Queue

from .stage import Peer, consume, new_broker, new_queue, open_channel, published
from .stores import PagingStore

PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture
def store() -> PagingStore:
    return PagingStore(1 << 30)


@pytest.fixture
def broker(store: PagingStore) -> Broker:
    broker = new_broker(store)
    broker.coalescer.is_enabled = True
    return broker


@pytest.fixture
def queue(broker: Broker) -> Queue:
    return new_queue(broker, durable=True)


@pytest.fixture
def channels(broker: Broker) -> list[Channel]:
    return [open_channel(broker) for _ in range(3)]


def publish(
    channel: Channel, *bodies: bytes, key: str = "q", kind: Properties | None = None
) -> None:
    channel.publisher.publish(published(key, *bodies, properties=kind, channel=channel.number), 0)


def test_what_comes_one_by_one_goes_in_together(
    broker: Broker, queue: Queue, store: PagingStore, channels: list[Channel]
) -> None:
    peer = Peer()
    consume(open_channel(broker, peer), queue)
    for channel, body in zip(channels, (b"a", b"bcd", b""), strict=True):
        publish(channel, body, kind=PERSISTENT)
    assert (broker.has_pending_work, peer.bodies()) == (True, [])
    broker.coalescer.flush(0)
    assert (broker.has_pending_work, peer.bodies()) == (False, [b"a", b"bcd", b""])
    assert store.notes[-1:] == ["3 to q"]


def test_what_is_not_alike_lets_in_what_waits(
    broker: Broker, queue: Queue, channels: list[Channel]
) -> None:
    other = new_queue(broker, "other")
    one, two, three = channels
    publish(one, b"a")
    publish(two, b"b", kind=PERSISTENT)
    assert queue.ready == 1
    publish(three, b"c", key="other")
    assert (queue.ready, other.ready) == (2, 0)
    publish(one, b"d", b"e")
    assert (queue.ready, other.ready) == (4, 1)


def test_another_number_or_frame_size_does_not_fit(broker: Broker, queue: Queue) -> None:
    for ready, channel in enumerate(
        (open_channel(broker), open_channel(broker, number=2), open_channel(broker, Peer(4096), 2))
    ):
        publish(channel, b"x")
        assert queue.ready == ready


def test_no_more_than_so_much_waits(queue: Queue, channels: list[Channel]) -> None:
    for channel in channels:
        publish(channel, bytes(coalescer.BATCH_BYTES_MAX // 3))
    assert queue.ready == 2


@pytest.mark.parametrize(
    "settings",
    [{"max_length": 5}, {"message_ttl_ms": 5}, {"queue_type": "stream", "durable": True}],
)
def test_a_queue_that_asks_more_is_told_at_once(
    broker: Broker, channels: list[Channel], settings: dict[str, object]
) -> None:
    queue = new_queue(broker, "choosy", 0, **settings)
    publish(channels[0], b"x", key="choosy")
    assert queue.ready == 1
    assert not broker.coalescer.will_be_stored


def test_a_message_with_a_time_to_live_goes_in_alone(queue: Queue, channels: list[Channel]) -> None:
    publish(channels[0], b"x", kind=Properties(expiration="5"))
    assert queue.ready == 1


def test_a_message_for_two_queues_goes_in_alone(
    broker: Broker, queue: Queue, channels: list[Channel]
) -> None:
    other = new_queue(broker, "other")
    for each in (queue, other):
        broker.vhosts["/"].bind_queue(each.name, "amq.fanout", "")
    channels[0].publisher.publish(published("", b"x", exchange="amq.fanout"), 0)
    assert (queue.ready, other.ready) == (1, 1)


def test_time_lets_it_in(broker: Broker, queue: Queue, channels: list[Channel]) -> None:
    publish(channels[0], b"x")
    broker.tick(1)
    assert queue.ready == 1


def test_a_broker_that_nobody_runs_in_turns_gathers_nothing(store: PagingStore) -> None:
    broker = new_broker(store)
    queue = new_queue(broker)
    publish(open_channel(broker), b"x")
    assert queue.ready == 1


def test_a_confirm_waits_for_what_will_be_kept(
    broker: Broker, queue: Queue, store: PagingStore
) -> None:
    peers = Peer(), Peer()
    channels = [open_channel(broker, peer) for peer in peers]
    for channel in channels:
        channel.publisher.enable_confirms()
        publish(channel, b"x", kind=PERSISTENT)
        channel.publisher.send_confirms()
    broker.coalescer.flush(0)
    assert [peer.received() for peer in peers] == [[], []]
    store.sync()
    assert [len(peer.received()) for peer in peers] == [1, 1]


def test_a_confirm_of_what_is_not_kept_does_not_wait(broker: Broker, queue: Queue) -> None:
    peer = Peer()
    channel = open_channel(broker, peer)
    channel.publisher.enable_confirms()
    publish(channel, b"x")
    channel.publisher.send_confirms()
    assert len(peer.received()) == 1
