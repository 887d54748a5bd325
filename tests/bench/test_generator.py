"""The load generator believes no broker: what is lost, doubled, swapped or cut fails the run."""

import time

import pytest

from bench.book import NotMeasuredError
from bench.generator import build, generate, idle_connections
from tests.bench.crooked_broker import Crook, CrookedBroker
from workshop.peers import Server, recado

MESSAGES = 20


def throughput(server: Server, *more: str) -> dict[str, float]:
    load = ("--messages", str(MESSAGES), "--stall", "1", *more)
    return generate(server, "throughput", *load, seconds=10)


def test_an_honest_broker_passes() -> None:
    with CrookedBroker(MESSAGES) as server:
        figures = throughput(server)
    assert figures["messages"] == figures["deliveries"] == MESSAGES
    assert figures["broker_cpu_seconds"] > 0


@pytest.mark.parametrize(
    ("crook", "complaint"),
    [
        (lambda all_: all_[:-1], "stalled with 20 sent, 0 confirmed, 19 delivered"),
        (lambda all_: [*all_[:5], all_[6], all_[5], *all_[7:]], "message 5 came after message 6"),
        (lambda all_: [*all_[:-1], all_[-2]], "message 18 came after message 18"),
        (lambda all_: [*all_[:-1], all_[-1] + b"!"], "message 19 has 17 bytes"),
        (lambda all_: [*all_[:-1], b"\xff" * 16], "a body that no publisher sent"),
    ],
    ids=["lost", "swapped", "doubled", "longer", "invented"],
)
def test_a_crooked_broker_does_not(crook: Crook, complaint: str) -> None:
    with (
        CrookedBroker(MESSAGES, crook) as server,
        pytest.raises(NotMeasuredError, match=complaint),
    ):
        throughput(server)


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        ((1, 1), "message 1 was confirmed twice"),
        ((MESSAGES + 1,), "message 21 was confirmed before it was sent"),
        ((1, 2), "stalled with 20 sent, 2 confirmed"),
    ],
    ids=["twice", "early", "missing"],
)
def test_confirms_are_checked_too(tags: tuple[int, ...], complaint: str) -> None:
    with (
        CrookedBroker(MESSAGES, confirm=tags) as server,
        pytest.raises(NotMeasuredError, match=complaint),
    ):
        throughput(server, "--confirm-window", "100")


def test_confirms_may_come_in_any_order() -> None:
    with CrookedBroker(MESSAGES, confirm=tuple(range(MESSAGES, 0, -1))) as server:
        throughput(server, "--confirm-window", "100")


@pytest.mark.parametrize(("more", "durable", "mode"), [((), False, 1), (("--durable",), True, 2)])
def test_only_what_is_to_last_is_declared_and_published_so(
    more: tuple[str, ...], durable: bool, mode: int
) -> None:
    broker = CrookedBroker(MESSAGES)
    with broker as server:
        throughput(server, *more)
    assert [each.durable for each in broker.declared] == [durable]
    assert {each.properties.delivery_mode for each in broker.headers} == {mode}


def test_one_publisher_waits_for_each_confirm() -> None:
    with CrookedBroker(1, confirm=(1,)) as server:
        figures = generate(server, "serial", "--messages", "1", "--stall", "1")
    assert 0 < figures["p50_us"] == figures["max_us"]


def test_and_for_no_other() -> None:
    with (
        CrookedBroker(1, confirm=(2,)) as server,
        pytest.raises(NotMeasuredError, match="message 2 was confirmed instead of 1"),
    ):
        generate(server, "serial", "--messages", "1", "--stall", "1")


def test_what_was_left_is_there_in_order_and_stays() -> None:
    load = ("--messages", "10", "--confirm-window", "3", "--stall", "5")
    with recado() as server:
        generate(server, "fill", *load)
        before = time.monotonic()
        moment = generate(server, "first")["moment"]
        assert before < moment < time.monotonic()
        assert generate(server, "drain", *load)["deliveries"] == 10


def test_without_confirms_nothing_is_left_to_itself() -> None:
    with (
        CrookedBroker(MESSAGES) as server,
        pytest.raises(NotMeasuredError, match="publish needs --confirm-window"),
    ):
        generate(server, "publish")


def test_a_refusal_is_reported_in_the_brokers_words() -> None:
    with (
        CrookedBroker(MESSAGES, refuse="RESOURCE_LOCKED - not yours") as server,
        pytest.raises(NotMeasuredError, match="closed with 405: RESOURCE_LOCKED - not yours"),
    ):
        throughput(server)


def test_idle_connections_are_held_while_the_block_runs() -> None:
    with CrookedBroker(MESSAGES) as server, idle_connections(server, 3) as figures:
        assert figures["connections"] == 3


def test_a_port_where_nobody_listens_is_no_measurement() -> None:
    with CrookedBroker(MESSAGES) as server:
        pass
    with pytest.raises(NotMeasuredError, match="cannot connect"):
        throughput(server)
    with pytest.raises(NotMeasuredError, match="cannot connect"), idle_connections(server, 1):
        pass


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--fan-out", "--rotate"), "exclude each other"),
        (("--prefetch", "5", "--ack-every", "9"), "no acknowledgement would ever be sent"),
        (("--sizes", "7"), "'7' is no number from 8"),
    ],
)
def test_combinations_that_cannot_work_are_refused(
    arguments: tuple[str, ...], complaint: str
) -> None:
    with CrookedBroker(MESSAGES) as server, pytest.raises(NotMeasuredError, match=complaint):
        throughput(server, *arguments)


def test_the_program_is_built_once() -> None:
    program = build()
    before = program.stat().st_mtime_ns
    build.cache_clear()
    assert build() == program
    assert program.stat().st_mtime_ns == before
