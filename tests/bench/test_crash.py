"""The crash benchmark: fifty incarnations that end with kill -9, and a control that must be found wanting.

The seed is fixed, and every failure comes with the history's first faults; `./dev bench crash` takes another
seed each time, and a thousand incarnations. The checker has tests of its own, in test_crash_checker.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from bench import crash
from bench.aims import load_aims
from bench.book import Book
from bench.crash import __main__ as again
from bench.crash import history as h
from bench.crash import message
from bench.crash.client import BrokerObjectedError, ConnectionLostError, Incarnation
from bench.crash.era import Era, Outcome, at, live_through
from bench.crash.subject import durable, forgetful
from bench.crash.topology import QUEUES
from bench.crash.verdict import Kind, Verdict, Violation
from bench.plan import Plan
from bench.scenario import Side

SEED = 3
CYCLES = 50
CONTROL_CYCLES = 8


@pytest.mark.searching
def test_fifty_incarnations_end_with_kill_9_and_nothing_is_lost(tmp_path: Path) -> None:
    outcome = live_through(durable(tmp_path), CYCLES, SEED)
    assert [*map(str, outcome.verdict.violations), *outcome.faults][:20] == []
    counts = outcome.verdict.counts
    assert counts["incarnations"] == CYCLES + 2
    assert counts["confirmed"] > 20 * CYCLES  # a busy machine: it is about work at all
    assert min(counts[each] for each in ("committed", "rejected", "refused", "returned")) > 0


def test_a_broker_that_forgets_is_found_wanting() -> None:
    outcome = live_through(forgetful(), CONTROL_CYCLES, SEED)
    assert outcome.faults == []
    assert len(outcome.verdict.of(Kind.LOST)) > 0
    assert len(outcome.verdict.of(Kind.TOPOLOGY)) > len(QUEUES)
    # It forgets, but it does not invent.
    assert {each.kind for each in outcome.verdict.violations} == {Kind.LOST, Kind.TOPOLOGY}


def test_a_broker_that_does_not_start_any_more_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in the way").touch()
    monkeypatch.setattr(crash, "durable", lambda folder: durable(tmp_path / "in the way"))
    book = Book()
    names = list(crash.run(Plan(rounds=1, seed=SEED), book))
    assert names == [scenario.name for scenario in crash.SCENARIOS]
    assert "recado exited" in (book.failure("lost") or "")


def test_a_message_is_known_by_its_body() -> None:
    rng = Random(0)
    for number in range(1, 300):
        body = message.make(("p-1", number), message.size(rng, large=number % 2 == 0))
        assert message.parse(body) == ("p-1", number)
    assert message.make(("p", 1), 10) != message.make(("p", 2), 10)


def test_a_body_that_is_not_whole_is_nobodys() -> None:
    body = message.make(("p", 1), 20)
    assert message.parse(body[:-1]) is None
    assert message.parse(b"") is None
    for at_byte in range(len(body)):
        wrong = bytearray(body)
        wrong[at_byte] ^= 1
        assert message.parse(bytes(wrong)) is None


def test_a_history_can_be_read_again_and_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "history"
    events: list[h.AnyEvent] = [
        h.Began(1),
        h.Sent(1, ("p", 1), ("q",), transaction=1),
        h.Sent(1, ("p", 2), ("q",), 3, persistent=False),
        h.Sent(1, ("p", 3), ("q",)),
        h.Confirmed(("p", 3)),
        h.Delivered(1, "c", "q", ("p", 2), redelivered=False),
        h.Kept("q", (("p", 2),)),
    ]
    h.write(events, file)
    assert list(h.read(file)) == events
    monkeypatch.setattr("sys.argv", ["bench.crash", str(file), "--about", '"p",2'])
    assert again.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in said] == ["3", "6", "7", "lost", said[-1]]
    assert "3 sent" in said[-1]


def test_a_broker_is_killed_at_the_chosen_moment() -> None:
    history = h.History()
    killed: list[int] = []
    history.watch = at(h.Confirmed, 2, lambda: killed.append(len(history.events)))
    for event in (h.Began(1), h.Confirmed(("p", 1)), h.Confirmed(("p", 2)), h.Confirmed(("p", 3))):
        history.add(event)
    assert killed == [3]


def test_one_loss_in_one_round_is_a_loss_in_all() -> None:
    fine, bad = Verdict(), Verdict([Violation(Kind.LOST, "p 1")])
    bad.counts.update(acked=1000, again=3)
    eras = [[Outcome(verdict, 10, 1.0, [0.1, 0.3], [], [])] for verdict in (fine, bad, fine)]
    book = Book()
    crash.enter(eras, SEED, book)
    assert [sample.value for sample in book.samples("lost", Side.RECADO)] == [1, 1, 1]
    assert [sample.details["of_this_round"] for sample in book.samples("lost", Side.RECADO)] == [
        0,
        1,
        0,
    ]
    assert book.samples("again", Side.RECADO)[0].value == 3
    assert book.samples("restart", Side.RECADO)[0].value == pytest.approx(200)


def test_everything_but_the_two_that_are_only_counted_has_an_aim_of_none() -> None:
    aims = load_aims("crash", crash.SCENARIOS)
    names = {scenario.name for scenario in crash.SCENARIOS}
    assert aims == dict.fromkeys(names - {"again", "restart"}, 0)


def test_a_death_is_no_fault_but_an_objection_is() -> None:
    async def ending(error: Exception) -> None:
        raise error

    era = Era(forgetful(), Random(0))
    over, going = Incarnation(1, 0, over=True), Incarnation(2, 0)
    asyncio.run(era.noting(over, ending(ConnectionLostError())))
    assert era.faults == []
    asyncio.run(era.noting(over, ending(BrokerObjectedError(541, "INTERNAL_ERROR"))))
    asyncio.run(era.noting(going, ending(ConnectionLostError())))
    asyncio.run(era.noting(going, ending(TimeoutError())))
    assert len(era.faults) == 3
