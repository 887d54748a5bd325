"""The benchmark of the client: each piece of work is done, by each of the clients."""

from __future__ import annotations

import pytest

from bench import client
from bench.aims import load_aims
from bench.client.work import COUNTS, WORKS
from bench.plan import Plan
from recado import Broker


def test_every_scenario_has_an_aim() -> None:
    assert set(load_aims("client", client.SCENARIOS)) == {each.name for each in client.SCENARIOS}


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("work", WORKS)
def test_a_sample(
    name: str, work: str, recado_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COUNTS, name, 1000)
    sample = client.sample(name, work, recado_broker.url, Plan())
    assert sample.value > 0
    assert sample.details["cpu_us"] > 0
