"""Flows: messages of one queue through a chain of steps, without sockets.

    messages ─→ stateless steps, possibly async ─→ │ stateful steps, and all behind them │ ─→ outputs
                                                   └───────── one transaction ───────────┘

The caller takes messages from a broker in batches, and for each batch

    results = await runtime.process(messages)
    publishes all outputs of the results in order, with confirms
    runtime.discard(outputs)
    acknowledges the messages, or retries those whose result is an error

A flow with state is active in one process at a time. `start` waits until no other process runs the flow, and
returns the outputs that the last one has stored and perhaps not published. A process that was frozen so long that
another one has taken over gets a `LeaseLostError` from its next transaction, which changes nothing.

PFL1  The changes of state by a message, its outputs and its id in the inbox are stored together or not at all. So
      a message with an id changes the state once, however often it is delivered.
PFL2  An output of a committed transaction is in the store until it was given to `discard`, and `start` returns it.
PFL3  Outputs are returned in the order of their transactions, also after another process has taken over.
PFL4  A process that has lost the lease of a flow commits no transaction of it.
PFL5  A message whose step fails changes nothing, and does not hold up the other messages of its batch.
"""

import asyncio
import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec

from .destination import Destination, DestinationLike, to_destination
from .errors import CompositionError, StateError
from .failure import to_failure
from .message import Message
from .publisher import EncodedPublish
from .state import StateStore, StoreTransaction
from .state.lease_owner import is_dead, new_owner
from .step import AnyFlowStep, FlowStep, Output, Outputs, Send, StatefulStep

T = TypeVar("T")

log = logging.getLogger("recado.patterns")

LEASE_S: Final = 3.0
LEASE_POLL_S: Final = 0.25
EXPIRY_RETRY_S: Final = 60.0
INBOX_AGE_MAX_S: Final = 24 * 3600.0
INBOX_IDS_MAX: Final = 100_000
REFUSED_SUFFIX: Final = " refused"  # of the partition of outputs that can be published nowhere
OUTPUTS_PER_READ: Final = 1000
DUE_ENTRIES_MAX: Final = 500

EncodeOutput: TypeAlias = Callable[[Message[Any], Destination], EncodedPublish]


class LeaseLostError(StateError):
    """Another process has taken over a flow, because this one did not renew its lease in time."""


class FlowOutput(msgspec.Struct, frozen=True):
    """An encoded output, and its id in the store if the flow has state."""

    publish: EncodedPublish
    stored_id: int | None = None


class FlowResult(msgspec.Struct, frozen=True):
    """The outputs of one message, or the error of the step that failed."""

    outputs: Sequence[FlowOutput] = ()
    error: Exception | None = None
    is_duplicate: bool = False


class FlowComposition:
    """The steps of a flow, checked.

    `prefix` are the steps before the first stateful one, `suffix` the others, which run in a transaction.
    """

    def __init__(self, name: str, steps: Sequence[AnyFlowStep]) -> None:
        """Check the steps; raises `CompositionError`."""
        for step in steps:
            if not isinstance(step, FlowStep | StatefulStep):
                raise CompositionError(
                    f"flow {name}: {step!r:.100} is neither a FlowStep nor a StatefulStep"
                )
        self.name: Final = name
        stateful = [isinstance(step, StatefulStep) for step in steps]
        first = stateful.index(True) if any(stateful) else len(steps)
        self.prefix: Final = cast("tuple[FlowStep, ...]", tuple(steps[:first]))
        self.suffix: Final = tuple(steps[first:])
        for step in self.suffix:
            if iscoroutinefunction(step.process) or isasyncgenfunction(step.process):
                raise CompositionError(
                    f"flow {name}: {type(step).__name__} is asynchronous, but it is behind {_name(self.suffix[0])} and"
                    " so would run inside its transaction; move it in front, or into a flow of its own"
                )
        self.tables: Final = [step.table for step in self.suffix if isinstance(step, StatefulStep)]
        repeated = {table for table in self.tables if self.tables.count(table) > 1}
        if repeated:
            raise CompositionError(
                f"flow {name}: two steps have the table '{repeated.pop()}'; give each a `table` of its own"
            )

    @property
    def has_state(self) -> bool:
        """Whether the flow needs a store."""
        return bool(self.suffix)

    def destinations(self) -> list[Destination]:
        """Return the destinations that the steps are known to send to."""
        return [
            to_destination(each)
            for step in (*self.prefix, *self.suffix)
            for each in step.destinations()
        ]

    async def run_prefix(self, message: Message[Any]) -> list[Output]:
        """Return the outputs of the stateless steps for a message."""
        outputs: list[Output] = [message]
        for step in self.prefix:
            following: list[Output] = []
            for output in outputs:
                if isinstance(output, Send):
                    following.append(output)
                else:
                    following.extend(await _collect(step.process(output)))
            outputs = following
        return outputs

    def run_suffix(
        self, output: Output, state: StoreTransaction, first: int = 0
    ) -> Iterator[Output]:
        """Yield the outputs of the steps of the suffix from number `first` for one output of the step before it."""
        if isinstance(output, Send) or first == len(self.suffix):
            yield output
            return
        step = self.suffix[first]
        if isinstance(step, StatefulStep):
            outputs = step.process(output, state)
        else:
            outputs = cast("Outputs", step.process(output))
        if isinstance(outputs, Awaitable | AsyncIterable):
            raise CompositionError(
                f"flow {self.name}: {_name(step)} returned an asynchronous result inside a transaction"
            )
        for following in outputs:
            yield from self.run_suffix(following, state, first + 1)


