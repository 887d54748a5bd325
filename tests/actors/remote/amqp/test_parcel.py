"""Parcels: what goes in comes out, and what is none costs no more than its bytes."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.actors.remote.amqp.parcel import MOST, TOGETHER, fitting, unwrap, wrap
from recado.actors.remote.faults import BadFrame
from recado.actors.remote.sealed.frame import REFUSAL_SIZE, VERSION, Seal, Sealer

FRAME = st.binary(min_size=REFUSAL_SIZE, max_size=300).map(lambda rest: bytes([VERSION]) + rest)


@given(st.lists(FRAME, min_size=1, max_size=TOGETHER))
def test_what_was_wrapped_comes_out(frames: list[bytes]) -> None:
    body = wrap(frames)
    assert unwrap(body) == frames
    assert (body == frames[0]) is (len(frames) == 1)


def test_a_sealed_frame_is_no_parcel() -> None:
    sealed = Sealer(Seal("cookie"), bytes(16)).seal(b"envelope")
    assert unwrap(sealed) == [sealed]


SIZE = st.integers(REFUSAL_SIZE, 100) | st.integers(REFUSAL_SIZE, MOST)


@given(st.lists(SIZE, min_size=1, max_size=2 * TOGETHER))
def test_as_many_as_fit(sizes: list[int]) -> None:
    frames = [bytes(size) for size in sizes]
    count, size = fitting(frames)
    assert size == sum(sizes[:count])
    assert 1 <= count <= TOGETHER
    assert count == 1 or len(wrap(frames[:count])) <= MOST
    if count < min(len(frames), TOGETHER):
        assert len(wrap(frames[: count + 1])) > MOST


@given(st.binary(max_size=400))
def test_whatever_comes_comes_apart_or_is_refused(rest: bytes) -> None:
    body = b"\x02" + rest
    try:
        frames = unwrap(body)
    except BadFrame:
        return
    assert 1 + sum(4 + len(frame) for frame in frames) == len(rest)
    assert all(len(frame) >= REFUSAL_SIZE for frame in frames)


@given(st.lists(FRAME, min_size=2, max_size=5), st.data())
def test_one_that_is_cut_is_refused(frames: list[bytes], data: st.DataObject) -> None:
    body = wrap(frames)
    cut = data.draw(st.integers(1, len(body) - 1))
    with pytest.raises(BadFrame):
        unwrap(body[:cut])


def test_more_than_a_parcel_may_have_is_refused() -> None:
    small, large = bytes(REFUSAL_SIZE), bytes(MOST // 2 - 5)
    for frames in ([small] * TOGETHER, [large, large]):
        assert unwrap(wrap(frames)) == frames
    many = TOGETHER + 1
    with pytest.raises(BadFrame, match=f"{many} frames"):
        unwrap(pack(f">BB{many}I", 2, many, *[REFUSAL_SIZE] * many) + small * many)
    with pytest.raises(BadFrame, match="more than"):
        unwrap(wrap([large, large, small]))


def test_one_without_a_frame_is_refused() -> None:
    for body in (b"\x02", b"\x02\x00", b"\x02\x00\x00\x00\x00\x01"):
        with pytest.raises(BadFrame, match="0 frames"):
            unwrap(body)
