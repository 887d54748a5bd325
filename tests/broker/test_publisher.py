"""Publishing: returns, confirms, rejections, copies and transactions."""

import pytest

from recado.amqp.errors import AccessRefusedError, NotFoundError, PreconditionFailedError
from recado.amqp.events import Acked, ContentReceived, Event, InterleavedPublished, MethodReceived
from recado.amqp.frames import extract_body, extract_properties
from recado.amqp.methods import BasicAck, BasicNack, BasicReturn
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.traits import DIRECT_REPLY_TO
from recado.amqp.values import FieldTable
from recado.broker.access import Permission, TopicPermission, User
from recado.broker.arguments import QueueSettings
from recado.broker.broker import Broker
from recado.broker.channel import Channel
from recado.broker.queue import Queue

from .stage import GUEST, Peer, consume, new_queue, open_channel, published


def bodies(queue: Queue) -> list[bytes]:
    found = []
    while (run := queue.get(0)) is not None:
        found.append(extract_body(run.contents()[0]))
    return found


def properties_in(queue: Queue) -> Properties:
    run = queue.get(0)
    assert run is not None
    return decode_properties(extract_properties(run.contents()[0]))


def confirms(events: list[Event]) -> list[object]:
    """Returns by their bodies, confirms as methods."""
    found: list[object] = []
    for event in events:
        match event:
            case Acked(_, first, 1):
                found.append(BasicAck(first, False))
            case MethodReceived(_, BasicAck() | BasicNack() as method):
                found.append(method)
            case ContentReceived(_, BasicReturn(), content):
                found.append(extract_body(content))
            case _:
                raise AssertionError(event)
    return found


# ── returns and confirms ──────────────────────────────────────────────────────────────────────────────────


def test_a_mandatory_message_with_nowhere_to_go_is_returned(channel: Channel, peer: Peer) -> None:
    channel.publisher.publish(published("nowhere", b"1"), 0)
    assert peer.received() == []
    wanted = Properties(message_id="m")
    channel.publisher.publish(published("nowhere", b"2", mandatory=True, properties=wanted), 0)
    (event,) = peer.received()
    assert isinstance(event, ContentReceived)
    assert event.method == BasicReturn(312, "NO_ROUTE", "", "nowhere")
    assert extract_body(event.content) == b"2"
    assert decode_properties(extract_properties(event.content)) == wanted


def test_a_return_comes_before_its_confirm(channel: Channel, peer: Peer) -> None:
    """PUB1"""
    channel.publisher.enable_confirms()
    channel.publisher.publish(published("nowhere", b"1", b"2", mandatory=True), 0)
    channel.publisher.send_confirms()
    channel.publisher.send_confirms()
    assert confirms(peer.received()) == [b"1", b"2", BasicAck(2, True)]


def test_unroutable_messages_are_counted(broker: Broker, channel: Channel) -> None:
    """By the same rules whether the route depends on the exchange or on the message."""
    queue = new_queue(broker)
    publisher = channel.publisher
    for headers in ({}, {"CC": ["nowhere-else"]}):
        properties = Properties(headers=headers)  # type: ignore[arg-type]
        publisher.publish(published("nowhere", b"1", b"2", properties=properties), 0)
        publisher.publish(published("nowhere", b"3", mandatory=True, properties=properties), 0)
        publisher.publish(published("q", b"4", mandatory=True, properties=properties), 0)
    assert (publisher.dropped, publisher.returned, publisher.routed) == (4, 2, 2)
    assert (publisher.published, queue.ready) == (8, 2)


def test_duplicates_are_not_unroutable(broker: Broker, channel: Channel) -> None:
    vhost = broker.vhosts["/"]
    vhost.declare_exchange(
        "once", "fanout", arguments={"x-message-deduplication": True, "x-cache-size": 5}
    )
    new_queue(broker)
    vhost.bind_queue("q", "once", "")
    properties = Properties(message_id="a")
    for _ in range(2):
        event = published("", b"1", exchange="once", properties=properties)
        channel.publisher.publish(event, 0)
    assert (channel.publisher.routed, channel.publisher.dropped) == (1, 0)


