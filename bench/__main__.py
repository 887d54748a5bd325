"""The command line of the benchmarks: `python -m bench NAME [--quick] [--json FILE]`.

Exit status 0 only when every scenario was measured and every aim holds.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from bench import picture, report
from bench.aims import Result, judge, load_aims
from bench.book import Book
from bench.plan import FULL_ROUNDS, ROUNDS, Plan
from bench.scenario import Scenario

# Each is a module of this package, with _ for -; a new one is named here, and has the two attributes below.
BENCHES = (
    "actors",
    "broker",
    "client",
    "crash",
    "durable",
    "fairness",
    "feeds",
    "feeds-siege",
    "feeds-sim",
    "fuzz",
    "pipeline",
    "pipeline-crash",
    "powerloss",
    "selector",
)

RESULTS = Path(__file__).with_name("results")


class Bench(Protocol):
    """What a module must offer to be a benchmark."""

    @property
    def SCENARIOS(self) -> Sequence[Scenario]: ...  # noqa: N802 (it is a module's constant)

    @property
    def run(self) -> Callable[[Plan, Book], Iterator[str]]:
        """Takes the samples; yields the name of each scenario when it is finished."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    asked = parse(arguments)
    bench: Bench = import_module(f"bench.{asked.bench.replace('-', '_')}")
    names = [scenario.name for scenario in bench.SCENARIOS]
    unknown = set(asked.only).difference(names)
    if unknown:
        print(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(names)}")
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
    write(asked.bench, book.peer, results, plan, file)
    print(report.summary(asked.bench, results, plan))
    return 0 if results and all(result.passes for result in results) else 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument("--quick", action="store_true", help="within a minute, 10 %% tolerance")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the picture goes beside it")
    parser.add_argument(
        "--only", action="append", default=[], metavar="SCENARIO", help="may be repeated"
    )
    parser.add_argument(
        "--peer",
        choices=["rabbitmq", "none"],
        default="rabbitmq",
        help="without a peer no aim that compares can hold",
    )
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS} quick, else {FULL_ROUNDS}")
    parser.add_argument("--seed", type=int, help="repeats a run, where chance plays a part in it")
    parser.add_argument(
        "--seeds", type=seeds, metavar="A-B", help="which worlds, where each is decided by a seed"
    )
    return parser.parse_args(arguments)


def seeds(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        found = range(int(first), int(last) + 1)
    except ValueError:
        found = range(0)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not A-B, such as 1-1000")
    return found


def measure(name: str, bench: Bench, plan: Plan) -> tuple[Book, list[Result]]:
    """Runs the benchmark, with a line for each scenario as soon as it is finished."""
    aims = load_aims(name, bench.SCENARIOS)
    scenarios = {scenario.name: scenario for scenario in bench.SCENARIOS}
    book = Book()
    print(report.HEADING, flush=True)
    for finished in bench.run(plan, book):
        result = judge(scenarios[finished], aims.get(finished), book, plan)
        print(report.line(result), flush=True)
    chosen = [scenario for scenario in bench.SCENARIOS if plan.includes(scenario)]
    return book, [judge(scenario, aims.get(scenario.name), book, plan) for scenario in chosen]


def write(name: str, peer: str, results: Sequence[Result], plan: Plan, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    content = report.as_json(name, peer, results, plan)
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    drawing = file.with_suffix(".png")
    picture.draw(name, peer, results, plan, drawing)
    for text in report.notes(results):
        print(text)
    print(f"written: {file} and {drawing}")


if __name__ == "__main__":
    sys.exit(main())
