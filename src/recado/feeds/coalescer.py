"""Coalesces messages published in one turn of the event loop into batches, and limits the batches in flight.

PC1  Messages get consecutive sequences in the order of the calls, and are sent in batches in that order.
PC2  At most `max_in_flight` batches are unconfirmed. Messages published meanwhile are queued here; publishing
     waits as soon as a full batch is queued (backpressure).
PC3  A batch of single messages is sent when it reaches `batch_bytes`: the message that reaches the limit still
     belongs to it, so a batch can exceed `batch_bytes` by less than the size of that message. A batch of
     `add_many` stays within `batch_bytes`, unless it is one larger message. No batch has more messages than a
     block can have (MAX_MESSAGE_COUNT).
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from .block import MAX_KEY_BYTES, MAX_MESSAGE_COUNT, Block

BATCH_BYTES: Final = 120_000
"""Leaves 11 kB for the header of the packet, and for the message that exceeds the limit (PC3), in one AMQP frame of
the usual size, 131,072 bytes. Batches with larger messages take several frames."""
MAX_IN_FLIGHT_BATCHES: Final = 64
MAX_MESSAGE_BYTES: Final = 15 << 20
"""Limit for a message with key, id, headers and properties."""
MESSAGE_OVERHEAD_BYTES: Final = 28
"""Of each message in a block: its timestamp and the sizes of its columns."""

MessageRow = tuple[bytes, bytes, bytes, bytes, bytes, int]
"""Body, key, message id, headers, properties, timestamp in µs."""


class PublishCoalescer:
    """Collects messages and passes each full batch to `emit`, in order."""

    def __init__(
        self,
        emit: Callable[[Block], None],
        *,
        batch_bytes: int = BATCH_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT_BATCHES,
        resume_after: int = 0,
    ) -> None:
        if not 0 < batch_bytes <= MAX_MESSAGE_BYTES:
            raise ValueError(f"batch_bytes must be 1 to {MAX_MESSAGE_BYTES:,}, not {batch_bytes:,}")
        if max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, not {max_in_flight}")
        self._emit = emit
        self._batch_bytes = batch_bytes
        self._max_in_flight = max_in_flight
        self._loop = asyncio.get_running_loop()
        self._pending_rows: list[MessageRow] = []
        self._pending_bytes = 0
        self._flush_handle: asyncio.Handle | None = None
        self._ready_blocks: deque[Block] = deque()
        self._unconfirmed: deque[int] = deque()  # last sequence of each batch in flight
        self._sent_sequence = resume_after
        self._waiters: deque[tuple[Callable[[], bool], asyncio.Future[None]]] = deque()
        self._failure: Exception | None = None
        self.last_sequence = resume_after
        """The sequence of the last published message."""
        self.confirmed_sequence = resume_after
        """The sequence up to which all messages are confirmed."""

    @property
    def has_room(self) -> bool:
        """Whether a message can be added without waiting."""
        return (
            self._failure is None
            and not self._ready_blocks
            and self._pending_bytes < self._batch_bytes
        )

    def add(
        self, body: bytes, key: bytes, message_id: bytes, headers: bytes, properties: bytes
    ) -> int:
        """Add one message and return its sequence. It is sent in the next turn of the loop, or at once if the batch is
        full."""
        size = len(body) + len(key) + len(message_id) + len(headers) + len(properties)
        check_message_size(size, len(key))
        self._pending_rows.append(
            (body, key, message_id, headers, properties, time.time_ns() // 1000)
        )
        self._pending_bytes += size + MESSAGE_OVERHEAD_BYTES
        self.last_sequence += 1
        if self._pending_bytes >= self._batch_bytes or len(self._pending_rows) == MAX_MESSAGE_COUNT:
            self._build_block()
            self._send_ready()
        elif self._flush_handle is None:
            self._flush_handle = self._loop.call_soon(self._flush_turn)
        return self.last_sequence

    def add_many(
        self,
        bodies: Sequence[bytes],
        keys: Sequence[bytes] | bytes,
        message_ids: Sequence[bytes] | bytes,
        headers: Sequence[bytes] | bytes,
        properties: Sequence[bytes] | bytes,
        timestamps: Sequence[int] | None = None,
    ) -> int:
        """Add messages as one block, which is sent as soon as the batches in flight allow; the caller has cut it with
        `split`. Returns the last sequence."""
        self._build_block()
        self._ready_blocks.append(
            Block.build(
                bodies,
                timestamps=time.time_ns() // 1000 if timestamps is None else timestamps,
                keys=keys,
                message_ids=message_ids,
                headers=headers,
                properties=properties,
            )
        )
        self.last_sequence += len(bodies)
        self._send_ready()
        return self.last_sequence

    def split(self, bodies: Sequence[bytes], overhead_bytes: int) -> list[slice]:
        """Return how to cut many messages, each with this many bytes besides its body, into batches."""
        fixed = overhead_bytes + MESSAGE_OVERHEAD_BYTES
        ends = list(accumulate(map(len, bodies), initial=0))

        def upto(index: int) -> int:
            """Return the bytes of all messages before an index."""
            return ends[index] + index * fixed

        found, start, count = [], 0, len(bodies)
        while start < count:
            limit = upto(start) + self._batch_bytes
            fitting = bisect_right(range(count + 1), limit, start, key=upto) - 1
            stop = min(max(fitting, start + 1), start + MAX_MESSAGE_COUNT)
            found.append(slice(start, stop))
            start = stop
        return found

    # --- output

    def _flush_turn(self) -> None:
        self._flush_handle = None
        self._build_block()
        self._send_ready()

    def _build_block(self) -> None:
        """Turn the pending rows into a block, which `_send_ready` sends."""
        if not self._pending_rows:
            return
        bodies, keys, message_ids, headers, properties, timestamps = zip(
            *self._pending_rows, strict=True
        )
        self._pending_rows.clear()
        self._pending_bytes = 0
        self._ready_blocks.append(
            Block.build(
                bodies,
                timestamps=timestamps,
                keys=keys,
                message_ids=message_ids,
                headers=headers,
                properties=properties,
            )
        )

    def _send_ready(self) -> None:
        while (
            self._ready_blocks
            and len(self._unconfirmed) < self._max_in_flight
            and self._failure is None
        ):
            block = self._ready_blocks.popleft()
            self._sent_sequence += block.count
            self._unconfirmed.append(self._sent_sequence)
            self._emit(block)
        self._wake()

    # --- input

    def confirm(self, sequence: int) -> None:
        """Note that the transport has confirmed all messages up to this sequence."""
        while self._unconfirmed and self._unconfirmed[0] <= sequence:
            self.confirmed_sequence = self._unconfirmed.popleft()
        self._send_ready()

    def fail(self, error: Exception) -> None:
        """Stop sending: present and future waiters get this error."""
        self._failure = self._failure or error
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        self._wake()

    async def wait_for_room(self) -> None:
        await self._wait_until(lambda: self.has_room)

    async def wait_for_confirms(self) -> None:
        """Wait until all messages published so far are confirmed."""
        last = self.last_sequence
        await self._wait_until(lambda: self.confirmed_sequence >= last)

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((condition, future))
            await future

    def _wake(self) -> None:
        if not self._waiters:
            return
        waiting: deque[tuple[Callable[[], bool], asyncio.Future[None]]] = deque()
        for met, future in self._waiters:
            if future.done():
                continue
            if self._failure is not None or met():
                future.set_result(None)
            else:
                waiting.append((met, future))
        self._waiters = waiting


def check_message_size(size: int, key_size: int) -> None:
    """Raise `ValueError` if a message or its key is too large."""
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(f"message of {size:,} bytes exceeds the limit of {MAX_MESSAGE_BYTES:,}")
    if key_size > MAX_KEY_BYTES:
        raise ValueError(f"key of {key_size} bytes exceeds the limit of {MAX_KEY_BYTES}")
