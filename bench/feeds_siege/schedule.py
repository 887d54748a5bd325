"""The schedule of faults: which program is killed, stopped or cut off, when, and for how long. Pure, seeded.

Faults of single programs begin at random. Sometimes there is a blackout, in which all archives are down for
longer than members wait for a gap to be filled (`FeedOptions.gap_timeout`, 10 s), and most other programs are
killed or cut off for a moment meanwhile: no member can then send them the messages that they missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Final


class FaultKind(Enum):
    KILL = "kill"
    """kill -9; the fault ends when the program is started again."""
    STOP = "stop"
    """SIGSTOP; the fault ends with SIGCONT."""
    CUT = "cut"
    """All connections are closed and new ones refused; on UDP all packets are lost."""


KIND_WEIGHTS: Final = {FaultKind.KILL: 5, FaultKind.STOP: 3, FaultKind.CUT: 2}
LONG_AWAY_SHARE: Final = 0.25


@dataclass(frozen=True)
class Intensity:
    """How often faults begin and how long they last, in seconds."""

    interval: float
    stop: tuple[float, float]
    cut: tuple[float, float]
    away: tuple[float, float]
    """A killed program is started again so soon, usually,"""
    long_away: tuple[float, float]
    """and sometimes only then."""
    blackout_interval: float = float("inf")
    blackout: tuple[float, float] = (0.0, 0.0)
    moment: tuple[float, float] = (0.2, 1.0)
    """How long other programs are down in a blackout."""


FULL: Final = Intensity(
    interval=1.5,
    stop=(2.0, 30.0),
    cut=(0.1, 15.0),
    away=(0.0, 1.5),
    long_away=(1.5, 25.0),
    blackout_interval=60.0,
    blackout=(12.0, 20.0),
)
QUICK: Final = Intensity(
    interval=0.5, stop=(0.5, 4.0), cut=(0.1, 2.0), away=(0.0, 0.8), long_away=(0.8, 3.0)
)


@dataclass(frozen=True)
class Fault:
    at: float
    target: str
    kind: FaultKind
    seconds: float

    @property
    def end(self) -> float:
        return self.at + self.seconds


class Schedule:
    """Faults by their target; those of one target do not overlap."""

    def __init__(self, rng: Random, intensity: Intensity) -> None:
        self._rng = rng
        self._intensity = intensity
        self._faults: dict[str, list[Fault]] = {}

    def in_order(self) -> list[Fault]:
        every = [fault for faults in self._faults.values() for fault in faults]
        return sorted(every, key=lambda fault: fault.at)

    def add(self, fault: Fault) -> None:
        """Unless its target has another one at that time."""
        faults = self._faults.setdefault(fault.target, [])
        if not faults or faults[-1].end <= fault.at:
            faults.append(fault)

    def add_any(self, target: str, at: float) -> None:
        (kind,) = self._rng.choices(list(KIND_WEIGHTS), list(KIND_WEIGHTS.values()))
        bounds = {
            FaultKind.KILL: self._intensity.away,
            FaultKind.STOP: self._intensity.stop,
            FaultKind.CUT: self._intensity.cut,
        }[kind]
        if kind is FaultKind.KILL and self._rng.random() < LONG_AWAY_SHARE:
            bounds = self._intensity.long_away
        self.add(Fault(at, target, kind, self._rng.uniform(*bounds)))

    def add_blackout(self, archives: Sequence[str], others: Sequence[str], at: float) -> None:
        seconds = self._rng.uniform(*self._intensity.blackout)
        for name in archives:
            faults = self._faults.setdefault(name, [])
            if faults and at < faults[-1].end < at + seconds:
                faults[-1] = replace(faults[-1], seconds=at + seconds - faults[-1].at)
            self.add(Fault(at, name, self._rng.choice([FaultKind.KILL, FaultKind.STOP]), seconds))
        spread = self._rng.choice(
            [0.0, seconds / 4]
        )  # at the same time: no member has the messages that they miss
        begun = at + self._rng.uniform(0, seconds / 4)
        for name in others:
            kind = self._rng.choice([FaultKind.KILL, FaultKind.CUT])
            away = self._rng.uniform(*self._intensity.moment)
            self.add(Fault(begun + self._rng.uniform(0, spread), name, kind, away))


def make_schedule(
    seed: int,
    seconds: float,
    weights: Mapping[str, float],
    archives: Sequence[str],
    intensity: Intensity,
) -> list[Fault]:
    """Return the faults within `seconds`, in order. `weights` are the relative frequencies of the programs."""
    rng = Random(seed)
    schedule = Schedule(rng, intensity)
    others = [name for name in weights if name not in archives]
    at, blackout_at = 0.0, intensity.blackout_interval / 2
    while (at := at + rng.expovariate(1 / intensity.interval)) < seconds:
        if at >= blackout_at:
            schedule.add_blackout(archives, others, at)
            blackout_at += intensity.blackout_interval
        (target,) = rng.choices(list(weights), list(weights.values()))
        schedule.add_any(target, at)
    return [fault for fault in schedule.in_order() if fault.at < seconds]
