"""A channel: its consumers, unsettled deliveries, settlement, and closing."""

from collections.abc import Iterable

import pytest

from recado.amqp.errors import AccessRefusedError, NotAllowedError, PreconditionFailedError
from recado.amqp.events import ContentReceived, MethodReceived
from recado.amqp.frames import extract_body
from recado.amqp.methods import BasicCancel, BasicGetOk
from recado.amqp.properties import Properties
from recado.broker.broker import Broker
from recado.broker.channel import Channel, Settlement
from recado.broker.queue import Queue
from recado.broker.run import Origin
from recado.broker.steps import run_to_completion

from .stage import (
    Peer,
    close_channel,
    consume,
    new_queue,
    open_channel,
    published,
    run_of,
)


def given_to(peer: Peer) -> list[tuple[str, int, bytes]]:
    return [(method.consumer_tag, method.delivery_tag, body) for method, body in peer.delivered()]


# ── consumers ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tag_is_used_once(broker: Broker, channel: Channel) -> None:
    queue = new_queue(broker)
    consume(channel, queue, "c")
    with pytest.raises(NotAllowedError, match="attempt to reuse consumer tag 'c'"):
        consume(channel, queue, "c")


def test_an_exclusive_consumer_wants_the_queue_for_itself(broker: Broker, channel: Channel) -> None:
    queue = new_queue(broker)
    consumer = consume(channel, queue, "c", exclusive=True)
    for exclusive in (False, True):
        with pytest.raises(AccessRefusedError, match="queue 'q' in vhost '/' in exclusive use"):
            consume(channel, queue, "d", exclusive=exclusive)
    channel.remove_consumer(consumer, 0)
    consume(channel, queue, "d")
    with pytest.raises(AccessRefusedError):
        consume(channel, queue, "e", exclusive=True)


def test_nobody_has_a_single_active_consumer_queue_for_itself(
    broker: Broker, channel: Channel
) -> None:
    with pytest.raises(AccessRefusedError):
        consume(channel, new_queue(broker, single_active_consumer=True), exclusive=True)


