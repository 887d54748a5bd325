"""What the command line asked for, and how much time is left for it."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from bench.scenario import Scenario

# Fewer rounds than this are no median; a scenario with fewer samples counts as not measured.
ROUNDS = 3
FULL_ROUNDS = 5  # the median of three is off by a tenth on a machine that is shared

# The quick form promises a minute. What can be scaled is scaled to end a little earlier, because
# one slow start of the peer must not break the promise.
QUICK_SECONDS = 50.0
QUICK_TOLERANCE = 0.10


@dataclass(frozen=True)
class Plan:
    quick: bool = False
    with_peer: bool = True
    only: frozenset[str] = frozenset()
    rounds: int = ROUNDS
    seed: int | None = None
    seeds: range | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def tolerance(self) -> float:
        """How far an aim may be missed: short samples are noisier than long ones."""
        return QUICK_TOLERANCE if self.quick else 0.0

    def wants(self, *names: str) -> bool:
        """Whether any of these scenarios was asked for."""
        return not self.only or not self.only.isdisjoint(names)

    def includes(self, scenario: Scenario) -> bool:
        """Whether this one was asked for, by name or as part of this form."""
        if self.only:
            return scenario.name in self.only
        return not (self.quick and scenario.full_only)

    def told_seed(self) -> int:
        """The one that was asked for, else one by chance; it is told, so that it can be asked for again."""
        seed = secrets.randbits(32) if self.seed is None else self.seed
        print(f"seed {seed}", flush=True)
        return seed

    def seconds_left(self) -> float:
        """Of the quick form's minute."""
        return self.started + QUICK_SECONDS - time.monotonic()
