"""Routes: cached while they are valid; and runs to several queues."""

import pytest

from recado.amqp.errors import (
    AccessRefusedError,
    AmqpNotImplementedError,
    AmqpSyntaxError,
    NotFoundError,
    PreconditionFailedError,
)
from recado.amqp.frames import encode_method_frame
from recado.amqp.methods import BasicPublish, QueueDeclare
from recado.amqp.properties import Properties
from recado.broker.access import Permission, TopicPermission, User
from recado.broker.broker import Broker
from recado.broker.deduplication import ExchangeDeduplication
from recado.broker.queue import Queue
from recado.broker.routing import VhostAccess, is_unroutable, publish_to_all
from recado.broker.steps import run_to_completion

from .stage import Peer, consume, new_broker, new_queue, open_channel, route_of, run_of


def publish(exchange: str, key: str) -> bytes:
    return encode_method_frame(1, BasicPublish(exchange, key))


def names(queues: object) -> list[str]:
    assert isinstance(queues, list)
    return [queue.name for queue in queues]


@pytest.fixture
def broker() -> Broker:
    return new_broker()


@pytest.fixture
def access(broker: Broker) -> VhostAccess:
    return broker.grant_access(broker.users["guest"], "/")


# ── finding ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_route_holds_until_something_is_bound(broker: Broker, access: VhostAccess) -> None:
    for name in ("a", "b"):
        new_queue(broker, name)
    vhost = broker.vhosts["/"]
    vhost.bind_queue("a", "amq.direct", "k")
    route = route_of(access, publish("amq.direct", "k"))
    assert names(route.queues) == ["a"]
    assert route_of(access, publish("amq.direct", "k")) is route
    vhost.bind_queue("b", "amq.direct", "k")
    assert names(route_of(access, publish("amq.direct", "k")).queues) == ["a", "b"]
    broker.delete_queue(vhost.queues["a"], 0)
    assert names(route_of(access, publish("amq.direct", "k")).queues) == ["b"]


def test_a_route_that_depends_on_headers_has_no_queues_of_its_own(
    broker: Broker, access: VhostAccess
) -> None:
    new_queue(broker, "a")
    broker.vhosts["/"].bind_queue("a", "amq.headers", "", {"n": 1})
    route = route_of(access, publish("amq.headers", ""))
    assert route.queues is None
    assert names(
        run_to_completion(
            access.find_message_queues(route, {"n": 1}, (), ExchangeDeduplication(Properties(), 0))
        )
    ) == ["a"]
    assert (
        names(
            run_to_completion(
                access.find_message_queues(
                    route, {"n": 2}, (), ExchangeDeduplication(Properties(), 0)
                )
            )
        )
        == []
    )


def test_a_route_is_renewed_for_a_later_time(broker: Broker, access: VhostAccess) -> None:
    route = route_of(access, publish("", "a"))
    assert names(route.queues) == []
    new_queue(broker, "a")
    assert names(run_to_completion(access.refresh_route(route)).queues) == ["a"]


def test_ever_new_keys_do_not_fill_the_memory(access: VhostAccess) -> None:
    routes = [route_of(access, publish("", str(i))) for i in range(8193)]
    assert route_of(access, publish("", "8192")) is routes[8192]
    assert route_of(access, publish("", "0")) is not routes[0]


@pytest.mark.parametrize(
    ("frame", "error", "text"),
    [
        (publish("nope", ""), NotFoundError, "no exchange 'nope' in vhost '/'"),
        (
            publish("amq.rabbitmq.trace", ""),
            AccessRefusedError,
            "cannot publish to internal exchange",
        ),
        (
            encode_method_frame(1, BasicPublish("", "", immediate=True)),
            AmqpNotImplementedError,
            "immediate=true",
        ),
        (encode_method_frame(1, QueueDeclare("q")), AmqpSyntaxError, "content without a publish"),
    ],
)
def test_what_has_no_route(
    access: VhostAccess, frame: bytes, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        route_of(access, frame)


def test_permissions_are_those_of_the_user(broker: Broker) -> None:
    user = User(
        "ada",
        permissions={"/": Permission("", "^amq.topic$", "")},
        topic_permissions={("/", "amq.topic"): TopicPermission(write="^a")},
    )
    broker.add_user(user)
    access = broker.grant_access(user, "/")
    assert route_of(access, publish("amq.topic", "a.b")).exchange == "amq.topic"
    with pytest.raises(AccessRefusedError, match=r"access to topic 'b' in exchange 'amq.topic'"):
        route_of(access, publish("amq.topic", "b"))
    with pytest.raises(AccessRefusedError, match=r"access to exchange 'amq.default' in vhost '/'"):
        route_of(access, publish("", "q"))


# ── giving ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_goes_to_all_of_its_queues(broker: Broker) -> None:
    queues = [new_queue(broker, str(i)) for i in range(3)]
    assert list(publish_to_all(run_of([b"a", b"b"]), queues, 0)) == []
    assert [queue.ready for queue in queues] == [2, 2, 2]
    queues[0].get(0)
    assert [queue.ready for queue in queues] == [1, 2, 2]


def test_a_message_is_refused_if_one_queue_refuses_it(broker: Broker) -> None:
    queues = [
        new_queue(broker, "a", max_length=1, overflow="reject-publish"),
        new_queue(broker, "b", max_length=2, overflow="reject-publish"),
        new_queue(broker, "c"),
    ]
    assert list(publish_to_all(run_of([b"1", b"2", b"3"]), queues, 0)) == [1, 2]
    assert [queue.ready for queue in queues] == [1, 2, 3]


def test_one_channel_sees_the_messages_of_two_queues_in_order(broker: Broker) -> None:
    queues = [new_queue(broker, "a"), new_queue(broker, "b")]
    peer = Peer()
    channel = open_channel(broker, peer)
    for queue in queues:
        consume(channel, queue, queue.name)
    publish_to_all(run_of([b"1", b"2"]), queues, 0)
    seen = [(method.consumer_tag, body) for method, body in peer.delivered()]
    assert seen == [("a", b"1"), ("b", b"1"), ("a", b"2"), ("b", b"2")]


def test_nowhere_is_where_no_queue_is(broker: Broker) -> None:
    queue: Queue = new_queue(broker)
    reply = broker.create_reply_queue(broker.vhosts["/"], 0)
    assert is_unroutable([])
    assert is_unroutable([reply])
    assert not is_unroutable([reply, queue])


def test_the_patterns_of_an_exchange_are_bounded_together(broker: Broker) -> None:
    vhost = broker.vhosts["/"]
    new_queue(broker, "q")
    vhost.declare_exchange("x", "regex")

    def bind_many() -> None:
        for i in range(1000):
            vhost.bind_queue("q", "x", f"{i}" + "(a|b|c){1,100}" * 5)

    with pytest.raises(PreconditionFailedError, match="too complex in total"):
        bind_many()
    assert 0 < len(vhost.exchanges["x"].bindings) < 1000