def test_messages_that_wait_for_a_confirm_are_counted(broker: Broker, channel: Channel) -> None:
    new_queue(broker, "small", max_length=1, overflow="reject-publish")
    publisher = channel.publisher
    publisher.publish(published("small", b"0"), 0)
    assert (publisher.published_for_confirm, publisher.unconfirmed) == (0, 0)
    publisher.enable_confirms()
    publisher.publish(published("", b"1", b"2"), 0)
    publisher.publish(published("small", b"3"), 0)
    assert (publisher.published_for_confirm, publisher.unconfirmed) == (3, 3)
    publisher.send_confirms()
    assert (publisher.published, publisher.confirmed, publisher.unconfirmed) == (4, 2, 0)


def test_every_message_is_confirmed_once(broker: Broker, channel: Channel, peer: Peer) -> None:
    """PUB2"""
    new_queue(broker, "small", max_length=1, overflow="reject-publish")
    new_queue(broker, "large")
    channel.publisher.publish(published("large", b"unconfirmed"), 0)
    channel.publisher.enable_confirms()
    channel.publisher.publish(published("large", b"1"), 0)
    channel.publisher.send_confirms()
    channel.publisher.publish(published("large", b"2", b"3"), 0)
    channel.publisher.publish(published("small", b"4", b"5"), 0)
    channel.publisher.publish(published("small", b"6"), 0)
    channel.publisher.publish(published("large", b"7"), 0)
    channel.publisher.send_confirms()
    assert confirms(peer.received()) == [
        BasicAck(1, False),
        BasicAck(4, True),
        BasicNack(5, False, False),
        BasicNack(6, False, False),
        BasicAck(7, False),
    ]


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        (Properties(expiration="abc"), "invalid expiration 'abc': no_integer"),
        (Properties(delivery_mode=9), "invalid delivery mode 9"),
        (Properties(user_id="bob"), "user_id property set to 'bob' but authenticated user was"),
        (Properties(headers={"CC": "q"}), "header 'CC' must be an array of strings"),
        (Properties(headers={"BCC": [1]}), "header 'BCC' must be an array of strings"),
        (Properties(headers={"CC": ["é" * 128]}), "of up to 255 bytes"),
        (Properties(reply_to=DIRECT_REPLY_TO), "fast reply consumer does not exist"),
    ],
)
@pytest.mark.parametrize("transactional", [False, True])
def test_properties_that_a_broker_must_refuse(
    channel: Channel, properties: Properties, text: str, transactional: bool
) -> None:
    """Immediately, also in a transaction, so that the commit cannot fail (PUB3)."""
    if transactional:
        channel.publisher.transaction = []
    with pytest.raises(PreconditionFailedError, match=text):
        channel.publisher.publish(published("q", b"x", properties=properties), 0)


def test_a_user_may_say_who_it_is_and_an_impersonator_anything(broker: Broker) -> None:
    new_queue(broker)
    broker.add_user(User("guest", "", ("impersonator",), GUEST.permissions))
    for name in ("guest", "bob"):
        channel = open_channel(broker)
        channel.publisher.publish(published("q", b"x", properties=Properties(user_id=name)), 0)
    assert broker.vhosts["/"].queues["q"].ready == 2


def test_topic_permissions_hold_for_copies(broker: Broker) -> None:
    narrowed = {("/", "amq.topic"): TopicPermission(write="^a")}
    broker.add_user(User("guest", "", (), {"/": Permission(".*", ".*", ".*")}, narrowed))
    channel = open_channel(broker)
    copies = Properties(headers={"CC": ["b"]})
    with pytest.raises(AccessRefusedError, match="access to topic 'b'"):
        channel.publisher.publish(published("a", b"x", exchange="amq.topic", properties=copies), 0)


# ── copies and replies ────────────────────────────────────────────────────────────────────────────────────


def test_copies_go_to_their_receivers_and_blind_ones_are_not_named(
    broker: Broker, channel: Channel
) -> None:
    first, second, third = (new_queue(broker, name) for name in ("first", "second", "third"))
    headers: FieldTable = {"CC": ["second", "first"], "BCC": ["third"], "n": 1}
    channel.publisher.publish(published("first", b"x", properties=Properties(headers=headers)), 0)
    assert [queue.ready for queue in (first, second, third)] == [1, 1, 1]
    for queue in (first, second, third):
        assert properties_in(queue).headers == {"CC": ["second", "first"], "n": 1}


def test_a_header_that_no_longer_fits_is_refused(broker: Broker) -> None:
    channel = open_channel(broker, Peer(frame_max=4096))
    channel.publisher.reply_queue = f"{DIRECT_REPLY_TO}.{'x' * 200}"
    wanted = Properties(headers={"text": "x" * 4000}, reply_to=DIRECT_REPLY_TO)
    with pytest.raises(PreconditionFailedError, match="does not fit into a frame"):
        channel.publisher.publish(published("q", b"x", properties=wanted), 0)


