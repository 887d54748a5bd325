"""How a node's loop waits."""

from __future__ import annotations

import asyncio
import selectors
import socket

import pytest

from recado.node import event_loop
from recado.node.event_loop import PollingSelector, new_runner
from recado.node.settings import NodeSettings, Settings


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float | None]:
    """The time-outs that the system was asked with."""
    asked: list[float | None] = []
    really = selectors.DefaultSelector.select

    def select(
        self: selectors.DefaultSelector, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        asked.append(timeout)
        return really(self, timeout)

    monkeypatch.setattr(selectors.DefaultSelector, "select", select)
    return asked


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each look at the clock takes the next of these, and then the last again."""
    times = [0.0]
    monkeypatch.setattr(
        event_loop, "perf_counter", lambda: times.pop(0) if len(times) > 1 else times[0]
    )
    return times


def test_sleeps_at_once_after_a_long_sleep(looks: list[float | None], clock: list[float]) -> None:
    clock[:] = [0.0, 1.0]
    with PollingSelector() as selector:
        selector.select(0.001)
        selector.select(0.001)
    assert looks == [0.001, 0.001]


def brisk(
    selector: PollingSelector, clock: list[float], waits: int = event_loop.SHORT_WAITS_MIN
) -> None:
    """So many short waits in a row."""
    for _ in range(waits):
        clock[:] = [0.0, event_loop.SHORT_WAIT_S / 2]
        selector.select(0.001)


def test_looks_again_after_short_waits(looks: list[float | None], clock: list[float]) -> None:
    with PollingSelector() as selector:
        brisk(selector, clock)
        looks.clear()
        clock[:] = [1.0, 1.0, 1.0 + event_loop.POLL_S / 2, 1.0 + event_loop.POLL_S]
        selector.select(0.001)
    assert looks == [0, 0, 0.001]


def test_a_few_short_waits_are_no_reason_to_look(
    looks: list[float | None], clock: list[float]
) -> None:
    with PollingSelector() as selector:
        brisk(selector, clock, event_loop.SHORT_WAITS_MIN - 1)
        clock[:] = [1.0, 2.0]
        selector.select(0.001)  # a long one
        brisk(selector, clock, event_loop.SHORT_WAITS_MIN - 1)
        clock[:] = [3.0, 4.0]
        selector.select(0.001)
    assert set(looks) == {0.001}


def test_input_that_arrives_while_polling_is_served(
    looks: list[float | None], clock: list[float]
) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, PollingSelector() as selector:
        selector.register(ours, selectors.EVENT_READ)
        brisk(selector, clock)
        looks.clear()
        theirs.send(b"!")
        [(key, _)] = selector.select(None)
        assert key.fileobj is ours
    assert looks == [0]


def test_a_poll_is_only_a_poll(looks: list[float | None], clock: list[float]) -> None:
    with PollingSelector() as selector:
        selector.select(0)
    assert looks == [0]


@pytest.mark.parametrize("attentive", [True, False])
def test_a_runner_runs(attentive: bool) -> None:
    settings = Settings(node=NodeSettings(loop="asyncio"))
    with new_runner(settings, polling=attentive) as runner:
        assert runner.run(asyncio.sleep(0.01, "slept")) == "slept"
