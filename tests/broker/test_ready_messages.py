"""Reading the messages of a queue while it is used; tests/broker/test_queue.py reads it in all states."""

from __future__ import annotations

from typing import Any

import pytest

from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.broker.channel import Settlement
from recado.broker.checks import StreamOffset
from recado.broker.priority_bucket import ReadLimits
from recado.broker.ready_messages import MessageReader, Portion, ReadyMessages, StreamMessages
from recado.broker.run import Run
from recado.broker.store import MessageStore
from recado.broker.stream import Stream
from recado.broker.work_queue import WorkQueue

from .stage import consume, new_broker, new_queue, open_channel, published, run_of
from .stores import PagingStore

ONE_RUN = ReadLimits(message_count=1 << 20, byte_count=1 << 20, run_count=1)
PERSISTENT = Properties(delivery_mode=2)


class Stage:
    """A queue, one consumer that gets everything, and a publisher."""

    def __init__(self, store: MessageStore | None = None, **settings: Any) -> None:
        self.broker = new_broker(store)
        queue = new_queue(self.broker, durable=True, **settings)
        assert isinstance(queue, WorkQueue)
        self.queue = queue
        self.channel = open_channel(self.broker)

    def publish(self, *bodies: bytes, priority: int | None = None) -> None:
        for body in bodies:
            properties = Properties(delivery_mode=2, priority=priority)
            self.channel.publisher.publish(published("q", body, properties=properties), 0)

    def take(self, count: int) -> list[bytes]:
        return [bodies_of(self.queue.get(0))[0] for _ in range(count)]

    def deliver(self) -> None:
        consume(self.channel, self.queue)

    def requeue(self, *tags: int) -> None:
        for tag in tags:
            self.channel.settle(Settlement.REQUEUE, tag, 0, multiple=False)


def bodies_of(run: Run | None) -> list[bytes]:
    assert run is not None
    return [extract_body(content) for content in run.contents()]


def read(reader: MessageReader) -> list[bytes]:
    portion = reader.read()
    assert portion is not None
    return [body for run in portion.runs for body in bodies_of(run)]


def read_rest(reader: MessageReader) -> list[bytes]:
    found = []
    while (portion := reader.read()) is not None:
        assert portion.cost > 0
        found += [body for run in portion.runs for body in bodies_of(run)]
    return found


def test_messages_that_enter_meanwhile_are_not_read() -> None:
    stage = Stage()
    stage.publish(b"0", b"1")
    reader = ReadyMessages(stage.queue)
    stage.publish(b"2")
    assert read_rest(reader) == [b"0", b"1"]
    reader = ReadyMessages(stage.queue)
    stage.publish(b"longer")
    assert read_rest(reader) == [b"0", b"1", b"2"]


def test_messages_that_leave_meanwhile_are_not_read() -> None:
    stage = Stage()
    stage.publish(*(b"%d" % i * (i + 1) for i in range(4)))
    reader = ReadyMessages(stage.queue, ONE_RUN)
    assert stage.take(1) == [b"0"]
    assert read_rest(reader) == [b"11", b"222", b"3333"]


@pytest.mark.parametrize("max_priority", [None, 3])
def test_messages_that_are_paged_in_meanwhile_are_read_once(max_priority: int | None) -> None:
    stage = Stage(PagingStore(0), max_priority=max_priority)
    sent = [b"%d" % i for i in range(20)]
    stage.publish(*sent, priority=2)
    reader = ReadyMessages(stage.queue, ONE_RUN)
    seen = []
    for _ in range(4):
        seen += read(reader)
        stage.take(2)
    seen += read_rest(reader)
    assert seen == sorted(set(seen), key=sent.index)
    assert set(seen) >= set(sent[8:])
    assert stage.take(12) == sent[8:]


def test_higher_priorities_are_read_first() -> None:
    stage = Stage(max_priority=5)
    stage.publish(b"low", b"lower", priority=1)
    stage.publish(b"high", priority=4)
    assert read_rest(ReadyMessages(stage.queue)) == [b"high", b"low", b"lower"]
    assert stage.take(3) == [b"high", b"low", b"lower"]


