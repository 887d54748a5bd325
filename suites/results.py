"""What a suite said: an outcome per test, read from JUnit's XML or from our reporter for Node.

A summary of the last run of each suite on each broker is kept in results.json, so that a run of
one suite does not take the others out of the page.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

FILE = Path(__file__).parent / "results.json"


class Outcome(StrEnum):
    """How a test ended. The order is that of weight: the worst of several counts."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"


WEIGHT = {outcome: weight for weight, outcome in enumerate(Outcome)}


@dataclass(frozen=True)
class Case:
    """One test as the suite reported it."""

    test: str
    outcome: Outcome
    message: str = ""


@dataclass(frozen=True)
class Summary:
    """One run of one suite on one broker."""

    version: str
    total: int
    passed: int
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def summary(version: str, cases: Mapping[str, Case]) -> Summary:
    named: dict[Outcome, list[str]] = {outcome: [] for outcome in Outcome}
    for case in cases.values():
        named[case.outcome].append(case.test)
    return Summary(
        version=version,
        total=len(cases),
        passed=len(named[Outcome.PASSED]),
        failed=sorted(named[Outcome.FAILED]),
        skipped=sorted(named[Outcome.SKIPPED]),
    )


def merged(cases: Iterable[Case]) -> dict[str, Case]:
    """By name; pytest reports a test again when its clean-up fails."""
    found: dict[str, Case] = {}
    for case in cases:
        known = found.get(case.test)
        if known is None or WEIGHT[case.outcome] > WEIGHT[known.outcome]:
            found[case.test] = case
    return found


def read_junit(text: str, prefix: str) -> list[Case]:
    """The tests of a JUnit file as pytest writes it; `prefix` is the folder not worth repeating."""
    cases = []
    for element in ElementTree.fromstring(text).iter("testcase"):
        place = element.get("classname", "").removeprefix(prefix.replace("/", ".") + ".")
        test = f"{place}::{element.get('name', '')}"
        outcome, message = Outcome.PASSED, ""
        for child in element:
            if child.tag in ("failure", "error"):
                outcome, message = Outcome.FAILED, child.get("message", "")
            elif child.tag == "skipped" and outcome is Outcome.PASSED:
                outcome, message = Outcome.SKIPPED, child.get("message", "")
        cases.append(Case(test, outcome, message))
    return cases


OF_NODE = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skipped": Outcome.SKIPPED}


def read_lines(text: str, file: str) -> list[Case]:
    """The tests of a file as plugins/lines_reporter.cjs writes them; equal names are numbered."""
    cases: list[Case] = []
    seen: dict[str, int] = {}
    for line in text.splitlines():
        entry = json.loads(line)
        test = f"{file}::{' > '.join(entry['names'])}"
        seen[test] = seen.get(test, 0) + 1
        if seen[test] > 1:
            test = f"{test} ({seen[test]})"
        cases.append(Case(test, OF_NODE[entry["outcome"]], entry["message"]))
    return cases


Store = dict[str, dict[str, Summary]]


def load() -> Store:
    """The last runs: by suite, then by broker."""
    if not FILE.exists():
        return {}
    return {
        suite: {broker: Summary(**entry) for broker, entry in brokers.items()}
        for suite, brokers in json.loads(FILE.read_text()).items()
    }


def model_for(suite: str, run: Summary, broker: str) -> Summary | None:
    """What a run is compared with: RabbitMQ's of the same release, if there is one and it is another."""
    model = load().get(suite, {}).get("rabbitmq")
    is_model = model is not None and broker != "rabbitmq" and model.version == run.version
    return model if is_model else None


def save(store: Store) -> None:
    plain = {
        suite: {broker: asdict(entry) for broker, entry in sorted(brokers.items())}
        for suite, brokers in sorted(store.items())
    }
    FILE.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
