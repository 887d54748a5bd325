"""Threads send at full speed while actors fail and stop: every message is handled or a dead letter."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator

import pytest

from recado.actors import TEMPORARY, Actor, ActorSystem, Message, OneForOne
from tests.feeds.io.loop import in_the_loop, until

from .test_cell import Threads

SENDERS, EACH = 4, 300


class Sent(Message[None]):
    sender: int
    number: int


class Recorder(Actor[Sent]):
    def __init__(self, log: list[Sent]) -> None:
        self.log = log
        self.inside = 0

    def receive(self, message: Sent) -> None:
        self.inside += 1
        assert self.inside == 1
        self.log.append(message)
        self.inside -= 1
        if message.number % 97 == 96:
            raise ValueError


@pytest.fixture(autouse=True)
def _threads_that_interrupt_each_other_often() -> Iterator[None]:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.parametrize("capacity", [0, 5])
@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("stop_after", [None, 0, 20])
def test_nothing_is_lost(threads: int, capacity: int, stop_after: int | None) -> None:
    @in_the_loop
    async def play() -> None:
        pool, logs = Threads(threads) if threads else None, [list[Sent]() for _ in range(4)]
        async with ActorSystem() as system:
            refs = [
                await system.spawn(
                    lambda log=log: Recorder(log),  # type: ignore[misc]
                    dispatcher=pool,
                    capacity=capacity,
                    supervisor_strategy=OneForOne(None),
                )
                for log in logs
            ]

            def send(sender: int) -> None:
                for number in range(EACH):
                    refs[number % len(refs)].tell(Sent(sender, number))

            senders = [threading.Thread(target=send, args=(sender,)) for sender in range(SENDERS)]
            for thread in senders:
                thread.start()
            if stop_after is not None:
                for _ in range(stop_after):
                    await asyncio.sleep(0)
                for ref in refs:
                    ref.stop()
            for thread in senders:
                await asyncio.to_thread(thread.join)
            await until(lambda: sum(map(len, logs)) + system.dead_letter_count == SENDERS * EACH)
            if stop_after is None:
                assert not system.dead_letter_count
        if pool is not None:
            pool.pool.shutdown()
        for log in logs:
            for sender in range(SENDERS):
                numbers = [sent.number for sent in log if sent.sender == sender]
                assert numbers == sorted(numbers)

    play()


def test_a_temporary_actor_that_fails_among_threads() -> None:
    @in_the_loop
    async def play() -> None:
        log: list[Sent] = []
        async with ActorSystem() as system:
            ref = await system.spawn(lambda: Recorder(log), restart_type=TEMPORARY)
            senders = [
                threading.Thread(target=lambda: [ref.tell(Sent(0, 96)) for _ in range(EACH)])  # type: ignore[func-returns-value]
                for _ in range(SENDERS)
            ]
            for thread in senders:
                thread.start()
            for thread in senders:
                await asyncio.to_thread(thread.join)
            await until(lambda: system.dead_letter_count == SENDERS * EACH - 1)
        assert len(log) == 1

    play()
