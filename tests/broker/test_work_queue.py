"""Long queues that drop many messages at once (WQ6, WQ7)."""

from __future__ import annotations

from typing import Any

import pytest

from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.broker import dead_letter, work_queue
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.queue import Queue

from .stage import Peer, consume, new_broker, new_queue, open_channel, published
from .stores import PagingStore

MANY = 20
LONG_AGO, NOW = 0, 1000


@pytest.fixture
def store() -> PagingStore:
    return PagingStore(0)


@pytest.fixture
def broker(store: PagingStore) -> Broker:
    return new_broker(store)


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each message is a run, and exceeds the budget for dropped bytes or dead letters of a turn."""
    monkeypatch.setattr(work_queue, "DROPPED_BYTES_MAX", 1)


def fill(broker: Broker, *, expiration: str | None = None, **settings: Any) -> Queue:
    """A queue with all messages paged out, except the one at its front."""
    queue = new_queue(broker, durable=True, **settings)
    channel = open_channel(broker)
    for number in range(MANY):
        wanted = Properties(delivery_mode=2, message_id=str(number), expiration=expiration)
        channel.publisher.publish(published("q", b"%02d" % number, properties=wanted), LONG_AGO)
    return queue


def bodies(queue: Queue, now: int) -> list[bytes]:
    found = []
    while (run := queue.get(now)) is not None:
        found += [extract_body(content) for content in run.contents()]
    return found


def test_much_that_expires_is_dropped_in_turns(broker: Broker, store: PagingStore) -> None:
    queue = fill(broker, expiration="5")
    peer = Peer()
    consume(open_channel(broker, peer), queue, no_ack=True, now=NOW)
    channel = open_channel(broker)
    channel.publisher.publish(published("q", b"alive"), NOW)
    turns, now = 0, NOW
    while queue.ready:
        deadline = broker.deadline()
        assert deadline is not None
        assert deadline <= now + 1
        now, before = now + 1, store.page_ins
        broker.tick(now)
        assert store.page_ins - before <= 2
        turns += 1
    assert turns >= MANY // 2
    assert peer.bodies() == [b"alive"]
    assert not store.live[queue]


def test_who_asks_is_given_nothing_that_has_expired(broker: Broker) -> None:
    queue = fill(broker, expiration="5")
    open_channel(broker).publisher.publish(published("q", b"alive"), NOW)
    found: list[bytes] = []
    for now in range(NOW, NOW + MANY + 1):
        found += bodies(queue, now)
    assert found == [b"alive"]


def test_no_more_dies_than_dead_letters_can_be_sent(
    broker: Broker, store: PagingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_queue, "DROPPED_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(dead_letter, "DEAD_LETTERS_PER_TURN", 2)
    dead = new_queue(broker, "dead")
    broker.vhosts["/"].bind_queue("dead", "amq.fanout", "")
    queue = fill(broker, expiration="5", dead_letter_exchange="amq.fanout")
    store.page_out_bytes = 1 << 20
    now = NOW
    while queue.ready or queue.dead_lettering_runs:
        before = store.page_ins
        broker.tick(now)
        assert queue.dead_lettering_runs <= 2, "one, and the last, behind which none is paged out"
        assert store.page_ins - before <= 3
        now += 1
    assert bodies(dead, now) == [b"%02d" % number for number in range(MANY)]


@pytest.mark.parametrize("limit", ["max_length", "max_length_bytes"])
def test_much_that_is_too_much_is_dropped_in_turns(
    broker: Broker, store: PagingStore, limit: str
) -> None:
    """For instance after a policy was set."""
    queue = fill(broker)
    before, now = store.page_ins, NOW
    most = {"max_length": 3, "max_length_bytes": 6}[limit]
    queue.reconfigure(QueueSettings(durable=True, **{limit: most}), now)  # type: ignore[arg-type]
    assert store.page_ins - before <= 2
    while broker.deadline() is not None:
        before, now = store.page_ins, now + 1
        broker.tick(now)
        assert store.page_ins - before <= 2
    assert store.live[queue] == {17, 18, 19}
    assert bodies(queue, now) == [b"17", b"18", b"19"]
