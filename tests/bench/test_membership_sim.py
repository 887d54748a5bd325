"""The benchmark around the simulation of membership; tests/overlay/membership_sim tests the simulation."""

from __future__ import annotations

import pytest

from bench import membership_sim
from bench.aims import load_aims
from bench.book import Book
from bench.membership_sim import worlds
from bench.plan import Plan
from bench.scenario import Side


def test_every_scenario_has_an_aim() -> None:
    aims = load_aims("membership-sim", membership_sim.SCENARIOS)
    assert set(aims) == {scenario.name for scenario in membership_sim.SCENARIOS}


def test_worlds_are_run_in_two_processes_and_counted() -> None:
    book = Book()
    names = list(membership_sim.run(Plan(seeds=range(16, 18), rounds=1), book))
    assert names == [scenario.name for scenario in membership_sim.SCENARIOS]
    values = {name: book.samples(name, Side.RECADO)[0] for name in names}
    assert values["violations"].value == values["stray"].value == 0
    assert values["violations"].details["worlds"] == 2


def test_a_violation_is_reported_with_the_command_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.membership_sim.judge.SENT_AT_REST", 0)
    tally = worlds(range(16, 17))
    assert tally.problems[0].startswith("python -m bench.membership_sim 16: traffic")