class FlowRuntime:
    """Runs the steps of one flow.

    Args:
        composition: its steps.
        encode: encodes a message for a destination; it is also called in the thread of the store.
        to: where messages go that reach the end; None drops them.
        store: an open store, if the flow has state.
        inbox_age_max: seconds for which the ids of processed messages are remembered.
        inbox_ids_max: how many of them are remembered.
        lease: seconds after which another process takes over from one that does not respond.
    """

    def __init__(
        self,
        composition: FlowComposition,
        *,
        encode: EncodeOutput,
        to: DestinationLike | None = None,
        store: StateStore | None = None,
        inbox_age_max: float = INBOX_AGE_MAX_S,
        inbox_ids_max: int = INBOX_IDS_MAX,
        lease: float = LEASE_S,
    ) -> None:
        if composition.has_state and store is None:
            raise CompositionError(
                f"flow {composition.name}: {_name(composition.suffix[0])} needs a store"
            )
        self.composition: Final = composition
        self.name: Final = composition.name
        self.next_deadline: float | None = None
        """When `expire` is to be called, in seconds since the epoch; None: no entry has a deadline."""
        self.processed_count = 0
        self.duplicate_count = 0
        self._encode = encode
        self._to = None if to is None else to_destination(to)
        self._store = store
        self._inbox_age_max = inbox_age_max
        self._inbox_ids_max = inbox_ids_max
        self._lease = lease
        self._lease_name = f"flow {self.name}"
        self._owner = new_owner()
        self._renewal: asyncio.Task[None] | None = None
        self._discarded: list[int] = []  # published outputs that are still in the store

    @property
    def has_state(self) -> bool:
        return self.composition.has_state

    # ── starting and stopping ─────────────────────────────────────────────────────────────────────────────

    async def start(self, on_standby: Callable[[], object] = lambda: None) -> list[FlowOutput]:
        """Wait until this process may run the flow; return the stored outputs, which must be published first.

        `on_standby` is called if another process runs it. Messages must not be consumed before this returns:
        those that the broker has delivered to a process on standby would wait there.
        """
        if not self.has_state:
            return []
        is_active = await self._run(self._acquire)
        if not is_active:
            on_standby()
        while not is_active:
            await asyncio.sleep(LEASE_POLL_S)
            is_active = await self._run(self._acquire)
        self._discarded.clear()
        self._renewal = asyncio.create_task(self._keep_lease(), name=f"lease of flow {self.name}")
        return await self._run(self._read_outputs)

    async def stop(self) -> None:
        """Remove discarded outputs, and let another process run the flow."""
        if self._renewal is None:
            return
        renewal, self._renewal = self._renewal, None
        renewal.cancel()
        with suppress(asyncio.CancelledError):
            await renewal
        discarded = self._take_discarded()
        with suppress(StateError):  # otherwise the lease expires
            await self._run(lambda transaction: self._release(transaction, discarded))

    def _acquire(self, transaction: StoreTransaction) -> bool:
        owner = transaction.leases(self._lease_name).get(self._lease_name)
        if owner is not None and is_dead(owner):
            transaction.release_lease(self._lease_name, owner)
        return transaction.acquire_lease(self._lease_name, self._owner, self._lease)

    def _read_outputs(self, transaction: StoreTransaction) -> list[FlowOutput]:
        self._check_lease(transaction)
        found: list[FlowOutput] = []
        rows = transaction.outputs(self._lease_name, limit=OUTPUTS_PER_READ)
        while rows:
            found += [FlowOutput(_decode_publish(row.content), row.id) for row in rows]
            rows = transaction.outputs(self._lease_name, after=rows[-1].id, limit=OUTPUTS_PER_READ)
        self._note_deadline(transaction)
        return found

    def _release(self, transaction: StoreTransaction, discarded: Sequence[int]) -> None:
        transaction.remove_outputs(discarded)
        transaction.release_lease(self._lease_name, self._owner)

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            try:
                held = await self._run(
                    lambda t: t.renew_lease(self._lease_name, self._owner, self._lease)
                )
            except StateError as error:
                log.warning("lease not renewed (flow=%s error=%s)", self.name, error)
                continue
            if not held:
                log.error("flow was taken over by another process (flow=%s)", self.name)
                return

    # ── processing ────────────────────────────────────────────────────────────────────────────────────────

    async def process(self, messages: Sequence[Message[Any]]) -> list[FlowResult]:
        """Process messages in order, in one transaction if the flow has state.

        Raises `StateError` if the store fails; all messages must then be redelivered.
        """
        prepared = await asyncio.gather(*(self._prepare(message) for message in messages))
        if not self.has_state:
            results = [self._encode_all(each) for each in prepared]
        else:
            results = await self._process_stored(list(zip(messages, prepared, strict=True)))
        self.processed_count += sum(result.error is None for result in results)
        self.duplicate_count += sum(result.is_duplicate for result in results)
        return results

    async def expire(self) -> list[FlowOutput]:
        """Run the steps that have entries whose deadlines have passed; return their outputs.

        An entry at which a step fails is tried again after `EXPIRY_RETRY_S`.
        """
        if not self.has_state:
            return []
        try:
            return await self._run_step(self._expire)
        except _StepFailedError:
            return await self._expire_one_by_one()

    def discard(self, outputs: Iterable[FlowOutput]) -> None:
        """Remove published outputs from the store, together with the next transaction."""
        self._discarded += [each.stored_id for each in outputs if each.stored_id is not None]

    async def set_aside(self, output: FlowOutput) -> bool:
        """Keep an output that can be published nowhere in a partition of its own; return False without a store."""
        stored_id = output.stored_id
        if stored_id is None:
            return False

        def move(transaction: StoreTransaction) -> None:
            content = msgspec.msgpack.encode(output.publish)
            transaction.add_output(f"{self._lease_name}{REFUSED_SUFFIX}", content)
            transaction.remove_outputs([stored_id])

        await self._run_step(move)
        return True

    async def flush(self) -> None:
        """Remove discarded outputs now; called while no messages arrive."""
        if self._discarded:
            await self._run_step(lambda transaction: None)

    async def _prepare(self, message: Message[Any]) -> "list[Output] | Exception":
        try:
            return await self.composition.run_prefix(message)
        except BaseException as raised:  # noqa: BLE001 - of the program
            return to_failure(raised)

    def _encode_all(self, outputs: "list[Output] | Exception") -> FlowResult:
        if isinstance(outputs, Exception):
            return FlowResult(error=outputs)
        try:
            return FlowResult([FlowOutput(each) for each in self._encoded(outputs)])
        except Exception as error:  # noqa: BLE001 - of the program
            return FlowResult(error=error)

    async def _process_stored(self, batch: Sequence["_Prepared"]) -> list[FlowResult]:
        try:
            return await self._run_step(lambda transaction: self._process_all(transaction, batch))
        except _StepFailedError as error:
            if len(batch) == 1:
                return [FlowResult(error=error.cause)]
        # All is rolled back, so each message gets a transaction of its own (PFL5).
        return [(await self._process_stored([each]))[0] for each in batch]

    def _process_all(
        self, transaction: StoreTransaction, batch: Sequence["_Prepared"]
    ) -> list[FlowResult]:
        results = []
        for message, prepared in batch:
            if isinstance(prepared, Exception):
                results.append(FlowResult(error=prepared))
            elif message.message_id is not None and not transaction.mark_processed(
                self.name, message.message_id
            ):
                results.append(FlowResult(is_duplicate=True))
            else:
                outputs = self._store_outputs(
                    transaction,
                    (
                        output
                        for first in prepared
                        for output in self.composition.run_suffix(first, transaction)
                    ),
                )
                results.append(FlowResult(outputs))
        transaction.forget_processed(
            self.name, age_max=self._inbox_age_max, count_max=self._inbox_ids_max
        )
        return results

    def _expire(self, transaction: StoreTransaction) -> list[FlowOutput]:
        outputs: list[FlowOutput] = []
        for number, step in enumerate(self.composition.suffix):
            if isinstance(step, StatefulStep):
                outputs += self._expire_step(transaction, number, step)
        return outputs

    def _expire_step(
        self, transaction: StoreTransaction, number: int, step: StatefulStep
    ) -> list[FlowOutput]:
        return self._store_outputs(
            transaction,
            (
                output
                for first in step.expire(transaction)
                for output in self.composition.run_suffix(first, transaction, number + 1)
            ),
        )

    def _expire_key(
        self, number: int, step: StatefulStep, key: str, transaction: StoreTransaction
    ) -> list[FlowOutput]:
        return self._expire_step(_OneDue(transaction, key), number, step)

    async def _expire_one_by_one(self) -> list[FlowOutput]:
        """Run the steps with one due entry in each transaction, to find the entry at which one fails."""
        outputs: list[FlowOutput] = []
        for number, step in enumerate(self.composition.suffix):
            if not isinstance(step, StatefulStep):
                continue
            for key in await self._run(partial(_due_keys, step.table)):
                try:
                    outputs += await self._run_step(partial(self._expire_key, number, step, key))
                except _StepFailedError as error:
                    log.exception(
                        "step failed at a deadline, trying again later (flow=%s step=%s key=%.100r retry_s=%d)",
                        self.name,
                        type(step).__name__,
                        key,
                        EXPIRY_RETRY_S,
                        exc_info=error.cause,
                    )
                    await self._run_step(partial(_postpone, step.table, key))
        return outputs

    # ── transactions ──────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, function: Callable[[StoreTransaction], T]) -> T:
        assert self._store is not None
        return await self._store.run(function, locks=self.composition.tables)

    async def _run_step(self, function: Callable[[StoreTransaction], T]) -> T:
        """Run a function that changes state under the lease of the flow."""
        discarded = self._take_discarded()

        def run(transaction: StoreTransaction) -> tuple[T, float | None]:
            self._check_lease(transaction)
            transaction.remove_outputs(discarded)
            try:
                result = function(transaction)
            except StateError:
                raise
            except BaseException as raised:
                raise _StepFailedError(to_failure(raised)) from raised
            return result, transaction.next_deadline(self.composition.tables)

        try:
            result, self.next_deadline = await self._run(run)
        except BaseException:
            self._discarded = discarded + self._discarded
            raise
        return result

    def _take_discarded(self) -> list[int]:
        discarded, self._discarded = self._discarded, []
        return discarded

    def _check_lease(self, transaction: StoreTransaction) -> None:
        if not transaction.renew_lease(self._lease_name, self._owner, self._lease):
            raise LeaseLostError(
                f"flow {self.name} was taken over by another process, because this one did not renew its lease"
                f" within {self._lease:g} s"
            )

    def _note_deadline(self, transaction: StoreTransaction) -> None:
        self.next_deadline = transaction.next_deadline(self.composition.tables)

    # ── outputs ───────────────────────────────────────────────────────────────────────────────────────────

    def _encoded(self, outputs: Iterable[Output]) -> Iterator[EncodedPublish]:
        for output in outputs:
            if isinstance(output, Send):
                destination, message = to_destination(output.to), output.message
            elif self._to is not None:
                destination, message = self._to, output
            else:
                continue
            # A broker refuses the user id of another user.
            yield self._encode(message.replace(delivery=None, attempt=1, user_id=None), destination)

    def _store_outputs(
        self, transaction: StoreTransaction, outputs: Iterable[Output]
    ) -> list[FlowOutput]:
        return [
            FlowOutput(each, transaction.add_output(self._lease_name, msgspec.msgpack.encode(each)))
            for each in self._encoded(outputs)
        ]


