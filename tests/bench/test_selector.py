"""The benchmark of selectors, on few texts and for a moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.aims import judge, load_aims
from bench.book import Book
from bench.plan import Plan
from bench.scenario import Side
from bench.selector import SCENARIOS, fuzz, rate, run
from bench.selector.texts import try_one

ROOT = Path(__file__).resolve().parents[2]


def test_it_measures_all_that_has_an_aim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate, "SECONDS", 0.01)
    monkeypatch.setattr(fuzz, "COUNT", 90)
    plan, book = Plan(seed=1), Book()
    names = list(run(plan, book))
    assert names == [scenario.name for scenario in SCENARIOS]
    aims = load_aims("selector", SCENARIOS)
    results = {each.name: judge(each, aims.get(each.name), book, plan) for each in SCENARIOS}
    assert not [result.not_measured for result in results.values() if result.not_measured]
    assert results["faults"].recado == 0
    assert book.samples("faults", Side.RECADO)[0].details["taken_at"] == 93


def test_both_sides_want_the_same() -> None:
    from recado.selector import compile_predicate, parse

    for subject in rate.SUBJECTS:
        wants, peer = compile_predicate(parse(subject.selector)), rate.peer_of(subject.peer)
        answers = [wants(message) for message in rate.messages()]
        assert answers == [bool(peer(rate.values_of(message))) for message in rate.messages()]
        assert 0 < sum(answers) < len(answers)


def test_a_text_is_shown_again() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "bench.selector", "1", "5"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert shown.stdout.startswith(repr(fuzz.make(1, 5)))


def test_faults_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A room that fails would be noticed."""
    monkeypatch.setattr("bench.selector.texts.parse", lambda text: 1 / 0)
    outcome = try_one("TRUE")
    assert outcome.fault == "ZeroDivisionError: division by zero"
    assert fuzz.lap(Plan(), 1, 0, 3).faults == 3
    assert "FAULT 1 0" in capsys.readouterr().err
