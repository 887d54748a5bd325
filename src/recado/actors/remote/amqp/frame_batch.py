"""Frames that travel together, as one message of the broker.

    one       | frame |                                   it begins with its version
    several   | 2 u8 | how many u8 | size u32 | size u32 | … | frame | frame | …

What a broker and its clients do for a message takes them as long for one frame as for thirty. Eighty askers at
a time cost the broker 10 µs an ask where each frame is a message, and 5 where those of a turn share one.

PA1  What was wrapped comes out: the same frames in the same order.
PA2  A parcel has no more than TOGETHER frames and MOST bytes; what somebody else made and is not so is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from struct import Struct
from typing import Final

from recado.actors.remote.errors import InvalidFrameError
from recado.actors.remote.wire.frame import FRAME_VERSION, REFUSAL_MIN_BYTES, REFUSAL_TYPE

BATCH_TYPE: Final = 2
assert BATCH_TYPE not in (REFUSAL_TYPE, FRAME_VERSION)

BATCH_MAX_BYTES: Final = 64 * 1024
"""Bytes. Larger frames gain nothing from travelling together."""

BATCH_MAX_FRAMES: Final = 40
"""Frames that are worth a message of their own. The broker and the other node begin with them while the rest is
still being made; with eighty askers at a time an ask takes a quarter less than with one write for each turn.
And so many, but no more, come to a node for each message that it lets the broker have under way."""

_BATCH_PREFIX: Final = bytes([BATCH_TYPE])
_BATCH_HEADERS: Final = [Struct(f">BB{count}I") for count in range(BATCH_MAX_FRAMES + 1)]
"""Of a parcel of so many frames."""


def fit_batch(frames: Sequence[bytes]) -> tuple[int, int]:
    """How many of these fit into one message, from the first on, and their size; one always does."""
    count = min(len(frames), BATCH_MAX_FRAMES)
    size = sum(map(len, frames[:count]))
    while size + _BATCH_HEADERS[count].size > BATCH_MAX_BYTES and count > 1:
        count -= 1
        size -= len(frames[count])
    return count, size


def encode_batch(frames: Sequence[bytes]) -> bytes:
    """The body of a message."""
    if len(frames) == 1:
        return frames[0]
    count = len(frames)
    return b"".join((_BATCH_HEADERS[count].pack(BATCH_TYPE, count, *map(len, frames)), *frames))


def decode_batch(body: bytes) -> list[bytes]:
    """The frames of a message. Raises BadFrame."""
    if body[:1] != _BATCH_PREFIX:
        return [body]
    size = len(body)
    if size > BATCH_MAX_BYTES:
        raise InvalidFrameError(f"a parcel of {size} bytes, more than {BATCH_MAX_BYTES}")
    count = body[1] if size > 1 else 0
    if not 0 < count <= BATCH_MAX_FRAMES:
        raise InvalidFrameError(f"a parcel of {count} frames")
    header = _BATCH_HEADERS[count]
    if size < header.size:
        raise InvalidFrameError(f"a parcel of {count} frames that ends behind {size} bytes")
    _, _, *sizes = header.unpack_from(body)
    if header.size + sum(sizes) != size or min(sizes) < REFUSAL_MIN_BYTES:
        raise InvalidFrameError(f"a parcel of {size} bytes with frames of {sizes}")
    ends = accumulate(sizes, initial=header.size)
    return [body[start:end] for start, end in pairwise(ends)]
