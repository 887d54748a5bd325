"""A flow that is killed at any point: PFL1, PFL2 and PFL3 against a model.

A broker redelivers unacknowledged messages; a process takes batches of them, and is killed before the commit, after
it, or between the confirms of its outputs.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from recado.patterns.flow import FlowOutput, FlowRuntime
from recado.patterns.message import Message
from recado.patterns.routing.aggregator import Aggregator
from recado.patterns.state import MemoryStore, StoredState
from tests.patterns.conftest import Clock
from tests.patterns.flows import Double, Sum, bodies, make_runtime
from tests.patterns.steps import KilledError

T = TypeVar("T")


class KillableStore(MemoryStore):
    """Dies before a commit or after it."""

    dies: str = ""

    async def run(self, function: Any, **options: Any) -> Any:
        def run(transaction: Any) -> Any:
            result = function(transaction)
            if self.dies == "before":
                raise KilledError
            return result

        result = await super().run(run, **options)
        if self.dies == "after":
            raise KilledError
        return result


class KillsMachine(RuleBasedStateMachine):
    """Numbers are doubled and summed, and the sums are joined in threes."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.content = StoredState()
        self.queue: list[int] = []  # ready or unacknowledged
        self.sent = 0
        self.published: list[Any] = []
        self.start()

    def start(self) -> None:
        """Another process: it publishes the outputs that it finds."""
        self.store = KillableStore(self.content, clock=self.clock)
        self.content.leases.clear()  # of the process that was killed
        self.runtime: FlowRuntime = make_runtime(
            self.store,
            Double(),
            Sum(),
            Aggregator(lambda messages: [message.body for message in messages], by="key", count=3),
        )
        self.drive(self.store.open())
        self.publish(self.drive(self.runtime.start()))

    def drive(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(coroutine)

    def teardown(self) -> None:
        self.drive(self.runtime.stop())
        self.start()
        self.deliver(len(self.queue))
        self.drive(self.runtime.stop())
        self.loop.close()
        assert self.unique() == self.expected(self.sent)

    def publish(self, outputs: list[FlowOutput], kill_after: int | None = None) -> None:
        confirmed = outputs if kill_after is None else outputs[:kill_after]
        self.published += [tuple(body) for body in bodies(confirmed)]
        if kill_after is not None:
            raise KilledError
        self.runtime.discard(confirmed)

    def deliver(self, count: int, kill_after: int | None = None) -> None:
        batch = self.queue[:count]
        messages = [Message(body=number, key="k", message_id=str(number)) for number in batch]
        results = self.drive(self.runtime.process(messages))
        assert not [result.error for result in results if result.error]
        outputs = [output for result in results for output in result.outputs]
        self.publish(outputs, kill_after)
        del self.queue[:count]

    def kill(self) -> None:
        """End the process as kill -9 does: nothing of it is left but its store."""
        renewal = self.runtime._renewal
        assert renewal is not None
        renewal.cancel()
        self.loop.run_until_complete(_settle(renewal))
        self.start()

    @rule(count=st.integers(1, 6))
    def send(self, count: int) -> None:
        self.queue += range(self.sent + 1, self.sent + 1 + count)
        self.sent += count

    @precondition(lambda self: self.queue)
    @rule(count=st.integers(1, 6))
    def process(self, count: int) -> None:
        self.deliver(count)

    @precondition(lambda self: self.queue)
    @rule(count=st.integers(1, 6), moment=st.sampled_from(["before", "after"]))
    def kill_at_the_commit(self, count: int, moment: str) -> None:
        self.store.dies = moment
        try:
            self.deliver(count)
        except KilledError:
            self.kill()
        else:
            raise AssertionError("the process lives")

    @precondition(lambda self: self.queue)
    @rule(count=st.integers(1, 6), confirmed=st.integers(0, 2))
    def kill_while_publishing(self, count: int, confirmed: int) -> None:
        try:
            self.deliver(count, kill_after=confirmed)
        except KilledError:
            self.kill()

    @rule()
    def kill_while_idle(self) -> None:
        self.kill()

    def unique(self) -> list[Any]:
        """The outputs in the order in which each was published first."""
        return list(dict.fromkeys(self.published))

    def expected(self, count: int) -> list[Any]:
        sums = [number * (number + 1) for number in range(1, count + 1)]
        return [tuple(sums[at : at + 3]) for at in range(0, len(sums) - 2, 3)]

    @invariant()
    def effects_are_once_and_in_order(self) -> None:
        unique = self.unique()
        assert unique == self.expected(self.sent)[: len(unique)]


async def _settle(task: Any) -> None:
    await asyncio.wait([task])


TestKills = KillsMachine.TestCase
TestKills.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
