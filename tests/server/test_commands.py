"""Methods on a channel and their replies: codes and texts are RabbitMQ's."""

from collections.abc import Sequence

import pytest

from recado.amqp import methods as m
from recado.amqp.events import ContentReceived, MethodReceived
from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.amqp.traits import DIRECT_REPLY_TO
from recado.broker.broker import Broker
from recado.server.session import SessionState

from .client import Client, new_broker, publishing


@pytest.fixture
def broker() -> Broker:
    return new_broker()


@pytest.fixture
def client(broker: Broker) -> Client:
    return Client(broker)


def answers(client: Client, *methods: m.Method) -> list[m.Method]:
    events = client.call(*methods)
    return [event.method for event in events if isinstance(event, MethodReceived)]


# ── refused methods ───────────────────────────────────────────────────────────────────────────────────────

MISSING_QUEUE = "NOT_FOUND - no queue 'nope' in vhost '/'"
MISSING_EXCHANGE = "NOT_FOUND - no exchange 'nope' in vhost '/'"
DEFAULT = "ACCESS_REFUSED - operation not permitted on the default exchange"

REFUSED: list[tuple[int, str, Sequence[m.Method]]] = [
    (404, MISSING_QUEUE, [m.QueueDeclare("nope", passive=True)]),
    (404, MISSING_QUEUE, [m.BasicConsume("nope")]),
    (404, MISSING_QUEUE, [m.BasicGet("nope")]),
    (404, MISSING_QUEUE, [m.QueuePurge("nope")]),
    (404, MISSING_QUEUE, [m.QueueBind("nope", "amq.direct")]),
    (404, "NOT_FOUND - no previously declared queue", [m.QueuePurge("")]),
    (404, MISSING_EXCHANGE, [m.ExchangeDeclare("nope", passive=True)]),
    (404, MISSING_EXCHANGE, [m.QueueDeclare("q"), m.QueueBind("q", "nope")]),
    (404, MISSING_EXCHANGE, [m.ExchangeBind("amq.direct", "nope")]),
    (403, DEFAULT, [m.QueueDeclare("q"), m.QueueBind("q", "")]),
    (403, DEFAULT, [m.ExchangeDeclare("")]),
    (403, DEFAULT, [m.ExchangeDeclare("", passive=True)]),
    (403, DEFAULT, [m.ExchangeDelete("")]),
    (403, DEFAULT, [m.ExchangeUnbind("amq.direct", "")]),
    (
        403,
        "ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'",
        [m.ExchangeDeclare("amq.foo")],
    ),
    (
        403,
        "ACCESS_REFUSED - queue name 'amq.foo' contains reserved prefix 'amq.*'",
        [m.QueueDeclare("amq.foo")],
    ),
    (
        403,
        "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed",
        [m.ExchangeDelete("amq.direct")],
    ),
    (
        406,
        (
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
            "received 'fanout' but current is 'direct'"
        ),
        [m.ExchangeDeclare("amq.direct", "fanout", durable=True)],
    ),
    (
        406,
        (
            "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': "
            "received 'true' but current is 'false'"
        ),
        [m.QueueDeclare("q"), m.QueueDeclare("q", durable=True)],
    ),
    (
        406,
        (
            "PRECONDITION_FAILED - inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': "
            "received none but current is the value '1000' of type 'signedint'"
        ),
        [m.QueueDeclare("q", arguments={"x-message-ttl": 1000}), m.QueueDeclare("q")],
    ),
    (
        406,
        (
            "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'q' in vhost '/': "
            "{value_negative,-1}"
        ),
        [m.QueueDeclare("q", arguments={"x-message-ttl": -1})],
    ),
    (
        403,
        "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use",
        [m.QueueDeclare("q"), m.BasicConsume("q", exclusive=True), m.BasicConsume("q")],
    ),
    (406, "PRECONDITION_FAILED - unknown delivery tag 99", [m.BasicAck(99, False)]),
    (406, "PRECONDITION_FAILED - unknown delivery tag 99", [m.BasicAck(99, True)]),
    (406, "PRECONDITION_FAILED - unknown delivery tag 0", [m.BasicAck(0, False)]),
    (406, "PRECONDITION_FAILED - unknown delivery tag 7", [m.BasicNack(7)]),
    (406, "PRECONDITION_FAILED - unknown delivery tag 7", [m.BasicReject(7)]),
    (
        406,
        "PRECONDITION_FAILED - cannot switch from tx to confirm mode",
        [m.TxSelect(), m.ConfirmSelect()],
    ),
    (
        406,
        "PRECONDITION_FAILED - cannot switch from confirm to tx mode",
        [m.ConfirmSelect(), m.TxSelect()],
    ),
    (406, "PRECONDITION_FAILED - channel is not transactional", [m.TxCommit()]),
    (406, "PRECONDITION_FAILED - channel is not transactional", [m.TxRollback()]),
    (
        406,
        "PRECONDITION_FAILED - queue 'q' in vhost '/' in use",
        [m.QueueDeclare("q"), m.BasicConsume("q"), m.QueueDelete("q", if_unused=True)],
    ),
    (
        406,
        "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use",
        [
            m.ExchangeDeclare("x"),
            m.QueueDeclare("q"),
            m.QueueBind("q", "x"),
            m.ExchangeDelete("x", if_unused=True),
        ],
    ),
    (
        406,
        "PRECONDITION_FAILED - reply consumer cannot acknowledge",
        [m.BasicConsume(DIRECT_REPLY_TO)],
    ),
    (
        406,
        "PRECONDITION_FAILED - direct replies cannot be tapped",
        [m.BasicConsume(DIRECT_REPLY_TO, no_ack=True, arguments={"x-wire-tap": True})],
    ),
    (
        406,
        "PRECONDITION_FAILED - reply consumer already set",
        [
            m.BasicConsume(DIRECT_REPLY_TO, "a", no_ack=True),
            m.BasicConsume(DIRECT_REPLY_TO, "b", no_ack=True),
        ],
    ),
]


