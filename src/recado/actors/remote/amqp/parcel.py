"""Frames that travel together, as one message of the broker.

    one       | frame |                                   it begins with its version
    several   | 2 u8 | size u32 | frame | size u32 | frame | …

What a broker and its clients do for a message takes them as long for one frame as for thirty. Eighty askers at
a time cost the broker 10 µs an ask where each frame is a message, and 6 where those of a turn share one.

PA1  What was wrapped comes out: the same frames in the same order.
PA2  A parcel has no more than TOGETHER frames and MOST bytes; what somebody else made and is not so is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from recado.actors.remote.faults import BadFrame
from recado.actors.remote.sealed.frame import REFUSAL, REFUSAL_SIZE, VERSION

PARCEL: Final = 2
assert PARCEL not in (REFUSAL, VERSION)

MOST: Final = 64 * 1024
"""Bytes. Larger frames gain nothing from travelling together."""

TOGETHER: Final = 32
"""Frames that are worth a message of their own. The broker and the other node begin with them while the rest is
still being made; with eighty askers at a time an ask takes a quarter less than with one write for each turn.
And so many, but no more, come to a node for each message that it lets the broker have under way."""

_SIZE: Final = 4
_START: Final = bytes([PARCEL])


def fitting(frames: Iterable[bytes]) -> list[bytes]:
    """The first of these, as many as fit into one message; one always does."""
    found: list[bytes] = []
    left = MOST - len(_START)
    for frame in islice(frames, TOGETHER):
        left -= _SIZE + len(frame)
        if found and left < 0:
            break
        found.append(frame)
    return found


def wrap(frames: Sequence[bytes]) -> bytes:
    """The body of a message."""
    if len(frames) == 1:
        return frames[0]
    parts = [_START]
    for frame in frames:
        parts += (len(frame).to_bytes(_SIZE), frame)
    return b"".join(parts)


def unwrap(body: bytes) -> list[bytes]:
    """The frames of a message. Raises BadFrame."""
    if body[:1] != _START:
        return [body]
    frames, at, end = [], len(_START), len(body)
    if end > MOST:
        raise BadFrame(f"a parcel of {end} bytes, more than {MOST}")
    while at < end:
        start = at + _SIZE
        size = int.from_bytes(body[at:start])
        at = start + size
        if size < REFUSAL_SIZE or at > end:
            raise BadFrame(
                f"a parcel with {size} bytes as a frame, {end - start} bytes before its end"
            )
        frames.append(body[start:at])
    if not 0 < len(frames) <= TOGETHER:
        raise BadFrame(f"a parcel of {len(frames)} frames")
    return frames
