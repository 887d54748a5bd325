"""The session of a client, with a broker controlled by the test (CSE1, CSE2, CSE3)."""

from collections.abc import Callable

import pytest

from recado.amqp import methods as m
from recado.amqp.deliveries import Delivered, DeliveryRoute
from recado.amqp.events import HeartbeatReceived, MethodReceived, ProtocolHeaderReceived
from recado.amqp.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER
from recado.client import errors
from recado.client.messages import ReturnedMessage
from recado.client.parameters import ConnectionParameters
from recado.client.session import SessionState
from recado.client.session_events import (
    BlockedStateChanged,
    ChannelTerminated,
    ConnectionOpened,
    ConnectionTerminated,
    ConsumerCancelReceived,
    FlowChanged,
    MessageReturned,
    PublishesConfirmed,
    ReplyReceived,
    SessionEvent,
)

from .peer import TUNE, Peer, content

# ── opening ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_connection_opens() -> None:
    peer = Peer(
        ConnectionParameters(
            username="ann", password="s3", vhost="shop", heartbeat=7, frame_max=8192
        )
    )
    assert peer.heard() == [ProtocolHeaderReceived(PROTOCOL_HEADER)]
    assert peer.say((0, m.ConnectionStart(server_properties={"product": "b"}))) == []
    ((_, start_ok),) = peer.heard_methods()
    assert isinstance(start_ok, m.ConnectionStartOk)
    assert start_ok.response == b"\0ann\0s3"
    assert start_ok.client_properties["product"] == "test"
    assert peer.say((0, TUNE), HEARTBEAT_FRAME) == []
    assert peer.heard_methods() == [
        (0, m.ConnectionTuneOk(2047, 8192, 7)),
        (0, m.ConnectionOpen("shop")),
    ]
    assert peer.say((0, m.ConnectionOpenOk())) == [ConnectionOpened({"product": "b"})]
    session = peer.session
    assert (session.frame_max, session.channel_max, session.heartbeat) == (8192, 2047, 7)


def refused(*said: tuple[int, m.Method] | bytes) -> Exception:
    peer = Peer()
    occurrences = [each for one in said for each in peer.say(one)]
    (ended,) = occurrences
    assert isinstance(ended, ConnectionTerminated)
    assert peer.session.state is SessionState.ENDED
    return ended.error


START = (0, m.ConnectionStart())
START_OF_RABBITMQ = (
    0,
    m.ConnectionStart(
        server_properties={"capabilities": {"authentication_failure_close": True}},
        mechanisms=b"PLAIN",
    ),
)


def test_a_wrong_password_is_called_so() -> None:
    error = refused(START, (0, m.ConnectionClose(403, "ACCESS_REFUSED - no")))
    assert isinstance(error, errors.AuthenticationError)
    assert "refused the login of 'guest'" in str(error)


def test_a_missing_vhost_is_called_so() -> None:
    error = refused(
        START, (0, TUNE), (0, m.ConnectionClose(530, "NOT_ALLOWED - vhost / not found"))
    )
    assert isinstance(error, errors.VhostRefusedError)
    assert "'guest' cannot open the vhost '/'" in str(error)


def test_any_other_refusal_keeps_its_words() -> None:
    error = refused(START, (0, m.ConnectionClose(541, "INTERNAL_ERROR")))
    assert type(error) is errors.CannotConnectError
    assert "541 INTERNAL_ERROR" in str(error)


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", PROTOCOL_HEADER])
def test_something_that_is_no_broker_is_called_so(said: bytes) -> None:
    error = refused(said)
    assert type(error) is errors.CannotConnectError
    assert "does not respond with AMQP 0-9-1" in str(error)


def test_so_is_a_broker_that_talks_of_channels_too_early() -> None:
    assert isinstance(refused((1, m.ChannelOpenOk())), errors.CannotConnectError)
    assert isinstance(refused(content(1, m.BasicDeliver("c", 1), b"x")), errors.CannotConnectError)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ([], errors.CannotConnectError),
        ([START], errors.AuthenticationError),
        ([START, (0, TUNE)], errors.VhostRefusedError),
        ([START_OF_RABBITMQ], errors.CannotConnectError),  # it would have sent connection.close
        ([START_OF_RABBITMQ, (0, TUNE)], errors.CannotConnectError),
        ([START, (0, TUNE), (0, m.ConnectionOpenOk())], errors.ConnectionLostError),
    ],
)
def test_what_it_means_when_the_broker_hangs_up(
    said: list[tuple[int, m.Method]], kind: type[Exception]
) -> None:
    peer = Peer()
    peer.say(*said)
    assert type(peer.session.make_eof_error()) is kind


# ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_answers_belong_to_calls_in_order() -> None:
    peer = Peer().open()
    one, two = peer.open_channel(), peer.open_channel()
    assert (one, two) == (1, 2)
    peer.session.call(1, m.QueueDeclare("a"), "a")
    peer.session.call(1, m.QueueDeclare("b"), "b")
    peer.session.call(2, m.BasicQos(), "c")
    found = peer.say(
        (2, m.BasicQosOk()), (1, m.QueueDeclareOk("a", 1)), (1, m.QueueDeclareOk("b", 2))
    )
    assert found == [
        ReplyReceived("c", m.BasicQosOk()),
        ReplyReceived("a", m.QueueDeclareOk("a", 1)),
        ReplyReceived("b", m.QueueDeclareOk("b", 2)),
    ]


def test_a_get_has_two_answers() -> None:
    peer = Peer().open()
    peer.open_channel()
    peer.session.call(1, m.BasicGet("q"), "a")
    peer.session.call(1, m.BasicGet("q"), "b")
    got = m.BasicGetOk(1, False, "", "q", 0)
    assert peer.say(content(1, got, b"body"), (1, m.BasicGetEmpty())) == [
        ReplyReceived("a", got, b"\0\0", b"body"),
        ReplyReceived("b", m.BasicGetEmpty()),
    ]


def test_a_method_that_cannot_be_written_awaits_nothing() -> None:
    peer = Peer().open()
    peer.open_channel()
    with pytest.raises(ValueError, match="255"):
        peer.session.call(1, m.QueueDeclare("q" * 256), "a")
    peer.session.call(1, m.BasicQos(), "b")
    assert peer.say((1, m.BasicQosOk())) == [ReplyReceived("b", m.BasicQosOk())]


def test_the_secret_is_renewed_on_channel_0() -> None:
    peer = Peer().open()
    peer.session.call(0, m.ConnectionUpdateSecret(b"s", "old"), "t")
    answer = m.ConnectionUpdateSecretOk()
    assert peer.say((0, answer)) == [ReplyReceived("t", answer)]


@pytest.mark.parametrize(
    "said",
    [
        (1, m.QueueDeclareOk("q")),  # not a reply to a call
        (1, m.ChannelCloseOk()),
        (7, m.BasicQosOk()),  # no such channel
        (0, m.ConnectionCloseOk()),
        (0, m.ConnectionTune()),
        content(1, m.BasicPublish("", "q"), b"x"),
        content(1, m.BasicDeliver("c", 1), b"x" * 2000),  # more than body_max
        b"\x09" + bytes(7),
    ],
)
def test_a_broker_that_breaks_the_protocol_is_left(said: tuple[int, m.Method] | bytes) -> None:
    peer = Peer(body_max=1000).open()
    peer.open_channel()
    peer.session.call(1, m.BasicQos(), "waits")
    (ended,) = peer.say(said)
    assert isinstance(ended, ConnectionTerminated)
    assert isinstance(ended.error, errors.ConnectionLostError)
    assert "violated AMQP" in str(ended.error)
    assert ended.pending_tokens == ["waits"]
    *_, (_, close) = peer.heard_methods()
    assert isinstance(close, m.ConnectionClose)
    assert peer.say((1, m.BasicQosOk())) == []


# ── channels ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_channel_that_the_broker_closes_returns_its_tokens_and_its_number() -> None:
    peer = Peer().open()
    peer.open_channel()
    peer.open_channel()
    peer.session.call(1, m.QueueDeclare("q", passive=True), "a")
    peer.session.call(1, m.BasicQos(), "b")
    peer.heard()
    (ended,) = peer.say((1, m.ChannelClose(404, "NOT_FOUND - no queue 'q'", 50, 10)))
    assert isinstance(ended, ChannelTerminated)
    assert isinstance(ended.error, errors.ChannelClosedByBrokerError)
    assert (ended.error.reply_code, ended.error.reply_text) == (404, "NOT_FOUND - no queue 'q'")
    assert (ended.channel, ended.pending_tokens) == (1, ["a", "b"])
    assert peer.heard_methods() == [(1, m.ChannelCloseOk())]
    assert peer.open_channel() == 1
    assert peer.open_channel() == 3


def test_a_channel_that_we_close_hears_nothing_more() -> None:
    peer = Peer().open()
    peer.open_channel()
    peer.session.call(1, m.BasicQos(), "a")
    peer.session.close_channel(1, "closing")
    found = peer.say(
        (1, m.BasicQosOk()), content(1, m.BasicDeliver("c", 1), b"x"), (1, m.ChannelCloseOk())
    )
    ended, answered = found
    assert isinstance(ended, ChannelTerminated)
    assert isinstance(ended.error, errors.ChannelClosedByClientError)
    assert ended.pending_tokens == ["a"]
    assert answered == ReplyReceived("closing", m.ChannelCloseOk())
    assert peer.open_channel() == 1


def test_both_may_close_a_channel_at_once() -> None:
    peer = Peer().open()
    peer.open_channel()
    peer.session.close_channel(1, "closing")
    peer.heard()
    assert peer.say((1, m.ChannelClose(406, "PRECONDITION_FAILED"))) == []
    assert peer.heard_methods() == [(1, m.ChannelCloseOk())]
    assert len(peer.say((1, m.ChannelCloseOk()))) == 2


