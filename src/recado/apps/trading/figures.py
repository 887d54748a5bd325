"""The figures of a run: asks per second, the distribution of their times, and the duration."""

from __future__ import annotations

from enum import Enum

import msgspec


class TransportKind(Enum):
    """TCP is point to point, AMQP goes through a broker."""

    TCP = "tcp"
    AMQP = "amqp"


class Figures(msgspec.Struct, frozen=True):
    """A line of the tables. Times of an ask are in µs; `seconds` is the duration of the run."""

    rate: float
    mean: float
    p25: float
    p50: float
    p75: float
    p95: float
    seconds: float

    def percent_above(self, other: Figures) -> Figures:
        """Return by how many percent each figure exceeds that of `other`."""
        mine, theirs = msgspec.structs.astuple(self), msgspec.structs.astuple(other)
        return Figures(*(100 * (a / b - 1) for a, b in zip(mine, theirs, strict=True)))
