"""How a connection opens, and the ways in which it does not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.events import MethodReceived
from recado.amqp.frames import (
    HEARTBEAT_FRAME,
    METHOD_FRAME_TYPE,
    PROTOCOL_HEADER,
    encode_content,
    encode_frame,
    encode_method_frame,
)
from recado.amqp.handshake import ClientHandshake, ConnectionLimits, Credentials, HandshakeStep
from recado.amqp.methods import (
    BasicAck,
    BasicPublish,
    ChannelOpen,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
)
from recado.amqp.reader import FrameReader
from recado.amqp.values import FieldTable
from recado.broker.access import User
from recado.server.options import ConnectionOptions
from recado.server.session import Session, SessionState

from .client import EVERYTHING, Client, admit, cut, new_broker

START_OK = ConnectionStartOk({}, "PLAIN", b"\0guest\0secret")


def new_session(*, decide: bool = True, full: str | None = None) -> Session:
    def later(session: Session, credentials: Credentials) -> None:
        """Leave the decision to the test."""

    return Session(
        new_broker(), ConnectionOptions(), admit if decide else later, lambda: None, full
    )


def answers(session: Session, *methods: Method) -> list[Method]:
    """Return the methods that a session sent on channel 0."""
    session.receive(b"".join(encode_method_frame(0, method) for method in methods), 0)
    return sent(session)


def sent(session: Session) -> list[Method]:
    events = FrameReader().feed(b"".join(session.take_output()))
    return [event.method for event in events if isinstance(event, MethodReceived)]


def greeted(*, decide: bool = True, full: str | None = None) -> Session:
    session = new_session(decide=decide, full=full)
    session.receive(PROTOCOL_HEADER, 0)
    (start,) = sent(session)
    assert isinstance(start, ConnectionStart)
    return session


# ── good ──────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(1, 60), max_size=4), st.lists(st.integers(1, 60), max_size=4))
def test_our_client_and_our_server_agree_in_any_chunks(out: list[int], back: list[int]) -> None:
    session = new_session()
    handshake = ClientHandshake("guest", b"secret", "/", {}, 8192, 100, 7)
    reader = FrameReader()
    to_send = PROTOCOL_HEADER
    while handshake.step is not HandshakeStep.OPEN:
        for chunk in cut(to_send, out):
            session.receive(chunk, 0)
        to_send = b""
        for chunk in cut(b"".join(session.take_output()), back):
            for event in reader.feed(chunk):
                assert isinstance(event, MethodReceived)
                replies = handshake.receive(event.method)
                to_send += b"".join(encode_method_frame(0, method) for method in replies)
    assert session.state is SessionState.OPEN
    assert handshake.limits == ConnectionLimits(8192, 100, 7)
    assert (session.frame_max, session.channel_max, session.heartbeat) == (8192, 100, 7)


def test_the_server_announces_its_capabilities() -> None:
    session = Session(new_broker(), ConnectionOptions({"product": "x"}), admit, lambda: None)
    session.receive(PROTOCOL_HEADER, 0)
    (start,) = sent(session)
    assert isinstance(start, ConnectionStart)
    assert start.mechanisms == b"PLAIN AMQPLAIN"
    assert start.server_properties["product"] == "x"
    capabilities = start.server_properties["capabilities"]
    assert isinstance(capabilities, dict)
    assert capabilities["publisher_confirms"] is True
    assert len(capabilities) == 9


def test_a_verdict_may_come_later() -> None:
    session = greeted(decide=False)
    assert answers(session, START_OK) == []
    session.accept_login(User("guest", permissions={"/": EVERYTHING}))
    (tune,) = sent(session)
    assert tune == ConnectionTune(2047, 131_072, 60)
    assert answers(session, ConnectionTuneOk(0, 0, 0), ConnectionOpen("/")) != []
    assert session.state is SessionState.OPEN
    assert (session.frame_max, session.channel_max, session.heartbeat) == (131_072, 2047, 0)


def test_input_behind_start_ok_waits_for_the_verdict() -> None:
    """A client may send its whole handshake at once."""
    session = greeted(decide=False)
    assert (answers(session, START_OK), session.has_input) == ([], False)
    more = answers(session, ConnectionTuneOk(), ConnectionOpen("/"))
    assert (more, session.has_input) == ([], True)
    session.accept_login(User("guest", permissions={"/": EVERYTHING}))
    session.process_input(0)
    assert sent(session) == [ConnectionTune(2047, 131_072, 60), ConnectionOpenOk()]


def test_input_that_comes_with_start_ok_waits_for_the_verdict() -> None:
    session = greeted(decide=False)
    early = answers(session, START_OK, ConnectionTuneOk(), ConnectionOpen("/"))
    assert (early, session.has_input) == ([], True)
    session.refuse_login()
    session.process_input(0)
    assert (session.has_input, session.state) == (False, SessionState.REFUSED)


def test_a_verdict_that_comes_too_late_is_nothing() -> None:
    session = greeted(decide=False)
    answers(session, START_OK)
    session.terminate(0)
    session.accept_login(User("guest"))
    session.refuse_login()
    assert sent(session) == []
    client = Client(new_broker())
    client.session.accept_login(User("guest"))
    client.session.refuse_login()
    assert client.received() == []


def test_a_heartbeat_may_come_early() -> None:
    session = greeted()
    session.receive(HEARTBEAT_FRAME, 0)
    assert session.state is SessionState.HANDSHAKE


# ── not so good ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "header",
    [b"AMQP\x00\x00\t\x00", b"AMQP\x01\x01\x00\n", b"HTTP/1.1", b"AMQP\x00\x01\x00\x00"],
)
def test_another_protocol_is_answered_with_ours(header: bytes) -> None:
    session = new_session()
    session.receive(header + b"more", 0)
    assert session.take_output() == [PROTOCOL_HEADER]
    assert session.state is SessionState.CLOSED


@pytest.mark.parametrize(
    ("capabilities", "told"), [({"authentication_failure_close": True}, True), ({}, False)]
)
def test_a_refusal_is_sent_to_clients_that_support_it(capabilities: FieldTable, told: bool) -> None:
    session = greeted(decide=False)
    answers(session, ConnectionStartOk({"capabilities": capabilities}, "PLAIN", b"\0guest\0wrong"))
    session.refuse_login()
    assert session.state is (SessionState.CLOSED if told else SessionState.REFUSED)
    text = (
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile."
    )
    assert sent(session) == ([ConnectionClose(403, text)] if told else [])
    assert answers(session, ConnectionTuneOk()) == []


@pytest.mark.parametrize(
    ("methods", "code"),
    [
        ([ConnectionStartOk({}, "MAGIC", b"")], 503),
        ([ConnectionStartOk({}, "PLAIN", b"guest")], 502),
        ([ConnectionOpen("/")], 504),
        ([START_OK, ConnectionTuneOk(2047, 100, 0)], 530),
        ([START_OK, ConnectionTuneOk(2047, 1 << 20, 0)], 530),
        ([START_OK, ConnectionTuneOk(), ConnectionOpen("nope")], 530),
    ],
)
def test_a_client_without_handshake_gets_the_reason_and_is_not_awaited(
    methods: list[Method], code: int
) -> None:
    session = greeted()
    *_, close = answers(session, *methods)
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == code
    assert session.state is SessionState.CLOSED


def test_a_full_server_says_so_when_a_client_wants_to_open() -> None:
    session = greeted(full="the server is full")
    *_, close = answers(session, START_OK, ConnectionTuneOk(), ConnectionOpen("/"))
    assert close == ConnectionClose(530, "NOT_ALLOWED - the server is full", 10, 40)


def test_a_client_may_think_better_of_it() -> None:
    session = greeted()
    assert answers(session, ConnectionClose()) == [ConnectionCloseOk()]
    assert session.state is SessionState.CLOSED


@pytest.mark.parametrize(
    ("data", "code", "failed"),
    [
        (encode_method_frame(1, ChannelOpen()), 505, (0, 0)),
        (encode_frame(METHOD_FRAME_TYPE, 0, bytes(8193)), 501, (0, 0)),
        (encode_frame(METHOD_FRAME_TYPE, 0, b"\x00\x0a\x00\x0b"), 501, (10, 11)),
        (encode_method_frame(1, BasicPublish("", "q")), 505, (0, 0)),
        (encode_method_frame(0, ChannelOpen()), 504, (20, 10)),
        (encode_method_frame(0, BasicAck(1)), 504, (60, 80)),
        (encode_method_frame(0, BasicPublish("", "q")), 504, (60, 40)),
        (
            encode_method_frame(0, BasicPublish("", "q")) + encode_content(0, bytes(2), b"x", 0),
            504,
            (60, 40),
        ),
    ],
)
def test_methods_that_are_not_allowed_during_the_handshake(
    data: bytes, code: int, failed: tuple[int, int]
) -> None:
    """The payload of a frame is at most 8,192 bytes until then."""
    session = greeted()
    session.receive(data, 0)
    (close,) = sent(session)
    assert isinstance(close, ConnectionClose)
    assert (close.reply_code, (close.failed_class, close.failed_method)) == (code, failed)
    assert session.state is SessionState.CLOSED


def test_before_login_a_large_frame_is_refused_by_its_size() -> None:
    session = greeted()
    session.receive(encode_frame(METHOD_FRAME_TYPE, 0, bytes(8192))[:100], 0)
    assert session.state is SessionState.HANDSHAKE
    session = greeted()
    session.receive(encode_frame(METHOD_FRAME_TYPE, 0, bytes(8193))[:7], 0)
    (close,) = sent(session)
    assert isinstance(close, ConnectionClose)
    assert close.reply_code == 501
