"""Frame batches: decoding reverses encoding, and invalid batches are rejected cheaply."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.amqp.frame_batch import (
    BATCH_MAX_BYTES,
    MAX_BATCH_FRAMES,
    decode_batch,
    encode_batch,
    fit_batch,
)
from recado.actors.remote.errors import InvalidFrameError
from recado.actors.remote.wire.frame import (
    FRAME_VERSION,
    REFUSAL_MIN_BYTES,
    FrameAuthenticator,
    FrameSigner,
)

FRAME = st.binary(min_size=REFUSAL_MIN_BYTES, max_size=300).map(
    lambda rest: bytes([FRAME_VERSION]) + rest
)


@given(st.lists(FRAME, min_size=1, max_size=MAX_BATCH_FRAMES))
def test_what_was_wrapped_comes_out(frames: list[bytes]) -> None:
    body = encode_batch(frames)
    assert decode_batch(body) == frames
    assert (body == frames[0]) is (len(frames) == 1)


def test_a_sealed_frame_is_no_parcel() -> None:
    sealed = FrameSigner(FrameAuthenticator("cookie"), bytes(16)).sign(b"envelope")
    assert decode_batch(sealed) == [sealed]


SIZE = st.integers(REFUSAL_MIN_BYTES, 100) | st.integers(REFUSAL_MIN_BYTES, BATCH_MAX_BYTES)


@given(st.lists(SIZE, min_size=1, max_size=2 * MAX_BATCH_FRAMES))
def test_as_many_as_fit(sizes: list[int]) -> None:
    frames = [bytes(size) for size in sizes]
    count, size = fit_batch(frames)
    assert size == sum(sizes[:count])
    assert 1 <= count <= MAX_BATCH_FRAMES
    assert count == 1 or len(encode_batch(frames[:count])) <= BATCH_MAX_BYTES
    if count < min(len(frames), MAX_BATCH_FRAMES):
        assert len(encode_batch(frames[: count + 1])) > BATCH_MAX_BYTES


@given(st.binary(max_size=400))
def test_whatever_comes_comes_apart_or_is_refused(rest: bytes) -> None:
    body = b"\x02" + rest
    try:
        frames = decode_batch(body)
    except InvalidFrameError:
        return
    assert 1 + sum(4 + len(frame) for frame in frames) == len(rest)
    assert all(len(frame) >= REFUSAL_MIN_BYTES for frame in frames)


@given(st.lists(FRAME, min_size=2, max_size=5), st.data())
def test_one_that_is_cut_is_refused(frames: list[bytes], data: st.DataObject) -> None:
    body = encode_batch(frames)
    cut = data.draw(st.integers(1, len(body) - 1))
    with pytest.raises(InvalidFrameError):
        decode_batch(body[:cut])


def test_more_than_a_parcel_may_have_is_refused() -> None:
    small, large = bytes(REFUSAL_MIN_BYTES), bytes(BATCH_MAX_BYTES // 2 - 5)
    for frames in ([small] * MAX_BATCH_FRAMES, [large, large]):
        assert decode_batch(encode_batch(frames)) == frames
    many = MAX_BATCH_FRAMES + 1
    with pytest.raises(InvalidFrameError, match=f"{many} frames"):
        decode_batch(pack(f">BB{many}I", 2, many, *[REFUSAL_MIN_BYTES] * many) + small * many)
    with pytest.raises(InvalidFrameError, match="more than"):
        decode_batch(encode_batch([large, large, small]))


def test_one_without_a_frame_is_refused() -> None:
    for body in (b"\x02", b"\x02\x00", b"\x02\x00\x00\x00\x00\x01"):
        with pytest.raises(InvalidFrameError, match="0 frames"):
            decode_batch(body)
