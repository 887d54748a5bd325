"""Observers of messages are notified of what happens to each message, with its position and payload (MOB1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.broker.broker import Broker
from recado.broker.channel import Settlement
from recado.broker.chosen_messages import ChosenPositions, delete_messages
from recado.broker.consumer import Consumer, PeerConnection
from recado.broker.message_observer import (
    MessageObserver,
    add_message_observer,
    remove_message_observer,
)
from recado.broker.move import MoveProgress, move
from recado.broker.queue import Queue
from recado.broker.replay import ReplayProgress, replay
from recado.broker.routing import VhostAccess
from recado.broker.run import Run
from recado.broker.steps import run_to_completion
from recado.broker.unacked_messages import (
    ChosenDelivery,
    RequeueProgress,
    requeue_deliveries,
)
from recado.broker.work_queue import WorkQueue

from .at_least_once_queues import let_pass, source, target
from .delayed_exchanges import delayed
from .stage import Peer, close_channel, consume, new_broker, new_queue, open_channel, published


class Notes(MessageObserver):
    """Writes down all notifications."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.payloads: dict[str, set[int]] = {}

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines

    def _note(self, kind: str, queue: Queue | None, run: Run, more: str = "") -> None:
        for index, content in enumerate(run.contents()):
            where = (
                f" {queue.name}@{run.first_position + index * run.stride}"
                if queue is not None
                else ""
            )
            self.lines.append(f"{kind} {extract_body(content).decode()}{where}{more}")
        self.payloads.setdefault(kind, set()).update(map(id, run.payloads))

    def published(
        self,
        access: VhostAccess,
        connection: PeerConnection,
        channel: int,
        run: Run,
        queues: Sequence[Queue],
    ) -> None:
        names = ",".join(each.name for each in queues)
        self._note("published", None, run, f" by {access.user.name} to {names}")

    def unroutable(self, run: Run, *, returned: bool) -> None:
        self._note("unroutable", None, run, " returned" if returned else "")

    def entered(self, queue: Queue, run: Run) -> None:
        self._note("entered", queue, run)

    def refused(self, queue: Queue, run: Run) -> None:
        self._note("refused", None, run, f" {queue.name}")

    def delivered(
        self,
        queue: Queue,
        run: Run,
        connection: PeerConnection,
        consumer: Consumer | None,
        *,
        is_settled: bool,
    ) -> None:
        more = f" to {consumer.tag if consumer else 'get'}{' settled' if is_settled else ''}"
        self._note("delivered", queue, run, more)

    def settled(self, queue: Queue, run: Run, low: int, high: int, settlement: Settlement) -> None:
        self._note(settlement.value, queue, run.slice(low, high))

    def forwarded(self, queue: Queue, run: Run, reason: str, exchange: str | None) -> None:
        self._note("forwarded", queue, run, f" {reason} to {exchange}")

    def dropped(self, queue: Queue, run: Run, reason: str) -> None:
        self._note("dropped", queue, run, f" {reason}")

    def purged(self, queue: Queue) -> None:
        self.lines.append(f"purged {queue.name}")


class Stage:
    def __init__(self) -> None:
        self.broker: Broker = new_broker()
        self.peer = Peer()
        self.channel = open_channel(self.broker, self.peer)
        self.notes = Notes()
        self.vhost = self.broker.vhosts["/"]
        new_queue(self.broker, "before")
        run_to_completion(add_message_observer(self.vhost, self.notes))

    def publish(self, key: str, *bodies: bytes, now: int = 0, **options: Any) -> None:
        event = published(key, *bodies, **options)
        unfinished, _ = self.channel.publisher.publish(event, now)
        while unfinished is not None:
            unfinished, _ = self.channel.publisher.publish(event, now)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_queues_that_exist_and_later_ones_are_observed(stage: Stage) -> None:
    new_queue(stage.broker, "after")
    stage.publish("before", b"a", b"b")
    stage.publish("after", b"c")
    assert stage.notes.take() == [
        "published a by guest to before",
        "published b by guest to before",
        "entered a before@0",
        "entered b before@1",
        "published c by guest to after",
        "entered c after@0",
    ]
    assert stage.notes.payloads["published"] == stage.notes.payloads["entered"]
    run_to_completion(remove_message_observer(stage.vhost, stage.notes))
    new_queue(stage.broker, "unobserved")
    for queue in ("before", "after", "unobserved"):
        stage.publish(queue, b"x")
    assert stage.notes.take() == []


