"""The handshake: complete, in every wrong order, and client against server."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.amqp.codec import decode_method, encode_method
from recado.amqp.errors import (
    AmqpNotImplementedError,
    AmqpSyntaxError,
    ChannelError,
    CommandInvalidError,
    FrameError,
    LoginRefusedError,
    NotAllowedError,
)
from recado.amqp.handshake import (
    NEXT_STEP,
    ClientHandshake,
    ConnectionLimits,
    Credentials,
    HandshakeStep,
    OpenRequested,
    ServerHandshake,
)
from recado.amqp.methods import (
    METHODS,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
)
from recado.amqp.values import FieldTable, LongString, encode_table

from .strategies import short_strings, tables, unsigned

BOTH = ("PLAIN", "AMQPLAIN")
GUEST = b"\0guest\0secret"


def server(
    mechanisms: tuple[str, ...] = BOTH,
    frame_max: int = 131_072,
    channel_max: int = 2_047,
    heartbeat: int = 60,
) -> ServerHandshake:
    return ServerHandshake({"product": "recado"}, mechanisms, frame_max, channel_max, heartbeat)


def client(
    username: str = "guest",
    password: bytes = b"secret",
    virtual_host: str = "/",
    frame_max: int = 0,
    channel_max: int = 0,
    heartbeat: int = 30,
) -> ClientHandshake:
    return ClientHandshake(
        username, password, virtual_host, {"product": "test"}, frame_max, channel_max, heartbeat
    )


def step_of(handshake: ServerHandshake | ClientHandshake) -> HandshakeStep:
    """Asked anew each time, so that mypy does not take the last answer for the next."""
    return handshake.step


def server_at(step: HandshakeStep) -> ServerHandshake:
    handshake = server()
    moves: list[Callable[[], object]] = [
        handshake.start,
        lambda: handshake.receive(ConnectionStartOk(response=GUEST)),
        handshake.accept_credentials,
        lambda: handshake.receive(ConnectionTuneOk()),
        lambda: handshake.receive(ConnectionOpen()),
    ]
    while handshake.step is not step:
        moves.pop(0)()
    return handshake


def client_at(step: HandshakeStep) -> ClientHandshake:
    handshake = client()
    moves: list[Method] = [ConnectionStart(), ConnectionTune(), ConnectionOpenOk()]
    while handshake.step is not step:
        handshake.receive(moves.pop(0))
    return handshake


# ── the whole ─────────────────────────────────────────────────────────────────────────────────────


def test_the_server_walks_through() -> None:
    handshake = server()
    assert step_of(handshake) is HandshakeStep.AWAIT_HEADER
    assert handshake.start() == ConnectionStart(
        0, 9, {"product": "recado"}, b"PLAIN AMQPLAIN", b"en_US"
    )
    assert step_of(handshake) is HandshakeStep.AWAIT_START_OK
    assert handshake.receive(ConnectionStartOk({"a": 1}, "PLAIN", GUEST)) == Credentials(
        "PLAIN", "guest", b"secret", {"a": 1}
    )
    assert step_of(handshake) is HandshakeStep.AWAIT_AUTHENTICATION
    assert handshake.accept_credentials() == ConnectionTune(
        channel_max=2_047, frame_max=131_072, heartbeat=60
    )
    assert step_of(handshake) is HandshakeStep.AWAIT_TUNE_OK
    assert handshake.receive(ConnectionTuneOk(100, 4_096, 10)) == ConnectionLimits(
        frame_max=4_096, channel_max=100, heartbeat=10
    )
    assert step_of(handshake) is HandshakeStep.AWAIT_OPEN
    assert handshake.receive(ConnectionOpen("orders")) == OpenRequested("orders")
    assert step_of(handshake) is HandshakeStep.OPEN


def test_the_client_walks_through() -> None:
    handshake = client(virtual_host="orders", frame_max=65_536)
    assert step_of(handshake) is HandshakeStep.AWAIT_START
    start = ConnectionStart(server_properties={"b": 2}, mechanisms=b"EXTERNAL PLAIN")
    assert handshake.receive(start) == [ConnectionStartOk({"product": "test"}, "PLAIN", GUEST)]
    assert handshake.server_properties == {"b": 2}
    assert step_of(handshake) is HandshakeStep.AWAIT_TUNE
    assert handshake.receive(ConnectionTune(2_047, 131_072, 60)) == [
        ConnectionTuneOk(channel_max=2_047, frame_max=65_536, heartbeat=30),
        ConnectionOpen("orders"),
    ]
    assert handshake.limits == ConnectionLimits(frame_max=65_536, channel_max=2_047, heartbeat=30)
    assert step_of(handshake) is HandshakeStep.AWAIT_OPEN_OK
    assert handshake.receive(ConnectionOpenOk()) == []
    assert step_of(handshake) is HandshakeStep.OPEN


def test_the_client_uses_amqplain_if_the_server_has_no_plain() -> None:
    start = ConnectionStart(server_properties={}, mechanisms=b"AMQPLAIN EXTERNAL")
    response = amqplain({"LOGIN": "guest", "PASSWORD": LongString(b"secret")})
    assert client().receive(start) == [ConnectionStartOk({"product": "test"}, "AMQPLAIN", response)]


def across(method: Method) -> Method:
    return decode_method(encode_method(method))


@given(
    mechanism=st.sampled_from(BOTH),
    username=st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=30),
    password=st.binary(max_size=30).map(lambda octets: octets.replace(b"\0", b"")),
    virtual_host=short_strings(),
    properties=tables(),
    frame_max=st.just(0) | st.integers(4_096, 2**32 - 1),
    offered=st.just(0) | st.integers(4_096, 2**32 - 1),
    channels=unsigned(16),
    offered_channels=unsigned(16),
    heartbeat=unsigned(16),
    offered_heartbeat=unsigned(16),
)
def test_our_client_and_our_server_always_agree(
    mechanism: str,
    username: str,
    password: bytes,
    virtual_host: str,
    properties: FieldTable,
    frame_max: int,
    offered: int,
    channels: int,
    offered_channels: int,
    heartbeat: int,
    offered_heartbeat: int,
) -> None:
    ours = ServerHandshake({}, (mechanism,), offered, offered_channels, offered_heartbeat)
    theirs = ClientHandshake(
        username, password, virtual_host, properties, frame_max, channels, heartbeat
    )

    (start_ok,) = theirs.receive(across(ours.start()))
    assert ours.receive(across(start_ok)) == Credentials(mechanism, username, password, properties)
    tune_ok, opening = theirs.receive(across(ours.accept_credentials()))
    limits = ours.receive(across(tune_ok))
    assert limits == theirs.limits
    assert ours.receive(across(opening)) == OpenRequested(virtual_host)
    assert theirs.receive(across(ConnectionOpenOk())) == []
    assert step_of(ours) is step_of(theirs) is HandshakeStep.OPEN


# ── order ─────────────────────────────────────────────────────────────────────────────────────────

SERVER_STEPS = [
    HandshakeStep.AWAIT_HEADER,
    HandshakeStep.AWAIT_START_OK,
    HandshakeStep.AWAIT_AUTHENTICATION,
    HandshakeStep.AWAIT_TUNE_OK,
    HandshakeStep.AWAIT_OPEN,
    HandshakeStep.OPEN,
]
CLIENT_STEPS = [
    HandshakeStep.AWAIT_START,
    HandshakeStep.AWAIT_TUNE,
    HandshakeStep.AWAIT_OPEN_OK,
    HandshakeStep.OPEN,
]
SENT_BY_SERVER = (ConnectionStart, ConnectionTune)


@pytest.mark.parametrize("step", SERVER_STEPS)
def test_the_server_refuses_what_is_not_the_turn_of(step: HandshakeStep) -> None:
    for kind in METHODS.values():
        if (step, kind) not in NEXT_STEP or kind in SENT_BY_SERVER:
            handshake = server_at(step)
            with pytest.raises(ChannelError) as refusal:
                handshake.receive(kind())
            assert refusal.value.reply_text == (
                f"CHANNEL_ERROR - unexpected method in connection state {step.value}: {kind.name}"
            )
            assert handshake.step is step


@pytest.mark.parametrize("step", CLIENT_STEPS)
def test_the_client_refuses_what_is_not_the_turn_of(step: HandshakeStep) -> None:
    for kind in METHODS.values():
        if (step, kind) not in NEXT_STEP:
            handshake = client_at(step)
            with pytest.raises(ChannelError, match=f"state {step.value}: {kind.name}"):
                handshake.receive(kind())
            assert handshake.step is step


@pytest.mark.parametrize("step", SERVER_STEPS)
def test_the_server_speaks_only_in_its_turn(step: HandshakeStep) -> None:
    if step is not HandshakeStep.AWAIT_HEADER:
        with pytest.raises(ChannelError):
            server_at(step).start()
    if step is not HandshakeStep.AWAIT_AUTHENTICATION:
        with pytest.raises(ChannelError):
            server_at(step).accept_credentials()


def test_every_step_is_in_the_table() -> None:
    assert {step for step, _ in NEXT_STEP} | set(NEXT_STEP.values()) == set(HandshakeStep)


# ── credentials ───────────────────────────────────────────────────────────────────────────────────


def login(mechanism: str, response: bytes, mechanisms: tuple[str, ...] = BOTH) -> Credentials:
    handshake = server(mechanisms)
    handshake.start()
    credentials = handshake.receive(ConnectionStartOk({}, mechanism, response))
    assert isinstance(credentials, Credentials)
    return credentials


def amqplain(table: FieldTable) -> bytes:
    return encode_table(table)[4:]


@pytest.mark.parametrize(
    ("mechanism", "response", "username", "password"),
    [
        ("PLAIN", b"\0guest\0guest", "guest", b"guest"),
        ("PLAIN", b"\0\0", "", b""),
        ("PLAIN", "\0joão\0".encode() + b"\xff", "joão", b"\xff"),
        ("AMQPLAIN", amqplain({"LOGIN": "guest", "PASSWORD": "sé"}), "guest", "sé".encode()),
        (
            "AMQPLAIN",
            amqplain({"PASSWORD": LongString(b"\xff"), "LOGIN": "g", "other": 1}),
            "g",
            b"\xff",
        ),
    ],
)
def test_logins(mechanism: str, response: bytes, username: str, password: bytes) -> None:
    credentials = login(mechanism, response)
    assert (credentials.username, credentials.password) == (username, password)
    assert type(credentials.password) is bytes


@pytest.mark.parametrize("response", [b"", b"ana", b"\0ana\0secret"])
def test_external_logins_have_no_credentials(response: bytes) -> None:
    credentials = login("EXTERNAL", response, mechanisms=("PLAIN", "EXTERNAL"))
    assert (credentials.mechanism, credentials.username) == ("EXTERNAL", "")
    assert credentials.password == b""


@pytest.mark.parametrize(
    ("mechanism", "response", "complaint"),
    [
        ("PLAIN", b"", "PLAIN response"),
        ("PLAIN", b"guest\0guest", "PLAIN response"),
        ("PLAIN", b"other\0guest\0guest", "PLAIN response"),
        ("PLAIN", b"\0guest\0gu\0est", "PLAIN response"),
        ("PLAIN", b"\0\xff\0guest", "user name is not UTF-8"),
        ("AMQPLAIN", b"", "LOGIN and PASSWORD"),
        ("AMQPLAIN", amqplain({"LOGIN": "guest"}), "LOGIN and PASSWORD"),
        ("AMQPLAIN", amqplain({"LOGIN": "guest", "PASSWORD": 1}), "LOGIN and PASSWORD"),
        ("AMQPLAIN", amqplain({"LOGIN": "guest", "PASSWORD": b"x"}), "LOGIN and PASSWORD"),
        (
            "AMQPLAIN",
            amqplain({"LOGIN": LongString(b"\xff"), "PASSWORD": ""}),
            "LOGIN and PASSWORD",
        ),
        ("AMQPLAIN", b"\x05LOGIN", "truncated"),
    ],
)
def test_malformed_logins(mechanism: str, response: bytes, complaint: str) -> None:
    with pytest.raises((AmqpSyntaxError, FrameError), match=complaint):
        login(mechanism, response)


def test_only_what_is_offered_can_be_used() -> None:
    with pytest.raises(CommandInvalidError, match="unknown authentication mechanism 'ANONYMOUS'"):
        login("ANONYMOUS", b"")
    with pytest.raises(CommandInvalidError, match="unknown authentication mechanism 'PLAIN'"):
        login("PLAIN", GUEST, mechanisms=("AMQPLAIN",))
    with pytest.raises(CommandInvalidError, match="unknown authentication mechanism 'EXTERNAL'"):
        login("EXTERNAL", b"")
    with pytest.raises(ValueError, match="unknown authentication mechanisms: MAGIC"):
        server(("PLAIN", "MAGIC"))


def test_capabilities() -> None:
    announced: FieldTable = {"capabilities": {"basic.nack": True, "other": False, "odd": 1}}
    credentials = Credentials("PLAIN", "guest", b"", announced)
    assert credentials.supports("basic.nack")
    assert not credentials.supports("other")
    assert not credentials.supports("odd")
    assert not credentials.supports("authentication_failure_close")
    assert not Credentials("PLAIN", "guest", b"", {}).supports("basic.nack")
    assert not Credentials("PLAIN", "guest", b"", {"capabilities": 1}).supports("basic.nack")


def test_a_password_does_not_reach_a_log_by_accident() -> None:
    assert repr(Credentials("PLAIN", "guest", b"secret", {})) == "Credentials(PLAIN for 'guest')"


def test_the_client_needs_a_mechanism_and_a_version_that_it_knows() -> None:
    with pytest.raises(LoginRefusedError, match="supports none of PLAIN, AMQPLAIN"):
        client().receive(ConnectionStart(mechanisms=b"EXTERNAL PLAINER"))
    with pytest.raises(AmqpNotImplementedError, match="the server uses AMQP 8-0"):
        client().receive(ConnectionStart(8, 0))


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


def tuned(asked: ConnectionTuneOk, **offered: int) -> ConnectionLimits:
    handshake = server(**offered)  # type: ignore[arg-type]
    handshake.start()
    handshake.receive(ConnectionStartOk(response=GUEST))
    handshake.accept_credentials()
    limits = handshake.receive(asked)
    assert isinstance(limits, ConnectionLimits)
    return limits


@pytest.mark.parametrize(
    ("asked", "limits"),
    [
        # channel_max, frame_max, heartbeat → frame_max, channel_max, heartbeat
        (ConnectionTuneOk(0, 0, 0), ConnectionLimits(131_072, 2_047, 0)),
        (ConnectionTuneOk(2_047, 131_072, 60), ConnectionLimits(131_072, 2_047, 60)),
        (ConnectionTuneOk(1, 4_096, 600), ConnectionLimits(4_096, 1, 600)),
    ],
)
def test_the_client_may_ask_for_less(asked: ConnectionTuneOk, limits: ConnectionLimits) -> None:
    assert tuned(asked) == limits


def test_without_limits_of_ours_the_clients_hold() -> None:
    unlimited = {"frame_max": 0, "channel_max": 0, "heartbeat": 0}
    assert tuned(ConnectionTuneOk(65_535, 2**32 - 1, 9), **unlimited) == ConnectionLimits(
        2**32 - 1, 65_535, 9
    )
    assert tuned(ConnectionTuneOk(0, 0, 0), **unlimited) == ConnectionLimits(0, 0, 0)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (
            ConnectionTuneOk(0, 131_073, 0),
            "negotiated frame_max = 131073 is higher than the maximum allowed value (131072)",
        ),
        (
            ConnectionTuneOk(2_048, 0, 0),
            "negotiated channel_max = 2048 is higher than the maximum allowed value (2047)",
        ),
        (
            ConnectionTuneOk(0, 4_095, 0),
            "negotiated frame_max = 4095 is lower than the minimum allowed value (4096)",
        ),
    ],
)
def test_the_client_may_not_ask_for_more(asked: ConnectionTuneOk, complaint: str) -> None:
    with pytest.raises(NotAllowedError) as refusal:
        tuned(asked)
    assert str(refusal.value) == complaint


def test_a_client_that_wants_no_heartbeat_gets_none() -> None:
    handshake = client(heartbeat=0)
    handshake.receive(ConnectionStart())
    handshake.receive(ConnectionTune(0, 0, 60))
    assert handshake.limits.heartbeat == 0
