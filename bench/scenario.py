"""What a scenario is: a name, a unit, and how recado's figure is compared with the peer's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Side(Enum):
    """Whose figure a sample is."""

    RECADO = "recado"
    PEER = "peer"


class Comparison(Enum):
    """How two figures become a ratio, and which way an aim points.

    Less is better in every unit that we measure (time, memory), except for rates. Processor time
    is told as "ten times less" and a rate as "ten times more", so their ratio grows with our
    advantage; latency and memory are told as a share of the peer's. A limit is for figures that
    users feel by themselves, such as the start.
    """

    TIMES_LESS = "times_less"
    TIMES_MORE = "times_more"
    SHARE_OF_PEER = "share_of_peer"
    AT_MOST = "at_most"

    @property
    def rule(self) -> str:
        """The sentence that the JSON carries, so that nobody has to guess the direction."""
        match self:
            case Comparison.TIMES_LESS:
                return "ratio = peer_value / recado; holds when ratio >= aim"
            case Comparison.TIMES_MORE:
                return "ratio = recado / peer_value; holds when ratio >= aim"
            case Comparison.SHARE_OF_PEER:
                return "ratio = recado / peer_value; holds when ratio <= aim"
            case Comparison.AT_MOST:
                return "ratio = recado / peer_value; holds when recado <= aim"


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    unit: str
    comparison: Comparison
    full_only: bool = False  # the quick form has no time for it, unless it is asked for by name


@dataclass(frozen=True)
class Sample:
    """One figure of one round, with whatever else was seen while it was taken."""

    value: float
    details: Mapping[str, float] = field(default_factory=dict)