_Prepared: TypeAlias = tuple[Message[Any], "list[Output] | Exception"]


class _StepFailedError(Exception):
    """A step raised; the transaction is rolled back."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class _OneDue:
    """A transaction in which one key at most is due."""

    def __init__(self, transaction: StoreTransaction, key: str) -> None:
        self._transaction = transaction
        self._key = key

    def due(self, table: str, limit: int) -> list[tuple[str, bytes]]:
        found = self._transaction.due(table, DUE_ENTRIES_MAX)
        return [each for each in found if each[0] == self._key][:limit]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


def _due_keys(table: str, transaction: StoreTransaction) -> list[str]:
    return [key for key, _ in transaction.due(table, DUE_ENTRIES_MAX)]


def _postpone(table: str, key: str, transaction: StoreTransaction) -> None:
    value = transaction.get(table, key)
    if value is not None:
        transaction.put(table, key, value, deadline=transaction.now + EXPIRY_RETRY_S)


_decode_publish: Final = msgspec.msgpack.Decoder(EncodedPublish).decode


async def _collect(outputs: Any) -> Iterable[Output]:
    """Return the outputs of a stateless step, which may be asynchronous."""
    if isinstance(outputs, AsyncIterable):
        return [each async for each in outputs]
    found: Outputs = await outputs if isinstance(outputs, Awaitable) else outputs
    return found


def _name(step: AnyFlowStep) -> str:
    return type(step).__name__
