"""The fairness benchmark: its attacks, its probe, and what it compares."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import recado
from bench import fairness
from bench.aims import Result, judge, load_aims
from bench.book import Book, NotMeasuredError
from bench.fairness import attacks, measurement
from bench.fairness.wire import Client
from bench.plan import Plan
from bench.scenario import Side
from recado.amqp.methods import QueueDeclare, QueueDeclareOk, QueuePurge, QueuePurgeOk
from workshop import peers
from workshop.peers import Server

AIMS = load_aims("fairness", fairness.SCENARIOS)
TIMEOUT_S = 60.0
STALL_S = 0.2


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with peers.recado() as started:
        yield started


def test_every_attack_has_an_aim_for_its_longest_wait_on_each_loop() -> None:
    names = {"publish", "topic", "cc", "regex", "declare", "bind", "exchange-delete"}
    names |= {"purge", "delete", "recovery"}
    ends = ("-max", "-max-uvloop")
    assert {f"{name}{end}": 50 for name in names for end in ends} == AIMS
    others = {each.name for each in fairness.SCENARIOS} - set(AIMS)
    assert others >= {"idle-max", "idle-p99", "publish-p99", "recovery-p99-uvloop"}


def test_only_the_full_form_asks_for_uvloop_and_restarts_the_peer() -> None:
    quick, full = Plan(quick=True), Plan()
    assert fairness.loops_of(quick, "publish") == ["asyncio"]
    assert fairness.loops_of(full, "publish") == ["asyncio", "uvloop"]
    for name in ("recovery", "topic", "declare", "bind", "exchange-delete"):
        assert not fairness.suits_peer(quick, name)
        assert fairness.suits_peer(full, name)
    assert not fairness.shares_peer(full, "topic")
    assert fairness.shares_peer(quick, "publish")
    assert not fairness.suits_peer(full, "regex")
    assert not fairness.suits_peer(Plan(with_peer=False), "publish")


@pytest.mark.parametrize("attack", attacks.ATTACKS, ids=lambda each: each.name)
def test_an_attack_removes_what_it_declared(
    attack: type[attacks.Attack], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("TOPIC_BINDINGS", "TOPIC_KEYS", "REGEX_BINDINGS", "REGEX_KEYS"):
        monkeypatch.setattr(attacks, name, 3)
    monkeypatch.setattr(attacks, "PUBLISH_S", (0.01, 1.0))
    monkeypatch.setattr(attacks, "IDLE_S", (0.01, 1.0))
    monkeypatch.setattr(attack, "sizes", (3000, 3000))
    with (
        recado.Broker(data=tmp_path if attack.needs_disk else None) as broker,
        Client(broker.host, broker.port, TIMEOUT_S) as client,
    ):
        before = broker.export_definitions()
        under_way = attack(Random(1), quick=True)
        under_way.prepare(client)
        under_way.run(client)
        under_way.clean(client)
        after = broker.export_definitions()
    for kind in ("queues", "exchanges", "bindings"):
        assert after[kind] == before[kind]


def test_what_an_attacker_is_refused_is_no_measurement(server: Server) -> None:
    with Client(server.host, server.port, TIMEOUT_S) as client:
        client.call(QueueDeclare("there", exclusive=True), QueueDeclareOk)
        with pytest.raises(NotMeasuredError, match="QueueDeclareOk"):
            client.call(QueuePurge("there"), QueueDeclareOk)
        with pytest.raises(NotMeasuredError, match="NOT_FOUND"):
            client.call(QueuePurge("missing"), QueuePurgeOk)


def test_the_probe_sees_a_broker_that_stalls(server: Server) -> None:
    def stall() -> None:
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(STALL_S)  # the stall itself
        os.kill(server.pid, signal.SIGCONT)

    sample = measurement.waits_during(server, stall)
    assert sample.value == sample.details["max_ms"] >= STALL_S * 1e3 * 0.9
    assert sample.details["p99_ms"] > STALL_S * 1e3 / 2, "it would have asked all the while"
    assert sample.details["cpu_max_ms"] < STALL_S * 1e3 / 2, "the broker did nothing meanwhile"


def test_a_scenario_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "LOOPS", ("asyncio",))
    result = measured("declare-max")
    (sample,) = result.samples[Side.RECADO]
    assert result.not_measured is None
    assert sample.details["taken_at"] == 5000
    assert sample.details["attack_seconds"] > 0


def test_recovery_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "RECOVERY_MESSAGES", (1000, 1000))
    assert measured("recovery-p99").not_measured is None


def test_recado_is_measured_though_the_peer_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise NotMeasuredError("it does not start")

    monkeypatch.setattr(fairness, "fresh", fail)
    result = measured("idle-max", with_peer=True)
    assert result.not_measured is None
    assert not result.samples[Side.PEER]


def measured(name: str, *, with_peer: bool = False) -> Result:
    only = frozenset([name])
    book, plan = Book(), Plan(quick=True, with_peer=with_peer, only=only, rounds=1, seed=1)
    assert list(fairness.run(plan, book)) == [name]
    (scenario,) = [each for each in fairness.SCENARIOS if each.name == name]
    return judge(scenario, AIMS.get(name), book, plan)
