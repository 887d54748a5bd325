"""A stream, case by case."""

from itertools import count

import pytest

from recado.amqp.errors import AmqpNotImplementedError, PreconditionFailedError
from recado.amqp.events import ContentReceived
from recado.amqp.frames import extract_body, extract_properties
from recado.amqp.properties import Properties, decode_properties
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.checks import StreamOffset
from recado.broker.queue import Queue
from recado.broker.run import Run
from recado.broker.stream import Stream

from .stage import (
    GUEST,
    Peer,
    close_channel,
    consume,
    new_broker,
    new_queue,
    open_channel,
    published,
    run_of,
)
from .stores import PagingStore

FIRST = StreamOffset("first")


@pytest.fixture
def broker() -> Broker:
    return new_broker()


@pytest.fixture
def stream(broker: Broker) -> Queue:
    return new_stream(broker)


def new_stream(broker: Broker, **options: object) -> Queue:
    return new_queue(broker, "s", queue_type="stream", durable=True, **options)  # type: ignore[arg-type]


def deliveries(peer: Peer) -> list[tuple[int, bytes]]:
    """Return offsets and bodies of the deliveries since the last call."""
    found = []
    for event in peer.received():
        assert isinstance(event, ContentReceived)
        offset = (decode_properties(extract_properties(event.content)).headers or {})[
            "x-stream-offset"
        ]
        assert isinstance(offset, int)
        found.append((offset, extract_body(event.content)))
    return found


def offsets(peer: Peer) -> list[int]:
    return [offset for offset, _ in deliveries(peer)]


def reader(
    broker: Broker, stream: Queue, offset: StreamOffset = FIRST, prefetch: int = 1000, now: int = 0
) -> tuple[Channel, Peer]:
    peer = Peer()
    channel = open_channel(broker, peer)
    consume(channel, stream, prefetch=prefetch, stream_offset=offset, now=now)
    return channel, peer


def fill(stream: Queue, number: int, now: int = 0, size: int = 1) -> None:
    """Messages that differ, one by one."""
    for i in range(number):
        stream.publish(run_of([b"%d" % i * size]), now)


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────


def test_everybody_reads_everything(broker: Broker, stream: Queue) -> None:
    stream.publish(run_of([b"a", b"b"], alike=True), 0)
    _, early = reader(broker, stream)
    stream.publish(run_of([b"ccc", b"d"]), 0)
    _, late = reader(broker, stream)
    wanted = [(0, b"a"), (1, b"b"), (2, b"ccc"), (3, b"d")]
    assert deliveries(early) == deliveries(late) == wanted
    assert stream.ready == 4


def test_published_messages_are_counted(stream: Queue) -> None:
    fill(stream, 3)
    assert stream.published_count == 3


def test_large_bodies_and_small_frames(broker: Broker, stream: Queue) -> None:
    bodies = [b"x" * 10_000, b"y" * 10_000]
    stream.publish(run_of(bodies, alike=True), 0)
    stream.publish(run_of([b"z" * 20_000]), 0)
    stream.publish(run_of([b"1", b"2"], Properties(headers={"a": 1}), alike=True, channel=3), 0)
    wanted = list(enumerate([*bodies, b"z" * 20_000, b"1", b"2"]))
    peer = Peer(4096)
    consume(open_channel(broker, peer, 5), stream, prefetch=9, stream_offset=FIRST)
    assert deliveries(peer) == wanted
    assert deliveries(reader(broker, stream)[1]) == wanted


@pytest.mark.parametrize(
    ("offset", "begins"),
    [
        (StreamOffset(), 10),
        (StreamOffset("first"), 0),
        (StreamOffset("last"), 9),
        (StreamOffset("offset", 4), 4),
        (StreamOffset("offset", -1), 0),
        (StreamOffset("offset", 12), 12),
        (StreamOffset("time", 105), 5),
        (StreamOffset("time", 1000), 10),
        (StreamOffset("age", 97), 3),
    ],
)
def test_where_to_begin(broker: Broker, stream: Queue, offset: StreamOffset, begins: int) -> None:
    for i in range(10):
        stream.publish(run_of([b"x"]), 100 + i)
    _, peer = reader(broker, stream, offset, now=200)
    fill(stream, 5)
    assert offsets(peer) == list(range(begins, 15))


def test_the_last_of_nothing_is_the_first_to_come(broker: Broker, stream: Queue) -> None:
    _, peer = reader(broker, stream, StreamOffset("last"))
    fill(stream, 2)
    assert offsets(peer) == [0, 1]