def test_a_reply_goes_straight_to_the_channel_that_asked(broker: Broker) -> None:
    server = new_queue(broker, "server")
    asking = Peer()
    client = open_channel(broker, asking)
    address = broker.create_reply_queue(broker.vhosts["/"], 0)
    client.publisher.reply_queue = address.name
    consume(client, address, no_ack=True)
    wanted = Properties(reply_to=DIRECT_REPLY_TO, correlation_id="1")
    client.publisher.publish(published("server", b"question", properties=wanted), 0)
    reply_to = properties_in(server).reply_to
    assert reply_to == address.name
    answering = Peer()
    answers = open_channel(broker, answering)
    answers.publisher.enable_confirms()
    answers.publisher.publish(published(reply_to, b"answer", mandatory=True), 0)
    assert asking.bodies() == [b"answer"]
    assert confirms(answering.received()) == [b"answer"]
    assert (answers.publisher.routed, answers.publisher.returned) == (0, 1)


def test_headers_decide_for_each_message(broker: Broker, channel: Channel, peer: Peer) -> None:
    queue = new_queue(broker, max_length=1, overflow="reject-publish")
    broker.vhosts["/"].bind_queue("q", "amq.headers", "", {"n": 1})
    channel.publisher.enable_confirms()
    for n in (1, 1, 2):
        wanted = Properties(headers={"n": n})
        channel.publisher.publish(
            published("", b"%d" % n, exchange="amq.headers", mandatory=True, properties=wanted), 0
        )
    channel.publisher.send_confirms()
    assert bodies(queue) == [b"1"]
    assert confirms(peer.received()) == [
        b"2",
        BasicAck(1, False),
        BasicNack(2, False, False),
        BasicAck(3, False),
    ]


# ── work ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_to_one_queue_is_little_work(broker: Broker, channel: Channel) -> None:
    new_queue(broker)
    for key in ("q", "nowhere"):
        channel.publisher.publish(published(key, b"x"), 0)
    assert channel.publisher.publish(published("q", *[b"x"] * 5000), 0) == (None, 1)
    assert channel.publisher.publish(published("nowhere", b"x"), 0) == (None, 1)


@pytest.mark.parametrize("cause", ["refuses", "headers"])
def test_a_run_that_is_much_work_is_done_in_parts(
    broker: Broker, channel: Channel, cause: str
) -> None:
    exchange = ""
    if cause == "refuses":
        queue = new_queue(broker, max_length=100_000, overflow="reject-publish")
    else:
        queue = new_queue(broker)
        exchange = "amq.headers"
        broker.vhosts["/"].bind_queue("q", exchange, "", {"x-match": "any", "n": 1})
    wanted = Properties(headers={"n": 1})
    event = published("q", *[b"x"] * 5000, exchange=exchange, properties=wanted)
    parts, total = 0, 0
    rest: object = event
    while rest is not None:
        rest, work = channel.publisher.publish(rest, 0)  # type: ignore[arg-type]
        parts += 1
        total += work
    assert parts > 1
    assert total >= 5000
    assert queue.ready == 5000


# ── transactions ──────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_published_in_a_transaction_happens_at_commit(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    """PUB3; routes are those at the time of the commit."""
    channel.publisher.transaction = []
    for body in (b"1", b"2"):
        channel.publisher.publish(published("q", body, mandatory=True), 0)
    queue = new_queue(broker)
    assert queue.ready == 0
    channel.commit(0)
    assert bodies(queue) == [b"1", b"2"]
    channel.commit(0)
    assert peer.received() == []


def test_what_is_rolled_back_never_was(broker: Broker, channel: Channel) -> None:
    queue = new_queue(broker)
    channel.publisher.transaction = []
    channel.publisher.publish(published("q", b"1"), 0)
    channel.rollback()
    channel.commit(0)
    assert queue.ready == 0


def test_an_exchange_must_be_there_when_it_is_published_to(channel: Channel) -> None:
    channel.publisher.transaction = []
    with pytest.raises(NotFoundError):
        channel.publisher.publish(published("q", b"1", exchange="nope"), 0)


