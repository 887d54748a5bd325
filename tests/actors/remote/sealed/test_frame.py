"""Frames: sealed, opened, refused, and what is not one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.faults import BadFrame, CannotSerialise, Refusal
from recado.actors.remote.sealed.frame import (
    HEAD,
    OVERHEAD,
    REFUSAL_SIZE,
    WHY_BYTES_MOST,
    RefusedFrame,
    Seal,
    Sealer,
    WrongSeal,
    is_refusal,
    open_refusal,
    refuse,
)

INCARNATION = bytes(range(16))


@given(st.binary(max_size=300), st.text(max_size=100), st.integers(0, 3))
def test_what_is_sealed_is_opened_by_who_has_the_cookie(
    envelope: bytes, cookie: str, before: int
) -> None:
    seal = Seal(cookie, required=bool(cookie))
    sealer = Sealer(seal, INCARNATION)
    for _ in range(before):
        sealer.seal(b"")
    assert seal.open(sealer.seal(envelope)) == (INCARNATION, before + 1, envelope)


@given(st.binary(max_size=60), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_noticed(envelope: bytes, at: int, by: int) -> None:
    seal = Seal("secret", required=True)
    frame = bytearray(Sealer(seal, INCARNATION).seal(envelope))
    frame[at % len(frame)] ^= by
    with pytest.raises(BadFrame):
        seal.open(bytes(frame))


@given(st.binary(max_size=80))
def test_noise_is_no_frame(noise: bytes) -> None:
    seal = Seal("secret", required=True)
    with pytest.raises(BadFrame):
        seal.open(noise)


def test_another_cookie_is_not_ours_and_the_frame_says_whose_it_is() -> None:
    frame = Sealer(Seal("theirs"), INCARNATION).seal(b"envelope")
    with pytest.raises(WrongSeal) as wrong:
        Seal("ours").open(frame)
    assert (wrong.value.incarnation, wrong.value.sequence) == (INCARNATION, 1)


def test_without_a_cookie_is_enough_where_none_is_required() -> None:
    frame = Sealer(Seal(), INCARNATION).seal(b"envelope")
    assert Seal("ours").open(frame) == (INCARNATION, 1, b"envelope")
    with pytest.raises(WrongSeal):
        Seal("ours", required=True).open(frame)


def test_the_cookie_is_not_in_the_frame() -> None:
    assert b"secret" not in Sealer(Seal("secret"), INCARNATION).seal(b"")


def test_who_requires_a_cookie_has_one() -> None:
    with pytest.raises(ValueError, match="must have one"):
        Seal("", required=True)


def test_a_frame_has_the_size_that_is_allowed_and_no_more() -> None:
    seal = Seal(limit=OVERHEAD + 10)
    sealer = Sealer(seal, INCARNATION)
    frame = sealer.seal(bytes(10))
    assert len(frame) == OVERHEAD + 10
    seal.open(frame)
    with pytest.raises(CannotSerialise):
        sealer.seal(bytes(11))
    assert sealer.sequence == 1
    with pytest.raises(BadFrame, match="no frame"):
        seal.open(frame + b"x")


def test_the_bytes_are_those_of_the_drawing() -> None:
    frame = Sealer(Seal("secret"), INCARNATION).seal(b"envelope")
    assert frame[0] == 1
    assert frame[1:17] == INCARNATION
    assert frame[17:25] == bytes(7) + b"\x01"
    assert frame[OVERHEAD:] == b"envelope"
    assert (HEAD, OVERHEAD) == (25, 41)


@pytest.mark.parametrize("reason", Refusal)
def test_a_refusal_needs_no_cookie(reason: Refusal) -> None:
    frame = refuse(INCARNATION, 7, reason)
    assert len(frame) == REFUSAL_SIZE
    assert is_refusal(frame)
    assert open_refusal(frame) == RefusedFrame(INCARNATION, 7, reason)


def test_a_refusal_may_say_why_within_a_limit() -> None:
    frame = refuse(INCARNATION, 7, Refusal.ENVELOPE, "a field is missing: açaí")
    assert is_refusal(frame)
    assert open_refusal(frame).why == "a field is missing: açaí"
    long = refuse(INCARNATION, 7, Refusal.ENVELOPE, "é" * WHY_BYTES_MOST)
    assert is_refusal(long)
    assert open_refusal(long).why == "é" * (WHY_BYTES_MOST // 2)
    assert not is_refusal(long + b"x")
    assert open_refusal(refuse(INCARNATION, 7, Refusal.BUSY, "\ud800")).why == "?"
    assert open_refusal(refuse(INCARNATION, 7, Refusal.BUSY) + b"\xff").why == ""


def test_a_refusal_for_no_known_reason_is_none() -> None:
    with pytest.raises(BadFrame, match="unknown reason"):
        open_refusal(bytes(REFUSAL_SIZE))


def test_an_incarnation_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        Sealer(Seal(), b"short")
