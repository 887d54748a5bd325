"""Long operations on the broker, in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from recado.amqp.errors import NotFoundError
from recado.broker.broker import Broker
from recado.broker.steps import Steps
from recado.console import broker_steps
from recado.console.broker_steps import run_broker_steps
from recado.console.request import ApiError, ApiRequest


class StandInServer:
    """Runs actions on a broker as the server does, and counts them."""

    def __init__(self) -> None:
        self.broker = Broker(lambda: "name")
        self.turns = 0

    def run_on_broker(self, action: Callable[[Broker, int], None]) -> None:
        self.turns += 1
        action(self.broker, 1000 + self.turns)


@pytest.fixture(autouse=True)
def _one_step_per_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_steps, "perf_counter", iter(range(1_000_000)).__next__)


def request_of(server: StandInServer, is_connected: Callable[[], bool]) -> ApiRequest:
    console = SimpleNamespace(server=server)
    request: Any = SimpleNamespace(console=console, is_connected=is_connected)
    return cast(ApiRequest, request)


def count_to(end: int, broker: Broker, seen: list[int]) -> Steps[str]:
    try:
        for _ in range(end):
            seen.append(broker.background.now)
            yield 1
    finally:
        seen.append(-1)
    return "done"


def test_each_slice_is_a_turn_of_the_broker() -> None:
    server = StandInServer()
    seen: list[int] = []
    steps = count_to(3, server.broker, seen)
    others: list[int] = []

    async def run() -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(others.append, 1)
        return await run_broker_steps(request_of(server, lambda: True), steps)

    assert asyncio.run(run()) == "done"
    assert others == [1]
    assert len(set(seen)) == 4
    assert server.turns >= 3


def test_the_steps_end_when_the_client_disconnects() -> None:
    server = StandInServer()
    seen: list[int] = []
    steps = count_to(100, server.broker, seen)
    request = request_of(server, lambda: len(seen) < 5)
    with pytest.raises(ConnectionError):
        asyncio.run(run_broker_steps(request, steps))
    assert len(seen) == 6
    assert seen[-1] == -1, "the steps were closed"


def test_background_work_of_closed_steps_is_part_of_a_turn() -> None:
    """Otherwise the server would not know of it until its next turn, and a queue would stay frozen."""
    server = StandInServer()
    found: list[tuple[int, int]] = []

    def steps() -> Steps[None]:
        try:
            for _ in range(100):
                yield 1
        finally:
            found.append((server.turns, server.broker.background.now))

    request = request_of(server, lambda: server.turns < 3)
    with pytest.raises(ConnectionError):
        asyncio.run(run_broker_steps(request, steps()))
    assert found == [(4, 1004)]
    assert server.turns == 4


def test_errors_of_the_broker_are_answers() -> None:
    def fail() -> Steps[None]:
        yield 1
        raise NotFoundError("no queue 'q'")

    with pytest.raises(ApiError) as caught:
        asyncio.run(run_broker_steps(request_of(StandInServer(), lambda: True), fail()))
    assert caught.value.status == 404
