"""Control messages: every signal is decoded as it was encoded, and invalid ones are rejected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recado.actors import Address, ChildFailed
from recado.actors.errors import ActorError
from recado.actors.ref import ActorRef
from recado.actors.remote.errors import InvalidEnvelopeError
from recado.actors.remote.wire.controls import (
    PRIVILEGED_SIGNALS,
    AbandonActor,
    ActorIdentified,
    CreateActor,
    MoveActor,
    Ping,
    Pong,
    RemoteSignal,
    decode_control,
    decode_signal,
    encode_control,
    encode_signal,
)
from recado.actors.supervision.signals import (
    CellSignal,
    Down,
    Ended,
    Exit,
    Failed,
    Link,
    Restart,
    Stop,
    Tie,
    Unlink,
    Untie,
    Unwatch,
    Watch,
)

REF: ActorRef[Any] = ActorRef(Address("there", "a", 7), None, None)  # type: ignore[arg-type]
ERROR = ValueError("no")

SIGNALS: list[CellSignal] = [
    Down(REF, None),
    Down(REF, ERROR),
    Failed(REF, ERROR),
    Ended(REF, None),
    Ended(REF, ERROR),
    Exit(REF, ERROR),
    Restart(ERROR),
    Stop(None),
    Stop(ERROR),
    Link(REF),
    Unlink(REF),
    Watch(REF),
    Unwatch(REF),
    Tie(REF),
    Untie(REF),
]


@pytest.mark.parametrize("signal", SIGNALS)
def test_every_signal_travels(signal: CellSignal) -> None:
    said = decode_control(encode_control(encode_signal(signal)))
    assert isinstance(said, RemoteSignal)
    about = REF if said.ref else None
    assert said.ref in ("", str(REF))
    arrived = decode_signal(said, about)
    assert type(arrived) is type(signal)
    assert getattr(arrived, "ref", None) == getattr(signal, "ref", None)
    assert repr(getattr(arrived, "reason", None)) == repr(getattr(signal, "reason", None))


def test_who_is_called_otherwise_there_is_called_so() -> None:
    for signal in (Down(REF, None), Failed(REF, ERROR), Ended(REF, None), Exit(REF, ERROR)):
        assert encode_signal(signal, "by name").ref == "by name"


def test_what_is_said_of_a_bond_travels() -> None:
    said = encode_signal(Watch(REF), token=7, uid=9)
    assert decode_control(encode_control(said)) == RemoteSignal("watch", str(REF), token=7, uid=9)
    assert decode_control(encode_control(ActorIdentified(str(REF), 7))) == ActorIdentified(
        str(REF), 7
    )


@pytest.mark.parametrize(
    "said",
    [
        RemoteSignal("watch", str(REF), token=-1),
        RemoteSignal("watch", str(REF), uid=-1),
        ActorIdentified(str(REF), -1),
    ],
)
def test_no_token_and_no_uid_is_negative(said: RemoteSignal | ActorIdentified) -> None:
    with pytest.raises(InvalidEnvelopeError):
        decode_control(encode_control(said))


def test_a_signal_of_an_earlier_version_is_read() -> None:
    said = decode_control(msgspec.msgpack.encode(["signal", "watch", str(REF), b""]))
    assert said == RemoteSignal("watch", str(REF))


def test_what_a_supervisor_says_to_itself_does_not_travel() -> None:
    with pytest.raises(AssertionError):
        encode_signal(ChildFailed(REF, ERROR))


@pytest.mark.parametrize("name", ["restart", "failed", "exit"])
def test_a_reason_that_is_not_given_is_some_error(name: str) -> None:
    signal = decode_signal(RemoteSignal(name), REF)  # type: ignore[arg-type]
    assert isinstance(signal, Restart | Failed | Exit)
    assert isinstance(signal.reason, ActorError)


@pytest.mark.parametrize(
    "said", [RemoteSignal("watch"), RemoteSignal("down"), RemoteSignal("stop", "", b"\xff\xff")]
)
def test_signals_that_are_none(said: RemoteSignal) -> None:
    with pytest.raises(InvalidEnvelopeError):
        decode_signal(said, None)


@pytest.mark.parametrize(
    "control",
    [
        Ping(),
        Pong(),
        CreateActor("kind", "name", 0, b"\x90", "", True),
        MoveActor("token", "kind", "name", 0, "", b"", False),
        AbandonActor("token"),
    ],
)
def test_the_others_travel_too(control: Any) -> None:
    assert decode_control(encode_control(control)) == control


@given(st.binary(max_size=60))
@example(b"\x91\xa4\x00\x00\x00\x80")  # a text that is none
def test_noise_is_no_control(noise: bytes) -> None:
    try:
        decode_control(noise)
    except InvalidEnvelopeError:
        return


def test_watching_rules_nobody() -> None:
    assert not PRIVILEGED_SIGNALS & {"watch", "unwatch", "down", "failed", "ended"}
