"""Turns of the loop dispatcher are bounded, fair, and few."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from recado.actors import Actor, ActorSystem
from recado.actors.ref import current_cell
from recado.actors.runtime.loop_dispatcher import CELL_MESSAGES_MAX, EARLY_RUNS_MAX, TURN_CELLS_MAX
from tests.actors.cast import Echo, Say
from tests.feeds.io.loop import in_the_loop


class Relay(Actor[Say]):
    """Passes it on, round a circle."""

    def __init__(self, trace: list[int], number: int) -> None:
        self.trace = trace
        self.number = number

    def receive(self, message: Say) -> None:
        self.trace.append(self.number)
        name = f"relay{(self.number + 1) % 3}"
        self.system.actor(name, Relay).tell(message)


@in_the_loop
async def test_a_message_passes_through_many_actors_in_one_turn() -> None:  # TU1
    trace: list[int] = []
    async with ActorSystem() as system:
        for number in range(3):
            await system.spawn(partial(Relay, trace, number), name=f"relay{number}")
        system.actor("relay0", Relay).tell(Say("round and round"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(trace) in (TURN_CELLS_MAX, 2 * TURN_CELLS_MAX)
        assert trace == [number % 3 for number in range(len(trace))]


class Counter(Actor[Say | Echo]):
    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def receive(self, message: Say | Echo) -> None:
        self.counts[message.text] = self.counts.get(message.text, 0) + 1
        self.reply_if_asked(message.text)


@in_the_loop
async def test_everybody_gets_a_turn() -> None:  # TU1
    counts: dict[str, int] = {}
    async with ActorSystem() as system:
        refs = [await system.spawn(lambda: Counter(counts)) for _ in range(3)]
        for ref, name in zip(refs, "abc", strict=True):
            for _ in range(4 * CELL_MESSAGES_MAX):
                ref.tell(Say(name))
        most = 0
        while min(counts.get(name, 0) for name in "abc") < 4 * CELL_MESSAGES_MAX:
            spread = [counts.get(name, 0) for name in "abc"]
            most = max(most, max(spread) - min(spread))
            await asyncio.sleep(0)
        assert most <= CELL_MESSAGES_MAX


@in_the_loop
async def test_who_asks_without_end_leaves_turns_to_others() -> None:  # TU3
    counts: dict[str, int] = {}
    async with ActorSystem() as system:
        ref = await system.spawn(lambda: Counter(counts))

        async def ask_on() -> None:
            while True:
                await ref.ask(Echo("asked"))

        asking = asyncio.create_task(ask_on())
        for _ in range(10):
            before = counts.get("asked", 0)
            await asyncio.sleep(0)
            assert counts.get("asked", 0) - before <= 2 * EARLY_RUNS_MAX
        assert counts["asked"] > 2 * EARLY_RUNS_MAX  # and it is many at a time
        asking.cancel()


@in_the_loop
async def test_turns_may_be_taken_by_who_dispatches() -> None:
    counts: dict[str, int] = {}
    async with ActorSystem() as system:
        ref = await system.spawn(lambda: Counter(counts))
        assert system._loop_dispatcher.begin_batch()
        assert not system._loop_dispatcher.begin_batch()
        system._loop_dispatcher.end_batch()
        assert system._loop_dispatcher.begin_batch()
        ref.tell(Say("x"))
        assert counts == {}
        system._loop_dispatcher.end_batch()
        assert counts == {"x": 1}
        assert current_cell.get() is None
        ref.tell(Say("x"))
        assert not system._loop_dispatcher.begin_batch()
        assert await ref.ask(Echo("y")) == "y"
        assert counts == {"x": 2, "y": 1}


def test_a_handler_that_ends_the_program_leaves_the_others_in_order() -> None:
    counts: dict[str, int] = {}

    class Last(Actor[Say]):
        def receive(self, message: Say) -> None:
            raise SystemExit(message.text)

    async def life() -> None:
        async with ActorSystem() as system:
            last = await system.spawn(Last)
            other = await system.spawn(lambda: Counter(counts))
            last.tell(Say("bye"))
            other.tell(Say("still handled"))
            try:
                await asyncio.sleep(60)
            finally:
                await other.ask(Echo("still there"))
                await system.stop(last, grace=0.01)

    with pytest.raises(SystemExit, match="bye"):
        asyncio.run(life())
    assert counts == {"still handled": 1, "still there": 1}
