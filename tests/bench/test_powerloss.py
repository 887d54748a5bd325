"""The power-loss benchmark: how its work is shared out, and how its figures are made.

The eras themselves are run by tests/server/store/test_power_loss.py, the judge has tests of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial

import pytest

from bench import powerloss
from bench.aims import load_aims
from bench.book import Book
from bench.crash.verdict import Kind
from bench.plan import Plan
from bench.powerloss import Job, Pair, work
from bench.powerloss import __main__ as again
from bench.powerloss.flips import Result
from bench.powerloss.work import Tally
from bench.scenario import Side


def test_everything_but_what_is_only_counted_has_an_aim_of_none() -> None:
    aims = load_aims("powerloss", powerloss.SCENARIOS)
    assert aims == dict.fromkeys({each.name for each in powerloss.SCENARIOS} - {"again"}, 0)


def test_one_loss_in_one_round_is_a_loss_in_all() -> None:
    fine, bad = Tally(eras=5), Tally(eras=5, violations=Counter({Kind.LOST: 1}))
    bad.counts.update(acked=1000, again=3)
    bad.flipped[Result.SILENT] = 2
    book = Book()
    powerloss.enter([fine, bad, fine], 7, book)
    samples = book.samples("lost", Side.RECADO)
    assert [each.value for each in samples] == [1, 1, 1]
    assert [each.details["of_this_round"] for each in samples] == [0, 1, 0]
    assert book.samples("again", Side.RECADO)[0].value == 3
    assert book.samples("silent", Side.RECADO)[0].value == 2


def test_every_moment_and_every_bit_has_its_turn_once() -> None:
    """In the full form."""
    done: dict[object, list[int]] = {work.moments: [], work.bits: []}
    for turn in range(3):
        for job in powerloss.shares((100, 1001), turn, 3, 3):
            assert isinstance(job, partial)
            done[job.func] += job.args[0]
    assert sorted(done[work.moments]) == list(range(100))
    assert sorted(done[work.bits]) == list(range(1001))


def stray() -> Tally:
    """Not the same in two processes."""
    return Tally(eras=1, traces={"1": str(os.getpid()), "2": "the same"})


def test_what_differs_between_two_processes_is_a_stray() -> None:
    jobs: list[Job] = [partial(work.eras, [number]) for number in range(5)]
    with Pair() as pair:
        tally = pair.twice(stray)
        assert tally.strays == 1
        assert tally.problems == ["1: differs when it is repeated"]
        assert pair.twice(jobs[0]).strays == 0
        assert [each.eras for each in pair.once(iter(jobs))] == [1] * 5


@pytest.mark.parametrize("quick", [False, True])
def test_a_small_run(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(powerloss, "SEEDS", 4)
    monkeypatch.setattr(powerloss, "AT_A_TIME", 2)
    monkeypatch.setattr(powerloss, "QUICK_RESERVE", 49.0)
    monkeypatch.setattr(work, "count_moments", lambda: 5)
    monkeypatch.setattr(work, "count_bits", lambda: 20)
    book = Book()
    names = list(powerloss.run(Plan(quick=quick, rounds=2, seed=3), book))
    assert names == [each.name for each in powerloss.SCENARIOS]
    for name in set(names) - {"again"}:
        assert [each.value for each in book.samples(name, Side.RECADO)] == [0, 0]
    assert book.samples("lost", Side.RECADO)[0].details["confirmed"] > 0


def test_an_era_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.powerloss", "4", "--about", "Began"])
    assert again.main() == 0
    said = capsys.readouterr().out
    assert "Began(incarnation=1)" in said
    assert said.endswith("no violations\n")
    monkeypatch.setattr("sys.argv", ["bench.powerloss", "--moment", "50"])
    assert again.main() == 0


def test_a_node_that_does_not_start_is_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("it does not start")

    monkeypatch.setattr("bench.powerloss.era.Node", broken)
    monkeypatch.setattr("sys.argv", ["bench.powerloss", "4"])
    assert again.main() == 1
    assert "it does not start" in capsys.readouterr().out
    tally = work.eras([4])
    assert (tally.faults, tally.violations.total()) == (1, 0)
