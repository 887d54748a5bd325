"""docs/compatibility.md is what the last runs and the explanations say, and keeps people's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from suites import expectations, page, results
from suites.expectations import Expectation
from suites.results import Summary

STORE = {
    "kombu": {
        "recado": Summary("5.7.0", 3, 1, ["both"], ["choosy"]),
        "rabbitmq": Summary("5.7.0", 3, 1, ["both", "only|there"]),
    },
    "pika": {"rabbitmq": Summary("2126d43a76", 601, 600, ["lonely"])},
}
KNOWN = {"kombu": [Expectation("both", ("recado", "rabbitmq"), "an old test")]}


def test_figures_of_every_suite_run_or_not() -> None:
    text = page.render(STORE, KNOWN, "")
    assert (
        "| kombu's py-amqp transport tests | kombu 5.7.0 "
        "| 1 of 3 pass, 1 skipped by itself | 1 of 3 pass |" in text
    )
    assert "| pika's acceptance tests | commit 2126d43a76 | not run | 600 of 601 pass |" in text
    assert "| amqplib's tests (npm) |  | not run | not run |" in text


def test_tests_that_differ_are_named_with_their_reason_or_its_absence() -> None:
    text = page.render(STORE, KNOWN, "")
    assert "| kombu | `choosy` | skipped | passes | not explained yet |" in text
    assert "| kombu | `only\\|there` | passes | fails | not explained yet |" in text
    assert "| kombu | `both` | an old test |" in text
    assert "lonely" not in text, "nothing is compared with a run that did not take place"


def test_what_people_wrote_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "compatibility.md"
    file.write_text(page.render({}, {}, "our own words"))
    page.write(STORE, KNOWN, file)
    assert page.kept(file.read_text()) == "our own words"
    assert "1 of 3 pass" in file.read_text()


def test_a_page_without_its_marks_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "compatibility.md"
    file.write_text("all of it by hand")
    with pytest.raises(ValueError, match="lost the marks"):
        page.write(STORE, KNOWN, file)
    assert file.read_text() == "all of it by hand"


def test_the_page_in_the_repository_is_up_to_date() -> None:
    text = page.FILE.read_text()
    now = page.render(results.load(), expectations.load(), page.kept(text))
    assert text == now, "`./dev suites py-amqp` is a quick way to have it written"
