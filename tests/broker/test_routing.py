"""Routes: remembered as long as they hold; and a run that goes to several queues."""

import pytest

from recado.amqp.errors import (
    AccessRefused,
    NotFound,
    NotImplementedHere,
    PreconditionFailed,
    SyntaxFault,
)
from recado.amqp.frames import method_frame
from recado.amqp.methods import BasicPublish, QueueDeclare
from recado.amqp.properties import Properties
from recado.broker.access import Permission, TopicPermission, User
from recado.broker.broker import Broker
from recado.broker.deduplication import Passage
from recado.broker.queue import Queue
from recado.broker.routing import Admission, distribute, is_nowhere
from recado.broker.steps import finish

from .stage import Peer, consume, new_broker, new_queue, open_channel, route_of, run_of


def publish(exchange: str, key: str) -> bytes:
    return method_frame(1, BasicPublish(exchange, key))


def names(queues: object) -> list[str]:
    assert isinstance(queues, list)
    return [queue.name for queue in queues]


@pytest.fixture
def broker() -> Broker:
    return new_broker()


@pytest.fixture
def admission(broker: Broker) -> Admission:
    return broker.admit(broker.users["guest"], "/")


# ── finding ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_route_holds_until_something_is_bound(broker: Broker, admission: Admission) -> None:
    for name in ("a", "b"):
        new_queue(broker, name)
    vhost = broker.vhosts["/"]
    vhost.bind_queue("a", "amq.direct", "k")
    route = route_of(admission, publish("amq.direct", "k"))
    assert names(route.queues) == ["a"]
    assert route_of(admission, publish("amq.direct", "k")) is route
    vhost.bind_queue("b", "amq.direct", "k")
    assert names(route_of(admission, publish("amq.direct", "k")).queues) == ["a", "b"]
    broker.delete_queue(vhost.queues["a"], 0)
    assert names(route_of(admission, publish("amq.direct", "k")).queues) == ["b"]


def test_a_route_that_depends_on_headers_has_no_queues_of_its_own(
    broker: Broker, admission: Admission
) -> None:
    new_queue(broker, "a")
    broker.vhosts["/"].bind_queue("a", "amq.headers", "", {"n": 1})
    route = route_of(admission, publish("amq.headers", ""))
    assert route.queues is None
    assert names(finish(admission.queues_for(route, {"n": 1}, (), Passage(Properties(), 0)))) == [
        "a"
    ]
    assert names(finish(admission.queues_for(route, {"n": 2}, (), Passage(Properties(), 0)))) == []


def test_a_route_is_renewed_for_a_later_time(broker: Broker, admission: Admission) -> None:
    route = route_of(admission, publish("", "a"))
    assert names(route.queues) == []
    new_queue(broker, "a")
    assert names(finish(admission.renew(route)).queues) == ["a"]


def test_ever_new_keys_do_not_fill_the_memory(admission: Admission) -> None:
    routes = [route_of(admission, publish("", str(i))) for i in range(8193)]
    assert route_of(admission, publish("", "8192")) is routes[8192]
    assert route_of(admission, publish("", "0")) is not routes[0]


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        (publish("nope", ""), NotFound, "no exchange 'nope' in vhost '/'"),
        (publish("amq.rabbitmq.trace", ""), AccessRefused, "cannot publish to internal exchange"),
        (
            method_frame(1, BasicPublish("", "", immediate=True)),
            NotImplementedHere,
            "immediate=true",
        ),
        (method_frame(1, QueueDeclare("q")), SyntaxFault, "content without a publish"),
    ],
)
def test_what_has_no_route(
    admission: Admission, frame: bytes, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        route_of(admission, frame)


def test_permissions_are_those_of_the_user(broker: Broker) -> None:
    user = User(
        "ada",
        permissions={"/": Permission("", "^amq.topic$", "")},
        topic_permissions={("/", "amq.topic"): TopicPermission(write="^a")},
    )
    broker.add_user(user)
    admission = broker.admit(user, "/")
    assert route_of(admission, publish("amq.topic", "a.b")).exchange == "amq.topic"
    with pytest.raises(AccessRefused, match=r"access to topic 'b' in exchange 'amq.topic'"):
        route_of(admission, publish("amq.topic", "b"))
    with pytest.raises(AccessRefused, match=r"access to exchange 'amq.default' in vhost '/'"):
        route_of(admission, publish("", "q"))


# ── giving ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_goes_to_all_of_its_queues(broker: Broker) -> None:
    queues = [new_queue(broker, str(i)) for i in range(3)]
    assert list(distribute(run_of([b"a", b"b"]), queues, 0)) == []
    assert [queue.ready for queue in queues] == [2, 2, 2]
    queues[0].get(0)
    assert [queue.ready for queue in queues] == [1, 2, 2]


def test_a_message_is_refused_if_one_queue_refuses_it(broker: Broker) -> None:
    queues = [
        new_queue(broker, "a", max_length=1, overflow="reject-publish"),
        new_queue(broker, "b", max_length=2, overflow="reject-publish"),
        new_queue(broker, "c"),
    ]
    assert list(distribute(run_of([b"1", b"2", b"3"]), queues, 0)) == [1, 2]
    assert [queue.ready for queue in queues] == [1, 2, 3]


def test_one_channel_sees_the_messages_of_two_queues_in_order(broker: Broker) -> None:
    queues = [new_queue(broker, "a"), new_queue(broker, "b")]
    peer = Peer()
    channel = open_channel(broker, peer)
    for queue in queues:
        consume(channel, queue, queue.name)
    distribute(run_of([b"1", b"2"]), queues, 0)
    seen = [(method.consumer_tag, body) for method, body in peer.delivered()]
    assert seen == [("a", b"1"), ("b", b"1"), ("a", b"2"), ("b", b"2")]


def test_nowhere_is_where_no_queue_is(broker: Broker) -> None:
    queue: Queue = new_queue(broker)
    reply = broker.create_reply_queue(broker.vhosts["/"], 0)
    assert is_nowhere([])
    assert is_nowhere([reply])
    assert not is_nowhere([reply, queue])


def test_the_patterns_of_an_exchange_are_bounded_together(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    new_queue(broker, "q")
    vhost.declare_exchange("x", "regex")

    def bind_many() -> None:
        for i in range(1000):
            vhost.bind_queue("q", "x", f"{i}" + "(a|b|c){1,100}" * 5)

    with pytest.raises(PreconditionFailed, match="too complex together"):
        bind_many()
    assert 0 < len(vhost.exchanges["x"].bindings) < 1000
