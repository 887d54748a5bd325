"""The output of a benchmark: a line for each scenario, the summary line, the JSON file."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.aims import Result
from bench.plan import Plan
from bench.scenario import Comparison, Sample, Side

Json = dict[str, Any]

HEADING = (
    f"{'scenario':44} {'unit':15} {'recado':>9} {'peer':>9} {'ratio':>8} {'aim':>10}"
    f"   {'detail':>8} {'of peer':>9}"
)


def line(result: Result) -> str:
    """Return one row of the table that is printed while the benchmark runs."""
    scenario = result.scenario
    row = f"{title(result):44} {scenario.unit:15}"
    row += f" {number(result.recado):>9} {number(result.peer_value):>9}"
    row += f" {ratio_text(result):>8} {aim_text(result):>10}"
    if result.not_measured:
        return f"{row}   NOT MEASURED: {result.not_measured}"
    row += f"   {secondary(result, Side.RECADO):>8} {secondary(result, Side.PEER):>9}"
    return f"{row}{'   MISSED' if result.holds is False else ''}".rstrip()


def title(result: Result) -> str:
    """Return the title; with the size at which it was measured, if the quick form stops at a smaller one."""
    counts = detail(result.samples[Side.RECADO], "taken_at")
    if not counts:
        return result.scenario.title
    return f"{result.scenario.title} (at {median(counts):,.0f})"


def summary(bench: str, results: Sequence[Result], plan: Plan) -> str:
    """Return the summary line: whether the aims are met, and the figures that decide it."""
    with_aims = [result for result in results if result.aim is not None]
    held = sum(result.holds is True for result in with_aims)
    verdict = f"{held} of {len(with_aims)} aims met"
    if plan.tolerance:
        verdict += f" (within {plan.tolerance:.0%})"
    unmeasured = [result.scenario.name for result in results if result.not_measured]
    if unmeasured:
        verdict += f", not measured: {', '.join(unmeasured)}"
    outcome = "passed" if all(result.passes for result in results) else "FAILED"
    figures = " · ".join(f"{r.scenario.name} {decisive(r)} ({aim_text(r)})" for r in with_aims)
    return f"{bench} {outcome}: {verdict} | {figures or 'no aims among these scenarios'}"


def decisive(result: Result) -> str:
    """Return the figure that the aim is about."""
    if result.not_measured:
        return "not measured"
    if result.scenario.comparison.is_limit:
        return f"{number(result.recado)} {result.scenario.unit}"
    return ratio_text(result)


def ratio_text(result: Result) -> str:
    return "–" if result.ratio is None else f"{significant(result.ratio)}×"


def aim_text(result: Result) -> str:
    if result.aim is None:
        return ""
    match result.scenario.comparison:
        case Comparison.TIMES_LESS | Comparison.TIMES_MORE:
            return f"≥ {result.aim:g}×"
        case Comparison.SHARE_OF_PEER:
            return f"≤ {result.aim:g}×"
        case Comparison.AT_MOST:
            return f"≤ {result.aim:g} {result.scenario.unit}"
        case Comparison.AT_LEAST:
            return f"≥ {result.aim:,.0f}"


def number(value: float | None) -> str:
    return "–" if value is None else significant(value)


def significant(value: float) -> str:
    """Format a number with about three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def secondary(result: Result, side: Side) -> str:
    """Return the rate; the processor time per message if the figure itself is a rate."""
    of_rate = result.scenario.comparison.is_of_rate
    values = detail(result.samples[side], "cpu_us" if of_rate else "rate")
    if not values:
        return ""
    middle = median(values)
    return f"{significant(middle)} µs" if of_rate else f"{middle / 1e3:.1f} k/s"


def detail(samples: Sequence[Sample], key: str) -> list[float]:
    return [sample.details[key] for sample in samples if key in sample.details]


def generator_note(results: Sequence[Result]) -> str:
    """Return how busy the load generator was: close to 100 % it is the bottleneck itself."""
    shares = [
        (share, result.scenario.title)
        for result in results
        for side in Side
        for share in detail(result.samples[side], "generator_share")
    ]
    if not shares:
        return ""
    share, title = max(shares)
    return f"the load generator used at most {share:.0%} of a core ({title})"


def notes(results: Sequence[Result]) -> list[str]:
    """Return the notes of the scenarios, each once."""
    texts = [result.scenario.note for result in results]
    return [text for text in dict.fromkeys([*texts, generator_note(results)]) if text]


def as_json(bench: str, peer: str, results: Sequence[Result], plan: Plan) -> Json:
    return {
        "bench": bench,
        "form": "quick" if plan.quick else "full",
        "commit": commit(),
        "machine": machine(),
        "scenarios": [scenario_json(result, peer) for result in results],
    }


def scenario_json(result: Result, peer: str) -> Json:
    return {
        "name": result.scenario.name,
        "unit": result.scenario.unit,
        "recado": result.recado,
        "peer": result.scenario.peer or peer,
        "peer_value": result.peer_value,
        "ratio": result.ratio,
        "aim": result.aim,
        "holds": result.holds,
        "rule": result.scenario.comparison.rule,
        "not_measured": result.not_measured,
        **({"note": result.scenario.note} if result.scenario.note else {}),
        "samples": {side.value: samples_json(result.samples, side) for side in Side},
    }


def samples_json(samples: Mapping[Side, Sequence[Sample]], side: Side) -> list[Json]:
    return [{"value": sample.value, **sample.details} for sample in samples[side]]


def commit() -> str:
    """Return the commit, marked as dirty if the tree differs from it; "unknown" without git."""
    try:
        asked = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        folder = Path(__file__).parent
        answer = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()


def machine() -> Json:
    return {
        "processor": processor_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def processor_name() -> str:
    """Read it from /proc, because platform.processor() is empty on Linux."""
    for text in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = text.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.machine()