@pytest.mark.parametrize(("code", "text", "methods"), REFUSED)
def test_errors_that_close_the_channel(
    client: Client, code: int, text: str, methods: Sequence[m.Method]
) -> None:
    close = answers(client, *methods)[-1]
    assert isinstance(close, m.ChannelClose)
    assert (close.reply_code, close.reply_text) == (code, text)
    culprit = methods[-1]
    assert (close.failed_class, close.failed_method) == (culprit.class_id, culprit.method_id)


@pytest.mark.parametrize(
    ("code", "text", "methods"),
    [
        (503, "COMMAND_INVALID - unknown exchange type 'zz'", [m.ExchangeDeclare("x", "zz")]),
        (
            530,
            "NOT_ALLOWED - attempt to reuse consumer tag 'a'",
            [m.QueueDeclare("q"), m.BasicConsume("q", "a"), m.BasicConsume("q", "a")],
        ),
        (540, "NOT_IMPLEMENTED - requeue=false", [m.BasicRecover(False)]),
        (540, "NOT_IMPLEMENTED - requeue=false", [m.BasicRecoverAsync(False)]),
        (540, "NOT_IMPLEMENTED - prefetch_size!=0 (10)", [m.BasicQos(10)]),
        (540, "NOT_IMPLEMENTED - active=false", [m.ChannelFlow(False)]),
    ],
)
def test_errors_that_close_the_connection(
    client: Client, code: int, text: str, methods: Sequence[m.Method]
) -> None:
    close = answers(client, *methods)[-1]
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, close.reply_text) == (code, text)


