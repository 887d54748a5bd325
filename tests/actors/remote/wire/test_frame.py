"""Frames: signed, verified, refused, and invalid ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.errors import InvalidFrameError, RefusalReason, SerializationError
from recado.actors.remote.wire.frame import (
    DETAIL_MAX_BYTES,
    HEADER_BYTES,
    OVERHEAD_BYTES,
    REFUSAL_MIN_BYTES,
    FrameAuthenticationError,
    FrameAuthenticator,
    FrameSigner,
    RefusalFrame,
    decode_refusal,
    encode_refusal,
    is_refusal,
)

INCARNATION = bytes(range(16))


@given(st.binary(max_size=300), st.text(max_size=100), st.integers(0, 3))
def test_what_is_sealed_is_opened_by_who_has_the_cookie(
    envelope: bytes, cookie: str, before: int
) -> None:
    seal = FrameAuthenticator(cookie, required=bool(cookie))
    sealer = FrameSigner(seal, INCARNATION)
    for _ in range(before):
        sealer.sign(b"")
    assert seal.verify(sealer.sign(envelope)) == (INCARNATION, before + 1, envelope)


@given(st.binary(max_size=60), st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_byte_is_noticed(envelope: bytes, at: int, by: int) -> None:
    seal = FrameAuthenticator("secret", required=True)
    frame = bytearray(FrameSigner(seal, INCARNATION).sign(envelope))
    frame[at % len(frame)] ^= by
    with pytest.raises(InvalidFrameError):
        seal.verify(bytes(frame))


@given(st.binary(max_size=80))
def test_noise_is_no_frame(noise: bytes) -> None:
    seal = FrameAuthenticator("secret", required=True)
    with pytest.raises(InvalidFrameError):
        seal.verify(noise)


def test_another_cookie_is_not_ours_and_the_frame_says_whose_it_is() -> None:
    frame = FrameSigner(FrameAuthenticator("theirs"), INCARNATION).sign(b"envelope")
    with pytest.raises(FrameAuthenticationError) as wrong:
        FrameAuthenticator("ours").verify(frame)
    assert (wrong.value.incarnation, wrong.value.sequence) == (INCARNATION, 1)


def test_without_a_cookie_is_enough_where_none_is_required() -> None:
    frame = FrameSigner(FrameAuthenticator(), INCARNATION).sign(b"envelope")
    assert FrameAuthenticator("ours").verify(frame) == (INCARNATION, 1, b"envelope")
    with pytest.raises(FrameAuthenticationError):
        FrameAuthenticator("ours", required=True).verify(frame)


def test_the_cookie_is_not_in_the_frame() -> None:
    assert b"secret" not in FrameSigner(FrameAuthenticator("secret"), INCARNATION).sign(b"")


def test_who_requires_a_cookie_has_one() -> None:
    with pytest.raises(ValueError, match="must have one"):
        FrameAuthenticator("", required=True)


def test_a_frame_has_the_size_that_is_allowed_and_no_more() -> None:
    seal = FrameAuthenticator(max_frame_bytes=OVERHEAD_BYTES + 10)
    sealer = FrameSigner(seal, INCARNATION)
    frame = sealer.sign(bytes(10))
    assert len(frame) == OVERHEAD_BYTES + 10
    seal.verify(frame)
    with pytest.raises(SerializationError):
        sealer.sign(bytes(11))
    assert sealer.sequence == 1
    with pytest.raises(InvalidFrameError, match="not a frame"):
        seal.verify(frame + b"x")


def test_the_bytes_are_those_of_the_drawing() -> None:
    frame = FrameSigner(FrameAuthenticator("secret"), INCARNATION).sign(b"envelope")
    assert frame[0] == 1
    assert frame[1:17] == INCARNATION
    assert frame[17:25] == bytes(7) + b"\x01"
    assert frame[OVERHEAD_BYTES:] == b"envelope"
    assert (HEADER_BYTES, OVERHEAD_BYTES) == (25, 41)


@pytest.mark.parametrize("reason", RefusalReason)
def test_a_refusal_needs_no_cookie(reason: RefusalReason) -> None:
    frame = encode_refusal(INCARNATION, 7, reason)
    assert len(frame) == REFUSAL_MIN_BYTES
    assert is_refusal(frame)
    assert decode_refusal(frame) == RefusalFrame(INCARNATION, 7, reason)


def test_a_refusal_may_say_why_within_a_limit() -> None:
    frame = encode_refusal(INCARNATION, 7, RefusalReason.ENVELOPE, "a field is missing: açaí")
    assert is_refusal(frame)
    assert decode_refusal(frame).detail == "a field is missing: açaí"
    long = encode_refusal(INCARNATION, 7, RefusalReason.ENVELOPE, "é" * DETAIL_MAX_BYTES)
    assert is_refusal(long)
    assert decode_refusal(long).detail == "é" * (DETAIL_MAX_BYTES // 2)
    assert not is_refusal(long + b"x")
    assert (
        decode_refusal(encode_refusal(INCARNATION, 7, RefusalReason.BUSY, "\ud800")).detail == "?"
    )
    assert decode_refusal(encode_refusal(INCARNATION, 7, RefusalReason.BUSY) + b"\xff").detail == ""


def test_a_refusal_for_no_known_reason_is_none() -> None:
    with pytest.raises(InvalidFrameError, match="unknown reason"):
        decode_refusal(bytes(REFUSAL_MIN_BYTES))


def test_an_incarnation_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        FrameSigner(FrameAuthenticator(), b"short")
