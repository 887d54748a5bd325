"""Reading what the suites report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suites import results
from suites.results import Case, Outcome, Summary, merged, read_junit, read_lines, summary

JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite>
<testcase classname="t.integration.test_rmq.test_operations" name="test_get[plain]" />
<testcase classname="t.integration.test_rmq" name="test_connect">
  <failure message="refused">a traceback</failure></testcase>
<testcase classname="t.integration.test_rmq" name="test_broken_fixture">
  <error message="no fixture">a traceback</error></testcase>
<testcase classname="t.integration.test_rmq" name="test_another_day">
  <skipped message="not today" /></testcase>
</testsuite></testsuites>
"""


def test_junit_names_are_short_and_outcomes_are_told_apart() -> None:
    assert read_junit(JUNIT, "t/integration") == [
        Case("test_rmq.test_operations::test_get[plain]", Outcome.PASSED),
        Case("test_rmq::test_connect", Outcome.FAILED, "refused"),
        Case("test_rmq::test_broken_fixture", Outcome.FAILED, "no fixture"),
        Case("test_rmq::test_another_day", Outcome.SKIPPED, "not today"),
    ]


def test_lines_of_node_become_cases_and_equal_names_are_numbered() -> None:
    entries = [
        {"names": ["Connect", "refused"], "outcome": "pass", "message": ""},
        {"names": ["Connect", "refused"], "outcome": "fail", "message": "no"},
        {"names": ["later"], "outcome": "skipped", "message": ""},
    ]
    text = "\n".join(json.dumps(entry) for entry in entries)
    assert read_lines(text, "connect.test.js") == [
        Case("connect.test.js::Connect > refused", Outcome.PASSED),
        Case("connect.test.js::Connect > refused (2)", Outcome.FAILED, "no"),
        Case("connect.test.js::later", Outcome.SKIPPED),
    ]


@pytest.mark.parametrize("outcomes", [(0, 1), (1, 0)])
def test_the_worst_report_of_a_test_counts(outcomes: tuple[int, int]) -> None:
    both = (Case("t", Outcome.PASSED), Case("t", Outcome.FAILED, "its clean-up"))
    assert merged(both[at] for at in outcomes) == {"t": both[1]}


def test_a_summary_counts_all_and_names_what_did_not_pass() -> None:
    cases = merged(read_junit(JUNIT, "t/integration"))
    assert summary("5.4.2", cases) == Summary(
        version="5.4.2",
        total=4,
        passed=1,
        failed=["test_rmq::test_broken_fixture", "test_rmq::test_connect"],
        skipped=["test_rmq::test_another_day"],
    )


def test_summaries_survive_being_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FILE", tmp_path / "results.json")
    assert results.load() == {}
    store = {"kombu": {"recado": Summary("5.7.0", 3, 1, ["a"], ["b"])}}
    results.save(store)
    assert results.load() == store
