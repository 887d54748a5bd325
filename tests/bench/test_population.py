"""The population benchmark: what the load generator counts, and the tables and plots that come of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import population
from bench.aims import Result, judge
from bench.book import Book, NotMeasuredError
from bench.generator import generate
from bench.plan import Plan
from bench.population import clients, consumers, published
from bench.population.crowd import END, JOINED, START, Course, Crowd, observe
from bench.scenario import Sample, Side
from tests.bench.crooked_broker import CrookedBroker
from workshop.peers import Server, recado

# A connection that opens, publishes and closes: 13 packets at least, with an acknowledgement for a few of them.
PACKETS_MIN_COUNT, PACKETS_MAX_COUNT = 13, 60


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with recado() as server:
        yield server


def test_without_clients_nothing_is_sent(server: Server) -> None:
    course = observe(server, Crowd(0, 0, 0, seconds=0.1))
    assert course.between("packets", START) == course.between("bytes", START) == 0
    assert course.peak_megabytes > 5


def test_arriving_publishers_send_one_message_each(server: Server) -> None:
    course = observe(server, Crowd(3, 7, 7, seconds=0.2, arriving=True))
    end = course.marks[END]
    assert end["published"] == end["delivered"] == 7
    assert (end["fewest"], end["most"]) == (2, 3)
    # Before the first client, with the consumers, after each publisher, and the end.
    assert [mark["mark"] for mark in course.marks] == list(range(10))
    assert course.marks[JOINED]["published"] == 0
    assert PACKETS_MIN_COUNT <= end["packets"] / 10 <= PACKETS_MAX_COUNT
    # Each packet has a header of 66 bytes.
    assert end["bytes"] > 66 * end["packets"]
    assert end["broker_cpu_seconds"] > 0


def test_steady_publishers_stay_connected(server: Server) -> None:
    course = observe(server, Crowd(30, 70, 210, seconds=0.3))
    end = course.marks[END]
    assert (end["fewest"], end["most"]) == (7, 7)
    assert course.between("seconds", JOINED) >= 0.3
    # Publish and delivery, each with its acknowledgement in the same or another packet, and an ack.
    assert 2 <= course.between("packets", JOINED) / 210 <= 12


def test_a_lost_message_fails_the_run() -> None:
    arguments = ("--consumers", "1", "--messages", "20", "--spread", "10", "--stall", "1")
    with (
        CrookedBroker(20, lambda all_: all_[:-1]) as crooked,
        pytest.raises(NotMeasuredError, match=r"stalled|closed"),
    ):
        generate(crooked, "population", *arguments, seconds=10)


def test_other_modes_need_clients(server: Server) -> None:
    with pytest.raises(NotMeasuredError, match="only a population"):
        generate(server, "throughput", "--publishers", "0")


def test_populations_are_those_of_the_slides() -> None:
    plan = Plan()
    crowds = {count: clients.crowd_of(clients.ARRIVING, count, plan) for count in (10, 100)}
    assert {count: (c.consumers, c.publishers, c.seconds) for count, c in crowds.items()} == {
        10: (3, 7, 6),
        100: (30, 70, 42),
    }
    steady = clients.crowd_of(clients.STEADY, 10_000, plan)
    assert (steady.consumers, steady.publishers, steady.messages) == (3_000, 7_000, 70_000)


def test_the_quick_form_has_no_population_that_is_slow_to_start() -> None:
    quick = Plan(quick=True)
    names = {each.name for each in population.SCENARIOS if quick.includes(each)}
    assert "steady-memory-1000" in names
    assert not {name for name in names if name.endswith("-10000")}


def course_of(clients_count: int) -> Course:
    """A run of ten seconds with 10 marks, which sends 100 packets of 100 bytes for each client."""
    total = {"packets": 100 * clients_count, "bytes": 10_000 * clients_count, "delivered": 70}
    common = {"own_cpu_seconds": 0, "published": 70, "fewest": 2, "most": 3, "megabytes": 30}
    return Course(
        [
            {key: share * value for key, value in total.items()}
            | {"seconds": 10 * share, "broker_cpu_seconds": share, **common}
            for share in (0, *(step / 11 for step in range(12)))
        ]
    )


def results_of(plan: Plan) -> list[Result]:
    book = Book()
    by_name = {each.name: each for each in population.SCENARIOS if plan.includes(each)}
    for name in by_name:
        form, figure, count = name.split("-")
        for side in Side:
            sample = (
                Sample(consumers.values_of(course_of(int(count)))[figure])
                if (form == "consumers")
                else clients.sample(form, figure, int(count), course_of(int(count)))
            )
            for _ in range(plan.rounds):
                book.enter(name, side, sample)
    return [judge(each, None, book, plan) for each in by_name.values()]


@pytest.mark.parametrize("quick", [True, False])
def test_tables_and_plots_are_written(tmp_path: Path, quick: bool) -> None:
    plan = Plan(quick=quick)
    files = population.illustrate("RabbitMQ 3.10.8", results_of(plan), plan, tmp_path / "p.json")
    assert [file.name for file in files] == ["p.md", "p.png", "p-slides.png"]
    assert all(file.stat().st_size > 0 for file in files)
    tables = files[0].read_text()
    assert "| 100 | packets | 3,624 | 10,000 | 10,000 |" in tables
    assert "| 50 | not supported |" in tables
    assert ("\n| 10,000 |" in tables) is not quick


def test_the_figures_of_a_population() -> None:
    course = course_of(10)
    values = {
        name: clients.sample(clients.ARRIVING, name, 10, course).value
        for name in clients.figures_of(clients.ARRIVING, 10)
    }
    assert values == {"cpu": 100, "packets": 100, "bytes": 10_000}
    steady = clients.sample(clients.STEADY, clients.CPU, 10, course)
    assert steady.value == pytest.approx(10)
    assert len(published.CAPTURES) == 3
