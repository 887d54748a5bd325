"""One session: what errors close, the release of resources, and turns."""

import pytest

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.events import Acked, ContentReceived, Event, MethodReceived
from recado.amqp.frames import (
    BODY_FRAME_TYPE,
    HEADER_FRAME_TYPE,
    HEARTBEAT_FRAME,
    HEARTBEAT_FRAME_TYPE,
    METHOD_FRAME_TYPE,
    PROTOCOL_HEADER,
    encode_content,
    encode_frame,
    encode_method_frame,
    extract_body,
)
from recado.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    TxCommit,
    TxSelect,
)
from recado.amqp.properties import Properties
from recado.broker.broker import Broker
from recado.server import session as module
from recado.server.options import ConnectionOptions
from recado.server.session import Session, SessionState

from .client import Client, admit, cut, new_broker, publishing


@pytest.fixture
def broker() -> Broker:
    return new_broker()


def methods(events: list[Event]) -> list[Method]:
    return [event.method for event in events if isinstance(event, MethodReceived)]


def state(client: Client) -> SessionState:
    return client.session.state


def waits(client: Client) -> bool:
    """Whether there is input that was not handled."""
    return client.session.has_input


def bodies(events: list[Event]) -> list[bytes]:
    return [extract_body(event.content) for event in events if isinstance(event, ContentReceived)]


# ── SE1: what an error closes ─────────────────────────────────────────────────────────────────────────────


def test_an_error_of_a_channel_closes_that_channel(broker: Broker) -> None:
    client = Client(broker, channels=(1, 2))
    other = Client(broker)
    assert client.call(QueueDeclare("nope", passive=True)) == [
        MethodReceived(1, ChannelClose(404, "NOT_FOUND - no queue 'nope' in vhost '/'", 50, 10))
    ]
    assert methods(client.call(QueueDeclare("q"), channel=2)) == [QueueDeclareOk("q", 0, 0)]
    assert methods(other.call(QueueDeclare("q"))) == [QueueDeclareOk("q", 0, 0)]
    assert state(client) is SessionState.OPEN


def test_frames_for_a_channel_that_awaits_its_end_are_dropped(broker: Broker) -> None:
    client = Client(broker)
    client.call(QueueDeclare("q"), TxCommit())
    client.feed(publishing(1, "q", b"x") + encode_method_frame(1, BasicAck(5, False)))
    assert client.call(QueueDeclare("other")) == []
    assert client.call(ChannelCloseOk(), ChannelOpen()) == [MethodReceived(1, ChannelOpenOk())]
    assert methods(client.call(QueueDeclare("q"))) == [QueueDeclareOk("q", 0, 0)]


def test_simultaneous_close_is_answered(broker: Broker) -> None:
    client = Client(broker)
    client.call(TxCommit())
    assert client.call(ChannelClose()) == [MethodReceived(1, ChannelCloseOk())]
    assert client.call(ChannelCloseOk(), ChannelOpen()) == [MethodReceived(1, ChannelOpenOk())]


def test_a_channel_cannot_be_opened_again_before_close_ok(broker: Broker) -> None:
    client = Client(broker)
    client.call(TxCommit())
    (close,) = methods(client.call(ChannelOpen()))
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 504


def test_input_behind_an_error_is_read_until_close_ok(broker: Broker) -> None:
    """Also malformed input; but after a frame without its end octet nothing can be read."""
    client = Client(broker)
    malformed = encode_frame(METHOD_FRAME_TYPE, 0, b"\x00\x0a")
    client.feed(
        malformed * 3
        + encode_method_frame(1, ChannelOpen())
        + encode_method_frame(0, ConnectionClose())
    )
    close, close_ok = methods(client.received())
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 501
    assert close_ok == ConnectionCloseOk()
    assert state(client) is SessionState.CLOSED
    client = Client(broker)
    client.feed(malformed[:-1] + b"\x00" + encode_method_frame(0, ConnectionClose()))
    (close,) = methods(client.received())
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 501
    assert state(client) is SessionState.CLOSED


