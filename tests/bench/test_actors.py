"""The benchmark of actors: its aims, and that its programs do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import peer_environment
from bench.actors import SCENARIOS, crowds, local, remote, trading
from bench.actors.workers import MARK, Worker, marked, started
from bench.aims import judge, load_aims
from bench.book import Book, NotMeasuredError
from bench.peer_environment import python_of_peers
from bench.plan import Plan
from bench.scenario import Side


def test_the_aims_are_those_that_were_agreed() -> None:
    assert load_aims("actors", SCENARIOS) == {
        "tell": 0.25,
        "ask": 0.5,
        "live-100k-time": 1,
        "live-100k-memory": 150,
        "remote-echo": 0.5,
        "remote-xoscar": 1.8,
        "remote-thespian": 3,
        "remote-ray": 3,
        "trading-1": 1.9,
        "trading-80": 1.4,
        "trading-delayed": 1,
        "trading-rabbitmq-1": 1,
        "trading-rabbitmq-80": 1,
    }


def test_names_of_scenarios_are_unique() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(names) == len(set(names))


@pytest.fixture(scope="module", params=[local.OURS, local.THEIRS])
def program(request: pytest.FixtureRequest) -> Iterator[Worker]:
    with started(request.param) as running:
        yield running


@pytest.mark.parametrize("work", local.WORKS, ids=lambda work: work.task)
def test_the_work_is_done(program: Worker, work: local.Work) -> None:
    figures = program.do(work.task, 1_000)
    assert figures["seconds"] > 0
    assert figures["cpu"] >= 0


def test_a_crowd_is_alive(program: Worker) -> None:
    figures = program.do("crowd", 20, 200)
    assert figures["spawned"] > 0
    assert figures["megabytes"] > 1


@pytest.mark.parametrize("name", ["recado_remote", "echo_remote"])
def test_remote_asks_are_answered(name: str) -> None:
    with started(name) as running:
        assert running.do("ask", 50)["seconds"] > 0
        assert running.do("flight", 128, 64)["seconds"] > 0


def test_a_tiny_run_measures_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "QUICK_SHARE", 100)
    monkeypatch.setattr(remote, "QUICK_ASKS", 64)
    plan, book = Plan(quick=True, only=frozenset({"tell", "remote-echo"})), Book()
    assert [*local.run(plan, book), *remote.run(plan, book)] == ["tell", "remote-echo"]
    aims = load_aims("actors", SCENARIOS)
    for scenario in SCENARIOS:
        if plan.includes(scenario):
            result = judge(scenario, aims[scenario.name], book, plan)
            assert result.not_measured is None
            assert result.ratio
            for side in Side:
                assert all(sample.details["cpu_us"] >= 0 for sample in result.samples[side])


def test_a_tiny_crowd_beside_a_smaller_one(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = crowds.Crowd("1k", 10, local.PYKKA), crowds.Crowd("100k", 50)
    for name, value in {"FEW": few, "MANY": many, "TELLS": 400, "TELLS_OF_PEER": 50}.items():
        monkeypatch.setattr(crowds, name, value)
    plan, book = Plan(quick=True), Book()
    names = list(crowds.run(plan, book))
    assert names == [each.name for each in crowds.SCENARIOS if not each.full_only]
    results = {
        each.name: judge(each, None, book, plan) for each in crowds.SCENARIOS if not each.full_only
    }
    assert not [name for name, result in results.items() if result.not_measured]
    memory = results[crowds.MEMORY.name].recado
    assert memory is not None
    assert memory > 1


def test_what_a_program_leaves_behind_is_ended() -> None:
    with started("echo_remote") as running:
        mark = running._mark
        assert len(marked(mark)) == 2  # the one that asks, and the one that answers
        detached = subprocess.Popen(
            ["sh", "-c", "echo; read _"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, MARK: mark},
            start_new_session=True,
        )
        assert detached.stdout is not None
        assert detached.stdout.readline()  # before it runs, the system may not tell its environment
        assert detached.pid in marked(mark)
    with detached:
        assert detached.wait(5) < 0
    assert marked(mark) == []


def test_a_program_that_fails_is_not_measured() -> None:
    with started("echo_remote") as running, pytest.raises(NotMeasuredError, match="echo_remote: "):
        running.do("nonsense", 1)
    with pytest.raises(NotMeasuredError, match="no_such_program"), started("no_such_program"):
        pass


def test_peers_that_cannot_be_had_are_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(command: list[str]) -> None:
        raise NotMeasuredError("the peers cannot be installed: no index")

    monkeypatch.setattr(peer_environment, "step", fail)
    plan, book = Plan(quick=True, only=frozenset({"remote-thespian"})), Book()
    names = list(remote.run(plan, book, lambda: python_of_peers(remote.PINS, tmp_path)))
    assert names == ["remote-thespian"]
    assert book.failure("remote-thespian") == "the peers cannot be installed: no index"


def test_the_environment_of_peers_is_made_once(tmp_path: Path) -> None:
    pins = tmp_path / "peers.txt"
    pins.write_text("# nobody\n")
    python = python_of_peers(pins, tmp_path)
    assert subprocess.run([python, "-c", ""], check=False).returncode == 0
    made = python.stat().st_ctime_ns
    assert python_of_peers(pins, tmp_path).stat().st_ctime_ns == made
    pins.write_text("no-such-package-of-anybody==0\n")
    with pytest.raises(NotMeasuredError, match="cannot be installed"):
        python_of_peers(pins, tmp_path)


def test_a_step_that_fails_says_why() -> None:
    with pytest.raises(NotMeasuredError, match="cannot be installed: because"):
        peer_environment.step([sys.executable, "-c", "raise SystemExit('because')"])


RUN = {
    "clients": 1,
    "asks": 1000,
    "processor": {"clients": 0.2, "server": 0.1},
    "figures": {"rate": 500.0, "mean": 2000.0},
}


def test_runs_of_the_trading_system_are_entered_by_their_broker() -> None:
    book, wanted = Book(), ["trading-1", "trading-rabbitmq-1"]
    faster = {"rate": 1000.0, "mean": 1000.0}
    trading.enter(
        [
            {**RUN, "broker": None, "figures": faster},
            {**RUN, "broker": "recado", "processor": {"clients": 0.2, "broker": 0.1}},
            {**RUN, "broker": "rabbitmq", "figures": faster},
        ],
        wanted,
        book,
    )
    (over_amqp,) = book.samples("trading-1", Side.RECADO)
    (direct,) = book.samples("trading-1", Side.PEER)
    assert (over_amqp.value, direct.value) == (2000, 1000)
    assert over_amqp.details["cpu_us"] == pytest.approx(300)
    (ours,) = book.samples("trading-rabbitmq-1", Side.RECADO)
    (theirs,) = book.samples("trading-rabbitmq-1", Side.PEER)
    assert (ours.value, theirs.value) == (500, 1000)
    assert "cpu_us" not in theirs.details  # who started that broker is not asked


def test_the_worst_number_of_clients_and_the_worst_column_count() -> None:
    ours = {"rate": 1000.0, "mean": 50.0, "p25": 50.0, "p50": 50.0, "p75": 50.0, "p95": 50.0}
    theirs = {**dict.fromkeys(ours, 100.0), "rate": 500.0}
    lines = [
        {
            "clients": clients,
            "series": "amqp, recado",
            "is_difference": is_difference,
            "recado": ours,
            "published": {**theirs, **of_some.get(clients, {})},
        }
        for of_some in [{20: {"mean": 40.0}, 40: {"p95": 40.0}, 4: {"rate": 1250.0}}]
        for clients in trading.CLIENTS
        for is_difference in (False, True)
    ]
    tables = [{"lines": [{"series": "tcp", "is_difference": False}, *lines]}]
    share, difference = trading.share_of_published(tables), trading.excess(tables)
    assert share.value == 1.25
    assert [share.details[f"with_{n}"] for n in (4, 20, 40, 80)] == [1.25, 1.25, 1.25, 0.5]
    assert (difference.value, difference.details["with_80"]) == (10, -50)
    with pytest.raises(NotMeasuredError, match="only"):
        trading.excess([{"lines": lines[2:]}])
