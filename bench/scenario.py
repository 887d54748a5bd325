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
    users feel by themselves, such as the start, or that have to be enough for anybody, such as what an
    archive takes in a second.
    """

    TIMES_LESS = "times_less"
    TIMES_MORE = "times_more"
    SHARE_OF_PEER = "share_of_peer"
    AT_MOST = "at_most"
    AT_LEAST = "at_least"

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
            case Comparison.AT_LEAST:
                return "ratio = recado / peer_value; holds when recado >= aim"

    @property
    def is_limit(self) -> bool:
        """Of our own figure; no peer is needed."""
        return self in (Comparison.AT_MOST, Comparison.AT_LEAST)

    @property
    def is_of_rate(self) -> bool:
        return self in (Comparison.TIMES_MORE, Comparison.AT_LEAST)


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    unit: str
    comparison: Comparison
    full_only: bool = False  # the quick form has no time for it, unless it is asked for by name
    peer: str = ""  # who the peer is, where it is not the same in all scenarios
    note: str = ""  # what a reader of the figures has to know, such as what either side promises


def limit(name: str, title: str, unit: str) -> Scenario:
    """What must never be passed, whatever others do."""
    return Scenario(name, title, unit, Comparison.AT_MOST)


@dataclass(frozen=True)
class Sample:
    """One figure of one round, with whatever else was seen while it was taken."""

    value: float
    details: Mapping[str, float] = field(default_factory=dict)