def test_there_are_only_so_many_channels() -> None:
    peer = Peer().open(m.ConnectionTune(2, 131_072, 0))
    peer.open_channel()
    peer.open_channel()
    with pytest.raises(ValueError, match="all 2 channels"):
        peer.session.open_channel(None)


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────


def test_confirms_come_as_numbers() -> None:
    peer = Peer().open()
    peer.open_channel()
    confirms = peer.session.start_confirms(1)
    assert peer.session.start_confirms(1) is confirms
    confirms.published_count = 10
    said = peer.say(
        (1, m.BasicAck(1)),
        (1, m.BasicAck(2)),
        (1, m.BasicAck(5, multiple=True)),
        (1, m.BasicNack(7)),
        (1, m.BasicAck(10, multiple=True)),
        (1, m.BasicAck(10, multiple=True)),
    )
    told = [
        (each, one.acked)
        for one in said
        if isinstance(one, PublishesConfirmed)
        for each in one.sequence_numbers
    ]
    assert told == [
        *((number, True) for number in range(1, 6)),
        (7, False),
        *((number, True) for number in (6, 8, 9, 10)),
    ]


def test_confirms_that_nobody_asked_for_mean_nothing() -> None:
    peer = Peer().open()
    peer.open_channel()
    assert peer.say((1, m.BasicAck(1)), (1, m.BasicAck(5, multiple=True))) == []


def test_what_else_a_broker_says() -> None:
    peer = Peer().open()
    peer.open_channel()
    returned = m.BasicReturn(312, "NO_ROUTE", "x", "key")
    said: list[tuple[tuple[int, m.Method] | bytes, SessionEvent]] = [
        (
            content(1, m.BasicDeliver("c", 1, True, "x", "key"), b"body"),
            Delivered(1, DeliveryRoute("c", True, "x", "key"), 1, [b"\0\0"], [b"body"]),
        ),
        (
            content(1, returned, b"back"),
            MessageReturned(1, ReturnedMessage(312, "NO_ROUTE", "x", "key", b"\0\0", b"back")),
        ),
        ((1, m.BasicCancel("c")), ConsumerCancelReceived(1, "c")),
        ((1, m.ChannelFlow(False)), FlowChanged(1, False)),
        ((0, m.ConnectionBlocked("disk")), BlockedStateChanged("disk")),
        ((0, m.ConnectionUnblocked()), BlockedStateChanged(None)),
    ]
    assert peer.say(*(each for each, _ in said), HEARTBEAT_FRAME) == [each for _, each in said]
    assert peer.heard() == [MethodReceived(1, m.ChannelFlowOk(False))]
    peer.session.send_heartbeat()
    assert peer.heard() == [HeartbeatReceived()]


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────


def open_with_calls() -> Peer:
    peer = Peer().open()
    peer.open_channel()
    peer.session.call(1, m.BasicQos(), "a")
    peer.session.open_channel("b")
    peer.heard()
    return peer


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (
            lambda peer: peer.say((0, m.ConnectionClose(320, "bye")))[0],
            errors.ConnectionClosedByBrokerError,
        ),
        (
            lambda peer: peer.session.terminate(errors.ConnectionLostError("cut")),
            errors.ConnectionLostError,
        ),
    ],
)
def test_everything_that_waits_gets_the_end(
    end: Callable[[Peer], SessionEvent], kind: type[Exception]
) -> None:
    peer = open_with_calls()
    ended = end(peer)
    assert isinstance(ended, ConnectionTerminated)
    assert type(ended.error) is kind
    assert ended.pending_tokens == ["a", "b"]
    assert peer.say((1, m.BasicQosOk()), (0, m.ConnectionBlocked("?"))) == []
    assert peer.session.terminate(errors.ConnectionLostError("again")) is None


def test_we_part_in_order() -> None:
    peer = open_with_calls()
    peer.session.close()
    peer.session.close()
    assert peer.heard_methods() == [(0, m.ConnectionClose(200, "bye"))]
    assert peer.say((1, m.BasicQosOk()), content(1, m.BasicDeliver("c", 1), b"x")) == []
    (ended,) = peer.say((0, m.ConnectionCloseOk()), (0, m.ConnectionBlocked("late")))
    assert isinstance(ended, ConnectionTerminated)
    assert isinstance(ended.error, errors.ConnectionClosedByClientError)
    assert ended.pending_tokens == ["a", "b"]


def test_the_rim_is_woken_once_for_all_that_is_written() -> None:
    peer = Peer().open()
    woken = peer.woken
    peer.session.send_heartbeat()
    peer.session.write(b"a", b"bc")
    assert peer.woken == woken + 1
    assert peer.session.output_bytes == 11
    assert peer.session.take_output() == HEARTBEAT_FRAME + b"abc"
    assert peer.session.output_bytes == 0
