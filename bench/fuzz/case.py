"""One case: the bytes that a hostile client sends, how it splits them, and how it disconnects.

Made from a seed and a number alone, so that any case of any run can be reproduced.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Final

from bench.fuzz import handshakes
from bench.fuzz.conversation import conversation
from bench.fuzz.mutation import mutate

PAUSE: Final = 0.001  # seconds between the pieces of a client that dribbles
DRIBBLED: Final = 400  # bytes; a slow client is slow at the end, so that the rest is processed


class Ending(Enum):
    """How a client leaves after its last byte."""

    FINISH = "sends EOF, and waits for the broker to close"
    RESET = "is gone at once, whatever was on its way"
    STALL = "stays connected silently for a while"


@dataclass(frozen=True)
class Case:
    number: int
    frames: list[bytes]
    mutations: list[str]
    pieces: list[bytes]
    """The same bytes as they are written, in pieces."""
    pause: float
    ending: Ending

    def __str__(self) -> str:
        return f"case {self.number} ({', '.join(self.mutations) or 'not mutated'})"


def make(seed: int, number: int) -> Case:
    rng = Random(f"{seed}/{number}")
    if rng.random() < 0.15:
        frames = handshakes.refused(rng)
        mutations = mutate(rng, frames, rng.choice((0, 1, 2)))
    elif rng.random() < 0.15:
        user = "argon" if rng.random() < 0.05 else "fuzz"
        frames = handshakes.log_in(rng, user)
        mutations = mutate(rng, frames, rng.choice((1, 2, 3)))
        frames += conversation(rng)[:10]
    else:
        said = conversation(rng)
        mutations = mutate(rng, said, rng.choice((1, 1, 2, 3, 6)))
        frames = handshakes.log_in(rng) + said
    pieces, pause = cut(rng, b"".join(frames))
    ending = rng.choices(list(Ending), weights=(80, 15, 5))[0]
    return Case(number, frames, mutations, pieces, pause, ending)


def cut(rng: Random, data: bytes) -> tuple[list[bytes], float]:
    """In one piece, in several at any places, or drop by drop in the end."""
    manner = rng.random()
    if manner < 0.6:
        return [data], 0.0
    if manner < 0.95:
        places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 8)))
        pairs = zip([0, *places], [*places, len(data)], strict=True)
        return [data[start:end] for start, end in pairs if start < end], 0.0
    start = max(len(data) - DRIBBLED, 0)
    step = rng.choice((1, 2, 5))
    drops = [data[at : at + step] for at in range(start, len(data), step)]
    return [data[:start], *drops] if start else drops, PAUSE