CONTENT = encode_content(1, bytes(2), b"x", 0)
ERRORS: dict[str, tuple[bytes, int, tuple[int, int]]] = {
    "method on no channel": (encode_method_frame(9, QueueDeclare("q")), 504, (50, 10)),
    "ack on no channel": (encode_method_frame(9, BasicAck(1, False)), 504, (60, 80)),
    "message on no channel": (publishing(9, "q", b"x"), 504, (60, 40)),
    "second open": (encode_method_frame(1, ChannelOpen()), 504, (20, 10)),
    "too many channels": (
        b"".join(encode_method_frame(number, ChannelOpen()) for number in range(2, 2049)),
        530,
        (20, 10),
    ),
    "flow off": (encode_method_frame(1, ChannelFlow(False)), 540, (20, 20)),
    "a server's method": (encode_method_frame(1, ChannelFlowOk()), 503, (20, 21)),
    "a connection's method": (encode_method_frame(1, ConnectionOpen("/")), 503, (10, 40)),
    "a channel's method": (encode_method_frame(0, QueueDeclare("q")), 504, (50, 10)),
    "an ack on channel 0": (encode_method_frame(0, BasicAck(1)), 504, (60, 80)),
    "a delivery": (encode_method_frame(1, BasicDeliver("c", 1)) + CONTENT, 503, (60, 60)),
    "close of no channel": (encode_method_frame(9, ChannelClose()), 504, (20, 40)),
    "close-ok of no channel": (encode_method_frame(9, ChannelCloseOk()), 504, (20, 41)),
    "close-ok of an open channel": (encode_method_frame(1, ChannelCloseOk()), 503, (20, 41)),
    "second open of the connection": (encode_method_frame(0, ConnectionOpen("/")), 504, (10, 40)),
    "close-ok of the open connection": (encode_method_frame(0, ConnectionCloseOk()), 504, (10, 51)),
    "heartbeat of a channel": (encode_frame(HEARTBEAT_FRAME_TYPE, 1, b""), 505, (0, 0)),
    "malformed arguments": (
        encode_frame(METHOD_FRAME_TYPE, 1, b"\x00\x32\x00\x0a\x00"),
        501,
        (50, 10),
    ),
    "a method instead of a header": (
        encode_method_frame(1, BasicPublish("", "q")) + encode_method_frame(1, TxSelect()),
        505,
        (60, 40),
    ),
    "stray body": (encode_frame(BODY_FRAME_TYPE, 1, b"x"), 505, (0, 0)),
    "stray header": (encode_frame(HEADER_FRAME_TYPE, 1, bytes(14)), 505, (0, 0)),
    "unknown frame": (encode_frame(77, 1, b""), 501, (0, 0)),
    "immediate": (
        encode_method_frame(1, BasicPublish("", "q", immediate=True)) + CONTENT,
        540,
        (60, 40),
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_of_the_connection_closes_it(broker: Broker, case: str) -> None:
    data, code, culprit = ERRORS[case]
    client, other = Client(broker), Client(broker)
    client.feed(data)
    close = methods(client.received())[-1]
    assert isinstance(close, ConnectionClose)
    assert (close.reply_code, (close.failed_class, close.failed_method)) == (code, culprit)
    assert state(client) in (SessionState.CLOSING, SessionState.CLOSED)
    assert client.call(QueueDeclare("q")) == []
    assert other.call(QueueDeclare("q")) != []


def test_a_channel_may_have_any_number(broker: Broker) -> None:
    """The negotiated channel_max limits how many are open."""
    client = Client(broker)
    assert client.call(ChannelOpen(), channel=65_535) == [MethodReceived(65_535, ChannelOpenOk())]


@pytest.mark.parametrize(
    ("answer", "reply"), [(ConnectionCloseOk(), []), (ConnectionClose(), [ConnectionCloseOk()])]
)
def test_a_closing_connection_awaits_the_answer(
    broker: Broker, answer: Method, reply: list[Method]
) -> None:
    client = Client(broker)
    client.session.shut_down(0)
    (close,) = methods(client.received())
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 320
    client.feed(publishing(1, "q", b"on its way"), sizes=[1])
    assert client.call(QueueDeclare("q"), channel=1) == []
    assert state(client) is SessionState.CLOSING
    assert methods(client.call(answer, channel=0)) == reply
    assert state(client) is SessionState.CLOSED
    client.session.shut_down(0)
    assert client.received() == []


def test_a_long_reason_is_cut(broker: Broker) -> None:
    """A short string holds 255 bytes, not letters."""
    client = Client(broker)
    (close,) = methods(client.call(QueueDeclare("é" * 127, passive=True)))
    assert isinstance(close, ChannelClose)
    assert 250 < len(close.reply_text.encode()) <= 255


# ── S2: the end ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["close", "error", "socket", "channel"])
def test_the_resources_of_a_connection_are_released(broker: Broker, how: str) -> None:
    client, other = Client(broker), Client(broker)
    queues = broker.vhosts["/"].queues
    client.call(
        QueueDeclare("mine", exclusive=True),
        QueueDeclare("auto", auto_delete=True),
        QueueDeclare("q"),
        BasicConsume("mine"),
        BasicConsume("auto"),
        BasicConsume("q"),
    )
    other.call(BasicConsume("q"))
    client.feed(publishing(1, "q", b"1") + publishing(1, "q", b"2"))
    assert bodies(other.received()) == [b"2"]
    match how:
        case "close":
            assert methods(client.call(ConnectionClose(), channel=0))[-1] == ConnectionCloseOk()
        case "error":
            client.feed(encode_frame(BODY_FRAME_TYPE, 1, b"x"))
        case "socket":
            client.session.terminate(0)
        case _:
            client.call(ChannelClose())
    assert bodies(other.received()) == [b"1"]
    assert queues.keys() == ({"mine", "q"} if how == "channel" else {"q"})
    assert len(queues["q"].consumers) == 1


def test_nothing_is_delivered_to_a_closing_connection(broker: Broker) -> None:
    client = Client(broker, channels=(1, 2))
    client.call(QueueDeclare("q"))
    for channel in (1, 2):
        client.call(BasicConsume("q"), channel=channel)
    client.feed(publishing(1, "q", b"1") * 4)
    client.received()
    client.session.terminate(0)
    assert client.received() == []
    assert broker.vhosts["/"].queues["q"].ready == 4


def test_nothing_is_delivered_after_close_ok(broker: Broker) -> None:
    """Many channels are closed in steps. A message for an automatic ack would be lost on one that is left."""
    client, other = Client(broker, channels=range(1, 201)), Client(broker)
    other.call(QueueDeclare("q"))
    client.call(BasicConsume("q", no_ack=True), channel=200)
    assert client.call(ConnectionClose(200, "bye", 0, 0), channel=0)[-1] == MethodReceived(
        0, ConnectionCloseOk()
    )
    assert 200 in client.session.channels
    client.session.on_drained(0)  # the socket has taken close-ok
    other.feed(publishing(1, "q", b"1"))
    assert client.received() == []
    assert broker.vhosts["/"].queues["q"].ready == 1


# ── S3: confirms ──────────────────────────────────────────────────────────────────────────────────────────


def test_confirms_come_after_each_read_and_before_other_answers(broker: Broker) -> None:
    client = Client(broker, channels=(1, 2))
    assert methods(client.call(QueueDeclare("q"), ConfirmSelect()))[-1] == ConfirmSelectOk()
    client.feed(publishing(1, "q", b"x") * 3 + publishing(2, "q", b"x"))
    assert client.received() == [MethodReceived(1, BasicAck(3, True))]
    client.feed(publishing(1, "q", b"x") + encode_method_frame(1, QueueDeclare("q", passive=True)))
    confirm, answer = client.received()
    assert confirm == Acked(1, 4, 1)
    assert answer == MethodReceived(1, QueueDeclareOk("q", 5, 0))


@pytest.mark.parametrize("end", ["channel", "error", "connection"])
def test_accepted_messages_are_confirmed_before_closing(broker: Broker, end: str) -> None:
    client = Client(broker)
    client.call(QueueDeclare("q"), ConfirmSelect())
    last = {
        "channel": encode_method_frame(1, ChannelClose()),
        "error": publishing(1, "q", b"x", exchange="nope"),
        "connection": encode_frame(BODY_FRAME_TYPE, 1, b"x"),
    }[end]
    client.feed(publishing(1, "q", b"x") * 2 + last)
    first, second = client.received()
    assert first == MethodReceived(1, BasicAck(2, True))
    assert isinstance(second, MethodReceived)
    assert isinstance(second.method, ChannelCloseOk | ChannelClose | ConnectionClose)


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_that_is_too_large_closes_its_channel(broker: Broker) -> None:
    client = Client(broker, ConnectionOptions(body_max_bytes=1000))
    client.call(QueueDeclare("q"))
    client.feed(publishing(1, "q", bytes(1000)) + publishing(1, "q", bytes(1001)))
    (close,) = methods(client.received())
    assert close == ChannelClose(
        406,
        "PRECONDITION_FAILED - message size 1001 is larger than the maximum of 1000 bytes",
        60,
        40,
    )
    assert broker.vhosts["/"].queues["q"].ready == 1


def test_a_frame_larger_than_agreed_closes_the_connection(broker: Broker) -> None:
    client = Client(broker, frame_max=4096)
    client.feed(publishing(1, "q", bytes(4097)))
    (close,) = methods(client.received())
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 501


def test_the_negotiated_frame_size_applies_within_the_same_read(broker: Broker) -> None:
    session = Session(broker, ConnectionOptions(), admit, lambda: None)
    opening = (
        ConnectionStartOk({}, "PLAIN", b"\0guest\0secret"),
        ConnectionTuneOk(0, 4096, 0),
        ConnectionOpen("/"),
    )
    data = PROTOCOL_HEADER + b"".join(encode_method_frame(0, method) for method in opening)
    data += encode_method_frame(1, ChannelOpen()) + publishing(1, "q", bytes(5000))
    session.receive(data, 0)
    assert session.state is SessionState.CLOSED


def test_a_smaller_frame_size_is_respected(broker: Broker) -> None:
    large, small = Client(broker), Client(broker, frame_max=4096)
    small.call(QueueDeclare("q"), BasicConsume("q", no_ack=True))
    large.feed(publishing(1, "q", bytes(20_000), Properties(message_id="m")))
    assert bodies(small.received()) == [bytes(20_000)]


def test_a_peer_that_does_not_take_its_answers_is_not_asked_for_more(broker: Broker) -> None:
    """S4; deliveries stop first, then input."""
    client = Client(broker)
    client.call(QueueDeclare("q"), BasicConsume("q", no_ack=True))
    session = client.session
    for chunk in cut(publishing(1, "q", bytes(100_000)) * 100, [1 << 18]):
        session.receive(chunk, 0)
    assert session.congested
    assert not waits(client)
    waiting = broker.vhosts["/"].queues["q"].ready
    assert 80 < waiting < 95
    assert len(bodies(client.received())) == 100 - waiting
    session.on_drained(0)
    assert len(bodies(client.received())) > 0
    client.call(QueueDeclare("other"))
    client.feed(publishing(1, "other", bytes(100_000)) * 60)
    client.received()
    session.receive(encode_method_frame(1, BasicGet("other", True)) * 60, 0)
    assert waits(client)
    got = 0
    while waits(client) or session.output:
        got += len(bodies(client.received()))
        session.process_input(0)
    assert got == 60


def test_however_much_a_client_sends_other_clients_get_their_turn(broker: Broker) -> None:
    """S5"""
    client = Client(broker)
    client.session.receive(encode_method_frame(1, QueueDeclare("q")) * 1000, 0)
    turns = 1
    while client.session.has_input:
        client.session.process_input(0)
        turns += 1
    assert turns > 3
    assert len(methods(client.received())) == 1000


def test_a_run_that_is_much_work_takes_several_turns(broker: Broker) -> None:
    client = Client(broker)
    wanted = QueueDeclare("q", arguments={"x-max-length": 9, "x-overflow": "reject-publish"})
    client.call(wanted, ConfirmSelect())
    data = publishing(1, "q", b"x") * 5000 + encode_method_frame(1, QueueDeclare("q", passive=True))
    client.session.receive(data, 0)
    assert client.session.has_input
    client.feed(b"")
    *confirms, answer = client.received()
    assert isinstance(answer, MethodReceived)
    assert answer.method == QueueDeclareOk("q", 9, 0)
    assert len(confirms) == 1 + 4991


# ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_confirmed_that_waits_for_its_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages with two alternating routes are published one route after the other; other clients are served
    in between."""
    client = Client(broker)
    client.call(QueueDeclare("a"), QueueDeclare("b"), ConfirmSelect())
    client.feed(publishing(1, "a", b"0") + publishing(1, "b", b"0"))
    client.received()
    monkeypatch.setattr(module, "TURN_UNITS_MAX", module.UNITS_PER_METHOD + 1)
    client.session.receive(b"".join(publishing(1, key, b"1") for key in "abab"), 0)
    queues = broker.vhosts["/"].queues
    assert [queues[name].ready for name in "ab"] == [3, 1]
    assert client.received() == []
    client.session.process_input(0)
    assert client.received() == [MethodReceived(1, BasicAck(6, True))]


def test_a_secret_may_be_renewed_and_a_heart_may_beat(broker: Broker) -> None:
    client = Client(broker)
    assert methods(client.call(ConnectionUpdateSecret(b"new", "old"), channel=0)) == [
        ConnectionUpdateSecretOk()
    ]
    client.feed(HEARTBEAT_FRAME)
    client.session.send_heartbeat()
    assert b"".join(client.session.take_output()) == HEARTBEAT_FRAME
    assert state(client) is SessionState.OPEN


@pytest.mark.parametrize("told", [False, True])
def test_alarms_and_cancels_are_sent_to_clients_that_support_them(
    broker: Broker, told: bool
) -> None:
    capabilities = {"connection.blocked": told, "consumer_cancel_notify": told}
    client = Client(broker, capabilities={**capabilities})
    client.call(QueueDeclare("q"), BasicConsume("q", "c"))
    client.session.send_blocked("low on memory")
    client.session.send_unblocked()
    broker.delete_queue(broker.vhosts["/"].queues["q"], 0)
    expected = [
        ConnectionBlocked("low on memory"),
        ConnectionUnblocked(),
        BasicCancel("c", no_wait=True),
    ]
    assert methods(client.received()) == (expected if told else [])


def test_publishers_are_recognised(broker: Broker) -> None:
    client = Client(broker)
    data = publishing(1, "q", b"x")
    seen = []
    for part in (b"", data[:-1], data[-1:]):
        client.feed(part)
        seen.append((client.session.is_publishing, client.session.has_published))
    assert seen == [(False, False), (True, False), (True, True)]


# ── deliveries that are not acknowledged ──────────────────────────────────────────────────────────────────

HALF_HOUR = 30 * 60_000


def test_a_delivery_that_is_held_too_long_closes_its_channel(broker: Broker) -> None:
    broker.consumer_timeouts.default_ms = HALF_HOUR
    client = Client(broker, channels=(1, 2))
    client.call(QueueDeclare("q"), BasicConsume("q", "c"), channel=1)
    client.feed(publishing(2, "q", b"one"))
    client.received()
    for now in range(0, HALF_HOUR + 120_000, 60_000):
        broker.tick(now)
    (closed,) = methods(client.received())
    assert isinstance(closed, ChannelClose)
    assert (closed.reply_code, closed.failed_class, closed.failed_method) == (406, 0, 0)
    assert "delivery acknowledgement on channel 1 timed out" in closed.reply_text
    assert broker.vhosts["/"].queues["q"].ready == 1
    client.feed(publishing(2, "q", b"two"))
    assert client.call(ChannelCloseOk(), ChannelOpen(), channel=1) == [
        MethodReceived(1, ChannelOpenOk())
    ]
    assert broker.vhosts["/"].queues["q"].ready == 2


def test_the_rest_of_a_large_run_is_dropped_with_its_channel(broker: Broker) -> None:
    """The channel is closed between two turns; the connection is not to suffer for it."""
    client = Client(broker)
    client.call(QueueDeclare("q", arguments={"x-overflow": "reject-publish", "x-max-length": 9000}))
    client.session.receive(publishing(1, "q", b"x") * 5000, 0)
    queue = broker.vhosts["/"].queues["q"]
    taken = queue.ready
    assert 0 < taken < 5000
    client.session.close_channel(1, PreconditionFailedError("enough"), 0)
    while client.session.has_input:
        client.session.process_input(0)
    assert [type(method) for method in methods(client.received())] == [ChannelClose]
    assert queue.ready == taken
    assert state(client) is SessionState.OPEN