# ── replies ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (m.QueueDelete("nope"), m.QueueDeleteOk(0)),
        (m.ExchangeDelete("nope"), m.ExchangeDeleteOk()),
        (m.QueueUnbind("nope", "amq.direct", "k"), m.QueueUnbindOk()),
        (m.ExchangeUnbind("nope", "amq.direct", "k"), m.ExchangeUnbindOk()),
        (m.ExchangeDeclare("amq.direct", passive=True), m.ExchangeDeclareOk()),
        (m.ExchangeBind("amq.direct", "amq.fanout"), m.ExchangeBindOk()),
        (m.BasicCancel("nope"), m.BasicCancelOk("nope")),
        (m.BasicQos(0, 5), m.BasicQosOk()),
        (m.BasicRecover(True), m.BasicRecoverOk()),
        (m.ChannelFlow(True), m.ChannelFlowOk(True)),
        (m.AccessRequest(), m.AccessRequestOk()),
        (m.ConfirmSelect(), m.ConfirmSelectOk()),
        (m.TxSelect(), m.TxSelectOk()),
        (m.QueueDeclare(DIRECT_REPLY_TO), m.QueueDeclareOk(DIRECT_REPLY_TO, 0, 1)),
    ],
)
def test_what_succeeds(client: Client, method: m.Method, answer: m.Method) -> None:
    assert answers(client, method) == [answer]


@pytest.mark.parametrize(
    "method",
    [
        m.ExchangeDeclare("x", no_wait=True),
        m.ExchangeDelete("x", no_wait=True),
        m.ExchangeBind("amq.direct", "amq.fanout", no_wait=True),
        m.ExchangeUnbind("amq.direct", "amq.fanout", no_wait=True),
        m.QueueDeclare("other", no_wait=True),
        m.QueueBind("q", "amq.direct", "k", no_wait=True),
        m.QueuePurge("q", no_wait=True),
        m.QueueDelete("q", no_wait=True),
        m.BasicConsume("q", "c", no_wait=True),
        m.BasicCancel("c", no_wait=True),
        m.ConfirmSelect(no_wait=True),
        m.BasicAck(0, True),
        m.BasicRecoverAsync(True),
    ],
)
def test_no_wait_methods_are_not_answered(client: Client, method: m.Method) -> None:
    client.call(m.QueueDeclare("q"))
    assert answers(client, method) == []
    assert client.session.state is SessionState.OPEN
    assert client.session.channels.keys() == {1}


def test_declarations_and_creations_of_queues_are_counted(client: Client) -> None:
    """Not those of addresses of direct replies."""
    client.call(m.QueueDeclare("q"), m.QueueDeclare("q"), m.QueueDeclare("q", passive=True))
    client.call(m.BasicConsume("amq.rabbitmq.reply-to", "replies", no_ack=True))
    client.call(m.BasicCancel("replies"), m.QueueDelete("q"))
    usage = client.session.broker.usage
    assert (usage.queues_declared, usage.queues_created, usage.queues_deleted) == (2, 1, 1)


def test_an_empty_name_is_the_queue_declared_last(client: Client) -> None:
    (declared,) = answers(client, m.QueueDeclare())
    assert declared == m.QueueDeclareOk("amq.gen-1", 0, 0)
    client.call(m.QueueBind("", "amq.direct"), m.QueueBind("", "amq.direct", "k"))
    for key in ("amq.gen-1", "k"):
        client.feed(publishing(1, key, b"x", exchange="amq.direct"))
    client.call(m.QueueUnbind("", "amq.direct"))
    assert answers(client, m.QueuePurge()) == [m.QueuePurgeOk(2)]
    assert answers(client, m.BasicGet()) == [m.BasicGetEmpty()]
    assert answers(client, m.BasicConsume()) == [m.BasicConsumeOk("amq.ctag-2")]
    answer, cancel = answers(client, m.QueueDelete())
    assert (answer, cancel) == (m.QueueDeleteOk(0), m.BasicCancel("amq.ctag-2", no_wait=True))


def test_an_empty_name_in_a_passive_declare_is_a_name(client: Client) -> None:
    client.call(m.QueueDeclare("q"))
    (close,) = answers(client, m.QueueDeclare(passive=True))
    assert isinstance(close, m.ChannelClose)
    assert close.reply_text == "NOT_FOUND - no queue '' in vhost '/'"


def test_line_breaks_are_stripped_from_names(client: Client) -> None:
    assert answers(client, m.ExchangeDeclare("x\r\n", "fanout"), m.QueueDeclare("\nq\r")) == [
        m.ExchangeDeclareOk(),
        m.QueueDeclareOk("q", 0, 0),
    ]
    bound = answers(client, m.QueueBind("q\n", "x\r"), m.ExchangeBind("amq.\nfanout", "x\n"))
    assert bound == [m.QueueBindOk(), m.ExchangeBindOk()]
    client.feed(publishing(1, "", b"x", exchange="x"))
    assert answers(client, m.QueueDelete("\rq"), m.ExchangeDelete("x\r")) == [
        m.QueueDeleteOk(1),
        m.ExchangeDeleteOk(),
    ]


