"""Delivered messages of a subscription that the application has not taken yet.

IN1  Items are taken in the order in which they were put.
IN2  A batch counts as processed when the application asks for the next one. Only then do actions queued after
     it run: an acknowledgement says that all messages before it were processed, not that they were received.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from .boundary import MessageBatch

InboxAction = Callable[[], None]


class Inbox:
    """Batches, and actions that run once everything before them has been processed."""

    def __init__(self) -> None:
        self._items: deque[MessageBatch | InboxAction] = deque()
        self._is_idle = True  # the application is not processing a batch
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_closed = False
        self.buffered_bytes = 0
        """Bytes of the batches in the queue."""

    @property
    def is_done(self) -> bool:
        """Whether everything delivered has been processed."""
        return self._is_idle and not self._items

    def put(self, batch: MessageBatch) -> None:
        self._items.append(batch)
        self.buffered_bytes += len(batch.block.data)
        self._wake()

    def run_after(self, action: InboxAction) -> None:
        """Run an action once everything put before is processed; immediately if that is the case already."""
        if self.is_done:
            action()
        else:
            self._items.append(action)
            self._wake()

    def close(self, error: Exception | None = None) -> None:
        """Close the inbox. With an error, queued items are still returned and then the error is raised. Without
        one, queued items are discarded: the member has already reported how far it got."""
        if error is None:
            self._items.clear()
            self.buffered_bytes = 0
        if not self._is_closed:
            self._is_closed, self._error = True, error
            self._wake()

    async def take(self) -> MessageBatch | None:
        """Return the next batch, marking the last one as processed; None after `close`."""
        if self._waiter is not None and not self._waiter.done():
            raise RuntimeError(
                "another task already waits for the next message; use one subscription per task"
            )
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
        """Return the next batch in addition to the current one, if no action is queued between them (IN2)."""
        if self._is_idle or not self._items or not isinstance(self._items[0], MessageBatch):
            return None
        batch = self._items.popleft()
        assert isinstance(batch, MessageBatch)
        self.buffered_bytes -= len(batch.block.data)
        return batch

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
