"""The command: its lines, its last line, its exit status, and the files that it writes."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bench import __main__ as command
from bench import aims
from bench.book import Book, NotMeasuredError
from bench.plan import FULL_ROUNDS, Plan
from bench.scenario import Comparison, Sample, Scenario, Side

CPU = Scenario("cpu", "processor time", "µs", Comparison.TIMES_LESS)
MEMORY = Scenario("memory", "memory", "MB", Comparison.SHARE_OF_PEER)
EXTRA = Scenario("extra", "no aim here", "µs", Comparison.TIMES_LESS)

AIMS = "[stub.cpu]\ntimes_less = 10\n[stub.memory]\nshare_of_peer = 0.2\n"


class Stub(ModuleType):
    """A benchmark whose figures are given."""

    SCENARIOS = (CPU, MEMORY, EXTRA)

    def __init__(self, figures: dict[str, tuple[float, float]]) -> None:
        super().__init__("bench.stub")
        self.figures = figures

    def run(self, plan: Plan, book: Book) -> Iterator[str]:
        for name in [scenario.name for scenario in self.SCENARIOS if plan.wants(scenario.name)]:
            with book.measuring(name):
                if name not in self.figures:
                    raise NotMeasuredError("the load generator fell asleep")
                recado, peer = self.figures[name]
                book.peer = "RabbitMQ 3.10.8"
                for _ in range(plan.rounds):
                    book.enter(name, Side.RECADO, Sample(recado, {"rate": 1000.0}))
                    if plan.with_peer:
                        book.enter(name, Side.PEER, Sample(peer, {"rate": 100.0}))
            yield name


class Run:
    """Runs the command on a stub, in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
        self.file = folder / "out" / "stub.json"
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        aims_file = folder / "aims.toml"
        aims_file.write_text(AIMS)
        monkeypatch.setattr(command, "BENCHES", ("stub",))
        monkeypatch.setattr(
            command, "load_aims", lambda name, all_: aims.load_aims(name, all_, aims_file)
        )

    def __call__(self, *arguments: str, **figures: tuple[float, float]) -> tuple[int, list[str]]:
        self._monkeypatch.setitem(sys.modules, "bench.stub", Stub(figures))
        status = command.main(["stub", "--json", str(self.file), *arguments])
        return status, self._capsys.readouterr().out.splitlines()

    def json(self) -> Any:
        return json.loads(self.file.read_text())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(tmp_path, monkeypatch, capsys)


def test_all_aims_hold(run: Run) -> None:
    status, lines = run(cpu=(1, 12), memory=(10, 100), extra=(5, 6))
    assert status == 0
    assert lines[-1] == ("stub passed: 2 of 2 aims met | cpu 12.0× (≥ 10×) · memory 0.10× (≤ 0.2×)")


def test_one_aim_missed(run: Run) -> None:
    status, lines = run(cpu=(1, 5), memory=(10, 100), extra=(5, 6))
    assert status == 1
    assert lines[-1].startswith("stub FAILED: 1 of 2 aims met | cpu 5.00× (≥ 10×)")
    assert any(line.startswith("processor time") and line.endswith("MISSED") for line in lines)


def test_what_was_not_measured_has_failed_even_without_an_aim(run: Run) -> None:
    status, lines = run(cpu=(1, 12), memory=(10, 100))
    assert status == 1
    assert "NOT MEASURED: the load generator fell asleep" in "\n".join(lines)
    assert "FAILED: 2 of 2 aims met, not measured: extra" in lines[-1]


def test_the_quick_form_says_its_tolerance(run: Run) -> None:
    status, lines = run("--quick", cpu=(1, 9.5), memory=(10, 100), extra=(5, 6))
    assert status == 0
    assert "2 of 2 aims met (within 10%)" in lines[-1]


def test_without_a_peer_the_command_fails(run: Run) -> None:
    status, lines = run("--peer", "none", cpu=(1, 12), memory=(10, 100), extra=(5, 6))
    assert status == 1
    assert "0 of 2 aims met" in lines[-1]


def test_only_the_chosen_scenarios_count(run: Run) -> None:
    status, lines = run("--only", "memory", memory=(10, 100))
    assert status == 0
    assert [scenario["name"] for scenario in run.json()["scenarios"]] == ["memory"]
    assert "1 of 1 aims met" in lines[-1]


def test_an_unknown_scenario_is_a_mistake_of_the_caller(run: Run) -> None:
    status, lines = run("--only", "speed")
    assert status == 2
    assert lines == ["unknown scenario: speed; stub has cpu, memory, extra"]


def test_the_json_has_the_agreed_shape(run: Run) -> None:
    run(cpu=(1, 12), memory=(10, 100), extra=(5, 6))
    content = run.json()
    assert {"bench", "commit", "machine", "scenarios"} <= set(content)
    assert content["bench"] == "stub"
    cpu, memory, extra = content["scenarios"]
    assert cpu == {
        "name": "cpu",
        "unit": "µs",
        "recado": 1,
        "peer": "RabbitMQ 3.10.8",
        "peer_value": 12,
        "ratio": 12,
        "aim": 10,
        "holds": True,
        "rule": "ratio = peer_value / recado; holds when ratio >= aim",
        "not_measured": None,
        "samples": {
            "recado": [{"value": 1, "rate": 1000}] * FULL_ROUNDS,
            "peer": [{"value": 12, "rate": 100}] * FULL_ROUNDS,
        },
    }
    assert (memory["ratio"], memory["aim"], memory["holds"]) == (0.1, 0.2, True)
    assert (extra["aim"], extra["holds"]) == (None, None)


def test_the_picture_is_beside_the_json_also_when_nothing_was_measured(run: Run) -> None:
    run()
    assert run.file.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