def test_requeued_messages_are_read_at_their_positions() -> None:
    """And consumers still get them in order, also between two portions."""
    stage = Stage()
    stage.publish(*(b"%d" % i * (i + 1) for i in range(6)))
    stage.channel.consumer_prefetch = 4
    consumer = consume(stage.channel, stage.queue, prefetch=4)
    stage.queue.remove_consumer(consumer, 0)
    stage.requeue(4, 2, 1)
    reader = ReadyMessages(stage.queue, ONE_RUN)
    assert read(reader) == [b"0"]
    assert stage.take(2) == [b"0", b"11"]
    assert read_rest(reader) == [b"3333", b"44444", b"555555"]
    assert stage.take(1) == [b"3333"]


def test_a_purge_settles_no_delivery_between_requeued_messages() -> None:
    store = PagingStore(1 << 20)
    stage = Stage(store)
    stage.publish(*(b"%d" % i * (i + 1) for i in range(5)))
    consumer = consume(stage.channel, stage.queue, prefetch=3)
    stage.queue.remove_consumer(consumer, 0)
    stage.requeue(1, 3)
    assert read_rest(ReadyMessages(stage.queue)) == [b"0", b"222", b"3333", b"44444"]
    assert stage.queue.purge() == 4
    assert store.live[stage.queue] == {1}
    stage.publish(b"next")
    assert stage.queue.purge() == 1
    assert store.live[stage.queue] == {1}


def test_messages_that_return_behind_the_reader_are_not_read() -> None:
    stage = Stage()
    stage.publish(*(b"%d" % i for i in range(3)))
    taken = [stage.queue.get(0) for _ in range(2)]
    reader = ReadyMessages(stage.queue, ONE_RUN)
    assert read(reader) == [b"2"]
    for run in taken:
        assert run is not None
        stage.queue.requeue([run], 0)
    assert read(reader) == []
    assert read_rest(reader) == []


def test_a_deleted_queue_has_no_messages() -> None:
    stage = Stage()
    stage.publish(b"0")
    reader = ReadyMessages(stage.queue)
    stage.broker.delete_queue(stage.queue, 0)
    assert reader.read() is None


def test_removed_messages_do_not_count() -> None:
    """Neither for the limit in bytes."""
    stage = Stage(max_length_bytes=10)
    stage.publish(b"1234", b"567", b"890")
    portion = ReadyMessages(stage.queue).read()
    assert portion is not None
    stage.queue.remove_ready([portion.runs[0].slice(0, 1)], 0, paged_out=False)
    assert stage.queue.ready == 2
    stage.publish(b"abcd")
    assert stage.take(3) == [b"567", b"890", b"abcd"]


def test_a_stream_is_read_from_an_offset() -> None:
    broker = new_broker()
    stream = new_queue(broker, "s", queue_type="stream", durable=True)
    assert isinstance(stream, Stream)
    stream.publish(run_of([b"0", b"1"]), 0)
    stream.publish(run_of([b"2"]), 0)
    reader = StreamMessages(stream, StreamOffset("offset", 1), 0)
    stream.publish(run_of([b"3"]), 0)
    assert read_rest(reader) == [b"1", b"2"]
    reader = StreamMessages(stream, StreamOffset("first"), 0)
    broker.delete_queue(stream, 0)
    assert reader.read() is None


def test_a_message_that_is_not_durable_is_not_read() -> None:
    store = PagingStore(0)
    broker = new_broker(store)
    stream = new_queue(broker, "s", queue_type="stream", durable=True)
    assert isinstance(stream, Stream)
    stream.publish(run_of([b"0"], PERSISTENT), 0)
    assert read_rest(StreamMessages(stream, StreamOffset("first"), 0)) == []
    store.sync()
    assert read_rest(StreamMessages(stream, StreamOffset("first"), 0)) == [b"0"]


def test_a_store_without_a_disk_has_paged_out_nothing() -> None:
    store = MessageStore()
    stage = Stage(store)
    assert list(store.read_paged_out(stage.queue, 0, ONE_RUN)) == []
    with pytest.raises(NotImplementedError):
        store.take_paged_out(stage.queue, run_of([b"0"]), 0)
    assert Portion((), 1).is_paged_out is False
