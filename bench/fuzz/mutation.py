"""Mutations of frames: each takes a list of frames and changes it.

The first element of a list may be the protocol header, which is not a frame; mutations that need a frame skip
it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from recado.amqp.frames import FRAME_END, FRAME_START, PROTOCOL_HEADER

Frames = list[bytes]
Mutation = Callable[[Random, Frames], None]

SIZES: Final = (0, 1, 7, 4088, 4089, 8185, 131_064, 131_065, 2**31 - 1, 2**31, 2**32 - 1)


def is_frame(frame: bytes) -> bool:
    return len(frame) > FRAME_START.size and frame != PROTOCOL_HEADER


def some_frame(rng: Random, frames: Frames) -> int | None:
    """Return the index of a random frame."""
    places = [place for place, frame in enumerate(frames) if is_frame(frame)]
    return rng.choice(places) if places else None


# ── within a frame ──────────────────────────────────────────────────────────────────────────────


def flip_bits(rng: Random, frames: Frames) -> None:
    place = rng.randrange(len(frames))
    frame = bytearray(frames[place])
    for _ in range(rng.choice((1, 1, 2, 8))):
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    frames[place] = bytes(frame)


def flip_payload(rng: Random, frames: Frames) -> None:
    """Only where it means something: the envelope stays whole."""
    place = some_frame(rng, frames)
    if place is not None and len(frames[place]) > 8:
        frame = bytearray(frames[place])
        for _ in range(rng.choice((1, 1, 2, 4))):
            frame[rng.randrange(7, len(frame) - 1)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        frames[place] = bytes(frame)


def spoil_text(rng: Random, frames: Frames) -> None:
    """Replace letters by bytes that are not UTF-8."""
    place = some_frame(rng, frames)
    if place is not None:
        letter = rng.choice((b"f", b"a", b"t", b"x"))
        frames[place] = frames[place].replace(letter, rng.choice((b"\xff", b"\xc0", b"\0")), 3)


def resize_payload(rng: Random, frames: Frames) -> None:
    """More or less than the method needs, in an envelope that fits."""
    place = some_frame(rng, frames)
    if place is not None:
        kind, channel, _ = FRAME_START.unpack_from(frames[place])
        payload = frames[place][7:-1]
        if rng.random() < 0.5:
            payload = payload[: rng.randrange(len(payload) + 1)]
        else:
            payload += rng.randbytes(rng.choice((1, 4, 100)))
        frames[place] = FRAME_START.pack(kind, channel, len(payload)) + payload + FRAME_END


def lie_about_size(rng: Random, frames: Frames) -> None:
    place = some_frame(rng, frames)
    if place is not None:
        kind, channel, size = FRAME_START.unpack_from(frames[place])
        told = rng.choice((*SIZES, size + 1, max(size - 1, 0)))
        frames[place] = FRAME_START.pack(kind, channel, told) + frames[place][7:]


def lie_within(rng: Random, frames: Frames) -> None:
    """A length somewhere in the payload becomes another: of a string, a table, a body."""
    place = some_frame(rng, frames)
    if place is not None and len(frames[place]) > 16:
        frame = bytearray(frames[place])
        at = rng.randrange(7, len(frame) - 5)
        frame[at : at + 4] = rng.choice((*SIZES, len(frame))).to_bytes(4, "big")
        frames[place] = bytes(frame)


def enlarge(rng: Random, frames: Frames) -> None:
    """A frame that is larger than was agreed upon, and whole."""
    place = some_frame(rng, frames)
    if place is not None:
        kind, channel, _ = FRAME_START.unpack_from(frames[place])
        payload = frames[place][7:-1].ljust(rng.choice((4089, 9000, 140_000)), b"\0")
        frames[place] = FRAME_START.pack(kind, channel, len(payload)) + payload + FRAME_END


def change_channel(rng: Random, frames: Frames) -> None:
    place = some_frame(rng, frames)
    if place is not None:
        channel = rng.choice((0, 1, 2, 3, 2047, 2048, 65535)).to_bytes(2, "big")
        frames[place] = frames[place][:1] + channel + frames[place][3:]


def change_kind(rng: Random, frames: Frames) -> None:
    place = some_frame(rng, frames)
    if place is not None:
        frames[place] = bytes((rng.choice((0, 1, 2, 3, 4, 8, 65, 255)),)) + frames[place][1:]


# ── among frames ────────────────────────────────────────────────────────────────────────────────


def truncate(rng: Random, frames: Frames) -> None:
    """Remove the end of a frame; the receiver takes the following bytes for the rest of it."""
    place = rng.randrange(len(frames))
    frames[place] = frames[place][: rng.randrange(len(frames[place]))] or b"\0"


def drop(rng: Random, frames: Frames) -> None:
    if len(frames) > 1:
        del frames[rng.randrange(len(frames))]


def duplicate(rng: Random, frames: Frames) -> None:
    place = rng.randrange(len(frames))
    frames[place:place] = [frames[place]] * rng.choice((1, 1, 2, 20))


def swap(rng: Random, frames: Frames) -> None:
    one, other = rng.randrange(len(frames)), rng.randrange(len(frames))
    frames[one], frames[other] = frames[other], frames[one]


def move(rng: Random, frames: Frames) -> None:
    frame = frames.pop(rng.randrange(len(frames)))
    frames.insert(rng.randrange(len(frames) + 1), frame)


def insert_noise(rng: Random, frames: Frames) -> None:
    frames.insert(rng.randrange(len(frames) + 1), rng.randbytes(rng.choice((1, 8, 300))))


def begin_again(rng: Random, frames: Frames) -> None:
    """A second protocol header, in the middle of things."""
    frames.insert(rng.randrange(len(frames) + 1), PROTOCOL_HEADER)


def stop_short(rng: Random, frames: Frames) -> None:
    """End the input with half a frame."""
    del frames[rng.randrange(len(frames)) + 1 :]
    frames[-1] = frames[-1][: rng.randrange(len(frames[-1]))] or b"\1"


MUTATIONS: Final[tuple[Mutation, ...]] = (
    flip_bits,
    flip_payload,
    flip_payload,
    flip_payload,
    spoil_text,
    spoil_text,
    resize_payload,
    lie_about_size,
    lie_within,
    lie_within,
    enlarge,
    change_channel,
    change_channel,
    change_kind,
    truncate,
    drop,
    drop,
    duplicate,
    duplicate,
    swap,
    swap,
    move,
    move,
    insert_noise,
    begin_again,
    stop_short,
)


def mutate(rng: Random, frames: Frames, times: int) -> list[str]:
    """Apply so many mutations in place; return their names."""
    chosen = rng.choices(MUTATIONS, k=times)
    for mutation in chosen:
        mutation(rng, frames)
    return [mutation.__name__ for mutation in chosen]
