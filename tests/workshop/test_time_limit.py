"""Time limits that grow with the load: the factor, the limit of a test, and the timer that enforces it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from workshop.time_limit import LOAD_FACTOR_MAX, ScaledLimit, extend_alarm, load_factor, scale


@pytest.mark.parametrize(
    ("load", "cores", "factor"),
    [
        (0.0, 2, 1.0),
        (2.0, 2, 1.0),
        (3.0, 2, 1.5),
        (30.0, 2, 15.0),
        (30.0, 64, 1.0),
        (1000.0, 2, LOAD_FACTOR_MAX),
    ],
)
def test_the_factor_is_the_load_of_a_core(load: float, cores: int, factor: float) -> None:
    assert load_factor(load, cores) == factor


def test_the_load_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0 * cores, 4.0 * cores, 90.0 * cores))
    assert load_factor() == 4.0
    assert scale(30.0) == 120.0


class Machine:
    """A clock and a load that a test sets."""

    def __init__(self, factor: float) -> None:
        self.now = 1000.0
        self.factor = factor

    def limit(self, limit_s: float) -> ScaledLimit:
        return ScaledLimit(limit_s, lambda: self.factor, lambda: self.now)


def test_on_an_idle_machine_the_limit_is_as_given() -> None:
    machine = Machine(factor=1.0)
    limit = machine.limit(120)
    assert limit.remaining() == 120
    machine.now += 119.5
    assert limit.remaining() == 0.5
    machine.now += 0.5
    assert limit.remaining() == 0


def test_load_that_comes_later_extends_the_limit() -> None:
    machine = Machine(factor=1.0)
    limit = machine.limit(120)
    machine.now += 120
    machine.factor = 15.0
    assert limit.remaining() == 14 * 120
    machine.now += 14 * 120
    assert limit.remaining() == 0


def test_the_highest_load_counts() -> None:
    machine = Machine(factor=3.0)
    limit = machine.limit(100)
    machine.factor = 1.0
    machine.now += 120
    assert limit.remaining() == 180


# ── the timer ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def _own_alarm() -> Iterator[None]:
    """The alarm is also the time limit of this test, and must be as it was."""
    handler, (left_s, _) = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    yield
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, left_s)


@pytest.mark.usefixtures("_own_alarm")
def test_the_alarm_rings_when_the_limit_has_passed() -> None:
    rung: list[int] = []

    def ring(number: int, frame: FrameType | None) -> None:
        rung.append(number)

    signal.signal(signal.SIGALRM, ring)
    machine = Machine(factor=1.0)
    extend_alarm(machine.limit(50))
    machine.factor, machine.now = 2.0, machine.now + 60
    signal.raise_signal(signal.SIGALRM)
    assert not rung
    assert 39 < signal.getitimer(signal.ITIMER_REAL)[0] <= 40
    machine.now += 40
    signal.raise_signal(signal.SIGALRM)
    assert rung == [signal.SIGALRM]


@pytest.mark.usefixtures("_own_alarm")
def test_without_a_handler_there_is_nothing_to_extend() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    extend_alarm(Machine(factor=1.0).limit(50))
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_the_limit_of_every_test_is_extended() -> None:
    """By `tests/conftest.py`, whatever the limit is."""
    handler = signal.getsignal(signal.SIGALRM)
    assert getattr(handler, "__module__", None) == "workshop.time_limit"
