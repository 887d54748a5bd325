"""Permissions: each command needs its own, and reveals nothing without them."""

import pytest

from recado.amqp import methods as m
from recado.amqp.events import MethodReceived
from recado.broker.access import Permission, TopicPermission, User
from recado.broker.broker import Broker

from .client import EVERYTHING, Client, new_broker


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def answers(client: Client, *methods: m.Method) -> list[m.Method]:
    events = client.call(*methods)
    return [event.method for event in events if isinstance(event, MethodReceived)]


CONFIGURE, WRITE, READ = (
    Permission("^(q|x)$", "", ""),
    Permission("", "^(q|x)$", ""),
    Permission("", "", "^(q|x)$"),
)


def _allowed(permission: Permission, method: m.Method) -> bool:
    broker = new_broker(
        User("guest", permissions={"/": permission}), User("root", permissions={"/": EVERYTHING})
    )
    root = Client(broker, user="root")
    root.call(m.QueueDeclare("q"), m.ExchangeDeclare("x", "topic"))
    client = Client(broker)
    refused = [
        each
        for each in answers(client, method)
        if isinstance(each, m.ChannelClose) and each.reply_code == 403
    ]
    return not refused


@pytest.mark.parametrize(
    ("method", "permissions"),
    [
        (m.QueueDeclare("q"), {CONFIGURE}),
        (m.QueueDeclare("q", passive=True), {CONFIGURE, WRITE, READ}),
        (m.QueueDelete("q"), {CONFIGURE}),
        (m.ExchangeDeclare("x", "topic"), {CONFIGURE}),
        (m.ExchangeDeclare("x", passive=True), {CONFIGURE, WRITE, READ}),
        (m.ExchangeDelete("x"), {CONFIGURE}),
        (m.BasicGet("q"), {READ}),
        (m.BasicConsume("q"), {READ}),
        (m.QueuePurge("q"), {READ}),
        (m.QueueBind("q", "x"), set()),
        (m.QueueUnbind("q", "x"), set()),
        (m.ExchangeBind("x", "x"), set()),
        (m.QueueDeclare("x", arguments={"x-dead-letter-exchange": "x"}), set()),
        (m.ExchangeDeclare("y", arguments={"alternate-exchange": "x"}), set()),
    ],
)
def test_permissions(method: m.Method, permissions: set[Permission]) -> None:
    for permission in (CONFIGURE, WRITE, READ):
        assert _allowed(permission, method) is (permission in permissions), permission
    assert _allowed(EVERYTHING, method)


def test_without_permissions_existence_is_not_revealed(broker: Broker) -> None:
    broker.add_user(User("nobody", permissions={"/": Permission()}))
    Client(broker).call(m.QueueDeclare("there"))
    texts = []
    for name in ("there", "nope"):
        (close,) = answers(Client(broker, user="nobody"), m.QueueDeclare(name, passive=True))
        assert isinstance(close, m.ChannelClose)
        texts.append(close.reply_text.replace(name, "?"))
    assert texts[0] == texts[1]


def test_topic_permissions_restrict_bindings(broker: Broker) -> None:
    narrowed = {("/", "amq.topic"): TopicPermission(read="^a")}
    broker.add_user(User("ada", permissions={"/": EVERYTHING}, topic_permissions=narrowed))
    client = Client(broker, user="ada")
    client.call(m.QueueDeclare("q"))
    assert answers(client, m.QueueBind("q", "amq.topic", "a.b")) == [m.QueueBindOk()]
    (close,) = answers(client, m.QueueBind("q", "amq.topic", "b"))
    assert isinstance(close, m.ChannelClose)
    assert "access to topic 'b'" in close.reply_text
