"""The work that a client causes is charged to its turn, which ends when its budget is used up (SE5)."""

from itertools import product

import pytest

from recado.amqp import methods as m
from recado.amqp.errors import PreconditionFailedError
from recado.amqp.events import ContentReceived, Event, MethodReceived
from recado.amqp.frames import encode_method_frame, extract_body
from recado.amqp.properties import Properties
from recado.amqp.values import FieldValue
from recado.broker.broker import Broker
from recado.broker.publisher import Publisher
from recado.broker.queue import Queue
from recado.broker.steps import STEP_UNITS_MAX, TURN_UNITS_MAX, Steps, StepTask
from recado.server.session import SessionState

from ..broker.stores import PagingStore
from .client import Client, new_broker, publishing

WORDS = "abcdefghijklmnopqr"
OVERSHOOT = 3 * STEP_UNITS_MAX  # of the last step


def key(number: int) -> str:
    """Long keys, each another one."""
    return ".".join(WORDS[i * (1 + number % 7) % len(WORDS)] for i in range(120)) + f".{number}"


class Turns:
    """The costs of the turns of all sessions."""

    def __init__(self) -> None:
        self.spent = 0

    def take(self) -> int:
        spent, self.spent = self.spent, 0
        return spent


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """Counts all work that is done in steps."""
    seen, advance = Turns(), StepTask.advance

    def counted(work: StepTask[object], budget: int) -> int:
        cost = advance(work, budget)
        seen.spent += cost
        return cost

    monkeypatch.setattr(StepTask, "advance", counted)
    return seen


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def answers(events: list[Event]) -> list[m.Method]:
    return [event.method for event in events if isinstance(event, MethodReceived)]


def play(attacker: Client, turns: Turns, idle: Client, data: bytes) -> list[int]:
    """The costs of the turns it takes; an idle client is served after each."""
    turns.take()
    costs = []
    attacker.session.receive(data, 0)
    while True:
        costs.append(turns.take())
        assert answers(idle.call(m.BasicQos(prefetch_count=1))) == [m.BasicQosOk()]
        if not attacker.session.has_input:
            return costs
        attacker.session.process_input(0)


def waits(client: Client) -> bool:
    return client.session.has_input


def topology(client: Client, kind: str) -> None:
    """Bindings that cost much for each key."""
    client.call(m.QueueDeclare("q"), m.ExchangeDeclare("x", kind))
    if kind == "topic":
        patterns = [f"#.{a}.#.{b}.#.*.z" for a, b in product(WORDS, WORDS)]
    else:
        patterns = [f"x{i}.*[a-z]+y" for i in range(1000)]
    client.send(*((1, m.QueueBind("q", "x", pattern)) for pattern in (*patterns, "end.*")))
    client.received()


@pytest.mark.parametrize("kind", ["topic", "regex"])
def test_publishes_that_are_hard_to_route_take_many_turns(
    broker: Broker, turns: Turns, kind: str
) -> None:
    attacker, idle = Client(broker), Client(broker)
    topology(attacker, kind)
    data = b"".join(publishing(1, key(i), b"x", exchange="x") for i in range(20))
    data += publishing(1, "q", b"last") + encode_method_frame(1, m.BasicQos(prefetch_count=1))
    costs = play(attacker, turns, idle, data)
    assert sum(costs) > 10 * TURN_UNITS_MAX
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    assert len(costs) > 10
    assert broker.vhosts["/"].queues["q"].ready == 1
    assert answers(attacker.received()) == [m.BasicQosOk()]


def test_a_message_with_many_keys_takes_many_turns(broker: Broker, turns: Turns) -> None:
    attacker, idle = Client(broker), Client(broker)
    topology(attacker, "topic")
    copies: list[FieldValue] = [key(i) for i in range(20)]
    properties = Properties(headers={"CC": copies})
    costs = play(
        attacker, turns, idle, publishing(1, "k", b"x", properties, exchange="x", frame_max=1 << 20)
    )
    assert len(costs) > 20
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT


