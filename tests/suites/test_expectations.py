"""What a run is compared with, and which of its outcomes are news."""

from __future__ import annotations

from dataclasses import replace

from suites import expectations, results
from suites.catalogue import SUITES
from suites.expectations import Expectation, judge
from suites.results import Case, Outcome, Summary
from suites.running import BROKERS

KNOWN = [
    Expectation("on both", ("rabbitmq", "recado"), "an old test"),
    Expectation("on rabbitmq", ("rabbitmq",), "fixed in recado"),
]


def cases(**outcomes: Outcome) -> dict[str, Case]:
    named = {name.replace("_", " "): outcome for name, outcome in outcomes.items()}
    return {name: Case(name, outcome, "because") for name, outcome in named.items()}


def test_a_run_as_expected_holds() -> None:
    run = cases(on_both=Outcome.FAILED, on_rabbitmq=Outcome.PASSED, another=Outcome.SKIPPED)
    assert judge(run, KNOWN, "recado").holds


def test_an_unknown_failure_is_a_surprise() -> None:
    run = cases(on_both=Outcome.FAILED, on_rabbitmq=Outcome.FAILED)
    verdict = judge(run, KNOWN, "recado")
    assert not verdict.holds
    assert verdict.lines() == ["fails: on rabbitmq\n    because"]


def test_a_known_failure_that_passes_is_told_too() -> None:
    verdict = judge(cases(on_both=Outcome.PASSED), KNOWN, "recado")
    assert not verdict.holds
    assert verdict.lines() == ["passes, though expectations.toml says that it fails: on both"]


def test_what_is_skipped_or_missing_is_told_if_it_was_not_on_rabbitmq() -> None:
    model = Summary("1.0", total=3, passed=1, skipped=["nowhere"])
    run = cases(nowhere=Outcome.SKIPPED, another=Outcome.PASSED)
    verdict = judge(run, [], "recado", model)
    assert not verdict.holds
    assert verdict.lines() == ["not collected, though on RabbitMQ: 1 tests"]
    verdict = judge(run | cases(here=Outcome.SKIPPED), [], "recado", model)
    assert not verdict.holds
    assert verdict.lines() == ["skipped, though not on RabbitMQ: here\n    because"]
    assert judge(run | cases(here=Outcome.PASSED), [], "recado", model).holds


def test_a_run_is_compared_with_the_same_release_on_rabbitmq() -> None:
    for suite, brokers in results.load().items():
        summary = brokers["recado"]
        assert results.model_for(suite, summary, "recado") == brokers["rabbitmq"]
        assert results.model_for(suite, summary, "rabbitmq") is None
        assert results.model_for(suite, replace(summary, version="another"), "recado") is None
    assert results.model_for("of nobody", Summary("1.0", 1, 1), "recado") is None


def test_entries_are_read_by_suite_and_their_reasons_made_one_line() -> None:
    text = '[[kombu]]\ntest = "t"\nfails_on = ["recado"]\nreason = """\nfor\nreasons"""\n'
    assert expectations.load(text) == {"kombu": [Expectation("t", ("recado",), "for reasons")]}


def test_the_file_speaks_of_suites_and_brokers_that_exist() -> None:
    for suite, listed in expectations.load().items():
        assert suite in SUITES
        for each in listed:
            assert each.fails_on, each.test
            assert set(each.fails_on) <= BROKERS.keys(), each.test
            assert each.reason, each.test