def test_a_commit_is_whole_or_not_at_all(broker: Broker, channel: Channel) -> None:
    """A message that was valid when published may be invalid at commit."""
    queue = new_queue(broker)
    channel.publisher.transaction = []
    channel.publisher.reply_queue = "here"
    channel.publisher.publish(published("q", b"1"), 0)
    wanted = Properties(reply_to=DIRECT_REPLY_TO)
    channel.publisher.publish(published("q", b"2", properties=wanted), 0)
    channel.publisher.reply_queue = None
    with pytest.raises(PreconditionFailedError):
        channel.commit(0)
    assert queue.ready == 0


def interleaved(*keys: str, exchange: str = "") -> InterleavedPublished:
    """A message for each key in turn, as the frame reader returns them; bodies count up."""
    runs = [published(key, b"%d" % at, exchange=exchange) for at, key in enumerate(keys)]
    methods = [run.method_frame for run in runs]
    return InterleavedPublished(1, runs[0].traits, b"", methods, [run.payloads[0] for run in runs])


def published_bodies(channel: Channel, event: InterleavedPublished) -> list[list[bytes]]:
    return [
        [extract_body(payload) for payload in run.payloads]
        for run in channel.publisher.group_by_route(event)
    ]


def test_interleaved_messages_go_by_route_where_nobody_can_tell(
    broker: Broker, channel: Channel
) -> None:
    for name in ("a", "b"):
        new_queue(broker, name)
    event = interleaved("a", "b", "a", "b")
    singles = [[b"0"], [b"1"], [b"2"], [b"3"]]
    assert published_bodies(channel, event) == singles  # these routes are not cached yet
    for key in ("a", "b"):
        channel.publisher.publish(published(key, b""), 0)
    assert published_bodies(channel, event) == [[b"0", b"2"], [b"1", b"3"]]
    assert published_bodies(channel, interleaved("a", "b")) == singles[:2]  # too few messages
    assert published_bodies(channel, interleaved("a", "a", "b")) == [[b"0", b"1"], [b"2"]]
    new_queue(broker, "c")
    assert published_bodies(channel, event) == singles  # routes may have changed


def test_what_goes_by_route_is_confirmed_when_all_of_it_is_taken_in(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    """PUB4: the second message is published after the third, and the numbers are those of the original
    order.
    """
    for name in ("a", "b"):
        new_queue(broker, name)
        channel.publisher.publish(published(name, b""), 0)
    channel.publisher.enable_confirms()
    channel.publisher.publish(published("a", b""), 0)
    runs = channel.publisher.group_by_route(interleaved("a", "b", "a", "b"))
    found = []
    for run in runs:
        channel.publisher.publish(run, 0)
        channel.publisher.send_confirms()
        found.append(confirms(peer.received()))
    assert found == [[BasicAck(1, False)], [BasicAck(5, True)]]
    channel.publisher.publish(published("a", b""), 0)
    channel.publisher.send_confirms()
    assert confirms(peer.received()) == [BasicAck(6, False)]


def test_what_goes_by_route_is_refused_by_its_own_number(
    broker: Broker, channel: Channel, peer: Peer
) -> None:
    """Between two routes other clients are served, and may limit a queue that had no limit."""
    queues = [new_queue(broker, name) for name in ("a", "b", "c")]
    for queue in queues:
        channel.publisher.publish(published(queue.name, b""), 0)
    channel.publisher.enable_confirms()
    runs = channel.publisher.group_by_route(interleaved(*("a", "b", "c") * 2))
    channel.publisher.publish(next(runs), 0)
    for queue, most in zip(queues[1:], (1, 2), strict=True):
        full = QueueSettings(max_length=most, overflow="reject-publish")
        queue.reconfigure(full, 0)
    for run in runs:
        channel.publisher.publish(run, 0)
    channel.publisher.publish(published("b", b""), 0)
    channel.publisher.send_confirms()
    assert confirms(peer.received()) == [
        BasicAck(1, False),
        BasicNack(2, False, False),
        BasicAck(4, True),
        BasicNack(5, False, False),
        BasicNack(6, False, False),
        BasicNack(7, False, False),
    ]


def test_messages_that_meet_again_keep_their_order(broker: Broker, channel: Channel) -> None:
    new_queue(broker, "a")
    for key in ("x", "y"):
        broker.vhosts["/"].bind_queue("a", "amq.direct", key)
    for key in ("x", "y", "nowhere"):
        channel.publisher.publish(published(key, b"", exchange="amq.direct"), 0)
    for keys in (("x", "y") * 2, ("x", "nowhere") * 2):
        event = interleaved(*keys, exchange="amq.direct")
        assert published_bodies(channel, event) == [[b"0"], [b"1"], [b"2"], [b"3"]]
