"""Run a benchmark and compare the results with its aims (aims.toml).

The exit status is 0 if every scenario was measured and every aim is met, otherwise 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

from bench import picture, report
from bench.aims import Result, judge, load_aims
from bench.book import Book
from bench.plan import FULL_ROUNDS, ROUNDS, Plan
from bench.scenario import Scenario

# Modules of this package, with - for _; each has the attributes of `Bench` below.
BENCHES = (
    "actors",
    "broker",
    "chat",
    "client",
    "crash",
    "durable",
    "fairness",
    "feeds",
    "feeds-siege",
    "feeds-sim",
    "fuzz",
    "management",
    "membership-sim",
    "migration",
    "overlay-scale",
    "overlay-sim",
    "patterns",
    "patterns-siege",
    "pipeline",
    "pipeline-crash",
    "population",
    "powerloss",
    "selector",
)

RESULTS = Path(__file__).with_name("results")


class Bench(Protocol):
    """The attributes of a benchmark module."""

    @property
    def SCENARIOS(self) -> Sequence[Scenario]: ...  # noqa: N802 (a module constant)

    @property
    def run(self) -> Callable[[Plan, Book], Iterator[str]]:
        """Take the samples; yield the name of each scenario when it is finished."""
        ...


@runtime_checkable
class Illustrated(Protocol):
    """A benchmark with tables and plots of its own instead of the chart."""

    @property
    def illustrate(self) -> Callable[[str, Sequence[Result], Plan, Path], list[Path]]:
        """Write them beside the JSON file; return their paths."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parse(arguments)
    bench: Bench = import_module(f"bench.{asked.bench.replace('-', '_')}")
    names = [scenario.name for scenario in bench.SCENARIOS]
    unknown = set(asked.only).difference(names)
    if unknown:
        print(
            f"unknown scenario: {', '.join(sorted(unknown))}; {asked.bench} has {', '.join(names)}"
        )
        return 2
    plan = Plan(
        quick=asked.quick,
        with_peer=asked.peer != "none",
        only=frozenset(asked.only),
        rounds=asked.rounds or (ROUNDS if asked.quick else FULL_ROUNDS),
        seed=asked.seed,
        seeds=asked.seeds,
    )
    book, results = measure(asked.bench, bench, plan)
    file = asked.json or RESULTS / f"{asked.bench}.json"
    write(asked.bench, bench, book.peer, results, plan, file)
    print(report.summary(asked.bench, results, plan))
    return 0 if results and all(result.passes for result in results) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short samples, about a minute; aims have a tolerance of 10 %%",
    )
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="where to write the results, and beside it the chart (default: bench/results/BENCH.json)",
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="SCENARIO",
        help="measure only this scenario; may be repeated",
    )
    parser.add_argument(
        "--peer",
        choices=["rabbitmq", "none"],
        default="rabbitmq",
        help="none: do not start the peer; aims that compare with it are then missed",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        help=f"samples per scenario (default: {FULL_ROUNDS}, with --quick {ROUNDS})",
    )
    parser.add_argument(
        "--seed", type=int, help="random seed, to repeat a run of a randomised benchmark"
    )
    parser.add_argument(
        "--seeds",
        type=seeds,
        metavar="A-B",
        help="range of seeds, for benchmarks that simulate one run per seed",
    )
    return parser.parse_args(arguments)


def seeds(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        found = range(int(first), int(last) + 1)
    except ValueError:
        found = range(0)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range A-B such as 1-1000")
    return found


def measure(name: str, bench: Bench, plan: Plan) -> tuple[Book, list[Result]]:
    """Run the benchmark, and print a line for each scenario as soon as it is finished."""
    aims = load_aims(name, bench.SCENARIOS)
    scenarios = {scenario.name: scenario for scenario in bench.SCENARIOS}
    book = Book()
    print(report.HEADING, flush=True)
    for finished in bench.run(plan, book):
        result = judge(scenarios[finished], aims.get(finished), book, plan)
        print(report.line(result), flush=True)
    chosen = [scenario for scenario in bench.SCENARIOS if plan.includes(scenario)]
    return book, [judge(scenario, aims.get(scenario.name), book, plan) for scenario in chosen]


def write(
    name: str, bench: Bench, peer: str, results: Sequence[Result], plan: Plan, file: Path
) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = report.as_json(name, peer, results, plan)
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    if isinstance(bench, Illustrated):
        drawings = bench.illustrate(peer, results, plan, file)
    else:
        drawings = [file.with_suffix(".png")]
        picture.draw(name, peer, results, plan, drawings[0])
    for text in report.notes(results):
        print(text)
    print(f"written: {', '.join(map(str, [file, *drawings]))}")


if __name__ == "__main__":
    sys.exit(main())
