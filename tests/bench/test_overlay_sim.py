"""The benchmark of the simulated overlay: its aims, and that it continues where it was interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import overlay_sim
from bench.aims import load_aims
from bench.overlay_sim import Tally
from bench.overlay_sim.verdict import Rule
from bench.pair import Pair


def test_each_scenario_has_an_aim() -> None:
    aims = load_aims("overlay-sim", overlay_sim.SCENARIOS)
    assert {scenario.name for scenario in overlay_sim.SCENARIOS} == set(aims)


def test_clean_seeds_are_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[range] = []

    def worlds(chunk: range) -> Tally:
        ran.append(chunk)
        problems = ["something"] if 25 in chunk else []
        return Tally(worlds=len(chunk), traces=dict.fromkeys(chunk, ""), problems=problems)

    class Here(Pair[Tally]):
        def __init__(self) -> None:
            self._pools = []

        both = staticmethod(lambda job: (job(), job()))
        once = staticmethod(lambda jobs: (job() for job in jobs))

    monkeypatch.setattr(overlay_sim, "worlds", worlds)
    file = tmp_path / "clean.json"
    first = list(overlay_sim._full(Here(), range(1, 61), file))
    assert sum(tally.worlds for tally in first) == 60
    ran.clear()
    again = list(overlay_sim._full(Here(), range(1, 61), file))
    assert [tally.known for tally in again] == [40, 0]
    assert set(ran) == {range(21, 41)}


def test_tallies_are_added() -> None:
    total = Tally()
    part = Tally(worlds=1, faults=2, strays=3, problems=["p"])
    part.violations[Rule.LOST] = 4
    part.counts.update({"crashes alone": 2, "disturbed ppm": 2_400_000})
    total.add(part)
    total.add(part)
    assert (total.worlds, total.faults, total.strays, total.problems) == (2, 4, 6, ["p", "p"])
    assert total.violations[Rule.LOST] == 8
    assert total.disturbed == pytest.approx(1.2)
