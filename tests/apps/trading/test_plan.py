"""What is measured, and in which order."""

from __future__ import annotations

import pytest

from recado.apps.trading.figures import TransportKind
from recado.apps.trading.plan import QUICK_ASKS_COUNT, BenchmarkPlan, InvalidPlanError, Trial

TCP, AMQP = TransportKind.TCP, TransportKind.AMQP


def test_everything_with_everything_side_by_side() -> None:
    brokers = {"recado": None, "rabbitmq": "amqp://elsewhere"}
    plan = BenchmarkPlan((1, 2), (TCP, AMQP), (0, 2000), asks=60, runs=2, brokers=brokers)
    trials = [*plan.trials()]
    assert len(trials) == len(plan) == 2 * 2 * 2 * 3
    assert trials[:4] == [
        Trial(TCP, None, 0, 1, 60),
        Trial(AMQP, "recado", 0, 1, 60),
        Trial(AMQP, "rabbitmq", 0, 1, 60),
        Trial(TCP, None, 0, 2, 60),
    ]
    assert trials[:12] == trials[12:]
    assert len(set(trials)) == 12


def test_the_dissertations_is_the_default() -> None:
    plan = BenchmarkPlan()
    assert (plan.clients, plan.asks) == ((1, 2, 4, 8, 10, 20, 40, 80), 30_000)
    assert {trial.transport for trial in plan.trials()} == {TCP, AMQP}
    assert len(BenchmarkPlan(asks=QUICK_ASKS_COUNT, runs=1)) == 16


@pytest.mark.parametrize(
    ("clients", "asks", "runs"), [((7,), 30_000, 1), ((0,), 30, 1), ((80,), 40, 1), ((1,), 30, 0)]
)
def test_what_cannot_be_measured(clients: tuple[int, ...], asks: int, runs: int) -> None:
    with pytest.raises(InvalidPlanError):
        BenchmarkPlan(clients, asks=asks, runs=runs)


def test_a_trial_says_what_it_is() -> None:
    assert Trial(TCP, None, 0, 1, 60).label == "tcp, 0 ms, 1 client"
    assert Trial(AMQP, "recado", 1500, 8, 80).label == "amqp, recado, 1.5 ms, 8 clients"
