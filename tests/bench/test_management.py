"""The management benchmark: its scene, the copy without counters, and what it believes."""

import ast
from pathlib import Path

import pytest

from bench import management
from bench.aims import Result, judge, load_aims
from bench.book import Book, NotMeasuredError
from bench.generator import generate
from bench.management import churn, counters, scene, waits
from bench.management.scene import Size, populated, request, running
from bench.plan import Plan
from bench.scenario import Side
from tests.console.http import Api

AIMS = load_aims("management", management.SCENARIOS)
SMALL = Size(queues=12, connections=3, consumers=6)


def test_the_aims_are_those_that_were_agreed() -> None:
    loads = ("auto-ack", "acks", "singles")
    assert {
        "ping-p99": 20,
        "throughput-loss": 10,
        **{f"counters-{each}": 3 for each in loads},
        "churn-memory": 10,
    } == AIMS
    assert (scene.FULL_SIZE.queues, scene.FULL_SIZE.connections) == (20_000, 2_000)
    assert (scene.FULL_SIZE.consumers, churn.CLIENTS_COUNT) == (5_000, 1_000_000)


def test_the_scene_has_all_objects(tmp_path: Path) -> None:
    with populated(Side.RECADO, SMALL, tmp_path, Book()) as node:
        api = Api(node.http_port)
        totals = api.get("/api/overview")["object_totals"]
        assert (totals["queues"], totals["connections"], totals["consumers"]) == (12, 3, 6)
        assert len({each["queue"]["name"] for each in api.get("/api/consumers")}) == 6
        with pytest.raises(NotMeasuredError, match="GET /api/queues/x: status 404"):
            request(node, "GET", "/api/queues/x")


def test_every_counter_is_removed_from_the_copy(tmp_path: Path) -> None:
    removed_count = counters.copy_without_counters(tmp_path)
    assert removed_count >= len(counters.COUNTERS)
    found = {
        node.target.attr
        for package in counters.COUNTING_PACKAGES
        for file in (counters.SOURCES / "recado" / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute)
    }
    assert found >= counters.COUNTERS, "a counter has another name now"
    with running(Side.RECADO, tmp_path / "data", Book(), {"PYTHONPATH": str(tmp_path)}) as node:
        generate(node.server, "throughput", "--messages", "100", "--ack-every", "1")
        totals = Api(node.http_port).get("/api/overview")
        (exchange,) = [
            each for each in Api(node.http_port).get("/api/exchanges/%2F") if each["name"] == ""
        ]
    assert totals["message_stats"]["publish"] == 100  # the publisher counts them for its confirms
    assert "ack" not in totals["message_stats"] or totals["message_stats"]["ack"] == 0
    assert "message_stats" not in exchange


def test_everything_but_the_peer_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(waits, "QUICK_SIZE", SMALL)
    monkeypatch.setattr(waits, "QUICK_PHASE_S", 0.2)
    monkeypatch.setattr(churn, "QUICK_CLIENTS_COUNT", 400)
    monkeypatch.setattr(counters, "QUICK_RUNS_COUNT", 1)
    monkeypatch.setattr(management, "CACHE", tmp_path)
    book, plan = Book(), Plan(quick=True, rounds=1)
    names = list(management.run(plan, book))
    results = [judge(each, AIMS.get(each.name), book, plan) for each in management.SCENARIOS]
    by_name = {result.scenario.name: result for result in results}
    missing = {name for name in by_name if by_name[name].not_measured}
    assert missing == {"list", "export", "scrape"}, "they are compared with the peer"
    assert set(names) == set(by_name) - {"scrape"}
    assert detail(by_name["ping-p99"], "lists") >= 1
    assert detail(by_name["throughput-loss"], "rate_without") > 0
    assert not list(tmp_path.iterdir()), "the brokers and their data are gone"


def detail(result: Result, name: str) -> float:
    (sample,) = result.samples[Side.RECADO]
    return sample.details[name]