def test_acks_make_room_and_so_do_nacks(broker: Broker, stream: Queue) -> None:
    fill(stream, 12)
    channel, peer = reader(broker, stream, prefetch=2)
    assert offsets(peer) == [0, 1]
    channel.ack_each(1, 2, 0)
    assert offsets(peer) == [2, 3]
    channel.settle(Settlement.REQUEUE, 3, 0, multiple=False)
    assert offsets(peer) == [4]
    channel.settle(Settlement.REJECT, 5, 0, multiple=True)
    assert offsets(peer) == [5, 6]
    channel.recover(0)
    assert offsets(peer) == [7, 8]
    assert (stream.ready, stream.unacked) == (12, 2)
    close_channel(channel)
    assert (stream.ready, stream.unacked) == (12, 0)
    assert not stream.consumers


def test_a_limit_for_the_channel_counts_too(broker: Broker, stream: Queue) -> None:
    channel, peer = reader(broker, stream, prefetch=5)
    channel.global_prefetch = 2
    fill(stream, 4)
    assert offsets(peer) == [0, 1]
    channel.ack_each(1, 1, 0)
    assert offsets(peer) == [2]


def test_each_reads_at_its_own_speed(broker: Broker, stream: Queue) -> None:
    fast, slow = reader(broker, stream), reader(broker, stream, prefetch=1)
    fill(stream, 3)
    assert (offsets(fast[1]), offsets(slow[1])) == ([0, 1, 2], [0])
    fill(stream, 1)
    assert (offsets(fast[1]), offsets(slow[1])) == ([3], [])
    for tag in (1, 2, 3):
        slow[0].ack_each(tag, 1, 0)
    assert offsets(slow[1]) == [1, 2, 3]


def test_one_who_does_not_keep_up_waits(broker: Broker, stream: Queue) -> None:
    channel, peer = reader(broker, stream)
    peer.congested = True
    fill(stream, 3)
    assert offsets(peer) == []
    peer.congested = False
    channel.resume(0)
    assert offsets(peer) == [0, 1, 2]


def test_who_has_left_gets_nothing(broker: Broker, stream: Queue) -> None:
    channel, peer = reader(broker, stream)
    broker.cancel(channel.consumers["c"], 0)
    fill(stream, 1)
    assert offsets(peer) == []


def test_a_turn_is_limited_and_the_next_goes_on(broker: Broker, stream: Queue) -> None:
    for i in range(40):
        stream.publish(run_of([b"x" * 100_000]), i)
    peers = [reader(broker, stream)[1] for _ in range(3)]
    got = [offsets(peer) for peer in peers]
    assert 15 < sum(map(len, got)) < 40  # one turn for each
    turns = 0
    while sum(map(len, got)) < 120:
        deadline = broker.deadline()
        assert deadline is not None
        broker.tick(deadline)
        turns += 1
        for read, peer in zip(got, peers, strict=True):
            read += offsets(peer)
    assert got == [list(range(40))] * 3
    assert 5 < turns < 15


def test_two_consumers_on_one_channel(broker: Broker, stream: Queue) -> None:
    peer = Peer()
    channel = open_channel(broker, peer)
    for tag in "ab":
        consume(channel, stream, tag, prefetch=5, stream_offset=FIRST)
    open_channel(broker).publisher.publish(published("s", b"1", b"2"), 0)
    assert sorted(offsets(peer)) == [0, 0, 1, 1]


def test_an_exclusive_consumer_is_alone(broker: Broker, stream: Queue) -> None:
    consume(open_channel(broker), stream, prefetch=1, exclusive=True)
    assert stream.excludes_consumer(exclusive=False)


# ── what a stream does not do ─────────────────────────────────────────────────────────────────────────────


def test_what_is_refused(broker: Broker, stream: Queue) -> None:
    channel = open_channel(broker)
    with pytest.raises(AmqpNotImplementedError, match=r"basic\.get not supported by stream queues"):
        channel.get(stream, no_ack=True, now=0)
    with pytest.raises(
        AmqpNotImplementedError, match=r"queue\.purge not supported by stream queues"
    ):
        stream.purge()
    with pytest.raises(
        PreconditionFailedError, match="consumer prefetch count is not set for 'queue"
    ):
        consume(channel, stream)
    with pytest.raises(AmqpNotImplementedError, match="automatic acknowledgement not supported by"):
        consume(channel, stream, prefetch=1, no_ack=True)
    assert not channel.consumers


def test_it_is_deleted_as_any_queue(broker: Broker, stream: Queue) -> None:
    _, peer = reader(broker, stream)
    fill(stream, 2)
    peer.received()
    told: list[int] = []
    broker.delete_queue(stream, 0, on_deleted=told.append)
    assert told == [2]
    assert len(peer.received()) == 1  # basic.cancel
    assert not new_stream(broker).ready


# ── letting go ────────────────────────────────────────────────────────────────────────────────────────────


def test_retention_by_size(broker: Broker) -> None:
    stream = new_stream(broker, max_length_bytes=20_000, segment_bytes=5000)
    slow, peer = reader(broker, stream, prefetch=1)
    fill(stream, 100, size=500)
    assert 10 < stream.ready < 25
    assert offsets(peer) == [0]
    slow.ack_each(1, 1, 0)
    assert offsets(peer) == [100 - stream.ready]
    _, late = reader(broker, stream)
    assert offsets(late) == list(range(100 - stream.ready, 100))