def test_transactions_from_end_to_end(client: Client) -> None:
    client.call(m.QueueDeclare("q"), m.TxSelect(), m.TxSelect())
    client.feed(publishing(1, "q", b"x"))
    assert answers(client, m.TxRollback()) == [m.TxRollbackOk()]
    client.feed(publishing(1, "q", b"y"))
    assert answers(client, m.TxCommit()) == [m.TxCommitOk()]
    (got,) = client.call(m.BasicGet("q"))
    assert isinstance(got, ContentReceived)
    assert extract_body(got.content) == b"y"


def test_settling_in_every_way(client: Client) -> None:
    """A prefetch of two allows two unsettled messages; each settled one allows another."""
    client.call(m.QueueDeclare("q"), m.BasicQos(0, 2, False), m.BasicConsume("q"))
    client.feed(publishing(1, "q", b"x") * 7)
    assert len(client.received()) == 2
    assert len(client.call(m.BasicAck(1, False))) == 1
    assert len(client.call(m.BasicAck(3, True))) == 2
    assert len(client.call(m.BasicNack(4, requeue=False))) == 1
    assert len(client.call(m.BasicReject(5, requeue=False))) == 1
    for method in (m.BasicReject(6, requeue=True), m.BasicNack(7, requeue=True)):
        (again,) = client.call(method)
        assert isinstance(again, ContentReceived)
        assert isinstance(again.method, m.BasicDeliver)
        assert again.method.redelivered


def test_a_limit_that_is_lifted_lets_messages_through(client: Client) -> None:
    client.call(m.QueueDeclare("q"), m.BasicQos(0, 1, True), m.BasicConsume("q"))
    client.feed(publishing(1, "q", b"x") * 3)
    assert len(client.received()) == 1
    _, *more = client.call(m.BasicQos(0, 0, True))
    assert len(more) == 2


# ── exclusive queues and replies ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "method",
    [
        m.QueueDeclare("q", passive=True),
        m.QueueDeclare("q", exclusive=True),
        m.QueueDeclare("q"),
        m.BasicConsume("q"),
        m.BasicGet("q"),
        m.QueuePurge("q"),
        m.QueueDelete("q"),
        m.QueueBind("q", "amq.direct"),
        m.QueueUnbind("q", "amq.direct"),
    ],
)
def test_an_exclusive_queue_is_locked_for_other_connections(
    broker: Broker, method: m.Method
) -> None:
    owner, other = Client(broker), Client(broker)
    owner.call(m.QueueDeclare("q", exclusive=True))
    (close,) = answers(other, method)
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 405
    assert not isinstance(answers(owner, m.QueuePurge("q"))[0], m.ChannelClose)


def test_asking_and_answering_directly(broker: Broker) -> None:
    asking, serving = Client(broker), Client(broker)
    serving.call(m.QueueDeclare("rpc"), m.BasicConsume("rpc", no_ack=True))
    asking.call(m.BasicConsume(DIRECT_REPLY_TO, "replies", no_ack=True))
    asking.feed(publishing(1, "rpc", b"question", Properties(reply_to=DIRECT_REPLY_TO)))
    (question,) = serving.received()
    assert isinstance(question, ContentReceived)
    address = f"{DIRECT_REPLY_TO}.2"
    assert address.encode() in question.content
    assert answers(serving, m.QueueDeclare(address, passive=True)) == [
        m.QueueDeclareOk(address, 0, 1)
    ]
    serving.feed(publishing(1, address, b"answer"))
    (answer,) = asking.received()
    assert isinstance(answer, ContentReceived)
    assert extract_body(answer.content) == b"answer"
    asking.call(m.BasicCancel("replies"))
    (close,) = answers(serving, m.QueueDeclare(address, passive=True))
    assert isinstance(close, m.ChannelClose)
    assert close.reply_code == 404
