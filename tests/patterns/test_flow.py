"""Flows: PFL1 to PFL5, in memory, in SQLite and in PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from recado.patterns.errors import CompositionError, StateError
from recado.patterns.flow import EXPIRY_RETRY_S, FlowComposition, LeaseLostError
from recado.patterns.message import Message
from recado.patterns.state import MemoryStore, StoredState
from recado.patterns.step import FlowStep, Outputs, StatefulStep, StateTransaction
from tests.client.running import in_a_loop, soon
from tests.patterns.conftest import Clock, NewStore, opened
from tests.patterns.flows import (
    AsyncRepeat,
    BreakdownError,
    Double,
    Sum,
    all_bodies,
    bodies,
    deadline_of,
    make_runtime,
    messages,
    outputs_of,
)


@in_a_loop
async def test_a_stateless_flow_needs_no_store() -> None:
    runtime = make_runtime(None, AsyncRepeat(), Double())
    assert not runtime.has_state
    assert await runtime.start() == []
    results = await runtime.process(messages(1, "x", 2))
    assert all_bodies(results) == [1, 2, 2, 4]
    assert [output.publish.key for output in outputs_of(results)] == ["copies", "out"] * 2
    assert isinstance(results[1].error, BreakdownError)
    assert results[1].outputs == ()
    assert await runtime.expire() == []
    runtime.discard(outputs_of(results))
    await runtime.flush()
    await runtime.stop()


@in_a_loop
async def test_a_batch_is_one_transaction(new_store: NewStore) -> None:
    """PFL1, PFL2: a redelivered message changes nothing, and outputs that were not discarded are returned."""
    async with opened(new_store()) as store:
        runtime = make_runtime(store, AsyncRepeat(), Double(), Sum(), Double())
        assert await runtime.start() == []
        results = await runtime.process(messages(1, 2))
        assert all_bodies(results) == [1, 4, 2, 12]
        runtime.discard(results[0].outputs)
        again = await runtime.process(messages(2, 3, 3))
        assert [result.is_duplicate for result in again] == [True, False, True]
        assert all_bodies(again) == [3, 24]
        assert (runtime.processed_count, runtime.duplicate_count) == (5, 2)
        await runtime.stop()

    async with opened(new_store()) as store:
        runtime = make_runtime(store, AsyncRepeat(), Double(), Sum(), Double())
        pending = await runtime.start()
        assert bodies(pending) == [2, 12, 3, 24]
        assert pending == [*results[1].outputs, *outputs_of(again)]
        runtime.discard(pending)
        await runtime.flush()
        await runtime.stop()
        assert await runtime.start() == []
        await runtime.stop()


@in_a_loop
async def test_messages_without_an_id_are_always_processed(new_store: NewStore) -> None:
    async with opened(new_store()) as store:
        runtime = make_runtime(store, Sum())
        await runtime.start()
        message = Message(body=1)
        assert all_bodies(await runtime.process([message, message])) == [1, 2]
        await runtime.stop()


@in_a_loop
async def test_a_message_that_fails_changes_nothing(new_store: NewStore) -> None:
    """PFL5"""
    async with opened(new_store()) as store:
        runtime = make_runtime(store, Sum(), Double(), Sum("second"))
        await runtime.start()
        await runtime.process(messages(1))
        results = await runtime.process(messages(2, "x", 3))
        assert [type(result.error) for result in results] == [type(None), TypeError, type(None)]
        assert all_bodies(results) == [8, 20]
        # It is not in the inbox, so the next attempt processes it.
        (result,) = await runtime.process([Message(body=4, message_id="id-x")])
        assert bodies(result.outputs) == [40]
        await runtime.stop()


@in_a_loop
async def test_a_message_that_fails_before_the_transaction_is_not_in_the_inbox(
    new_store: NewStore,
) -> None:
    async with opened(new_store()) as store:
        runtime = make_runtime(store, Double(), Sum())
        await runtime.start()
        results = await runtime.process([Message(body="x", message_id="1"), *messages(1)])
        assert isinstance(results[0].error, BreakdownError)
        assert all_bodies(results) == [2]
        assert all_bodies(await runtime.process([Message(body=1, message_id="1")])) == [4]
        await runtime.stop()


@in_a_loop
async def test_deadlines_run_the_steps_behind(new_store: NewStore, clock: Clock) -> None:
    async with opened(new_store()) as store:
        runtime = make_runtime(store, Sum(), Double())
        await runtime.start()
        assert deadline_of(runtime) is None
        await runtime.process(messages(1))
        assert deadline_of(runtime) == clock.now + 60
        assert await runtime.expire() == []
        clock.now += 60
        outputs = await runtime.expire()
        assert bodies(outputs) == [-2]
        assert deadline_of(runtime) is None
        await runtime.stop()
        assert bodies(await runtime.start())[-1] == -2
        await runtime.stop()


class Alarms(StatefulStep):
    """Yields a body after ten seconds; a negative one fails then."""

    table = "alarms"

    def process(self, message: Message[Any], state: StateTransaction) -> Outputs:
        state.put(self.table, str(message.body), b"", deadline=state.now + 10)
        return ()

    def expire(self, state: StateTransaction) -> Outputs:
        for key, _ in state.due(self.table, 100):
            state.delete(self.table, key)
            if key.startswith("-"):
                raise BreakdownError(key)
            yield Message(body=int(key))


@in_a_loop
async def test_an_entry_that_fails_at_its_deadline_is_tried_again_later(
    new_store: NewStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(new_store()) as store:
        runtime = make_runtime(store, Alarms(), Sum())
        await runtime.start()
        await runtime.process(messages(1, -2, 3))
        clock.now += 10
        assert bodies(await runtime.expire()) == [1, 4]
        assert "trying again later (flow=flow step=Alarms key='-2' retry_s=60)" in caplog.text
        assert deadline_of(runtime) == clock.now + EXPIRY_RETRY_S
        await runtime.stop()


@in_a_loop
async def test_one_process_runs_a_flow_at_a_time(new_store: NewStore) -> None:
    """PFL3, PFL4"""
    async with opened(new_store()) as one, opened(new_store()) as two:
        first, second = make_runtime(one, Sum()), make_runtime(two, Sum())
        other = make_runtime(two, Sum("other"), name="other")
        await first.start()
        await soon(other.start())
        waiting = asyncio.create_task(second.start())
        await first.process(messages(1))
        assert not waiting.done()
        await first.stop()
        assert bodies(await soon(waiting)) == [1]
        assert all_bodies(await second.process(messages(1, 2))) == [3]
        with pytest.raises(LeaseLostError, match="taken over"):
            await first.process(messages(4))
        with pytest.raises(LeaseLostError, match="taken over"):
            await first.expire()
        assert all_bodies(await second.process(messages(4))) == [7]
        await second.stop()
        await other.stop()


@in_a_loop
async def test_an_expired_lease_is_taken_over(caplog: pytest.LogCaptureFixture) -> None:
    """A process that does not renew its lease loses it, and notices (PFL4)."""
    content, clock = StoredState(), Clock()
    async with (
        opened(MemoryStore(content, clock=clock)) as one,
        opened(MemoryStore(content, clock=clock)) as two,
    ):
        first, second = (make_runtime(each, Sum(), lease=0.3) for each in (one, two))
        await first.start()
        await first.process(messages(1))
        clock.now += 1
        assert bodies(await soon(second.start())) == [1]
        with pytest.raises(LeaseLostError):
            await first.process(messages(2))
        async with asyncio.timeout(30):
            while "taken over by another process (flow=flow)" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await first.stop()
        assert all_bodies(await second.process(messages(2))) == [3]
        await second.stop()


@in_a_loop
async def test_the_inbox_is_bounded(new_store: NewStore) -> None:
    async with opened(new_store()) as store:
        runtime = make_runtime(store, Sum(), inbox_ids_max=2)
        await runtime.start()
        await runtime.process(messages(1, 2, 3))
        assert [r.is_duplicate for r in await runtime.process(messages(3, 2))] == [True, True]
        assert [r.is_duplicate for r in await runtime.process(messages(1))] == [False]
        await runtime.stop()


@in_a_loop
async def test_a_closed_store_fails_the_batch_as_a_whole() -> None:
    store = MemoryStore()
    async with opened(store):
        runtime = make_runtime(store, Sum())
        await runtime.start()
    with pytest.raises(StateError, match="not open"):
        await runtime.process(messages(1))
    await runtime.stop()


class AsyncStep(FlowStep):
    async def process(self, message: Message[Any]) -> list[Any]:
        return [message]


class HiddenAsyncStep(FlowStep):
    def process(self, message: Message[Any]) -> AsyncIterator[Any]:
        return AsyncRepeat().process(message)


def test_compositions_that_cannot_work_are_refused() -> None:
    with pytest.raises(CompositionError, match="AsyncStep is asynchronous, but it is behind Sum"):
        FlowComposition("orders", [Double(), Sum(), AsyncStep()])
    with pytest.raises(CompositionError, match="two steps have the table 'sum'"):
        FlowComposition("orders", [Sum(), Sum()])
    with pytest.raises(CompositionError, match="neither a FlowStep nor a StatefulStep"):
        FlowComposition("orders", [print])  # type: ignore[list-item]
    with pytest.raises(CompositionError, match="flow flow: Sum needs a store"):
        make_runtime(None, Sum())


@in_a_loop
async def test_an_asynchronous_result_in_a_transaction_fails_the_message() -> None:
    async with opened(MemoryStore()) as store:
        runtime = make_runtime(store, Sum(), HiddenAsyncStep())
        await runtime.start()
        (result,) = await runtime.process(messages(1))
        assert isinstance(result.error, CompositionError)
        await runtime.stop()


@in_a_loop
async def test_without_a_destination_messages_end_with_the_flow() -> None:
    runtime = make_runtime(None, AsyncStep(), AsyncRepeat(), to=None)
    results = await runtime.process(messages(1))
    assert [output.publish.key for output in outputs_of(results)] == ["copies"]