def test_one_who_is_left_behind_goes_on_with_the_oldest(broker: Broker) -> None:
    stream = new_stream(broker, max_length_bytes=20_000, segment_bytes=5000)
    fill(stream, 10, size=500)
    channel, peer = reader(broker, stream, StreamOffset("offset", 3), prefetch=1)
    fill(stream, 100, size=500)
    assert offsets(peer) == [3]
    got = []
    while stream.unacked:
        channel.ack_each(channel.next_tag - 1, 1, 0)
        got += offsets(peer)
    assert got == sorted(set(got))
    assert got[-1] == 109
    assert len(got) < 40


def test_retention_by_age(broker: Broker) -> None:
    stream = new_stream(broker, max_age_ms=1000, segment_bytes=5000)
    for now in range(20):
        fill(stream, 1, now=now * 100, size=1000)
    assert 10 < stream.ready < 16
    left = stream.ready
    assert broker.deadline() is not None
    broker.tick(2400)
    assert 5 < stream.ready < left
    broker.tick(10_000)
    assert 0 < stream.ready < 6  # the current segment stays
    assert broker.deadline() is None


def test_a_policy_changes_what_is_kept(broker: Broker) -> None:
    stream = new_stream(broker, segment_bytes=5000)
    fill(stream, 20, size=1000)
    assert stream.ready == 20
    limited = QueueSettings(queue_type="stream", durable=True, max_length_bytes=5000)
    stream.reconfigure(limited, 0)
    assert stream.ready < 6


# ── what is safe ──────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_sees_what_is_not_safe() -> None:
    store = PagingStore(1 << 20)
    broker = Broker(map(str, count(1)).__next__, store=store)
    broker.add_user(GUEST)
    stream = new_stream(broker, max_age_ms=1000)
    _, peer = reader(broker, stream)
    fill(stream, 2)
    store.lsn += 1
    fill(stream, 1)
    assert (offsets(peer), stream.ready, len(store.listeners)) == ([], 3, 2)
    store.durable_lsn = 1
    store.listeners.pop(0).on_durable()
    assert offsets(peer) == [0, 1]
    assert offsets(reader(broker, stream)[1]) == [0, 1]
    assert offsets(reader(broker, stream, StreamOffset("last"))[1]) == [1]
    store.sync()
    assert offsets(peer) == [2]


def test_what_becomes_safe_once_the_stream_is_gone() -> None:
    store = PagingStore(1 << 20)
    broker = Broker(map(str, count(1)).__next__, store=store)
    stream = new_stream(broker)
    fill(stream, 1)
    broker.delete_queue(stream, 0)
    store.sync()
    assert stream.ready == 0


def test_a_stream_pages_nothing_out(stream: Queue) -> None:
    """Its messages are in its own log, so they are no messages that memory has no room for."""
    fill(stream, 1)
    assert (stream.paged_out_count, stream.paged_out_bytes) == (0, 0)


def test_a_stream_is_a_queue(stream: Queue) -> None:
    assert isinstance(stream, Stream)
    assert not stream.is_per_message


def test_many_readers_share_what_was_read(broker: Broker) -> None:
    """A thousand consumers with little credit must not each hold a part of the log in memory."""
    stream = new_stream(broker)
    assert isinstance(stream, Stream)
    for number in range(500):
        stream.publish(run_of([b"%04d" % number]), number)
    reads: list[int] = []
    log = stream._log
    read = log.read

    def counted(offset: int, end: int) -> list[Run]:
        reads.append(offset)
        return read(offset, end)

    log.read = counted  # type: ignore[method-assign]
    for _ in range(100):
        reader(broker, stream)
    assert len(reads) < 5


def test_the_first_offset_is_that_of_the_oldest_message(broker: Broker) -> None:
    stream = new_stream(broker, max_length_bytes=100, segment_bytes=50)
    assert isinstance(stream, Stream)
    assert stream.first_offset == 0
    fill(stream, 200, size=10)
    assert 0 < stream.first_offset == 200 - stream.ready
    _, peer = reader(broker, stream)
    assert offsets(peer)[0] == stream.first_offset


def test_a_reader_at_the_end_that_settles_gets_new_messages_once(
    broker: Broker, stream: Queue
) -> None:
    fill(stream, 3)
    channel, peer = reader(broker, stream)
    assert offsets(peer) == [0, 1, 2]
    channel.settle(Settlement.REJECT, 1, 0, multiple=False)
    channel.settle(Settlement.ACK, 3, 0, multiple=True)
    assert offsets(peer) == []
    fill(stream, 2)
    assert offsets(peer) == [3, 4]
