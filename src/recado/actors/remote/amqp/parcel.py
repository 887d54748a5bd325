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

from recado.actors.remote.faults import BadFrame
from recado.actors.remote.sealed.frame import REFUSAL, REFUSAL_SIZE, VERSION

PARCEL: Final = 2
assert PARCEL not in (REFUSAL, VERSION)

MOST: Final = 64 * 1024
"""Bytes. Larger frames gain nothing from travelling together."""

TOGETHER: Final = 40
"""Frames that are worth a message of their own. The broker and the other node begin with them while the rest is
still being made; with eighty askers at a time an ask takes a quarter less than with one write for each turn.
And so many, but no more, come to a node for each message that it lets the broker have under way."""

_START: Final = bytes([PARCEL])
_HEADS: Final = [Struct(f">BB{count}I") for count in range(TOGETHER + 1)]
"""Of a parcel of so many frames."""


def fitting(frames: Sequence[bytes]) -> tuple[int, int]:
    """How many of these fit into one message, from the first on, and their size; one always does."""
    count = min(len(frames), TOGETHER)
    size = sum(map(len, frames[:count]))
    while size + _HEADS[count].size > MOST and count > 1:
        count -= 1
        size -= len(frames[count])
    return count, size


def wrap(frames: Sequence[bytes]) -> bytes:
    """The body of a message."""
    if len(frames) == 1:
        return frames[0]
    count = len(frames)
    return b"".join((_HEADS[count].pack(PARCEL, count, *map(len, frames)), *frames))


def unwrap(body: bytes) -> list[bytes]:
    """The frames of a message. Raises BadFrame."""
    if body[:1] != _START:
        return [body]
    size = len(body)
    if size > MOST:
        raise BadFrame(f"a parcel of {size} bytes, more than {MOST}")
    count = body[1] if size > 1 else 0
    if not 0 < count <= TOGETHER:
        raise BadFrame(f"a parcel of {count} frames")
    head = _HEADS[count]
    if size < head.size:
        raise BadFrame(f"a parcel of {count} frames that ends behind {size} bytes")
    _, _, *sizes = head.unpack_from(body)
    if head.size + sum(sizes) != size or min(sizes) < REFUSAL_SIZE:
        raise BadFrame(f"a parcel of {size} bytes with frames of {sizes}")
    ends = accumulate(sizes, initial=head.size)
    return [body[start:end] for start, end in pairwise(ends)]
