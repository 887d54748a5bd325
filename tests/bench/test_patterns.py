"""The benchmark of patterns: its programs have no deadline, but their progress has one."""

from __future__ import annotations

import sys

import pytest

from bench import patterns
from bench.aims import load_aims
from bench.book import NotMeasuredError
from bench.patterns import harness_runs
from bench.patterns.program import COUNTS, PROGRESS_COUNT
from workshop.peers import Server

RUNS = """
import json
print(json.dumps({"progress": 0.5, "errors": ["one run failed"]}))
print(json.dumps({"failed": 1}))
"""


def test_figures_follow_lines_of_progress(capsys: pytest.CaptureFixture[str]) -> None:
    assert patterns.run_with_progress("runs", [sys.executable, "-c", RUNS]) == {"failed": 1}
    assert "one run failed" in capsys.readouterr().err


def test_a_program_that_fails_is_not_measured() -> None:
    with pytest.raises(NotMeasuredError, match="runs: no figures"):
        patterns.run_with_progress("runs", [sys.executable, "-c", "raise SystemExit('no figures')"])


def test_a_test_of_the_harness_that_fails_is_counted() -> None:
    def fail() -> None:
        raise AssertionError("not settled")

    assert harness_runs.run(lambda: None) == ""
    assert "not settled" in harness_runs.run(fail)


def test_a_program_publishes_and_handles(recado_server: Server) -> None:
    found = patterns.run_program("recado", "handle", recado_server.url, 300)
    assert found["cpu"] > 0
    assert "grown_bytes" in found


def test_the_aims_belong_to_scenarios() -> None:
    aims = load_aims("patterns", patterns.SCENARIOS)
    assert aims["handle-faststream"] == aims["request-faststream"] == 3
    assert max(COUNTS.values()) < PROGRESS_COUNT, "a comparison is not interrupted"
