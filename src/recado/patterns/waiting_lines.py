"""Ordered retries: while a message of a key waits for its next attempt, later messages of the key wait behind it.

They wait in the state store, in one line for each key. So they hold no worker and no unacknowledged delivery, and all
processes see the same lines.

    delivery ─→ has its key a line? ── no ──→ handler ── failed ──→ begins a line, whose turn comes after the delay
                     │ yes, or all handlers run
                     └─→ joins or begins it, and is acknowledged

    line ─→ its turn has come: one process claims it ─→ handler ─→ its first message leaves, the next one has its turn
                                                           └─ failed ─→ its turn comes after the delay, or it is parked

PWL1  A message whose key has a line is handled after all messages in front of it were handled or parked.
PWL2  A message leaves the broker when it is stored in a line, and a line when what follows from it is confirmed.
PWL3  An attempt is counted before the handler is called, so one that ends with its process counts too.
PWL4  One process at a time handles the messages of a line. If it dies, another one continues: within `POLL_S` on the
      same machine, otherwise within `2 * LEASE_S`.
PWL5  Within a process, a message is not handled beside another one of its key.

A message that is delivered again, because its process was killed between storing and acknowledging it, is recognised
by its message id.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from recado.amqp.properties import Properties, encode_properties
from recado.client import Delivery
from recado.client.messages import DeliverySource

from .errors import StateError
from .failure import DELIVERY_COUNT_HEADER, read_count
from .message import Message
from .reception import Received
from .routing.message_field import MessageField, to_key, to_reader
from .state import StateStore, StoreTransaction
from .state.lease_owner import is_dead, new_owner

T = TypeVar("T")

log = logging.getLogger("recado.patterns")

LEASE_S: Final = 3.0
POLL_S: Final = 1.0  # between two looks for lines that other processes have begun or left
DUE_LINES_MAX: Final = 100

Process: TypeAlias = Callable[[Received], Awaitable[None]]


class _Line(msgspec.Struct, array_like=True):
    """A line: its messages have the numbers from `first` to before `end`."""

    first: int
    end: int
    turn: float  # of the first message, in seconds since the epoch
    claims: int = 0  # of the first message, since its last recorded attempt


class _WaitingMessage(msgspec.Struct, array_like=True, frozen=True):
    body: bytes
    properties: bytes
    exchange: str
    routing_key: str
    redelivered: bool
    message_id: str


class _Claim(msgspec.Struct, frozen=True):
    key: str
    waiting: _WaitingMessage
    claims: int  # before this one


class _Retry(msgspec.Struct, frozen=True):
    properties: Properties
    seconds: float


class _Turn:
    """The turn of the first message of a line: the channel of its delivery, which learns how it ends."""

    is_open = True

    def __init__(self) -> None:
        self.is_done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.retry: _Retry | None = None  # when it failed

    def ack(self, delivery: Delivery, *, multiple: bool = False) -> bool:
        return self._end(True)

    def nack(self, delivery: Delivery, *, multiple: bool = False, requeue: bool = True) -> bool:
        return self._end(False)

    def _end(self, outcome: bool) -> bool:
        if not self.is_done.done():
            self.is_done.set_result(outcome)
        return True


class WaitingLines:
    """The waiting lines of an endpoint.

    Args:
        tag: of the endpoint, by which its lines are stored.
        ordered_by: the field or function that names the key of a message.
        store: an open store, which all processes of the endpoint share.
    """

    def __init__(self, tag: str, ordered_by: MessageField, store: StateStore) -> None:
        self._tag = tag
        self._field = ordered_by
        self._read_key = to_reader(ordered_by)
        self._state = store
        self._lines = f"line {tag}"
        self._messages = f"line {tag} messages"
        self._ids = f"line {tag} ids"
        self._owner = new_owner()
        self._slots_count = 1
        self._slots = asyncio.Semaphore(1)
        self._changed = asyncio.Event()
        self._seconds_to_turn: float | None = None
        self._busy: set[str] = set()  # keys of which this process handles a message

    # ── entering ──────────────────────────────────────────────────────────────────────────────────────────

    async def enter(self, received: Received, message: Message[Any]) -> Received | None:
        """Return a delivery with its key, or None if it has joined a line; it is acknowledged then.

        The delivery has a slot then, until `leave` is called. A message without a key has no order. Raises
        `RejectMessageError` if the key is not a text or number.
        """
        if isinstance(received.delivery.source.channel, _Turn):
            return received
        value = self._read_key(message)
        if value is None or value == "":
            await self._slots.acquire()
            return received
        key = to_key(value, self._field)
        waiting = _to_waiting(received, received.delivery.raw_properties)
        # A delivery that waited for a slot here would cost an attempt if this process were killed.
        has_slot = key not in self._busy and not self._slots.locked()
        if has_slot:
            await self._slots.acquire()  # at once
            self._busy.add(key)
        entered = msgspec.structs.replace(received, line=key)
        try:
            has_joined = await self._run(partial(self._join, key, waiting, not has_slot))
        except BaseException:
            if has_slot:
                self.leave(entered)
            raise
        if not has_joined:
            return entered
        received.delivery.ack()
        if has_slot:
            self.leave(entered)
        self._changed.set()
        return None

    def leave(self, received: Received) -> None:
        """Free the slot of a delivery, and let the next message of its key have its turn."""
        if not isinstance(received.delivery.source.channel, _Turn):
            self._slots.release()
            if received.line is not None:
                self._busy.discard(received.line)
                self._changed.set()

    def _join(
        self, key: str, waiting: _WaitingMessage, begins: bool, transaction: StoreTransaction
    ) -> bool:
        """Store a message at the end of its line; return False if there is none and it does not begin one."""
        line = self._read(key, transaction)
        if line is None:
            if not begins:
                return False
            line = _Line(0, 0, transaction.now)
        if not self._is_known(waiting, transaction):
            self._store(key, line.end, waiting, transaction)
            line.end += 1
            self._write(key, line, transaction)
        return True

    async def wait_for_retry(
        self, received: Received, properties: Properties, seconds: float
    ) -> None:
        """Store a failed message; its next attempt is after so many seconds, before later messages of its key."""
        assert received.line is not None
        turn = received.delivery.source.channel
        if isinstance(turn, _Turn):
            turn.retry = _Retry(properties, seconds)
            return
        waiting = _to_waiting(received, encode_properties(properties))
        await self._run(partial(self._begin, received.line, waiting, seconds))
        self._changed.set()

    def _begin(
        self, key: str, waiting: _WaitingMessage, seconds: float, transaction: StoreTransaction
    ) -> None:
        """Store a message at the head of its line, or at the end while another process handles the head."""
        line = self._read(key, transaction)
        if line is None:
            line = _Line(0, 0, 0.0)
        elif self._is_known(waiting, transaction):
            return
        elif transaction.leases(self._lease_name(key)):
            self._join(key, waiting, True, transaction)
            return
        line.first, line.claims, line.turn = line.first - 1, 0, transaction.now + seconds
        self._store(key, line.first, waiting, transaction)
        self._write(key, line, transaction)

    # ── serving ───────────────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def serve(self, process: Process, slots_count: int, queue: str) -> AsyncIterator[None]:
        """Process the messages of lines whose turn has come, while the block runs.

        They share the slots with deliveries: so many messages are handled at the same time. At the end of the block,
        this waits for the messages that are being processed.
        """
        if (
            slots_count != self._slots_count
        ):  # otherwise handlers of the consumer before may still have slots
            self._slots_count, self._slots = slots_count, asyncio.Semaphore(slots_count)
        running: set[asyncio.Task[None]] = set()
        serving = asyncio.create_task(self._serve(process, queue, running))
        try:
            yield
            serving.cancel()
            await asyncio.wait([serving])
            if running:
                await asyncio.wait(running)
        finally:
            left = [serving, *running]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _serve(self, process: Process, queue: str, running: set[asyncio.Task[None]]) -> None:
        slots = self._slots
        while True:
            await slots.acquire()
            claim = None
            try:
                self._changed.clear()
                claim = await self._claim()
            finally:
                if claim is None:
                    slots.release()
            if claim is None:
                await self._wait_for_turn()
                continue
            task = asyncio.create_task(self._take_turn(process, claim, queue))
            running.add(task)
            task.add_done_callback(running.discard)
            task.add_done_callback(lambda _: slots.release())

    async def _claim(self) -> _Claim | None:
        claiming = asyncio.ensure_future(self._run(self._claim_due))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with suppress(StateError):
                claim = await claiming
                if claim is not None:
                    await self._end_turn(claim.key, partial(self._undo_claim, claim))
            raise
        except Exception as error:
            level = logging.WARNING if isinstance(error, StateError) else logging.ERROR
            log.log(level, "waiting lines not read (endpoint=%s)", self._tag, exc_info=error)
            self._seconds_to_turn = None
            return None

    async def _wait_for_turn(self) -> None:
        """Wait until a turn comes, a line begins, or another process may have changed the lines."""
        seconds = POLL_S if self._seconds_to_turn is None else min(self._seconds_to_turn, POLL_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _claim_due(self, transaction: StoreTransaction) -> _Claim | None:
        """Claim a line whose turn has come, and return its first message."""
        self._free_dead(transaction)
        for key, stored in transaction.due(self._lines, DUE_LINES_MAX):
            line = _decode_line(stored)
            line.turn = transaction.now + LEASE_S  # to be looked at again if its process dies
            if key not in self._busy and transaction.acquire_lease(
                self._lease_name(key), self._owner, LEASE_S
            ):
                content = transaction.get(self._messages, _message_key(key, line.first))
                assert content is not None
                line.claims += 1
                self._write(key, line, transaction)
                self._busy.add(key)
                return _Claim(key, _decode_waiting(content), line.claims - 1)
            self._write(key, line, transaction)
        turn = transaction.next_deadline([self._lines])
        self._seconds_to_turn = None if turn is None else max(turn - transaction.now, 0)
        return None

    def _free_dead(self, transaction: StoreTransaction) -> None:
        """Free the lines that processes of this machine had claimed when they died."""
        prefix = self._lease_name("")
        for name, owner in transaction.leases(prefix).items():
            if owner != self._owner and is_dead(owner):
                transaction.release_lease(name, owner)
                key = name.removeprefix(prefix)
                line = self._read(key, transaction)
                if line is not None:
                    line.turn = transaction.now
                    self._write(key, line, transaction)

    async def _take_turn(self, process: Process, claim: _Claim, queue: str) -> None:
        turn = _Turn()
        received = _to_received(claim, turn, queue)
        keeping = asyncio.create_task(self._keep(claim.key))
        is_done = False
        try:
            await process(received)
            is_done = await turn.is_done
        finally:
            keeping.cancel()
            ending = self._leave_line if is_done else self._try_again
            with suppress(StateError):  # otherwise it has another turn when the lease has expired
                await self._end_turn(claim.key, partial(ending, received, turn.retry))

    async def _keep(self, key: str) -> None:
        """Renew the lease of a line while its first message is handled."""
        while True:
            await asyncio.sleep(LEASE_S / 3)
            with suppress(StateError):
                await self._run(partial(self._renew, key))

    def _renew(self, key: str, transaction: StoreTransaction) -> None:
        line = self._read(key, transaction)
        if line is not None and transaction.renew_lease(
            self._lease_name(key), self._owner, LEASE_S
        ):
            line.turn = transaction.now + LEASE_S
            self._write(key, line, transaction)

    async def _end_turn(
        self, key: str, change: Callable[[_Line, StoreTransaction], object]
    ) -> None:
        """Change a claimed line and free it, unless another process has taken it over."""

        def run(transaction: StoreTransaction) -> None:
            line = self._read(key, transaction)
            name = self._lease_name(key)
            if line is None or not transaction.renew_lease(name, self._owner, LEASE_S):
                log.warning("waiting line was taken over (endpoint=%s key=%.100s)", self._tag, key)
                return
            transaction.release_lease(name, self._owner)
            line.turn = transaction.now
            change(line, transaction)
            if line.first == line.end:
                transaction.delete(self._lines, key)
            else:
                self._write(key, line, transaction)

        try:
            await self._run(run)
        finally:
            self._busy.discard(key)
            self._changed.set()

    def _undo_claim(self, claim: _Claim, line: _Line, transaction: StoreTransaction) -> None:
        line.claims = claim.claims

    def _try_again(
        self, received: Received, retry: _Retry | None, line: _Line, transaction: StoreTransaction
    ) -> None:
        """The message was not processed to its end, for instance because its dead letter was refused."""

    def _leave_line(
        self, received: Received, retry: _Retry | None, line: _Line, transaction: StoreTransaction
    ) -> None:
        """Remove the first message, or store it again for its next attempt."""
        assert received.line is not None
        line.claims = 0
        if retry is not None:
            line.turn += retry.seconds
            waiting = _to_waiting(received, encode_properties(retry.properties))
            self._store(received.line, line.first, waiting, transaction)
            return
        transaction.delete(self._messages, _message_key(received.line, line.first))
        if received.properties.message_id:
            transaction.delete(self._ids, received.properties.message_id)
        line.first += 1

    # ── for tests ─────────────────────────────────────────────────────────────────────────────────────────

    async def seconds_to_turn(self) -> float | None:
        """Return when the next turn comes, 0 if a message has its turn, None if there are no lines."""

        def read(transaction: StoreTransaction) -> float | None:
            turn = transaction.next_deadline([self._lines])
            return None if turn is None else max(turn - transaction.now, 0)

        seconds = await self._run(read)
        return 0.0 if self._busy else seconds

    async def skip(self, seconds: float) -> None:
        """Let all turns come so many seconds earlier."""

        def skip(transaction: StoreTransaction) -> None:
            for key, stored in list(transaction.scan(self._lines)):
                line = _decode_line(stored)
                line.turn -= seconds
                self._write(key, line, transaction)

        await self._run(skip)
        self._changed.set()

    # ── the store ─────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, function: Callable[[StoreTransaction], T]) -> T:
        return await self._state.run(function, locks=[self._lines])

    def _lease_name(self, key: str) -> str:
        return f"{self._lines} {key}"

    def _read(self, key: str, transaction: StoreTransaction) -> _Line | None:
        stored = transaction.get(self._lines, key)
        return None if stored is None else _decode_line(stored)

    def _write(self, key: str, line: _Line, transaction: StoreTransaction) -> None:
        transaction.put(self._lines, key, _encode(line), deadline=line.turn)

    def _store(
        self, key: str, number: int, waiting: _WaitingMessage, transaction: StoreTransaction
    ) -> None:
        transaction.put(self._messages, _message_key(key, number), _encode(waiting))
        if waiting.message_id:
            transaction.put(self._ids, waiting.message_id, b"")

    def _is_known(self, waiting: _WaitingMessage, transaction: StoreTransaction) -> bool:
        """Whether a message is in a line: the broker delivers it again if it was not acknowledged."""
        return bool(waiting.message_id) and (
            transaction.get(self._ids, waiting.message_id) is not None
        )


_encode: Final = msgspec.msgpack.Encoder().encode
_decode_line: Final = msgspec.msgpack.Decoder(_Line).decode
_decode_waiting: Final = msgspec.msgpack.Decoder(_WaitingMessage).decode


def _message_key(key: str, number: int) -> str:
    return f"{key}\0{number}"


def _to_waiting(received: Received, raw_properties: bytes) -> _WaitingMessage:
    delivery = received.delivery
    return _WaitingMessage(
        delivery.body,
        raw_properties,
        delivery.exchange,
        delivery.routing_key,
        delivery.redelivered,
        received.properties.message_id or "",
    )


def _to_received(claim: _Claim, turn: _Turn, queue: str) -> Received:
    """Return the message of a turn as a delivery; earlier claims count as deliveries that ended with their worker."""
    waiting = claim.waiting
    source = DeliverySource(
        turn, "", waiting.redelivered, waiting.exchange, waiting.routing_key, False
    )
    delivery = Delivery(source, 0, waiting.properties, waiting.body)
    properties = delivery.properties
    if claim.claims:
        headers = dict(properties.headers or {})
        delivered = read_count(headers.get(DELIVERY_COUNT_HEADER)) or int(waiting.redelivered)
        headers[DELIVERY_COUNT_HEADER] = delivered + claim.claims
        properties = msgspec.structs.replace(properties, headers=headers)
    return Received(delivery, properties, queue, claim.key)
