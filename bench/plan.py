"""The options of a run, and the time that is left for it."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field

from bench.scenario import Scenario

# The median needs at least this many; a scenario with fewer samples counts as not measured.
ROUNDS = 3
FULL_ROUNDS = 5  # on a shared machine the median of three deviates by 10 %

# The quick form should take a minute. Scalable samples are shortened to end a little earlier, because the peer
# may start slowly.
QUICK_S = 50.0
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
        """The relative tolerance of aims: short samples are noisier than long ones."""
        return QUICK_TOLERANCE if self.quick else 0.0

    def wants(self, *names: str) -> bool:
        """Whether any of these scenarios is selected."""
        return not self.only or not self.only.isdisjoint(names)

    def includes(self, scenario: Scenario) -> bool:
        """Whether this scenario is selected, by name or as part of the quick or full form."""
        if self.only:
            return scenario.name in self.only
        return not (self.quick and scenario.full_only)

    def choose_seed(self) -> int:
        """Return the seed of --seed, otherwise a random one, and print it, so that the run can be repeated."""
        seed = secrets.randbits(32) if self.seed is None else self.seed
        print(f"seed {seed}", flush=True)
        return seed

    def seconds_left(self) -> float:
        """Return the seconds left of the quick form."""
        return self.started + QUICK_S - time.monotonic()
