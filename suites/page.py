"""docs/compatibility.md: the figures of the last runs, and every test that is worth a word.

The part between the two marks of `BY_HAND` is written by people and kept as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from suites.catalogue import SUITES, Distribution, Repository, Suite
from suites.expectations import Expectation
from suites.places import ROOT
from suites.results import Store, Summary

FILE = ROOT / "docs" / "compatibility.md"
BY_HAND = ("<!-- written by hand: from here -->", "<!-- written by hand: to here -->")
BROKERS = {"recado": "recado", "rabbitmq": "RabbitMQ 3.10"}

OPENING = """\
# Compatibility

The results of the test suites of seven client projects on recado and on Debian's RabbitMQ 3.10.
`./dev suites` downloads and runs them and generates this page, except for the section on differences
by design.

## The client projects' own suites

`./dev test` always runs those of py-amqp and kombu on recado. A suite that has not been run on a
broker shows "not run"; below the table is how to get it.
"""

GETTING = """\
The first five come as source distributions from the package index. pika and amqplib keep their
tests in their repositories, which `./dev suites` clones. If the network does not allow that, pass an
existing clone with `--checkout DIR` or in the variable {variables}.
"""


def render(store: Store, known: Mapping[str, Sequence[Expectation]], by_hand: str) -> str:
    """The whole page."""
    repositories = [
        suite.source for suite in SUITES.values() if isinstance(suite.source, Repository)
    ]
    variables = " or ".join(dict.fromkeys(f"`{each.variable}`" for each in repositories))
    parts = [
        OPENING,
        table(
            ["suite", "version", *BROKERS.values()],
            [figures(suite, store.get(suite.name, {})) for suite in SUITES.values()],
        ),
        GETTING.format(variables=variables),
        "## Tests that differ between the two\n",
        differing(store, known),
        "## Tests that pass on neither\n",
        failing_on_both(store, known),
        "## Tests that are not run\n",
        table(
            ["suite", "test", "why"],
            [
                [suite.name, f"`{test}`", why]
                for suite in SUITES.values()
                for test, why in (suite.left_out or {}).items()
            ],
        ),
        "## Differences by design\n",
        f"{BY_HAND[0]}\n\n{by_hand}\n\n{BY_HAND[1]}\n",
    ]
    return "\n".join(parts)


def figures(suite: Suite, runs: Mapping[str, Summary]) -> list[str]:
    versions = sorted({run.version for run in runs.values()})
    match suite.source:
        case Distribution(package):
            label = package
        case Repository():
            label = "commit"
    named = f"{label} {' and '.join(versions)}" if versions else ""
    return [suite.title, named, *(figure(runs.get(broker)) for broker in BROKERS)]


def figure(run: Summary | None) -> str:
    if run is None:
        return "not run"
    skipped = f", {len(run.skipped)} skipped by itself" if run.skipped else ""
    return f"{run.passed} of {run.total} pass{skipped}"


def differing(store: Store, known: Mapping[str, Sequence[Expectation]]) -> str:
    rows = []
    for name, runs in by_catalogue(store):
        if not BROKERS.keys() <= runs.keys():
            continue
        tests = {test for run in runs.values() for test in (*run.failed, *run.skipped)}
        for test in sorted(tests):
            outcomes = [outcome(test, runs[broker]) for broker in BROKERS]
            if len(set(outcomes)) > 1:
                rows.append([name, f"`{test}`", *outcomes, reason(test, known.get(name, ()))])
    if not rows:
        return "None.\n"
    return table(["suite", "test", *BROKERS.values(), "why"], rows)


def failing_on_both(store: Store, known: Mapping[str, Sequence[Expectation]]) -> str:
    rows = [
        [name, f"`{test}`", reason(test, known.get(name, ()))]
        for name, runs in by_catalogue(store)
        if BROKERS.keys() <= runs.keys()
        for test in sorted(set.intersection(*(set(run.failed) for run in runs.values())))
    ]
    return table(["suite", "test", "why"], rows) if rows else "None.\n"


def by_catalogue(store: Store) -> list[tuple[str, Mapping[str, Summary]]]:
    return [(name, store[name]) for name in SUITES if name in store]


def outcome(test: str, run: Summary) -> str:
    if test in run.failed:
        return "fails"
    return "skipped" if test in run.skipped else "passes"


def reason(test: str, known: Sequence[Expectation]) -> str:
    return next((each.reason for each in known if each.test == test), "not explained yet")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def kept(text: str) -> str:
    """What people wrote between the marks of an existing page."""
    _, found, rest = text.partition(BY_HAND[0])
    inner, closed, _ = rest.partition(BY_HAND[1])
    if not (found and closed):
        raise ValueError(
            f"{FILE.name} has lost the marks around the section that is written by hand"
        )
    return inner.strip("\n")


def write(store: Store, known: Mapping[str, Sequence[Expectation]], file: Path = FILE) -> None:
    """Write the page again, with what people wrote in it."""
    file.write_text(render(store, known, kept(file.read_text())))
