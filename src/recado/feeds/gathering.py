"""Publishing: what is published in one turn of the loop becomes one batch, and few batches are on their way.

G1  Messages get consecutive sequences in the order of the calls, and leave in batches in that order.
G2  At most `window` batches are unconfirmed; what is published meanwhile waits here, and its publisher with it
    as soon as that is a batch or more.
G3  No batch is larger than `batch_bytes`, unless one message alone is, and none is of more than a block takes.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from .block import MAX_COUNT, MAX_KEY, Block

BATCH_BYTES: Final = 120_000
"""So that a packet with its head fits into one AMQP frame of the usual size: 131,072."""
WINDOW: Final = 64
LARGEST: Final = 15 << 20
"""Bytes of a message with all that belongs to it."""
OF_A_MESSAGE: Final = 28
"""Bytes that a message takes beside its own: a timestamp and the sizes of its columns."""

Row = tuple[bytes, bytes, bytes, bytes, bytes, int]


class Gatherer:
    """`put` gets each batch, in order."""

    def __init__(
        self,
        put: Callable[[Block], None],
        *,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW,
        begun: int = 0,
    ) -> None:
        if not 0 < batch_bytes <= LARGEST:
            raise ValueError(f"batch_bytes is 1 to {LARGEST:,}, not {batch_bytes:,}")
        if window < 1:
            raise ValueError(f"window is 1 at least, not {window}")
        self._put = put
        self._batch_bytes = batch_bytes
        self._window = window
        self._loop = asyncio.get_running_loop()
        self._rows: list[Row] = []
        self._bytes = 0
        self._leaves: asyncio.Handle | None = None
        self._ready: deque[Block] = deque()
        self._unconfirmed: deque[int] = deque()  # the last sequence of each batch
        self._sent = begun
        self._waiters: deque[tuple[Callable[[], bool], asyncio.Future[None]]] = deque()
        self._failure: Exception | None = None
        self.last = begun
        """The sequence of the last message that was published."""
        self.confirmed = begun
        """The sequence up to which all is confirmed."""

    @property
    def has_room(self) -> bool:
        """Whether a message may be added without waiting."""
        return self._failure is None and not self._ready and self._bytes < self._batch_bytes

    def add(
        self, body: bytes, key: bytes, message_id: bytes, headers: bytes, properties: bytes
    ) -> int:
        """One message, to leave at the end of this turn; gives its sequence."""
        size = len(body) + len(key) + len(message_id) + len(headers) + len(properties)
        check_size(size, len(key))
        self._rows.append((body, key, message_id, headers, properties, time.time_ns() // 1000))
        self._bytes += size + OF_A_MESSAGE
        self.last += 1
        if self._bytes >= self._batch_bytes or len(self._rows) == MAX_COUNT:
            self._cut()
            self._leave()
        elif self._leaves is None:
            self._leaves = self._loop.call_soon(self._end_of_turn)
        return self.last

    def add_many(
        self,
        bodies: Sequence[bytes],
        keys: Sequence[bytes] | bytes,
        message_ids: Sequence[bytes] | bytes,
        headers: Sequence[bytes] | bytes,
        properties: Sequence[bytes] | bytes,
        timestamps: Sequence[int] | None = None,
    ) -> int:
        """A block of their own, at once; whoever calls keeps to `pieces`. Gives the last sequence."""
        self._cut()
        self._ready.append(
            Block.of(
                bodies,
                timestamps=time.time_ns() // 1000 if timestamps is None else timestamps,
                keys=keys,
                message_ids=message_ids,
                headers=headers,
                properties=properties,
            )
        )
        self.last += len(bodies)
        self._leave()
        return self.last

    def pieces(self, bodies: Sequence[bytes], besides: int) -> list[slice]:
        """Where to cut many messages, each with so many bytes beside its body, into batches."""
        fixed = besides + OF_A_MESSAGE
        ends = list(accumulate(map(len, bodies), initial=0))

        def upto(place: int) -> int:
            """Bytes of all messages before the place."""
            return ends[place] + place * fixed

        found, start, count = [], 0, len(bodies)
        while start < count:
            limit = upto(start) + self._batch_bytes
            fitting = bisect_right(range(count + 1), limit, start, key=upto) - 1
            stop = min(max(fitting, start + 1), start + MAX_COUNT)
            found.append(slice(start, stop))
            start = stop
        return found

    # --- out

    def _end_of_turn(self) -> None:
        self._leaves = None
        self._cut()
        self._leave()

    def _cut(self) -> None:
        """What was added becomes a block."""
        if not self._rows:
            return
        bodies, keys, message_ids, headers, properties, timestamps = zip(*self._rows, strict=True)
        self._rows.clear()
        self._bytes = 0
        self._ready.append(
            Block.of(
                bodies,
                timestamps=timestamps,
                keys=keys,
                message_ids=message_ids,
                headers=headers,
                properties=properties,
            )
        )

    def _leave(self) -> None:
        while self._ready and len(self._unconfirmed) < self._window and self._failure is None:
            block = self._ready.popleft()
            self._sent += block.count
            self._unconfirmed.append(self._sent)
            self._put(block)
        self._wake()

    # --- in

    def confirm(self, upto: int) -> None:
        """All messages up to this sequence are in the carrier's hands."""
        while self._unconfirmed and self._unconfirmed[0] <= upto:
            self.confirmed = self._unconfirmed.popleft()
        self._leave()

    def fail(self, error: Exception) -> None:
        """Nothing leaves any more: whoever waits is told, and whoever comes."""
        self._failure = self._failure or error
        if self._leaves is not None:
            self._leaves.cancel()
            self._leaves = None
        self._wake()

    async def room(self) -> None:
        await self._until(lambda: self.has_room)

    async def settled(self) -> None:
        """Until all that was published so far is confirmed."""
        last = self.last
        await self._until(lambda: self.confirmed >= last)

    async def _until(self, met: Callable[[], bool]) -> None:
        while not met():
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append((met, future))
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


def check_size(size: int, key_size: int) -> None:
    """Of a message, and of its key."""
    if size > LARGEST:
        raise ValueError(f"a message has at most {LARGEST:,} bytes, not {size:,}")
    if key_size > MAX_KEY:
        raise ValueError(f"a key has at most {MAX_KEY} bytes, not {key_size}")
