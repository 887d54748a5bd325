"""Messages for actors that are not spawned yet: held in order, and for a short time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from recado.actors.remote.inbound.warmup import POLL_INTERVAL_S, WarmupBuffer


class Handle:
    def cancel(self) -> None:
        raise AssertionError("nothing is cancelled here")


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Handle:
        self.calls.append((self.now + delay, partial(callback, *args)))
        return Handle()

    def pass_(self, seconds: float) -> None:
        self.now += seconds
        while due := [call for call in self.calls if call[0] <= self.now]:
            first = min(due, key=lambda call: call[0])
            self.calls.remove(first)
            first[1]()


class Story:
    def __init__(self) -> None:
        self.clock = Hands()
        self.there: set[str] = set()
        self.delivered: list[str] = []
        self.early = WarmupBuffer(self.clock, self.there.__contains__)
        self.early.open(2.0)

    def come(self, name: str, what: str) -> None:
        deliver = partial(self.delivered.append, what)
        if self.early.is_open and self.early.must_hold(name):
            self.early.hold(name, deliver)
        else:
            deliver()


def test_who_is_there_does_not_wait() -> None:
    story = Story()
    story.there.add("book")
    story.come("book", "a")
    assert story.delivered == ["a"]


def test_what_came_early_is_delivered_in_order_when_somebody_comes() -> None:
    story = Story()
    story.come("book", "a")
    story.come("other", "x")
    story.there.add("book")
    story.come("book", "b")  # not before the first
    assert story.delivered == []
    story.clock.pass_(POLL_INTERVAL_S)
    story.come("book", "c")
    assert story.delivered == ["a", "b", "c"]


def test_nothing_waits_longer_than_the_warm_up(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    story.come("book", "a")
    story.clock.pass_(1.9)
    assert story.delivered == []
    story.clock.pass_(0.1)
    assert caplog.messages == [
        "warm-up ended: messages for actors that were not spawned (messages=1 names=1 setting=warm_up)"
    ]
    story.come("book", "b")
    assert story.delivered == ["a", "b"]
    assert not story.early.is_open


def test_without_a_warm_up_nothing_waits() -> None:
    story = Story()
    story.early.open(0.0)
    story.come("book", "a")
    assert story.delivered == ["a"]


def test_what_is_held_at_the_end_is_not_delivered() -> None:
    """It is not settled either, so it is redelivered to the next incarnation."""
    story = Story()
    story.come("book", "a")
    story.early.close()
    story.clock.pass_(3.0)
    assert story.delivered == []
