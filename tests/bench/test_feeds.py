"""The benchmark of feeds: its aims, and that its clients do what they say."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench import report
from bench.aims import judge, load_aims
from bench.book import Book, NotMeasuredError
from bench.feeds import SCENARIOS, live, rivals
from bench.feeds.clients.work import Reading, Work, WrongResultError
from bench.feeds.programs import Meter, run_client, started
from bench.feeds.rivals import JETSTREAM, RABBITMQ, RECADO, TASKS, Contestant
from bench.generator import Figures
from bench.plan import Plan
from bench.processes import processor_seconds
from bench.scenario import Comparison, Sample, Scenario, Side
from workshop import peers

LEAST = Scenario("ingest", "messages in", "messages/s", Comparison.AT_LEAST)


def test_the_aims_are_those_that_were_agreed() -> None:
    assert load_aims("feeds", SCENARIOS) == {
        "live-rate": 0.9,
        "live-p50": 1.1,
        "archive-ingest": 200_000,
        "replay-arrow": 1_000_000,
        "replay-objects": 200_000,
        "members-join-50": 5,
        "members-cpu-50": 2,
        "members-idle-50": 5,
        "members-memory-50": 60,
        "members-join-500": 10,
        "members-cpu-500": 8,
        "members-idle-500": 10,
        "members-memory-500": 100,
        "publish-jetstream": 1,
        "replay-jetstream": 1,
        "publish-rabbitmq": 1,
        "replay-rabbitmq": 1,
    }


def test_names_of_scenarios_are_unique() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(names) == len(set(names))


def test_every_rival_says_what_it_promises() -> None:
    results = [judge(scenario, None, Book(), Plan()) for scenario in rivals.SCENARIOS]
    assert len(report.notes(results)) == len(rivals.RIVALS)
    assert all("durability: recado confirms" in note for note in report.notes(results))


@pytest.mark.parametrize(
    ("rate", "quick", "full"),
    [(200_000, True, True), (181_000, True, False), (179_000, False, False)],
)
def test_at_least_is_about_our_own_figure(rate: float, quick: bool, full: bool) -> None:
    book = Book()
    for _ in range(3):
        book.enter(LEAST.name, Side.RECADO, Sample(rate, {"cpu_us": 3.0}))
    assert judge(LEAST, 200_000, book, Plan(quick=True)).holds is quick
    result = judge(LEAST, 200_000, book, Plan())
    assert (result.holds, result.not_measured) == (full, None)
    assert re.search(r"≥ 200,000 +3.00 µs", report.line(result))


def test_a_scenario_may_have_a_peer_of_its_own() -> None:
    result = judge(RABBITMQ.scenario("replay"), 1, Book(), Plan())
    told = report.scenario_json(result, "RabbitMQ 3.10.8")
    assert told["peer"] == "RabbitMQ streams"
    assert "never syncs" in told["note"]


def test_what_is_missing_or_out_of_order_is_noticed() -> None:
    work = Work("", "", messages=3, size=200)
    zero, one, two = work.bodies()
    assert {len(body) for body in work.bodies()} == {200}
    reading = Reading(work)
    assert [reading.take(body) for body in (zero, one, two)] == [False, False, True]
    with pytest.raises(WrongResultError, match="received, 0 expected"):
        Reading(work).take(one)
    with pytest.raises(WrongResultError):
        Reading(work).take(zero[:-1])


class Scripted:
    """Feeds that are so fast for a moment, keep up with so much, and stumble so often before they do."""

    def __init__(self, fastest: dict[Side, float], kept_up: float, stumbles: int = 0) -> None:
        self._fastest = fastest
        self._kept_up = kept_up
        self._stumbles = dict.fromkeys(Side, stumbles)
        self.offered: list[float] = []

    def sample(self, side: Side, messages: int, rate: float) -> Figures:
        if not rate:
            return {"rate": self._fastest[side]}
        self.offered.append(rate)
        self._stumbles[side] -= 1
        reached = rate / 2 if self._stumbles[side] >= 0 else min(rate, self._kept_up)
        return {"rate": reached, "p50_us": 100.0 if reached == rate else 600_000.0}


def measured(feeds: Scripted, monkeypatch: pytest.MonkeyPatch) -> Book:
    monkeypatch.setattr(live, "pause", lambda plan: None)
    book = Book()
    live.take(feeds, Plan(), book)
    return book


def latencies(book: Book) -> list[float]:
    return [each.value for side in Side for each in book.samples("live-p50", side)]


EQUAL = dict.fromkeys(Side, 60_000.0)
ALL = 2 * Plan().rounds


@pytest.mark.parametrize("faster", Side)
def test_latency_is_at_half_of_what_the_slower_reached(
    faster: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds = Scripted({**EQUAL, faster: 90_000.0}, kept_up=50_000)
    assert latencies(measured(feeds, monkeypatch)) == [100.0] * ALL
    assert feeds.offered == [30_000.0] * ALL


def test_a_sample_that_fell_behind_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = Scripted(EQUAL, kept_up=50_000, stumbles=live.TRIES - 1)
    assert latencies(measured(feeds, monkeypatch)) == [100.0] * ALL
    assert feeds.offered == [30_000.0] * (ALL + 2 * (live.TRIES - 1))


def test_where_one_falls_behind_both_are_offered_less(monkeypatch: pytest.MonkeyPatch) -> None:
    feeds = Scripted(EQUAL, kept_up=25_000)
    assert latencies(measured(feeds, monkeypatch)) == [100.0] * ALL
    assert feeds.offered == [30_000.0] * live.TRIES + [21_000.0] * ALL


def test_latency_of_who_does_not_keep_up_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    book = measured(Scripted(EQUAL, kept_up=1_000), monkeypatch)
    told = "a persistent feed does not sustain the rate: 1,000 of 7,203 messages/s"
    assert (book.failure("live-p50"), latencies(book)) == (told, [])
    assert book.failure("live-rate") is None


@pytest.fixture(params=[JETSTREAM, RABBITMQ], ids=lambda rival: rival.key)
def contestant(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Contestant]:
    rival = request.param
    if rival is JETSTREAM:
        with peers.nats(data=tmp_path) as server:
            yield Contestant(rival.client, server.nats_url, server.pid)
    else:
        shared = request.getfixturevalue("rabbitmq_server")
        yield Contestant(rival.client, shared.url, shared.pid)


def test_a_rival_publishes_and_replays(contestant: Contestant) -> None:
    samples = contestant.sample("trial", share=5)  # more than two windows
    assert list(samples) == list(TASKS)
    for sample in samples.values():
        assert sample.value > 100
        assert sample.details["cpu_us"] > 0


def test_a_feed_publishes_and_replays(tmp_path: Path) -> None:
    with peers.recado(data=tmp_path / "broker") as server, ExitStack() as stack:
        ours = Contestant(RECADO, server.url, server.pid)
        ours.keep(["trial"], tmp_path / "archives", stack)
        samples = ours.sample("trial", share=50)
    assert list(samples) == list(TASKS)
    assert all(sample.value > 100 for sample in samples.values())


def test_members_of_two_processes_join_one_view() -> None:
    with peers.recado() as server, ExitStack() as stack:
        programs = [
            stack.enter_context(started("members", server.url, "feed", name, 2, 4, 0.0))
            for name in ("one", "two")
        ]
        for program in programs:
            program.until_ready()
        assert all(program.figures()["seconds"] > 0 for program in programs)


def test_a_client_that_fails_is_not_measured() -> None:
    (port,) = peers.free_ports(1)
    with pytest.raises(NotMeasuredError, match="rabbit_stream: "):
        run_client("rabbit_stream", "replay", f"amqp://127.0.0.1:{port}", "none", 1, 200)


def test_a_program_that_never_gets_ready_is_not_measured() -> None:
    (port,) = peers.free_ports(1)
    with started("live", "none", port) as program, pytest.raises(NotMeasuredError, match="live: "):
        program.until_ready()


def test_processor_time_is_counted_for_the_family() -> None:
    meter = Meter([os.getpid()])
    assert processor_seconds(os.getpid()) > 0
    sum(range(3_000_000))
    assert meter.microseconds_per(1) > 0
