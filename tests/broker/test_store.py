"""Notifications of the store, and replies that wait for it."""

from __future__ import annotations

import pytest

from recado.amqp.events import Acked, MethodReceived
from recado.amqp.frames import extract_body
from recado.amqp.methods import BasicAck, BasicNack
from recado.amqp.properties import Properties
from recado.broker import work_queue
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.queue import Queue
from recado.broker.store import MessageStore

from .stage import Peer, close_channel, consume, new_broker, new_queue, open_channel, published
from .stores import PagingStore

PERSISTENT = Properties(delivery_mode=2)


@pytest.fixture
def store() -> PagingStore:
    return PagingStore(1 << 30)


@pytest.fixture
def broker(store: PagingStore) -> Broker:
    return new_broker(store)


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest.fixture
def channel(broker: Broker, peer: Peer) -> Channel:
    return open_channel(broker, peer)


@pytest.fixture
def queue(broker: Broker) -> Queue:
    return new_queue(broker, durable=True)


def send(channel: Channel, *bodies: bytes, key: str = "q", persistent: bool = True) -> None:
    properties = PERSISTENT if persistent else None
    channel.publisher.publish(published(key, *bodies, properties=properties), 0)
    if channel.publisher.confirms_enabled:
        channel.publisher.send_confirms()


def answers(peer: Peer) -> list[object]:
    found: list[object] = []
    for event in peer.received():
        match event:
            case Acked(_, first, count):
                found += [BasicAck(first + i, False) for i in range(count)]
            case MethodReceived(_, method):
                found.append(method)
            case _:
                raise AssertionError(event)
    return found


# ── confirms (PUB4) ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_confirm_waits_until_all_is_safe(
    store: PagingStore, queue: Queue, channel: Channel, peer: Peer
) -> None:
    channel.publisher.confirms_enabled = True
    send(channel, b"1", b"2")
    send(channel, b"3")
    assert answers(peer) == []
    store.sync()
    assert answers(peer) == [BasicAck(3, True)]


def test_what_is_transient_waits_only_behind_what_is_not(
    store: PagingStore, queue: Queue, channel: Channel, peer: Peer
) -> None:
    channel.publisher.confirms_enabled = True
    send(channel, b"1", persistent=False)
    assert answers(peer) == [BasicAck(1, False)]
    send(channel, b"2")
    send(channel, b"3", persistent=False)
    assert answers(peer) == []
    store.sync()
    assert answers(peer) == [BasicAck(3, True)]


def test_each_sync_confirms_its_own(
    store: PagingStore, queue: Queue, channel: Channel, peer: Peer
) -> None:
    channel.publisher.confirms_enabled = True
    send(channel, b"1")
    store.lsn += 1  # a sync starts
    send(channel, b"2")
    store.durable_lsn += 1
    for listener in list(store.listeners):
        listener.on_durable()
    assert answers(peer) == [BasicAck(1, False)]
    store.sync()
    assert answers(peer) == [BasicAck(2, False)]


def test_refusals_are_told_in_order(broker: Broker, store: PagingStore, channel: Channel) -> None:
    new_queue(broker, durable=True, max_length=1, overflow="reject-publish")
    channel.publisher.confirms_enabled = True
    send(channel, b"1", b"2")
    peer = channel.connection
    assert isinstance(peer, Peer)
    assert answers(peer) == []
    store.sync()
    assert answers(peer) == [BasicAck(1, False), BasicNack(2, False, False)]


def test_nobody_is_told_on_a_closed_channel(
    store: PagingStore, queue: Queue, channel: Channel, peer: Peer
) -> None:
    channel.publisher.confirms_enabled = True
    send(channel, b"1")
    close_channel(channel)
    store.sync()
    assert answers(peer) == []


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────


def test_only_what_is_persistent_in_what_is_durable(
    broker: Broker, store: PagingStore, queue: Queue, channel: Channel
) -> None:
    passing = new_queue(broker, "passing")
    send(channel, b"1")
    send(channel, b"2", persistent=False)
    send(channel, b"3", key="passing")
    assert len(store.live[queue]) == 1
    assert not store.live[passing]


