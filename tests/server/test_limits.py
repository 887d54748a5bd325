"""Sessions that reach a limit of their vhost or user, and the default queue type of a vhost."""

from collections.abc import Callable

import msgspec
import pytest

from recado.amqp.events import MethodReceived
from recado.amqp.methods import (
    BasicConsume,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
)
from recado.broker.broker import Broker
from recado.broker.limits import UserLimits, VhostLimits
from recado.broker.vhost import VhostSettings

from .client import Client, new_broker


def limited_vhost(**limits: int) -> Broker:
    broker = new_broker()
    broker.configure_vhost("/", VhostSettings(limits=VhostLimits(**limits)))
    return broker


def limited_user(**limits: int) -> Broker:
    broker = new_broker()
    guest = broker.users["guest"]
    broker.add_user(msgspec.structs.replace(guest, limits=UserLimits(**limits)))
    return broker


def methods(client: Client) -> list[Method]:
    return [event.method for event in client.received() if isinstance(event, MethodReceived)]


OF_VHOST = "access to vhost '/' refused for user 'guest': connection limit (1) is reached"
OF_USER = "connection refused for user 'guest': user connection limit (1) is reached"


@pytest.mark.parametrize(("limited", "text"), [(limited_vhost, OF_VHOST), (limited_user, OF_USER)])
def test_a_connection_too_many_is_refused(limited: Callable[..., Broker], text: str) -> None:
    broker = limited(max_connections=1)
    first = Client(broker)
    refusal = Client(broker).refusal
    assert refusal is not None
    assert (refusal.reply_code, refusal.reply_text) == (530, f"NOT_ALLOWED - {text}")
    assert Client(broker).refusal is not None  # the refused one did not count
    first.send((0, ConnectionClose(200, "")))
    assert methods(first) == [ConnectionCloseOk()]
    first.session.terminate(0)  # the socket closes, too
    assert Client(broker).refusal is None
    assert Client(broker).refusal is not None


def test_channels_of_a_user_are_counted_over_its_connections() -> None:
    broker = limited_user(max_channels=2)
    one, other = Client(broker), Client(broker)
    other.send((2, ChannelOpen()))
    (close,) = methods(other)
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 530
    assert close.reply_text == (
        "NOT_ALLOWED - number of channels opened for user 'guest' has reached the maximum allowed"
        " user limit of (2)"
    )
    one.send((2, ChannelOpen()))
    assert methods(one) == [ChannelOpenOk()]
    one.send((2, ChannelClose(200, "")), (3, ChannelOpen()))
    assert methods(one)[-1] == ChannelOpenOk()


def test_a_queue_too_many_is_refused() -> None:
    client = Client(limited_vhost(max_queues=1))
    client.send(
        (1, QueueDeclare("a")), (1, QueueDeclare("a")), (1, QueueDeclare("a", passive=True))
    )
    assert [type(method) for method in methods(client)] == [QueueDeclareOk] * 3
    client.send((1, QueueDeclare("b", exclusive=True)))
    (close,) = methods(client)
    assert isinstance(close, ChannelClose)
    assert (close.reply_code, close.reply_text) == (
        406,
        "PRECONDITION_FAILED - cannot declare queue 'b': queue limit in vhost '/' (1) is reached",
    )


def test_a_binding_or_a_consumer_too_many_is_refused() -> None:
    client = Client(limited_vhost(max_bindings=0, max_consumers=0))
    client.send((1, QueueDeclare("a")), (1, QueueBind("a", "amq.fanout")))
    close = methods(client)[-1]
    assert isinstance(close, ChannelClose)
    assert (close.reply_code, close.reply_text) == (
        406,
        (
            "PRECONDITION_FAILED - cannot bind 'a' to exchange 'amq.fanout': binding limit in vhost '/'"
            " (0) is reached"
        ),
    )
    client.send((1, ChannelCloseOk()), (1, ChannelOpen()), (1, BasicConsume("a")))
    close = methods(client)[-1]
    assert isinstance(close, ChannelClose)
    assert (close.reply_code, close.reply_text) == (
        406,
        (
            "PRECONDITION_FAILED - cannot consume from queue 'a': consumer limit in vhost '/' (0) is"
            " reached"
        ),
    )


# ── the default type of queues ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def broker() -> Broker:
    broker = new_broker()
    broker.configure_vhost("/", VhostSettings(default_queue_type="quorum"))
    return broker


def test_a_queue_without_a_type_gets_the_default(broker: Broker) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("q", durable=True)), (1, QueueDeclare("mine", exclusive=True)))
    queues = broker.vhosts["/"].queues
    assert queues["q"].declared_settings.arguments == {"x-queue-type": "quorum"}
    assert queues["mine"].declared_settings.arguments == {"x-queue-type": "classic"}
    client.send(
        (1, QueueDeclare("q", durable=True)),
        (1, QueueDeclare("q", durable=True, arguments={"x-queue-type": "quorum"})),
        (1, QueueDeclare("mine", exclusive=True)),
    )
    assert [type(method) for method in methods(client)] == [QueueDeclareOk] * 5
    client.send((1, QueueDeclare("q", durable=True, arguments={"x-queue-type": "classic"})))
    (close,) = methods(client)
    assert isinstance(close, ChannelClose)
    assert close.reply_text == (
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received"
        " 'classic' but current is 'quorum'"
    )


def test_a_queue_that_is_older_than_the_default_differs_as_in_rabbitmq() -> None:
    broker = new_broker()
    client = Client(broker)
    client.send((1, QueueDeclare("q", durable=True)))
    broker.configure_vhost("/", VhostSettings(default_queue_type="quorum"))
    client.send((1, QueueDeclare("q", durable=True)))
    _, close = methods(client)
    assert isinstance(close, ChannelClose)
    assert close.reply_text == (
        "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received"
        " the value 'quorum' of type 'longstr' but current is none"
    )


def test_a_server_named_queue_cannot_be_of_the_default_type(broker: Broker) -> None:
    client = Client(broker)
    client.send((1, QueueDeclare("", durable=True)))
    (close,) = methods(client)
    assert isinstance(close, ChannelClose)
    assert close.reply_text == (
        "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue"
    )
    client = Client(broker)
    client.send((1, QueueDeclare("", exclusive=True)))
    assert isinstance(methods(client)[0], QueueDeclareOk)