def test_coalesced_messages_are_published_before_they_enter(stage: Stage) -> None:
    stage.broker.coalescer.is_enabled = True
    stage.publish("before", b"a")
    stage.publish("before", b"b")
    assert stage.notes.take() == [
        "published a by guest to before",
        "published b by guest to before",
    ]
    stage.broker.coalescer.flush(0)
    assert stage.notes.take() == ["entered a before@0", "entered b before@1"]
    assert stage.notes.payloads["published"] == stage.notes.payloads["entered"]


def test_deliveries_and_settlements(stage: Stage) -> None:
    queue = new_queue(stage.broker, "q")
    consume(stage.channel, queue, "c", prefetch=2)
    stage.publish("q", b"a", b"b", b"c")
    stage.channel.settle(Settlement.ACK, 1, 0, multiple=False)
    stage.channel.settle(Settlement.REQUEUE, 2, 0, multiple=False)
    assert stage.notes.take()[3:] == [
        "entered a q@0",
        "entered b q@1",
        "entered c q@2",
        "delivered a q@0 to c",
        "delivered b q@1 to c",
        "ack a q@0",
        "delivered c q@2 to c",
        "requeue b q@1",
        "delivered b q@1 to c",
    ]
    close_channel(stage.channel)
    assert sorted(stage.notes.take()) == ["requeue b q@1", "requeue c q@2"]
    other = open_channel(stage.broker)
    assert other.get(queue, no_ack=True, now=0)
    assert other.get(queue, no_ack=False, now=0)
    assert stage.notes.take() == ["delivered b q@1 to get settled", "delivered c q@2 to get"]


def test_an_operator_requeues_and_the_client_acknowledges_later(stage: Stage) -> None:
    """The late ack of a message that somebody else has by now is no ack of this message."""
    queue = new_queue(stage.broker, "q")
    assert isinstance(queue, WorkQueue)
    consumer = consume(stage.channel, queue, "c")
    stage.publish("q", b"a", b"b", b"c")
    stage.channel.remove_consumer(consumer, 0)
    stage.notes.take()
    chosen = [ChosenDelivery(stage.channel, 2, 1)]
    run_to_completion(requeue_deliveries(queue, chosen, RequeueProgress()))
    consume(open_channel(stage.broker), queue, "d")
    assert stage.notes.take() == ["requeue b q@1", "delivered b q@1 to d"]
    stage.channel.settle(Settlement.ACK, 3, 0, multiple=True)
    assert stage.notes.take() == ["ack a q@0", "ack c q@2"]
    stage.channel.settle(Settlement.ACK, 2, 0, multiple=False)
    assert stage.notes.take() == []


def test_dead_letters_are_forwarded_with_their_positions(stage: Stage) -> None:
    stage.vhost.declare_exchange("dead", "fanout")
    dead = new_queue(stage.broker, "dead")
    stage.vhost.bind_queue("dead", "dead", "")
    queue = new_queue(stage.broker, "q", dead_letter_exchange="dead", message_ttl_ms=5)
    consume(stage.channel, queue, "c", prefetch=2)
    stage.publish("q", b"a", b"b", b"c")
    stage.notes.take()
    stage.channel.settle(Settlement.REJECT, 2, 1, multiple=False)
    assert stage.notes.take() == [
        "reject b q@1",
        "forwarded b q@1 rejected to dead",
        "entered b dead@0",
        "delivered c q@2 to c",
    ]
    assert stage.notes.payloads["forwarded"] < stage.notes.payloads["entered"]
    stage.channel.settle(Settlement.REQUEUE, 3, 9, multiple=False)
    assert "forwarded c q@2 expired to dead" in stage.notes.take()
    assert dead.ready == 2


def test_messages_that_go_nowhere(stage: Stage) -> None:
    new_queue(stage.broker, "full", max_length=1, overflow="reject-publish")
    new_queue(stage.broker, "short", max_length=1)
    stage.publish("none", b"a")
    stage.publish("none", b"b", mandatory=True)
    stage.publish("full", b"c", b"d")
    stage.publish("short", b"e", b"f")
    stage.vhost.queues["full"].purge()
    assert stage.notes.take() == [
        "published a by guest to ",
        "unroutable a",
        "published b by guest to ",
        "unroutable b returned",
        "published c by guest to full",
        "entered c full@0",
        "published d by guest to full",
        "refused d full",
        "published e by guest to short",
        "published f by guest to short",
        "entered e short@0",
        "entered f short@1",
        "dropped e short@0 maxlen",
        "purged full",
    ]


