"""What was delivered to a subscription and its application has not taken yet, in order.

I1  Items are taken in the order in which they were put.
I2  What was taken counts as done when the application asks for the next; only then is anything behind it done:
    an acknowledgement says that all before it was processed, not that it was received.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from .boundary import MessageBatch

InboxAction = Callable[[], None]


class Inbox:
    """Batches, and between them steps to be done when all before them is."""

    def __init__(self) -> None:
        self._items: deque[MessageBatch | InboxAction] = deque()
        self._is_idle = True  # nothing is in the application's hands
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_closed = False
        self.buffered_bytes = 0
        """Of the batches that wait."""

    @property
    def is_done(self) -> bool:
        """Whether all that was delivered has been processed."""
        return self._is_idle and not self._items

    def put(self, batch: MessageBatch) -> None:
        self._items.append(batch)
        self.buffered_bytes += len(batch.block.data)
        self._wake()

    def run_after(self, action: InboxAction) -> None:
        """Do this when all that was put before is done: at once, if it is."""
        if self.is_done:
            action()
        else:
            self._items.append(action)
            self._wake()

    def close(self, error: Exception | None = None) -> None:
        """No more comes: by an error, after what is here; or quietly, and what is here is not taken any more,
        because those who leave have told how far they came."""
        if error is None:
            self._items.clear()
            self.buffered_bytes = 0
        if not self._is_closed:
            self._is_closed, self._error = True, error
            self._wake()

    async def take(self) -> MessageBatch | None:
        """The next batch; whoever asks has done with the last. None at the end."""
        if self._waiter is not None and not self._waiter.done():
            raise RuntimeError("somebody waits for the next message already; subscribe once more")
        self._is_idle = True
        while True:
            while self._items:
                match self._items.popleft():
                    case MessageBatch() as batch:
                        self.buffered_bytes -= len(batch.block.data)
                        self._is_idle = False
                        return batch
                    case step:
                        step()
            if self._is_closed:
                if self._error is not None:
                    raise self._error
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def take_ready(self) -> MessageBatch | None:
        """Beside what is in hand, the next batch if nothing is to be done between the two (I2)."""
        if self._is_idle or not self._items or not isinstance(self._items[0], MessageBatch):
            return None
        batch = self._items.popleft()
        assert isinstance(batch, MessageBatch)
        self.buffered_bytes -= len(batch.block.data)
        return batch

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
