"""The benchmark of the client: each piece of work is done, by each of the clients."""

from __future__ import annotations

import asyncio

import pytest

from bench import client
from bench.aims import load_aims
from bench.client.work import CLIENTS, COUNTS, WORKS
from bench.plan import Plan
from recado import Broker

FEW = 1_000


def test_every_scenario_has_an_aim() -> None:
    assert set(load_aims("client", client.SCENARIOS)) == {each.name for each in client.SCENARIOS}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("work", WORKS)
def test_the_work_is_done(name: str, work: str, recado_broker: Broker) -> None:
    figures = asyncio.run(CLIENTS[name](work, recado_broker.url, FEW))
    assert figures["seconds"] > 0
    assert figures["cpu"] > 0


def test_a_sample_is_a_process_of_its_own(
    recado_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COUNTS, "recado", FEW)
    sample = client.sample("recado", "publish", recado_broker.url, Plan())
    assert sample.value > 0
    assert sample.details["cpu_us"] > 0
