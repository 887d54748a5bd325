"""Checkpoints on a channel that is played by the test: one question for many messages, and none in vain."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from recado.actors.remote.amqp.confirmation import CheckpointPublisher
from recado.client import Channel, ConnectionLostError
from tests.actors.remote.running import in_a_loop


class Line:
    """A channel that answers when the test lets it."""

    def __init__(self) -> None:
        self.published: list[bytes] = []
        self.questions: list[asyncio.Future[None]] = []
        self.is_open = True
        self.asked = asyncio.Event()

    def publish(self, exchange: str, key: str, body: bytes, *_: Any, mandatory: bool) -> int:
        assert mandatory
        self.published.append(body)
        return 0

    async def qos(self, prefetch: int) -> None:
        self.questions.append(asyncio.get_running_loop().create_future())
        self.asked.set()
        await self.questions[-1]

    async def answer(self) -> None:
        await self.asked.wait()
        self.asked.clear()
        self.questions[-1].set_result(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def publish(checkpoints: CheckpointPublisher, count: int) -> list[int]:
    return [checkpoints.publish("x", "k", b"frame", b"") for _ in range(count)]


@pytest.fixture
def settled() -> list[range]:
    return []


def on(line: Line, settled: list[range]) -> CheckpointPublisher:
    def note(numbers: range, ok: bool) -> None:
        assert ok
        settled.append(numbers)

    return CheckpointPublisher(cast(Channel, line), note)


@in_a_loop
async def test_one_question_for_all_that_was_published_before_it(settled: list[range]) -> None:
    line = Line()
    checkpoints = on(line, settled)
    assert publish(checkpoints, 3) == [1, 2, 3]
    assert not line.questions
    await line.asked.wait()
    assert publish(checkpoints, 2) == [4, 5]
    await line.answer()
    assert settled == [range(1, 4)]
    await line.answer()
    assert settled == [range(1, 4), range(4, 6)]
    assert len(line.questions) == 2


@in_a_loop
async def test_who_waits_does_not_wait_for_the_next_time(settled: list[range]) -> None:
    line = Line()
    checkpoints = on(line, settled)
    publish(checkpoints, 1)
    checkpoints.request_confirm()
    checkpoints.request_confirm()
    await line.answer()
    assert settled == [range(1, 2)]
    assert len(line.questions) == 1


@in_a_loop
async def test_what_was_before_one_that_came_back_is_settled(settled: list[range]) -> None:
    line = Line()
    checkpoints = on(line, settled)
    publish(checkpoints, 5)
    checkpoints.mark_returned(3)
    assert settled == [range(1, 4)]
    checkpoints.request_confirm()
    await line.asked.wait()
    publish(checkpoints, 2)
    checkpoints.mark_returned(6)  # it arrives before the answer
    assert settled == [range(1, 4), range(4, 7)]
    await line.answer()
    assert settled == [range(1, 4), range(4, 7)]
    checkpoints.request_confirm()
    await line.answer()
    assert settled[2:] == [range(7, 8)]


@in_a_loop
async def test_nothing_is_settled_when_the_channel_has_ended(settled: list[range]) -> None:
    line = Line()
    checkpoints = on(line, settled)
    publish(checkpoints, 1)
    await line.asked.wait()
    line.is_open = False
    line.questions[0].set_exception(ConnectionLostError("it broke"))
    await asyncio.sleep(0)
    checkpoints.request_confirm()
    assert not settled
    assert len(line.questions) == 1