@pytest.mark.parametrize("no_ack", [True, False])
def test_what_a_consumer_takes(
    store: PagingStore, queue: Queue, channel: Channel, no_ack: bool
) -> None:
    consume(channel, queue, no_ack=no_ack)
    send(channel, b"1", b"2", b"3")
    if not no_ack:
        assert len(store.out[queue]) == 3
        channel.settle(Settlement.ACK, 2, 0, multiple=True)
        assert len(store.live[queue]) == 1
        channel.settle(Settlement.REJECT, 3, 0, multiple=False)
    assert not store.live[queue]


def test_an_ack_of_several_settles_none_that_was_given_back(
    broker: Broker, store: PagingStore, queue: Queue, channel: Channel, peer: Peer
) -> None:
    consumer = consume(channel, queue)
    send(channel, b"1", b"2", b"3")
    broker.cancel(consumer, 0)
    channel.settle(Settlement.REQUEUE, 2, 0, multiple=False)
    channel.settle(Settlement.ACK, 3, 0, multiple=True)
    assert len(store.live[queue]) == queue.ready == 1


def test_an_ack_of_what_was_in_a_queue_that_is_gone_is_not_told(
    broker: Broker,
    store: PagingStore,
    queue: Queue,
    channel: Channel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consume(channel, queue)
    send(channel, b"1")
    broker.delete_queue(queue, 0)
    told: list[object] = []
    monkeypatch.setattr(store, "settle", lambda *what: told.append(what))
    channel.settle(Settlement.ACK, 1, 0, multiple=False)
    assert (queue.unacked, told) == (0, [])


@pytest.mark.parametrize("no_ack", [True, False])
def test_what_is_fetched(store: PagingStore, queue: Queue, channel: Channel, no_ack: bool) -> None:
    send(channel, b"1")
    assert channel.get(queue, no_ack=no_ack, now=0)
    assert (len(store.live[queue]), len(store.out[queue])) == ((0, 0) if no_ack else (1, 1))


def test_a_tap_takes_nothing(store: PagingStore, queue: Queue, channel: Channel) -> None:
    consume(channel, queue, no_ack=True, wire_tap=True)
    send(channel, b"1")
    assert len(store.live[queue]) == 1


def test_a_dead_letter_is_kept_before_its_message_is_settled(
    broker: Broker, store: PagingStore, channel: Channel
) -> None:
    """MS2."""
    dead_letters = new_queue(broker, "letters", durable=True)
    queue = new_queue(
        broker, durable=True, dead_letter_exchange="", dead_letter_routing_key="letters"
    )
    settled_with: list[int] = []
    settle = store.settle

    def watched(of: Queue, first: int, count: int, step: int) -> None:
        settled_with.append(len(store.live[dead_letters]))
        settle(of, first, count, step)

    store.settle = watched  # type: ignore[method-assign, assignment]
    send(channel, b"1", b"2")
    consume(channel, queue)
    channel.settle(Settlement.REJECT, 2, 0, multiple=True)
    assert settled_with == [2]
    assert not store.live[queue]


def test_a_transaction_is_told_as_one(store: PagingStore, queue: Queue, channel: Channel) -> None:
    channel.publisher.transaction = []
    send(channel, b"1")
    send(channel, b"2", b"3")
    store.notes.clear()
    channel.commit(0)
    assert store.notes == ["begin", "1 to q", "2 to q", "end"]


# ── paging out ────────────────────────────────────────────────────────────────────────────────────────────


def test_what_finds_no_room_is_paged_out_and_comes_back_in_order(
    store: PagingStore, queue: Queue, channel: Channel, peer: Peer
) -> None:
    store.page_out_bytes = 200
    sent = [b"%03d" % number for number in range(100)]
    for body in sent:
        send(channel, body, persistent=body < b"050")
    assert queue.ready == 100
    assert 50 < queue.paged_out_count < 100
    assert queue.paged_out_bytes > 50 * queue.paged_out_count
    consume(channel, queue, no_ack=True)
    assert peer.bodies() == sent
    assert (queue.paged_out_count, queue.paged_out_bytes) == (0, 0)
    assert not store.live[queue]


def test_a_purge_empties_shelves(store: PagingStore, queue: Queue, channel: Channel) -> None:
    store.page_out_bytes = 0
    send(channel, b"1", b"2")
    assert queue.purge() == 2
    assert not store.live[queue]
    send(channel, b"3")
    run = queue.get(0)
    assert run is not None
    assert [extract_body(content) for content in run.contents()] == [b"3"]


def test_a_deleted_queue_is_told_once(
    broker: Broker, store: PagingStore, queue: Queue, channel: Channel
) -> None:
    store.page_out_bytes = 0
    send(channel, b"1", b"2")
    store.notes.clear()
    broker.delete_queue(queue, 0)
    assert store.notes == ["-queue q"]


def test_a_restored_queue_is_paged_out(broker: Broker, store: PagingStore) -> None:
    source = new_queue(broker, "source", durable=True, max_priority=2)
    store.page_out_bytes = 0
    channel = open_channel(broker)
    for priority in (0, 2, 2):
        properties = Properties(delivery_mode=2, priority=priority)
        channel.publisher.publish(published("source", b"%d" % priority, properties=properties), 0)
    queue = new_queue(broker, durable=True, max_priority=2, max_length_bytes=2)
    for priority in (0, 2):
        store.move(source, queue, priority)
    queue.restore(3, {0: 1, 2: 2}, 0, has_ttl=False)
    queue.finish_restore(0)
    assert queue.ready == 2, "what is too much goes"
    run = queue.get(0)
    assert run is not None
    assert extract_body(run.contents()[0]) == b"2"


def test_nothing_comes_from_shelves_that_are_not_there(queue: Queue) -> None:
    with pytest.raises(NotImplementedError):
        MessageStore().page_in(queue, 0)
    assert MessageStore().paged_out_bytes(queue) == 0
    assert list(MessageStore().drop_paged_out(queue)) == []


def test_who_keeps_nothing_prepares_nothing() -> None:
    store = MessageStore()
    store.prepare_stream("/", "s", QueueSettings(queue_type="stream"))
    assert list(store.discard_prepared_streams()) == []


def test_who_keeps_nothing_has_nothing_to_write_and_room_for_it() -> None:
    assert not MessageStore().has_deferred_writes
    assert MessageStore().disk_shortage() is None


# ── topology ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_lasts_is_told_and_what_does_not_is_not(broker: Broker, store: PagingStore) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange("lasting", "fanout", durable=True)
    vhost.declare_exchange("lasting", "fanout", durable=True)
    vhost.declare_exchange("passing", "fanout")
    lasting = new_queue(broker, "lasting", durable=True)
    passing = new_queue(broker, "passing")
    for exchange in ("lasting", "passing", "amq.fanout"):
        for queue in ("lasting", "passing"):
            vhost.bind_queue(queue, exchange, "")
        vhost.bind_exchange("lasting", exchange, "")
    assert store.notes == [
        "+exchange lasting",
        "+queue lasting",
        "+lasting → lasting",
        "+lasting → lasting",
        "+amq.fanout → lasting",
        "+amq.fanout → lasting",
    ]
    store.notes.clear()
    vhost.unbind_queue("lasting", "amq.fanout", "")
    vhost.delete_exchange("passing")
    vhost.delete_exchange("lasting")
    broker.delete_queue(lasting, 0)
    broker.delete_queue(passing, 0)
    assert store.notes == [
        "-amq.fanout → lasting",
        "-exchange lasting",
        "-lasting → lasting",
        "-lasting → lasting",
        "-amq.fanout → lasting",
        "-queue lasting",
        "-queue passing",
    ]


def test_while_memory_is_scarce_a_long_queue_is_given_out_as_it_is_acknowledged(
    broker: Broker, store: PagingStore, queue: Queue, channel: Channel, peer: Peer
) -> None:
    store.page_out_bytes = 100
    for number in range(work_queue.MEMORY_PRESSURE_MESSAGES_MAX + 100):
        send(channel, b"%04d" % number)
    store.memory_pressure = True
    consume(channel, queue)
    first = len(peer.bodies())
    queue.on_timer(1)  # many messages are dispatched in several turns
    assert first + len(peer.bodies()) == work_queue.MEMORY_PRESSURE_MESSAGES_MAX
    channel.settle(Settlement.ACK, 10, 0, multiple=True)
    assert len(peer.bodies()) == 10
    store.memory_pressure = False
    channel.resume(0)
    assert len(peer.bodies()) == 90