def test_a_wire_tap_sees_all_and_takes_nothing(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    queue = new_queue(broker, max_length=1)
    with pytest.raises(PreconditionFailedError, match="a wire tap cannot acknowledge"):
        consume(channel, queue, "tap", wire_tap=True)
    consume(channel, queue, "tap", no_ack=True, wire_tap=True)
    queue.publish(run_of([b"1", b"2"]), 0)
    assert peer.bodies() == [b"1", b"2"]
    assert (queue.ready, len(queue.consumers)) == (1, 0)
    peer.congested = True
    queue.publish(run_of([b"3"]), 0)
    peer.congested = False
    queue.publish(run_of([b"4"]), 0)
    assert peer.bodies() == [b"4"]
    assert close_channel(channel) == []


def test_a_peer_that_wants_to_know_is_told_that_its_queue_is_gone(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    queue = new_queue(broker)
    consume(channel, queue, "c")
    consume(channel, queue, "tap", no_ack=True, wire_tap=True)
    quiet = Peer()
    quiet.supports_cancel_notify = False
    consume(open_channel(broker, quiet), queue, "d")
    broker.delete_queue(queue, 0)
    assert [event.method for event in peer.received() if isinstance(event, MethodReceived)] == [
        BasicCancel("c", no_wait=True),
        BasicCancel("tap", no_wait=True),
    ]
    assert quiet.received() == []
    assert channel.consumers == {}


def test_consumers_of_one_channel_see_the_order_of_messages(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    """They share its tags; a single consumer shares with none."""
    queue = new_queue(broker)
    consumers = [consume(channel, queue, tag) for tag in "abc"]
    queue.publish(run_of([b"1", b"2", b"3", b"4"]), 0)
    assert given_to(peer) == [("a", 1, b"1"), ("b", 2, b"2"), ("c", 3, b"3"), ("a", 4, b"4")]
    for consumer in consumers[:2]:
        channel.remove_consumer(consumer, 0)
    assert queue.shared_channel_consumers == 0
    queue.publish(run_of([b"5", b"6"]), 0)
    assert given_to(peer) == [("c", 5, b"5"), ("c", 6, b"6")]


# ── prefetch ──────────────────────────────────────────────────────────────────────────────────────────────


def test_consumers_share_the_limit_of_their_channel(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    queue = new_queue(broker)
    channel.global_prefetch = 3
    for tag in "ab":
        consume(channel, queue, tag)
    queue.publish(run_of([b"%d" % i for i in range(1, 9)]), 0)
    assert given_to(peer) == [("a", 1, b"1"), ("b", 2, b"2"), ("a", 3, b"3")]
    channel.ack_each(1, 3, 0)
    assert given_to(peer) == [("b", 4, b"4"), ("a", 5, b"5"), ("b", 6, b"6")]
    channel.global_prefetch = 4
    channel.resume(0)
    assert given_to(peer) == [("a", 7, b"7")]
    channel.global_prefetch = 0
    channel.resume(0)
    assert given_to(peer) == [("b", 8, b"8")]


def test_a_consumer_that_needs_no_ack_does_not_count(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    queue = new_queue(broker)
    channel.global_prefetch = 1
    consume(channel, queue, "a", prefetch=1, no_ack=True)
    queue.publish(run_of([b"1", b"2", b"3"]), 0)
    assert peer.bodies() == [b"1", b"2", b"3"]
    assert (queue.unacked, channel.in_flight) == (0, 0)


def test_a_reached_limit_holds_back_consumers_that_need_no_ack(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    one, two = new_queue(broker, "one"), new_queue(broker, "two")
    channel.global_prefetch = 2
    consume(channel, one, "a")
    consume(channel, two, "b", no_ack=True)
    one.publish(run_of([b"1", b"2"]), 0)
    two.publish(run_of([b"3", b"4", b"5"]), 0)
    assert given_to(peer) == [("a", 1, b"1"), ("a", 2, b"2")]
    channel.settle(Settlement.ACK, 1, 0, multiple=False)
    assert given_to(peer) == [("b", 3, b"3"), ("b", 4, b"4"), ("b", 5, b"5")]
    two.publish(run_of([b"6"]), 0)
    assert given_to(peer) == [("b", 6, b"6")]


def test_a_congested_peer_gets_nothing_until_it_keeps_up(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    queue = new_queue(broker)
    consume(channel, queue, no_ack=True)
    peer.congested = True
    queue.publish(run_of([b"1"]), 0)
    assert peer.bodies() == []
    peer.congested = False
    channel.resume(0)
    assert peer.bodies() == [b"1"]


def test_large_bodies_and_small_frames(broker: Broker) -> None:
    queue = new_queue(broker)
    bodies = [bytes([i]) * 9000 for i in range(3)]
    for number, frame_max in ((1, 131_072), (7, 131_072), (1, 4096)):
        peer = Peer(frame_max)
        channel = open_channel(broker, peer, number)
        consume(channel, queue, no_ack=True)
        queue.publish(run_of(bodies), 0)
        assert peer.bodies() == bodies
        close_channel(channel)


# ── basic.get ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("number", "frame_max"), [(1, 131_072), (7, 131_072), (1, 4096)])
def test_getting(broker: Broker, number: int, frame_max: int) -> None:
    queue = new_queue(broker)
    peer = Peer(frame_max)
    channel = open_channel(broker, peer, number)
    assert not channel.get(queue, no_ack=False, now=0)
    queue.publish(run_of([b"a" * 6000, b"b"]), 0)
    assert channel.get(queue, no_ack=False, now=0)
    assert channel.get(queue, no_ack=True, now=0)
    first, second = peer.received()
    assert isinstance(first, ContentReceived)
    assert isinstance(second, ContentReceived)
    assert first.method == BasicGetOk(1, False, "", "key", 1)
    assert second.method == BasicGetOk(2, False, "", "key", 0)
    assert [extract_body(event.content) for event in (first, second)] == [b"a" * 6000, b"b"]
    assert queue.unacked == 1
    with pytest.raises(PreconditionFailedError, match="unknown delivery tag 2"):
        channel.settle(Settlement.ACK, 2, 0, multiple=False)
    channel.settle(Settlement.REQUEUE, 1, 0, multiple=False)
    assert (queue.ready, queue.unacked) == (1, 0)


# ── settling ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tag_is_settled_once(broker: Broker, channel: Channel) -> None:
    """CH1"""
    queue = new_queue(broker)
    consume(channel, queue)
    queue.publish(run_of([b"1", b"2", b"3"]), 0)
    channel.settle(Settlement.ACK, 2, 0, multiple=False)
    for tag in (0, 2, 4):
        with pytest.raises(PreconditionFailedError, match=f"unknown delivery tag {tag}"):
            channel.settle(Settlement.ACK, tag, 0, multiple=False)
    with pytest.raises(PreconditionFailedError, match="unknown delivery tag 2"):
        channel.ack_each(1, 3, 0)
    assert queue.unacked == 1
    channel.settle(Settlement.ACK, 3, 0, multiple=True)
    assert queue.unacked == 0


def test_a_run_of_acks_makes_room_for_as_many(broker: Broker, channel: Channel, peer: Peer) -> None:
    queue = new_queue(broker)
    consume(channel, queue, prefetch=3)
    queue.publish(run_of([b"%d" % i for i in range(1, 4)]), 0)
    for priority, body in enumerate((b"4", b"5", b"6")):
        queue.publish(run_of([body], Properties(priority=priority)), 0)
    channel.ack_each(1, 3, 0)
    channel.ack_each(4, 3, 0)
    assert peer.bodies() == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert queue.unacked == 0


@pytest.mark.parametrize("how", list(Settlement))
def test_zero_and_multiple_is_everything_even_nothing(
    broker: Broker, channel: Channel, how: Settlement
) -> None:
    channel.settle(how, 0, 0, multiple=True)
    queue = new_queue(broker)
    consume(channel, queue, prefetch=2)
    queue.publish(run_of([b"1", b"2"]), 0)
    channel.settle(how, 0, 0, multiple=True)
    assert queue.unacked == (2 if how is Settlement.REQUEUE else 0)


def test_messages_return_to_their_places(broker: Broker, channel: Channel, peer: Peer) -> None:
    queue = new_queue(broker)
    consume(channel, queue, prefetch=3)
    queue.publish(run_of([b"0", b"1", b"2"]), 0)
    peer.congested = True
    for tag in (2, 1, 3):
        channel.settle(Settlement.REQUEUE, tag, 0, multiple=False)
    peer.congested = False
    peer.received()
    channel.resume(0)
    seen = [(method.redelivered, body) for method, body in peer.delivered()]
    assert seen == [(True, b"0"), (True, b"1"), (True, b"2")]


def test_recovering_returns_everything(broker: Broker, channel: Channel, peer: Peer) -> None:
    queue = new_queue(broker)
    consume(channel, queue)
    queue.publish(run_of([b"0", b"1"]), 0)
    channel.settle(Settlement.ACK, 1, 0, multiple=False)
    peer.received()
    channel.recover(0)
    assert given_to(peer) == [("c", 3, b"1")]


def test_what_a_cancelled_consumer_holds_can_be_settled(broker: Broker, channel: Channel) -> None:
    queue = new_queue(broker)
    consumer = consume(channel, queue, prefetch=1)
    queue.publish(run_of([b"0", b"1"]), 0)
    channel.remove_consumer(consumer, 0)
    channel.settle(Settlement.ACK, 1, 0, multiple=False)
    assert (queue.ready, queue.unacked) == (1, 0)


@pytest.mark.parametrize("how", list(Settlement))
def test_what_came_from_a_queue_that_is_gone_is_settled_too(
    broker: Broker, channel: Channel, how: Settlement
) -> None:
    dead = new_queue(broker, "dead")
    queue = new_queue(broker, dead_letter_exchange="", dead_letter_routing_key="dead")
    consume(channel, queue)
    queue.publish(run_of([b"0"]), 0)
    broker.delete_queue(queue, 0)
    channel.settle(how, 1, 0, multiple=False)
    assert (queue.ready, dead.ready) == (0, 0)


def test_acks_of_several_holders_at_once(broker: Broker, channel: Channel, peer: Peer) -> None:
    one, two = new_queue(broker, "one"), new_queue(broker, "two")
    consume(channel, one, "one", prefetch=1)
    consume(channel, two, "two", prefetch=1)
    for queue in (one, two):
        queue.publish(run_of([b"1", b"2"]), 0)
    assert channel.get(one, no_ack=False, now=0)
    peer.received()
    channel.settle(Settlement.ACK, 3, 0, multiple=True)
    assert given_to(peer) == [("two", 4, b"2")]
    assert (one.unacked, two.unacked) == (0, 1)


# ── much at once ──────────────────────────────────────────────────────────────────────────────────────────

MANY = 5000


def one_by_one(queue: Queue, bodies: Iterable[int]) -> None:
    """Messages that cannot be delivered together, because their routing keys differ."""
    for body in bodies:
        run = run_of([b"%d" % body])
        run.origin = Origin("", str(body))
        queue.publish(run, 0)


def finish_all(broker: Broker, now: int = 0) -> int:
    """Return the number of ticks until all work is done."""
    ticks = 0
    while broker.background:
        broker.tick(now)
        ticks += 1
    return ticks


@pytest.mark.parametrize("how", list(Settlement))
def test_many_deliveries_are_settled_in_steps(
    broker: Broker, channel: Channel, how: Settlement
) -> None:
    queue = new_queue(broker)
    consumer = consume(channel, queue)
    one_by_one(queue, range(MANY))
    channel.remove_consumer(consumer, 0)
    channel.settle(how, 0, 0, multiple=True)
    assert 0 < queue.unacked < MANY
    assert finish_all(broker) > 0
    assert (queue.ready, queue.unacked) == (MANY if how is Settlement.REQUEUE else 0, 0)


@pytest.mark.parametrize("how", ["recover", "close"])
def test_nothing_is_delivered_again_before_all_has_returned(
    broker: Broker, channel: Channel, peer: Peer, how: str
) -> None:
    """CH4, also for the messages behind them."""
    queue, other = new_queue(broker), Peer()
    consume(channel, queue, prefetch=MANY)
    one_by_one(queue, range(MANY + 10))
    assert (queue.ready, queue.unacked) == (10, MANY)
    peer.received()
    if how == "close":
        consume(open_channel(broker, other), queue, prefetch=5)
        other.received()
        broker.close_channel(channel, 0)
    else:
        other = peer
        channel.recover(0)
    assert broker.background
    queue.dispatch(0)
    queue.publish(run_of([b"new"]), 0)
    assert other.bodies() == []
    finish_all(broker)
    expected = [b"%d" % i for i in range(MANY)]
    assert other.bodies() == (expected if how == "recover" else [])
    assert queue.ready + queue.unacked == MANY + 11


def test_a_consumer_that_waits_gets_what_a_closed_channel_held(
    broker: Broker, channel: Channel
) -> None:
    queue, other = new_queue(broker), Peer()
    consume(channel, queue)
    one_by_one(queue, range(MANY))
    consume(open_channel(broker, other), queue, prefetch=3)
    broker.close_channel(channel, 0)
    assert other.bodies() == []
    finish_all(broker)
    assert other.bodies() == [b"0", b"1", b"2"]


def test_steps_go_on_when_the_channel_is_closed_meanwhile(broker: Broker, channel: Channel) -> None:
    queue = new_queue(broker)
    consume(channel, queue)
    one_by_one(queue, range(MANY))
    channel.recover(0)
    broker.close_channel(channel, 0)
    finish_all(broker)
    assert (queue.ready, queue.unacked, queue.delivery_pauses) == (MANY, 0, 0)


def test_messages_that_were_taken_by_get_return_in_steps(broker: Broker, channel: Channel) -> None:
    queue = new_queue(broker)
    one_by_one(queue, range(MANY))
    while channel.get(queue, no_ack=False, now=0):
        pass
    channel.recover(0)
    finish_all(broker)
    assert (queue.ready, queue.unacked) == (MANY, 0)


def test_a_shared_limit_that_was_reached_is_used_again(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    queue = new_queue(broker)
    channel.global_prefetch = MANY
    for tag in "abc":
        consume(channel, queue, tag)
    one_by_one(queue, range(MANY + 10))
    assert queue.ready == 10
    channel.settle(Settlement.REJECT, 0, 0, multiple=True)
    finish_all(broker)
    assert (queue.ready, queue.unacked) == (0, 10)


def test_consumers_are_looked_at_once_where_a_shared_limit_leaves_room(
    broker: Broker, channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise many acks at once would scan all consumers for each of them."""
    queues = [new_queue(broker, str(i)) for i in range(10)]
    channel.global_prefetch = 100
    for queue in queues:
        consume(channel, queue, queue.name)
    for i in range(10):
        for queue in queues:
            one_by_one(queue, [i])
    assert channel.in_flight == 100
    resumed, resume = list[int](), Channel.resume

    def counted(self: Channel, now: int) -> None:
        resumed.append(now)
        resume(self, now)

    monkeypatch.setattr(Channel, "resume", counted)
    channel.settle(Settlement.ACK, 0, 0, multiple=True)
    assert channel.in_flight == 0
    assert len(resumed) == 1


def test_what_is_not_claimed_is_recovered_in_steps(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    queue = new_queue(broker)
    consumer = consume(channel, queue)
    one_by_one(queue, range(MANY))
    channel.remove_consumer(consumer, 0)
    channel.publisher.transaction = []
    channel.settle(Settlement.ACK, 2, 0, multiple=True)
    channel.settle(Settlement.ACK, 1000, 0, multiple=False)
    channel.recover(0)
    assert broker.background
    finish_all(broker)
    assert (queue.ready, queue.unacked) == (MANY - 3, 3)


def test_a_channel_with_many_consumers_is_closed_in_steps(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    """Its auto-delete queues are deleted after all consumers are removed; nothing is delivered meanwhile."""
    queue, gone = new_queue(broker), new_queue(broker, "gone", auto_delete=True)
    for i in range(2000):
        consume(channel, queue, str(i))
    consume(channel, gone, "gone", no_ack=True)
    broker.close_channel(channel, 0)
    assert len(queue.consumers) > 0
    assert not gone.deleted
    for each in (queue, gone):
        each.publish(run_of([b"1"]), 0)
    broker.delete_queue(queue, 0)
    finish_all(broker)
    assert peer.received() == []
    assert (len(queue.consumers), len(channel.consumers)) == (0, 0)
    assert gone.deleted


def test_a_direct_reply_to_a_closed_channel_is_dropped(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    queue = broker.create_reply_queue(broker.vhosts["/"], 0)
    for i in range(2000):
        consume(channel, new_queue(broker, str(i)), str(i))
    consume(channel, queue, "reply", no_ack=True)
    broker.close_channel(channel, 0)
    queue.publish(run_of([b"1"]), 0)
    channel.connection.close_channel(1, PreconditionFailedError("timeout"), 0)
    finish_all(broker)
    assert peer.received() == []


# ── transactions ──────────────────────────────────────────────────────────────────────────────────────────


def _with_messages(broker: Broker, channel: Channel, count: int) -> None:
    queue = new_queue(broker)
    consume(channel, queue)
    queue.publish(run_of([b"%d" % i for i in range(1, count + 1)]), 0)
    channel.publisher.transaction = []


def test_settlements_happen_at_commit(broker: Broker, channel: Channel) -> None:
    """CH3"""
    _with_messages(broker, channel, 5)
    queue = broker.vhosts["/"].queues["q"]
    channel.settle(Settlement.ACK, 4, 0, multiple=False)
    channel.settle(Settlement.REJECT, 2, 0, multiple=True)
    for tag, multiple in ((1, False), (2, True), (4, False), (9, False), (9, True)):
        with pytest.raises(PreconditionFailedError, match=f"unknown delivery tag {tag}"):
            channel.settle(Settlement.ACK, tag, 0, multiple=multiple)
    channel.ack_each(3, 1, 0)
    with pytest.raises(PreconditionFailedError, match="unknown delivery tag 4"):
        channel.ack_each(4, 2, 0)
    assert queue.unacked == 5
    channel.commit(0)
    assert queue.unacked == 1
    channel.settle(Settlement.ACK, 0, 0, multiple=True)
    channel.commit(0)
    assert queue.unacked == 0


def test_claims_that_are_rolled_back_can_be_made_again(broker: Broker, channel: Channel) -> None:
    _with_messages(broker, channel, 3)
    channel.settle(Settlement.ACK, 0, 0, multiple=True)
    channel.rollback()
    channel.settle(Settlement.ACK, 3, 0, multiple=True)
    channel.commit(0)
    assert broker.vhosts["/"].queues["q"].unacked == 0


def test_what_a_transaction_claims_is_not_recovered(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    _with_messages(broker, channel, 4)
    channel.settle(Settlement.ACK, 1, 0, multiple=True)
    channel.settle(Settlement.ACK, 3, 0, multiple=False)
    peer.received()
    channel.recover(0)
    assert [body for _, _, body in given_to(peer)] == [b"2", b"4"]
    channel.commit(0)
    assert broker.vhosts["/"].queues["q"].unacked == 2


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_not_settled_returns_when_the_channel_ends(
    broker: Broker, channel: Channel
) -> None:
    """CH2"""
    one, two = new_queue(broker, "one"), new_queue(broker, "two")
    channel.global_prefetch = 9
    consume(channel, one, "one")
    consume(channel, two, "two")
    for queue in (one, two):
        queue.publish(run_of([b"1", b"2"]), 0)
    channel.settle(Settlement.ACK, 1, 0, multiple=False)
    assert {queue.name for queue in close_channel(channel)} == {"one", "two"}
    assert [
        (queue.ready, queue.unacked, queue.shared_channel_consumers) for queue in (one, two)
    ] == [
        (1, 0, 0),
        (2, 0, 0),
    ]


@pytest.mark.parametrize("getting", [False, True])
def test_the_next_active_consumer_gets_what_returns_before_newer_messages(
    broker: Broker, channel: Channel, getting: bool
) -> None:
    """CH5, also for messages that arrive before all steps are done."""
    queue = new_queue(broker, single_active_consumer=True)
    other = Peer()
    consume(channel, queue, "a", prefetch=1)
    consume(open_channel(broker, other), queue, "b")
    queue.publish(run_of([b"1", b"2"]), 0)
    if getting:
        channel.get(queue, no_ack=False, now=0)
        queue.publish(run_of([b"3"]), 0)
    steps = channel.close()
    next(steps)
    queue.publish(run_of([b"4"]), 0)
    assert other.bodies() == []
    run_to_completion(steps)
    assert other.bodies() == ([b"1", b"2", b"3", b"4"] if getting else [b"1", b"2", b"4"])
    assert (queue.ready, queue.delivery_pauses) == (0, 0)


def test_a_new_message_does_not_overtake_those_that_return(
    broker: Broker, channel: Channel
) -> None:
    queue = new_queue(broker, single_active_consumer=True)
    other = Peer()
    consume(channel, queue, "a")
    consume(open_channel(broker, other), queue, "b")
    queue.publish(run_of([b"1"]), 0)
    steps = channel.close()
    next(steps)
    assert queue.ready == 0
    queue.publish(run_of([b"2"]), 0)
    run_to_completion(steps)
    assert other.bodies() == [b"1", b"2"]


def test_others_take_over_what_a_closed_channel_held(broker: Broker, channel: Channel) -> None:
    queue = new_queue(broker)
    consume(channel, queue)
    other = Peer()
    consume(open_channel(broker, other), queue, prefetch=1)
    channel.publisher.publish(published("q", b"1", b"2", b"3"), 0)
    assert other.bodies() == [b"2"]
    close_channel(channel)
    assert (queue.ready, queue.unacked) == (2, 1)
