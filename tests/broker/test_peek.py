"""Peek: copies of messages; nothing about the messages in the queue changes."""

from __future__ import annotations

from typing import Any

from recado.amqp.methods import BasicGetOk
from recado.amqp.properties import Properties, decode_properties
from recado.broker.channel import Settlement
from recado.broker.checks import StreamOffset
from recado.broker.message_filter import MessageFilter
from recado.broker.peek import PeekedMessage, PeekSettings, peek
from recado.broker.ready_messages import ReadyMessages, StreamMessages
from recado.broker.steps import STEP_UNITS_MAX, run_to_completion
from recado.broker.stream import Stream
from recado.broker.work_queue import WorkQueue

from .stage import Peer, new_broker, new_queue, open_channel, published, run_of
from .stores import PagingStore

EVERYTHING = PeekSettings(count=1000, bytes_max=1 << 20)


def new_work_queue(**settings: Any) -> WorkQueue:
    queue = new_queue(new_broker(), **settings)
    assert isinstance(queue, WorkQueue)
    return queue


def look(
    queue: WorkQueue, settings: PeekSettings = EVERYTHING, now: int = 0
) -> list[PeekedMessage]:
    return run_to_completion(peek(ReadyMessages(queue), settings, now))


def offsets(queue: WorkQueue, **settings: object) -> list[int]:
    wanted = PeekSettings(**{"count": 1000, "bytes_max": 1 << 20, **settings})  # type: ignore[arg-type]
    return [message.offset for message in look(queue, wanted)]


def test_messages_are_copied() -> None:
    queue = new_work_queue()
    queue.publish(run_of([b"0", b"1"], Properties(message_id="m", priority=3), alike=True), 0)
    for _ in range(2):
        first, second = look(queue)
        assert (first.offset, first.body, first.body_bytes, first.redelivered) == (
            0,
            b"0",
            1,
            False,
        )
        assert (first.exchange, first.routing_key, second.body) == ("", "key", b"1")
        assert decode_properties(second.properties) == Properties(message_id="m", priority=3)
    assert queue.ready == 2


def test_the_redelivered_flag_stays_as_it_is() -> None:
    broker, peer = new_broker(), Peer()
    queue, channel = (
        new_queue(broker, queue_type="quorum", durable=True),
        open_channel(broker, peer),
    )
    assert isinstance(queue, WorkQueue)
    channel.publisher.publish(published("q", b"0", b"1"), 0)
    assert channel.get(queue, no_ack=False, now=0)
    channel.settle(Settlement.REQUEUE, 1, 0, multiple=False)
    first, second = look(queue)
    assert (first.redelivered, second.redelivered) == (True, False)
    assert decode_properties(first.properties).headers == {"x-delivery-count": 1}
    assert decode_properties(second.properties).headers is None
    peer.received()
    for _ in range(2):
        assert channel.get(queue, no_ack=True, now=0)
    methods = [event.method for event in peer.received()]  # type: ignore[union-attr]
    assert [each.redelivered for each in methods if isinstance(each, BasicGetOk)] == [True, False]


def test_pages_of_messages() -> None:
    queue = new_work_queue()
    for i in range(7):
        queue.publish(run_of([b"%d" % i] * (i + 1)), 0)
    assert offsets(queue) == list(range(28))
    assert offsets(queue, count=3, skip=2) == [2, 3, 4]
    assert offsets(queue, count=50, skip=20) == list(range(20, 28))
    assert offsets(queue, skip=28) == []


def test_the_answer_is_limited_in_bytes() -> None:
    queue = new_work_queue()
    queue.publish(run_of([b"%d" % i * 100 for i in range(10)]), 0)
    assert offsets(queue, bytes_max=250) == [0, 1, 2]
    assert offsets(queue, bytes_max=250, body_bytes_max=20) == list(range(10))
    (message,) = look(queue, PeekSettings(count=1, bytes_max=1000, body_bytes_max=3))
    assert (message.body, message.body_bytes) == (b"000", 100)


def test_a_selector_chooses_messages() -> None:
    queue = new_work_queue()
    for priority in (1, 5, 1, 7, 9):
        queue.publish(run_of([b"a", b"b"], Properties(priority=priority), alike=True), 0)
    urgent = MessageFilter("priority > 4")
    assert offsets(queue, message_filter=urgent) == [2, 3, 6, 7, 8, 9]
    assert offsets(queue, message_filter=urgent, skip=1, count=2) == [3, 6]
    assert offsets(queue, message_filter=MessageFilter("offset BETWEEN 3 AND 4")) == [3, 4]
    assert offsets(queue, message_filter=MessageFilter("body = 'b'"), skip=4) == [9]


def test_expired_messages_are_left_out() -> None:
    queue = new_work_queue()
    queue.publish(run_of([b"stays"]), 0)
    queue.publish(run_of([b"short"], Properties(expiration="5")), 0)
    queue.publish(run_of([b"long"], Properties(expiration="50")), 0)
    assert [message.body for message in look(queue, now=4)] == [b"stays", b"short", b"long"]
    assert [message.body for message in look(queue, now=5)] == [b"stays", b"long"]


def test_a_stream() -> None:
    stream = new_queue(new_broker(), "s", queue_type="stream", durable=True)
    assert isinstance(stream, Stream)
    for i in range(5):
        stream.publish(run_of([b"%d" % i]), 0)
    reader = StreamMessages(stream, StreamOffset("offset", 1), 0)
    settings = PeekSettings(count=2, skip=1, bytes_max=1000)
    found = run_to_completion(peek(reader, settings, 0))
    assert [(message.offset, message.body) for message in found] == [(2, b"2"), (3, b"3")]


def test_steps_are_bounded() -> None:
    broker = new_broker(PagingStore(0))
    queue, channel = new_queue(broker, durable=True), open_channel(broker)
    assert isinstance(queue, WorkQueue)
    for i in range(2000):
        persistent = Properties(delivery_mode=2, message_id=str(i))
        channel.publisher.publish(published("q", b"%d" % i, properties=persistent), 0)
    never = PeekSettings(count=1, bytes_max=1, message_filter=MessageFilter("body = 'none'"))
    costs = list(peek(ReadyMessages(queue), never, 0))
    assert len(costs) > 100
    assert sum(costs) > 2000
    assert max(costs) <= 2 * STEP_UNITS_MAX
