"""What we know of single tests: which fail on which broker, and why.

Written by hand in expectations.toml. Three things are worth a developer's attention: a failure
that is not written there, a test written there that passes by now, and a test that was not run
though it was on RabbitMQ.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from suites.results import Case, Outcome, Summary

FILE = Path(__file__).parent / "expectations.toml"


@dataclass(frozen=True)
class Expectation:
    """A test that fails on `fails_on` for a known reason."""

    test: str
    fails_on: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Verdict:
    """How a run compares with what we expected of it."""

    surprises: list[Case]
    passing: list[Expectation]
    skipped: list[Case]
    missing: int = 0
    """Tests that the suite has, and did not collect."""

    @property
    def holds(self) -> bool:
        return not (self.surprises or self.passing or self.skipped or self.missing)

    def lines(self) -> list[str]:
        """For a person: one line for each test that is not as expected."""
        lines = [f"fails: {case.test}\n    {indented(case.message)}" for case in self.surprises]
        lines += [
            f"passes, though expectations.toml says that it fails: {known.test}"
            for known in self.passing
        ]
        lines += [
            f"skipped, though not on RabbitMQ: {case.test}\n    {indented(case.message)}"
            for case in self.skipped
        ]
        if self.missing:
            lines.append(f"not collected, though on RabbitMQ: {self.missing} tests")
        return lines


def indented(message: str) -> str:
    return "\n    ".join(message.strip().splitlines()[:12])


def load(text: str | None = None) -> dict[str, list[Expectation]]:
    """By suite."""
    entries = tomllib.loads(FILE.read_text() if text is None else text)
    return {
        suite: [
            Expectation(each["test"], tuple(each["fails_on"]), " ".join(each["reason"].split()))
            for each in listed
        ]
        for suite, listed in entries.items()
    }


def judge(
    cases: Mapping[str, Case],
    known: Iterable[Expectation],
    broker: str,
    model: Summary | None = None,
) -> Verdict:
    """What of this run is news; `model` is the same release of the suite on RabbitMQ."""
    concerned = [each for each in known if broker in each.fails_on]
    expected = {each.test for each in concerned}
    failed = [case for case in cases.values() if case.outcome is Outcome.FAILED]
    passed = {case.test for case in cases.values() if case.outcome is Outcome.PASSED}
    skipped = [case for case in cases.values() if case.outcome is Outcome.SKIPPED]
    return Verdict(
        surprises=[case for case in failed if case.test not in expected],
        passing=[each for each in concerned if each.test in passed],
        skipped=[]
        if model is None
        else [each for each in skipped if each.test not in model.skipped],
        missing=0 if model is None else max(model.total - len(cases), 0),
    )
