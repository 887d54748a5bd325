"""Live views of queues: copies of the messages that enter a queue, for a page that reads them twice a second.

A tap keeps a few messages until they are read, and counts the others as skipped. So a reader that is slow or gone costs
1 MiB at most, and the queue's consumers are delayed by `message_budget` at most.

TAP1  A tap keeps at most `KEPT_MAX_COUNT` messages; when they have `KEPT_MAX_BYTES`, further ones are skipped until it
      is read.
TAP2  A tap that was not read for `IDLE_MAX_S` is closed. At most `TAPS_MAX_COUNT` are open, and
      `TAPS_OF_USER_MAX_COUNT` of a user.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from recado.broker.message_observer import MessageObserver
from recado.server.connection import now_ms

from .message_budget import MessageBudget
from .request import ApiError

if TYPE_CHECKING:
    import asyncio

    from recado.broker.message_filter import MessageFilter
    from recado.broker.queue import Queue
    from recado.broker.run import Run
    from recado.server.server import Server

KEPT_MAX_COUNT: Final = 100
KEPT_MAX_BYTES: Final = 1 << 20
BODY_MAX_BYTES: Final = 16 * 1024
CHOSEN_IN_WINDOW_MAX_COUNT: Final = 50
IDLE_MAX_S: Final = 15.0
TAPS_MAX_COUNT: Final = 64
TAPS_OF_USER_MAX_COUNT: Final = 8
_ID_BYTES: Final = 12


class TappedMessage(NamedTuple):
    """The start of a message that has entered the queue."""

    number: int
    """Of the messages of this tap, including those that were skipped."""
    at: int
    offset: int
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes
    body_bytes: int


class QueueTap(MessageObserver):
    """A live view of one queue, and who may read it."""

    def __init__(
        self,
        queue: Queue,
        message_filter: MessageFilter | None,
        user: str,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self.id = secrets.token_hex(_ID_BYTES)
        self.queue = queue
        self.user = user
        self.entered_count = 0
        self.timer: asyncio.TimerHandle | None = None
        self._clock = clock
        self._budget = MessageBudget(message_filter, CHOSEN_IN_WINDOW_MAX_COUNT)
        self._kept: deque[TappedMessage] = deque()
        self._kept_bytes = 0

    @property
    def skipped_count(self) -> int:
        """The messages that may have matched, but were not kept."""
        return self._budget.skipped_count

    def entered(self, queue: Queue, run: Run) -> None:
        before, at = self.entered_count, self._clock()
        self.entered_count += len(run)
        has_room = self._kept_bytes < KEPT_MAX_BYTES
        room = KEPT_MAX_COUNT - len(self._kept) if has_room else 0
        for index in self._budget.choose(run, at, room):
            if self._kept_bytes >= KEPT_MAX_BYTES:
                self._budget.skipped_count += 1
                continue
            properties, body, body_bytes = run.read_start(index, BODY_MAX_BYTES)
            self._kept_bytes += len(properties) + len(body)
            self._kept.append(
                TappedMessage(
                    before + index + 1,
                    at,
                    run.first_position + index * run.stride,
                    run.origin.exchange,
                    run.origin.routing_key,
                    properties,
                    body,
                    body_bytes,
                )
            )

    def read(self, after: int) -> list[TappedMessage]:
        """Return the messages with higher numbers; the others are not kept any longer."""
        while self._kept and self._kept[0].number <= after:
            message = self._kept.popleft()
            self._kept_bytes -= len(message.properties) + len(message.body)
        return list(self._kept)


class TapTable:
    """The open taps of a node."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._taps: dict[str, QueueTap] = {}

    def open(self, queue: Queue, message_filter: MessageFilter | None, user: str) -> QueueTap:
        """Open a tap as a part of the current turn of the broker. Raises `ApiError` for TAP2."""
        of_user = sum(each.user == user for each in self._taps.values())
        if len(self._taps) >= TAPS_MAX_COUNT or of_user >= TAPS_OF_USER_MAX_COUNT:
            raise ApiError(
                429,
                "too_many_requests",
                f"{len(self._taps)} live views of queues are open, {of_user} of them by this user:"
                f" at most {TAPS_MAX_COUNT} and {TAPS_OF_USER_MAX_COUNT}",
            )
        tap = QueueTap(queue, message_filter, user)
        self._taps[tap.id] = tap
        queue.observers += (tap,)
        self._restart_timer(tap)
        return tap

    def find(self, tap_id: str, user: str) -> QueueTap | None:
        """Return a tap of this user, which stays open for a while from now."""
        tap = self._taps.get(tap_id)
        if tap is None or tap.user != user:
            return None
        self._restart_timer(tap)
        return tap

    def close_tap(self, tap: QueueTap) -> None:
        if tap.timer is not None:
            tap.timer.cancel()
        self._taps.pop(tap.id, None)
        tap.queue.observers = tuple(each for each in tap.queue.observers if each is not tap)

    def close(self) -> None:
        """Close all taps, because the node stops."""
        for tap in list(self._taps.values()):
            self.close_tap(tap)

    def _restart_timer(self, tap: QueueTap) -> None:
        if tap.timer is not None:
            tap.timer.cancel()
        tap.timer = self._server.loop.call_later(IDLE_MAX_S, self.close_tap, tap)
