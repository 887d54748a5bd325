"""The figures of a run: how many asks in a second, how long they took, how long all of them did."""

from __future__ import annotations

from enum import Enum

import msgspec


class TransportKind(Enum):
    """Point to point, or through a broker."""

    TCP = "tcp"
    AMQP = "amqp"


class Figures(msgspec.Struct, frozen=True):
    """A line of the tables. Times of an ask are in µs; `seconds` is how long all asks took together."""

    rate: float
    mean: float
    p25: float
    p50: float
    p75: float
    p95: float
    seconds: float

    def percent_above(self, other: Figures) -> Figures:
        """How much more these are than others, in percent."""
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Figures(*(100 * (a / b - 1) for a, b in zip(mine, theirs, strict=True)))
