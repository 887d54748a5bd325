"""Scenarios: a name, a unit, and how the figure of recado is compared with that of the peer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Side(Enum):
    """The measured program."""

    RECADO = "recado"
    PEER = "peer"


class Comparison(Enum):
    """How two figures become a ratio, and in which direction an aim points.

    Less is better for all measured units (time, memory) except rates. Processor time is compared as "ten times
    less" and a rate as "ten times more", so these ratios grow with the advantage of recado; latency and memory
    are compared as a share of the peer's. A limit is for figures that matter by themselves, such as the
    start-up time, or the messages per second that an archive stores.
    """

    TIMES_LESS = "times_less"
    TIMES_MORE = "times_more"
    SHARE_OF_PEER = "share_of_peer"
    AT_MOST = "at_most"
    AT_LEAST = "at_least"

    @property
    def rule(self) -> str:
        """The explanation in the JSON file."""
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
        """Whether the aim is a limit of recado's own figure, for which no peer is needed."""
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
    full_only: bool = False  # too slow for the quick form, unless it is selected by --only
    peer: str = ""  # the peer, if it is not the same in all scenarios
    note: str = ""  # needed to interpret the figures, for instance the guarantees of both sides


def limit(name: str, title: str, unit: str) -> Scenario:
    """Return a scenario whose figure has an upper limit, without a peer."""
    return Scenario(name, title, unit, Comparison.AT_MOST)


@dataclass(frozen=True)
class Sample:
    """One figure of one round, with other figures measured at the same time."""

    value: float
    details: Mapping[str, float] = field(default_factory=dict)