def test_messages_that_are_hard_to_route_in_a_transaction_take_many_turns(
    broker: Broker, turns: Turns
) -> None:
    attacker, idle = Client(broker), Client(broker)
    topology(attacker, "topic")
    attacker.call(m.TxSelect())
    data = b"".join(publishing(1, key(i), b"x", exchange="x") for i in range(10))
    data += publishing(1, "q", b"last")
    play(attacker, turns, idle, data)
    costs = play(attacker, turns, idle, encode_method_frame(1, m.TxCommit()))
    assert len(costs) > 10
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    assert broker.vhosts["/"].queues["q"].ready == 1
    assert answers(attacker.received()) == [m.TxCommitOk()]


def unprepared(self: Publisher) -> Steps[None]:
    yield TURN_UNITS_MAX
    raise PreconditionFailedError("changed meanwhile")


def test_a_commit_that_cannot_be_prepared_closes_the_channel(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(broker)
    client.call(m.TxSelect())
    client.feed(publishing(1, "q", b"x"))
    monkeypatch.setattr(Publisher, "prepare_commit", unprepared)
    (closed,) = answers(client.call(m.TxCommit()))
    assert isinstance(closed, m.ChannelClose)
    assert (closed.reply_code, closed.failed_class, closed.failed_method) == (406, 90, 20)
    assert not client.session.has_input


@pytest.mark.parametrize("how", ["channel", "connection"])
def test_closing_completes_deferred_actions(broker: Broker, how: str) -> None:
    client = Client(broker)
    topology(client, "topic")
    client.call(m.TxSelect())
    client.feed(publishing(1, key(1), b"x", exchange="x"))
    client.session.receive(encode_method_frame(1, m.TxCommit()), 0)
    assert waits(client) is True
    if how == "channel":
        client.session.close_channel(1, PreconditionFailedError("timeout"), 0)
    else:
        client.session.shut_down(0)
    client.session.process_input(0)
    assert waits(client) is False
    assert client.session.state is (SessionState.OPEN if how == "channel" else SessionState.CLOSING)


# ── patterns ──────────────────────────────────────────────────────────────────────────────────────────────


def played(client: Client, *sent: m.Method) -> int:
    """The number of turns that methods take."""
    client.session.receive(b"".join(encode_method_frame(1, method) for method in sent), 0)
    count = 1
    while client.session.has_input:
        client.session.process_input(0)
        count += 1
    return count


def test_regular_expressions_are_charged_for_compiling(broker: Broker) -> None:
    client = Client(broker)
    client.call(
        m.QueueDeclare("q"), m.ExchangeDeclare("x", "regex"), m.ExchangeDeclare("y", "direct")
    )
    assert played(client, *(m.QueueBind("q", "y", f"{i}") for i in range(100))) == 1
    assert played(client, *(m.QueueBind("q", "x", f"{i}") for i in range(100))) > 5
    assert played(client, *(m.ExchangeBind("y", "x", f"{i}") for i in range(100))) > 5


@pytest.mark.parametrize(
    "method",
    [
        m.QueueBind("q", "amq.topic", "a." * 127, no_wait=True),
        m.QueueBind(
            "q", "amq.direct", "k", no_wait=True, arguments={"list": list[FieldValue](range(900))}
        ),
        m.QueueDeclare("q", no_wait=True, arguments={"list": list[FieldValue](range(900))}),
    ],
)
def test_long_methods_cost_more_than_short_ones(broker: Broker, method: m.Method) -> None:
    client = Client(broker)
    client.call(m.QueueDeclare("q"))
    short = m.QueueDeclare("q", no_wait=True)
    for each, fits in ((short, True), (method, False)):
        client.session.receive(encode_method_frame(1, each) * 100, 0)
        assert waits(client) is not fits
        client.feed(b"")


def test_a_refusal_ends_the_turn(broker: Broker) -> None:
    """To find a pattern too complex may take as long as a turn."""
    client = Client(broker)
    client.call(m.QueueDeclare("q"), m.ExchangeDeclare("x", "regex"))
    refused = (m.QueueBind("q", "x", r"\pL{5}"), m.ChannelCloseOk(), m.ChannelOpen())
    assert played(client, *refused * 20) >= 20


# ── deletions ─────────────────────────────────────────────────────────────────────────────────────────────


def bind_many(client: Client, exchange: str, count: int) -> None:
    client.send(*((1, m.QueueBind("q", exchange, f"{i}", no_wait=True)) for i in range(count)))
    client.received()


@pytest.mark.parametrize(
    "method", [m.ExchangeDelete("x"), m.QueueDelete("q"), m.QueueUnbind("q", "x", "0")]
)
def test_an_exchange_with_many_bindings_is_deleted_in_many_turns(
    broker: Broker, turns: Turns, method: m.Method
) -> None:
    client, idle = Client(broker), Client(broker)
    client.call(m.QueueDeclare("q"), m.ExchangeDeclare("x", "direct", auto_delete=True))
    bind_many(client, "x", 1)
    client.call(m.ExchangeDeclare("y", "fanout"))
    if isinstance(method, m.QueueUnbind):  # which takes the exchange with it
        client.send(*((1, m.ExchangeBind("x", "y", f"{i}", no_wait=True)) for i in range(5000)))
    else:
        bind_many(client, "x", 5000)
    client.received()
    costs = play(client, turns, idle, encode_method_frame(1, method))
    assert sum(costs) >= 5000
    assert len(costs) > 2
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    (answer,) = answers(client.received())
    assert answer.name == f"{method.name}-ok"
    assert "x" not in broker.vhosts["/"].exchanges
    assert not broker.vhosts["/"].exchanges["y"].bindings


def test_the_name_of_something_that_is_being_deleted_is_waited_for(broker: Broker) -> None:
    deleting, declaring = Client(broker), Client(broker)
    deleting.call(m.QueueDeclare("q"), m.ExchangeDeclare("x", "direct"))
    bind_many(deleting, "x", 5000)
    deleting.session.receive(encode_method_frame(1, m.ExchangeDelete("x")), 0)
    declaring.session.receive(encode_method_frame(1, m.ExchangeDeclare("x", "fanout")), 0)
    assert waits(declaring)
    assert answers(declaring.received()) == []
    while waits(deleting):
        deleting.session.process_input(0)
    declaring.session.process_input(0)
    assert answers(declaring.received()) == [m.ExchangeDeclareOk()]
    bind_many(deleting, "x", 5000)
    deleting.session.receive(encode_method_frame(1, m.QueueDelete("q")), 0)
    declaring.session.receive(encode_method_frame(1, m.QueueDeclare("q")), 0)
    assert waits(declaring)
    deleting.session.terminate(0)  # then the broker goes on by itself
    while broker.deadline() == 0:
        broker.tick(0)
    declaring.session.process_input(0)
    assert answers(declaring.received()) == [m.QueueDeclareOk("q", 0, 0)]


def test_a_connection_with_many_exclusive_queues_ends_in_many_turns(
    broker: Broker, turns: Turns
) -> None:
    client, other = Client(broker), Client(broker)
    names = [f"q{i}" for i in range(3000)]
    client.send(*((1, m.QueueDeclare(name, exclusive=True, no_wait=True)) for name in names))
    turns.take()
    client.session.terminate(0)
    assert turns.take() <= TURN_UNITS_MAX + OVERSHOOT
    assert broker.deadline() == 0
    assert "q2999" in broker.vhosts["/"].queues
    other.session.receive(encode_method_frame(1, m.QueueDeclare("q2999")), 0)
    assert waits(other)
    ticks = 0
    while broker.deadline() == 0:
        turns.take()
        broker.tick(0)
        assert turns.take() <= 2 * TURN_UNITS_MAX  # that of a queue counts again for the connection
        ticks += 1
    assert ticks > 2
    other.session.process_input(0)
    assert answers(other.received()) == [m.QueueDeclareOk("q2999", 0, 0)]
    assert [*broker.vhosts["/"].queues] == ["q2999"]


def test_a_connection_with_many_channels_ends_in_many_turns(broker: Broker, turns: Turns) -> None:
    client = Client(broker, channels=range(1, 1001))
    turns.take()
    client.session.terminate(0)
    assert turns.take() <= TURN_UNITS_MAX + OVERSHOOT
    assert client.session.channels
    client.session.terminate(0)  # the socket is gone, too
    while broker.deadline() == 0:
        broker.tick(0)
    assert not client.session.channels


# ── deliveries ────────────────────────────────────────────────────────────────────────────────────────────


def hold_many(broker: Broker, client: Client, count: int) -> None:
    """Deliveries that the client does not acknowledge, each with another routing key."""
    publisher = Client(broker)
    client.call(m.QueueDeclare("q"), m.ExchangeDeclare("x", "fanout"), m.QueueBind("q", "x"))
    client.call(m.BasicConsume("q", "c"))
    for i in range(count):
        publisher.feed(publishing(1, str(i), b"x", exchange="x"))
        if i % 1000 == 0:
            client.received()
            client.session.on_drained(0)
    while broker.vhosts["/"].queues["q"].ready:
        client.received()
        client.session.on_drained(0)
    client.received()


@pytest.mark.parametrize(
    "method",
    [
        m.BasicAck(0, multiple=True),
        m.BasicNack(0, multiple=True, requeue=False),
        m.BasicNack(0, multiple=True, requeue=True),
        m.BasicRecover(requeue=True),
        m.ChannelClose(200, "", 0, 0),
    ],
)
def test_many_deliveries_are_settled_in_many_turns(
    broker: Broker, turns: Turns, method: m.Method
) -> None:
    client, idle = Client(broker), Client(broker)
    hold_many(broker, client, 6000)
    costs = play(client, turns, idle, encode_method_frame(1, method))
    assert len(costs) > 1
    assert sum(costs) >= 3000
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    broker.background.advance()  # which finds that all is done
    assert not broker.background


def test_a_connection_that_ends_requeues_many_deliveries_in_many_turns(
    broker: Broker, turns: Turns
) -> None:
    client = Client(broker)
    hold_many(broker, client, 6000)
    turns.take()
    client.session.terminate(0)
    while broker.deadline() == 0:
        assert turns.take() <= 2 * TURN_UNITS_MAX
        broker.tick(0)
    queue = broker.vhosts["/"].queues["q"]
    assert (queue.ready, queue.unacked, len(queue.consumers)) == (6000, 0, 0)


def test_many_single_acks_take_many_turns(broker: Broker) -> None:
    client = Client(broker)
    hold_many(broker, client, 10_000)
    assert played(client, *(m.BasicAck(tag) for tag in range(1, 10_001))) > 1
    assert broker.vhosts["/"].queues["q"].unacked == 0


def consume_often(client: Client, queue: str, count: int) -> None:
    client.feed(
        b"".join(
            encode_method_frame(1, m.BasicConsume(queue, consumer_tag=str(i), no_wait=True))
            for i in range(count)
        )
    )


def test_consumers_that_share_a_limit_are_resumed_in_many_turns(broker: Broker) -> None:
    """Each change of the limit, and each ack where it was reached, looks at all consumers."""
    client, other = Client(broker), Client(broker)
    other.call(m.QueueDeclare("idle"), m.QueueDeclare("q"))
    consume_often(client, "idle", 8_000)
    limited = [m.BasicQos(prefetch_count=10, global_=True)] * 30
    assert played(client, *limited) > 3
    client.call(m.BasicConsume("q", consumer_tag="last"))
    other.feed(b"".join(publishing(1, "q", b"1") for _ in range(60)))
    client.received()
    assert played(client, *(m.BasicAck(tag) for tag in range(1, 51))) > 3
    assert broker.vhosts["/"].queues["q"].ready == 0


def test_a_limit_that_one_consumer_has_alone_costs_nothing(broker: Broker) -> None:
    client = Client(broker)
    client.call(m.QueueDeclare("q"), m.BasicQos(prefetch_count=50, global_=True))
    client.call(m.BasicConsume("q"))
    client.feed(b"".join(publishing(1, "q", b"1") for _ in range(50)))
    client.received()
    assert played(client, *(m.BasicAck(tag) for tag in range(1, 51))) == 1
    assert broker.vhosts["/"].queues["q"].unacked == 0


def test_a_prefetch_of_consumers_to_come_resumes_none(broker: Broker) -> None:
    client, other = Client(broker), Client(broker)
    other.call(m.QueueDeclare("idle"))
    consume_often(client, "idle", 8_000)
    assert played(client, *[m.BasicQos(prefetch_count=10)] * 30) == 1


def test_acks_on_a_stream_are_charged_for_reading(broker: Broker) -> None:
    """A filter continues reading after each ack, up to the budget of a turn."""
    client, other = Client(broker), Client(broker)
    other.call(m.QueueDeclare("s", durable=True, arguments={"x-queue-type": "stream"}))
    for value, count in (("a", 20), ("b", 20_000)):
        headers: dict[str, FieldValue] = {"x-stream-filter-value": value}
        for i in range(count):  # each with a header frame of its own
            other.feed(publishing(1, "s", b"1", Properties(headers=headers, message_id=str(i))))
    client.call(m.BasicQos(prefetch_count=100))
    arguments: dict[str, FieldValue] = {"x-stream-offset": "first", "x-stream-filter": "a"}
    client.call(m.BasicConsume("s", arguments=arguments))
    client.received()
    assert played(client, *(m.BasicAck(tag) for tag in range(20, 0, -1))) > 10


# ── transactions ──────────────────────────────────────────────────────────────────────────────────────────


def publishing_many(count: int, properties: Properties | None = None, **options: bool) -> bytes:
    """Messages that cannot be handled together, for each has another routing key."""
    return b"".join(
        publishing(1, str(i), str(i).encode(), properties, exchange="x", **options)
        for i in range(count)
    )


def begin_transaction(broker: Broker, store: PagingStore | None = None) -> Client:
    client = Client(broker)
    client.call(m.QueueDeclare("q", durable=True), m.ExchangeDeclare("x", "fanout"))
    client.call(m.QueueBind("q", "x"), m.TxSelect())
    if store is not None:
        store.sync()
    client.received()
    return client


def test_many_messages_are_committed_in_many_turns(broker: Broker, turns: Turns) -> None:
    client, idle = begin_transaction(broker), Client(broker)
    client.feed(publishing_many(6000))
    costs = play(client, turns, idle, encode_method_frame(1, m.TxCommit()))
    assert len(costs) > 2
    assert sum(costs) >= 6000
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    assert answers(client.received()) == [m.TxCommitOk()]
    queue = broker.vhosts["/"].queues["q"]
    assert [taken_from(queue) for _ in range(6000)] == [str(i).encode() for i in range(6000)]


def taken_from(queue: Queue) -> bytes:
    run = queue.get(0)
    assert run is not None
    return extract_body(run.contents()[0])


def test_messages_that_go_nowhere_are_committed_in_many_turns(broker: Broker, turns: Turns) -> None:
    client, idle = begin_transaction(broker), Client(broker)
    client.call(m.QueueDelete("q"))
    client.feed(publishing_many(6000, mandatory=True))
    costs = play(client, turns, idle, encode_method_frame(1, m.TxCommit()))
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    *returned, last = client.received()
    assert len(returned) == 6000
    assert answers([last]) == [m.TxCommitOk()]


def test_each_message_to_a_deleted_exchange_counts_when_it_is_committed(
    broker: Broker, turns: Turns
) -> None:
    """Each key has a route of its own that is looked up again, and a message to send."""
    client, idle = begin_transaction(broker), Client(broker)
    client.feed(publishing_many(6000))
    idle.call(m.ExchangeDelete("x"))
    costs = play(client, turns, idle, encode_method_frame(1, m.TxCommit()))
    assert sum(costs) >= 2 * 6000
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    assert answers(client.received()) == [m.TxCommitOk()]


def test_input_after_a_commit_waits_for_it(broker: Broker) -> None:
    """The next transaction of the channel begins after it."""
    client = begin_transaction(broker)
    client.feed(publishing_many(6000))
    data = encode_method_frame(1, m.TxCommit()) + publishing(1, "q", b"next")
    data += encode_method_frame(1, m.TxCommit()) + encode_method_frame(
        1, m.BasicQos(prefetch_count=1)
    )
    client.session.receive(data, 0)
    assert waits(client)
    assert answers(client.received()) == []
    client.feed(b"")
    assert answers(client.received()) == [m.TxCommitOk(), m.TxCommitOk(), m.BasicQosOk()]
    queue = broker.vhosts["/"].queues["q"]
    assert [taken_from(queue) for _ in range(6001)][-1] == b"next"


def hold_in_transaction(broker: Broker, count: int) -> Client:
    client = Client(broker)
    hold_many(broker, client, count)
    client.call(m.TxSelect())
    return client


@pytest.mark.parametrize("how", ["singly", "from the end", "ack", "reject", "requeue"])
def test_many_deliveries_are_settled_by_a_commit_in_many_turns(
    broker: Broker, turns: Turns, how: str
) -> None:
    client, idle = hold_in_transaction(broker, 6000), Client(broker)
    settling: list[m.Method] = [m.BasicAck(tag) for tag in range(1, 6001)]
    if how == "from the end":
        settling.reverse()
    elif how == "ack":
        settling = [m.BasicAck(0, multiple=True)]
    elif how != "singly":
        settling = [m.BasicNack(6000, multiple=True, requeue=how == "requeue")]
    costs = play(
        client, turns, idle, b"".join(encode_method_frame(1, method) for method in settling)
    )
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    costs = play(client, turns, idle, encode_method_frame(1, m.TxCommit()))
    assert len(costs) > 1
    assert sum(costs) >= 3000
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    commit_ok = [each for each in answers(client.received()) if isinstance(each, m.TxCommitOk)]
    assert len(commit_ok) == 1
    queue = broker.vhosts["/"].queues["q"]
    assert queue.ready + queue.unacked == (6000 if how == "requeue" else 0)


def test_acks_of_a_commit_serve_consumers_that_share_a_limit_in_turn(broker: Broker) -> None:
    client = begin_transaction(broker)
    client.call(m.BasicQos(prefetch_count=2, global_=True))
    client.call(m.BasicConsume("q", "a"), m.BasicConsume("q", "b"))
    Client(broker).feed(publishing_many(10))
    tags = []
    for tag in range(1, 10, 2):
        deliveries = [event for event in client.received() if isinstance(event, ContentReceived)]
        tags += [each.method.consumer_tag for each in deliveries]  # type: ignore[attr-defined]
        client.send((1, m.BasicAck(tag)), (1, m.BasicAck(tag + 1)), (1, m.TxCommit()))
    assert tags == ["a", "b"] * 5
    assert broker.vhosts["/"].queues["q"].unacked == 0


def end_during_commit(broker: Broker, client: Client, how: str) -> None:
    client.session.receive(encode_method_frame(1, m.TxCommit()), 0)
    while not broker.background:  # the routes are searched for
        client.session.process_input(0)
    assert waits(client)
    if how == "channel":
        client.session.close_channel(1, PreconditionFailedError("timeout"), 0)
    else:
        client.session.terminate(0)
    while broker.deadline() == 0:
        broker.tick(0)
    client.session.process_input(0)
    assert not waits(client)


@pytest.mark.parametrize("how", ["channel", "connection"])
def test_a_commit_that_has_begun_is_completed_when_its_client_is_gone(
    broker: Broker, how: str
) -> None:
    """Also its acks: they precede the requeue of the remaining deliveries of the channel."""
    client = hold_in_transaction(broker, 3000)
    client.call(m.ExchangeDeclare("nowhere", "fanout"), m.BasicAck(2999, multiple=True))
    client.feed(publishing_many(3000))
    client.feed(publishing(1, "k", b"x", exchange="nowhere", mandatory=True) * 3000)
    end_during_commit(broker, client, how)
    queue = broker.vhosts["/"].queues["q"]
    assert (queue.ready, queue.unacked) == (3001, 0)
    assert taken_from(queue) == b"x"  # the one that was not acknowledged
    assert taken_from(queue) == b"0"
    closed = [type(method) for method in answers(client.received())]
    assert closed == ([m.ChannelClose] if how == "channel" else [])


def test_a_transaction_that_is_not_committed_is_forgotten_in_portions(broker: Broker) -> None:
    for ending in (m.TxRollback(), m.ChannelClose(200, "", 0, 0)):
        client = begin_transaction(broker)
        client.feed(publishing_many(16_000))
        client.call(ending)
        ticks = 0
        while broker.deadline() == 0:
            broker.tick(0)
            ticks += 1
        assert ticks > 2
    assert broker.vhosts["/"].queues["q"].ready == 0


@pytest.mark.parametrize("what", ["messages", "acks"])
def test_the_answer_to_a_commit_in_many_turns_waits_until_all_of_it_is_safe(what: str) -> None:
    store = PagingStore(1 << 30)
    broker = new_broker(store=store)
    client = begin_transaction(broker, store)
    messages = publishing_many(6000, Properties(delivery_mode=2))
    if what == "messages":
        client.feed(messages)
    else:
        Client(broker).feed(messages)
        client.call(m.BasicConsume("q", "c"))
        while broker.vhosts["/"].queues["q"].ready:
            client.received()
            client.session.on_drained(0)
            broker.tick(broker.deadline() or 0)
        client.call(m.BasicAck(0, multiple=True))
    client.session.receive(encode_method_frame(1, m.TxCommit()), 0)
    while waits(client):
        store.sync()
        assert answers(client.received()) == []
        client.session.process_input(0)
    assert answers(client.received()) == []
    store.sync()
    assert answers(client.received()) == [m.TxCommitOk()]


# ── purges ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("room", [0, 1 << 30])
def test_a_priority_queue_is_purged_in_many_turns(turns: Turns, room: int) -> None:
    """It is empty at once, and the answer follows when all that it had is settled on disk."""
    store = PagingStore(room)
    broker = new_broker(store=store)
    client, idle = Client(broker), Client(broker)
    client.send((1, m.QueueDeclare("q", durable=True, arguments={"x-max-priority": 2})))
    for i in range(6000):
        properties = Properties(delivery_mode=2, priority=i % 3)
        client.feed(publishing(1, "q", b"x", properties))
    store.sync()
    client.received()
    queue = broker.vhosts["/"].queues["q"]
    assert len(store.live[queue]) == 6000
    client.session.receive(encode_method_frame(1, m.QueuePurge("q")), 0)
    assert queue.ready == 0
    assert store.live[queue]
    costs = play(client, turns, idle, publishing(1, "q", b"new", Properties(delivery_mode=2)))
    assert len(costs) > 1
    assert max(costs) <= TURN_UNITS_MAX + OVERSHOOT
    assert len(store.live[queue]) == 1
    assert answers(client.received()) == []
    store.sync()
    assert answers(client.received()) == [m.QueuePurgeOk(6000)]


def test_a_queue_that_is_deleted_while_it_is_purged_is_gone() -> None:
    store = PagingStore(1 << 30)
    broker = new_broker(store=store)
    client, other = Client(broker), Client(broker)
    client.send((1, m.QueueDeclare("q", durable=True, arguments={"x-max-priority": 2})))
    for i in range(3000):
        client.feed(publishing(1, "q", b"x", Properties(delivery_mode=2, priority=i % 3)))
    client.session.receive(encode_method_frame(1, m.QueuePurge("q")), 0)
    other.call(m.QueueDelete("q"))
    client.feed(b"")
    store.sync()
    assert "purged q" not in store.notes
    assert m.QueuePurgeOk(3000) in answers(client.received())
