"""The feeds simulation as a benchmark: how its work is shared out, resumed, and how its figures are made.

The worlds themselves are run by tests/feeds/sim, where the judge has its tests too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import feeds_sim
from bench.aims import load_aims
from bench.book import Book
from bench.feeds_sim import work
from bench.feeds_sim.record import Record
from bench.feeds_sim.verdict import Rule
from bench.feeds_sim.work import Tally
from bench.pair import Job, Pair
from bench.plan import Plan
from bench.scenario import Side


def test_everything_has_an_aim_of_none() -> None:
    aims = load_aims("feeds-sim", feeds_sim.SCENARIOS)
    assert aims == dict.fromkeys([each.name for each in feeds_sim.SCENARIOS], 0)


def test_one_violation_is_one_in_every_round() -> None:
    tally = Tally(worlds=5, violations=Counter({Rule.GAP: 1}), faults=2)
    book = Book()
    feeds_sim.enter(tally, Plan(rounds=3), book)
    assert [each.value for each in book.samples("gap", Side.RECADO)] == [1, 1, 1]
    assert [each.value for each in book.samples("faults", Side.RECADO)] == [2, 2, 2]
    assert [each.value for each in book.samples("fifo", Side.RECADO)] == [0, 0, 0]
    assert book.samples("fifo", Side.RECADO)[0].details["worlds"] == 5


class Doubles(Pair[Tally]):
    """Both processes are this one."""

    def __init__(self, second: Tally | None = None) -> None:
        self._second = second

    def both(self, job: Job[Tally]) -> tuple[Tally, Tally]:
        return job(), self._second or job()

    def once(self, jobs: Iterator[Job[Tally]]) -> Iterator[Tally]:
        return (job() for job in jobs)


def test_what_differs_between_two_processes_is_a_stray() -> None:
    pair = Doubles(Tally(worlds=2, traces={1: "the same", 2: "another"}))
    tally = feeds_sim.twice(pair, lambda: Tally(worlds=2, traces={1: "the same", 2: "one"}))
    assert tally.strays == 1
    assert tally.problems == ["python -m bench.feeds_sim 2: differs when it is repeated"]


@pytest.mark.parametrize("quick", [False, True])
def test_a_small_run(quick: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(feeds_sim, "AT_A_TIME", 1)
    record = Record(tmp_path / "clean.json", "these")
    plan = Plan(quick=quick, seeds=range(1, 4))
    tally = feeds_sim.rounds(plan, record)
    assert tally.worlds == 3
    assert tally.problems == []
    assert tally.counts["delivered"] > 0
    if not quick:
        assert record.clean == [range(1, 4)]
        again = feeds_sim.rounds(plan, Record(tmp_path / "clean.json", "these"))
        assert (again.worlds, again.known) == (0, 3)


def test_seeds_with_a_problem_are_not_entered_as_clean(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def worlds(seeds: range) -> Tally:
        return Tally(worlds=len(seeds), problems=["it is lost"] if 5 in seeds else [])

    monkeypatch.setattr(feeds_sim, "AT_A_TIME", 2)
    monkeypatch.setattr(work, "worlds", worlds)
    record = Record(tmp_path / "clean.json", "these")
    tallies = list(feeds_sim.full(Doubles(), range(1, 10), record))
    assert sum(tally.worlds for tally in tallies) == 9
    assert record.clean == [range(1, 5), range(7, 10)]


def test_the_command_takes_a_range_of_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.parse(["feeds-sim", "--seeds", "5-9"]).seeds == range(5, 10)
    for wrong in ("5", "9-5", "a-b", ""):
        with pytest.raises(SystemExit):
            command.parse(["feeds-sim", "--seeds", wrong])
        assert "is not a range A-B such as 1-1000" in capsys.readouterr().err
