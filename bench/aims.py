"""The aims of the benchmarks, and how results are judged by them.

They are in `aims.toml`, with one table for each scenario. The key of an aim repeats how the scenario is
compared, so that the file can be read by itself, and a contradiction is an error.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.book import Book
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Scenario, Side

AIMS = Path(__file__).with_name("aims.toml")


class InvalidAimError(ValueError):
    """aims.toml names an unknown scenario, or an aim that does not fit its comparison."""


@dataclass(frozen=True)
class Result:
    """The result of a scenario. `holds` is None if it has no aim."""

    scenario: Scenario
    recado: float | None
    peer_value: float | None
    ratio: float | None
    aim: float | None
    holds: bool | None
    samples: Mapping[Side, Sequence[Sample]]
    not_measured: str | None = None

    @property
    def passes(self) -> bool:
        """Whether the scenario was measured, and its aim is met if it has one."""
        return self.not_measured is None and self.holds is not False


def load_aims(bench: str, scenarios: Sequence[Scenario], file: Path = AIMS) -> dict[str, float]:
    """Return the aims of one benchmark, by the names of its scenarios. Raises InvalidAimError."""
    by_name = {scenario.name: scenario for scenario in scenarios}
    aims = {}
    for name, table in tomllib.loads(file.read_text()).get(bench, {}).items():
        if name not in by_name:
            raise InvalidAimError(f"{file.name}: {bench} has no scenario {name!r}")
        key = by_name[name].comparison.value
        if list(table) != [key]:
            raise InvalidAimError(f"{file.name}: the only key of {bench}.{name} must be {key!r}")
        aims[name] = float(table[key])
    return aims


def judge(scenario: Scenario, aim: float | None, book: Book, plan: Plan) -> Result:
    """Return the medians of both sides, their ratio, and whether the aim is met."""
    samples = {side: book.samples(scenario.name, side) for side in Side}
    recado = figure(samples[Side.RECADO])
    peer = figure(samples[Side.PEER])
    ratio = ratio_of(scenario.comparison, recado, peer)
    missing = book.failure(scenario.name) or describe_missing(scenario.comparison, samples, plan)
    holds = None
    if aim is not None:
        reached = reaches(scenario.comparison, aim, recado, ratio, plan.tolerance)
        holds = reached and missing is None
    return Result(scenario, recado, peer, ratio, aim, holds, samples, missing)


def figure(samples: Sequence[Sample]) -> float | None:
    return median(sample.value for sample in samples) if samples else None


def ratio_of(comparison: Comparison, recado: float | None, peer: float | None) -> float | None:
    if recado is None or peer is None:
        return None
    over, under = (peer, recado) if comparison is Comparison.TIMES_LESS else (recado, peer)
    return over / under if under > 0 else None


def describe_missing(
    comparison: Comparison, samples: Mapping[Side, Sequence[Sample]], plan: Plan
) -> str | None:
    """Return why the samples are not sufficient; None if they are."""
    needed = [Side.RECADO]
    if not comparison.is_limit:
        needed.append(Side.PEER)
    for side in needed:
        taken = len(samples[side])
        if taken < plan.rounds:
            return f"{taken} of {plan.rounds} rounds of {side.value}"
    return None


def reaches(
    comparison: Comparison, aim: float, recado: float | None, ratio: float | None, tolerance: float
) -> bool:
    """Whether the aim is met, with a tolerance."""
    value = recado if comparison.is_limit else ratio
    if value is None:
        return False
    if comparison.is_of_rate or comparison is Comparison.TIMES_LESS:
        return value >= aim * (1 - tolerance)
    return value <= aim * (1 + tolerance)
