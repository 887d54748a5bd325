"""The schedule of faults: which program is killed, stopped or cut off, when, and for how long. Pure, seeded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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


FULL: Final = Intensity(
    interval=1.5, stop=(2.0, 30.0), cut=(0.1, 15.0), away=(0.0, 1.5), long_away=(1.5, 25.0)
)
"""The longest faults exceed the time after which a member gives up a gap (`Options.patience`, 10 s)."""
QUICK: Final = Intensity(
    interval=0.5, stop=(0.5, 4.0), cut=(0.1, 2.0), away=(0.0, 0.8), long_away=(0.8, 3.0)
)
LONG_AWAY_SHARE: Final = 0.25


@dataclass(frozen=True)
class Fault:
    at: float
    target: str
    kind: FaultKind
    seconds: float

    @property
    def end(self) -> float:
        return self.at + self.seconds


def make_schedule(
    seed: int,
    seconds: float,
    targets: Mapping[tuple[str, ...], float],
    intensity: Intensity,
) -> list[Fault]:
    """Faults of `targets` within `seconds`, in order; those of one program do not overlap.

    A target is one program, or several that a fault happens to at the same time, and has a weight.
    """
    rng = Random(seed)
    busy = {name: 0.0 for names in targets for name in names}
    found: list[Fault] = []
    at = 0.0
    while (at := at + rng.expovariate(1 / intensity.interval)) < seconds:
        (names,) = rng.choices(list(targets), list(targets.values()))
        (kind,) = rng.choices(list(KIND_WEIGHTS), list(KIND_WEIGHTS.values()))
        long_away = rng.random() < LONG_AWAY_SHARE
        lasts = {
            FaultKind.KILL: intensity.long_away if long_away else intensity.away,
            FaultKind.STOP: intensity.stop,
            FaultKind.CUT: intensity.cut,
        }[kind]
        fault_s = rng.uniform(*lasts)
        for name in names:
            if busy[name] <= at:
                busy[name] = at + fault_s
                found.append(Fault(at, name, kind, fault_s))
    return found