def test_a_dead_letter_whose_exchange_is_missing_is_dropped(stage: Stage) -> None:
    queue = new_queue(stage.broker, "q", dead_letter_exchange="missing")
    stage.publish("q", b"a")
    stage.notes.take()
    queue.reject([run] if (run := queue.get(0)) else [], 0)
    assert stage.notes.take() == ["dropped a q@0 rejected"]


def test_an_at_least_once_dead_letter_is_forwarded_with_each_attempt(stage: Stage) -> None:
    target(stage.broker, "dead", max_length=0)
    queue = source(stage.broker, "q")
    stage.publish("q", b"a")
    stage.notes.take()
    queue.reject([run] if (run := queue.get(0)) else [], 0)
    assert stage.notes.take() == ["forwarded a q@0 rejected to ", "refused a dead"]
    stage.broker.delete_queue(stage.vhost.queues["dead"], 0)
    target(stage.broker, "dead")
    let_pass(stage.broker, 0)
    assert stage.notes.take()[1:] == ["forwarded a q@0 rejected to ", "entered a dead@0"]
    assert queue.held_dead_letters == 0


def test_deleted_messages_are_dropped(stage: Stage) -> None:
    queue = new_queue(stage.broker, "q")
    assert isinstance(queue, WorkQueue)
    stage.publish("q", b"a", b"b", b"c")
    stage.notes.take()
    run_to_completion(delete_messages(queue, MoveProgress(), None, ChosenPositions([0, 2])))
    assert stage.notes.take() == ["dropped a q@0 deleted", "dropped c q@2 deleted"]
    assert queue.ready == 1


def test_messages_enter_a_stream_at_their_offsets(stage: Stage) -> None:
    stream = new_queue(stage.broker, "s", queue_type="stream", durable=True)
    stage.publish("s", b"a", b"b")
    stage.publish("s", b"c")
    assert [line for line in stage.notes.take() if line.startswith("entered")] == [
        "entered a s@0",
        "entered b s@1",
        "entered c s@2",
    ]
    assert stream.ready == 3


def test_moved_and_replayed_messages(stage: Stage) -> None:
    stage.vhost.declare_exchange("dead", "fanout")
    source, target = new_queue(stage.broker, "q", dead_letter_exchange="dead"), None
    target = new_queue(stage.broker, "dead")
    stage.vhost.bind_queue("dead", "dead", "")
    assert isinstance(source, WorkQueue)
    assert isinstance(target, WorkQueue)
    stage.publish("q", b"a", b"b")
    source.reject([run] if (run := source.get(0)) else [], 0)
    stage.notes.take()
    run_to_completion(replay(target, ReplayProgress(), lambda _: True))
    assert stage.notes.take() == ["forwarded a dead@0 moved to None", "entered a q@2"]
    run_to_completion(move(source, target, MoveProgress()))
    assert stage.notes.take() == [
        "forwarded b q@1 moved to None",
        "entered b dead@1",
        "forwarded a q@2 moved to None",
        "entered a dead@2",
    ]
    assert stage.notes.payloads["forwarded"] < stage.notes.payloads["entered"]


def test_a_delayed_message_and_a_direct_reply(stage: Stage) -> None:
    exchange = delayed(stage.broker)
    assert exchange.delayed_queue is not None
    stage.vhost.bind_queue("before", "later", "key")
    properties = Properties(headers={"x-delay": 5})
    stage.publish("key", b"a", exchange="later", properties=properties)
    exchange.delayed_queue.on_timer(5)
    assert [line.split("@")[0] for line in stage.notes.take()] == [
        f"published a by guest to {exchange.delayed_queue.name}",
        f"entered a {exchange.delayed_queue.name}",
        f"forwarded a {exchange.delayed_queue.name}",
        "entered a before",
    ]
    replies = stage.broker.create_reply_queue(stage.vhost, 0)
    consume(stage.channel, replies, "r", no_ack=True)
    stage.publish(replies.name, b"reply")
    assert stage.notes.take() == [
        f"published reply by guest to {replies.name}",
        f"entered reply {replies.name}@0",
        f"delivered reply {replies.name}@0 to r settled",
        "unroutable reply",  # addresses of direct replies do not count as queues
    ]
