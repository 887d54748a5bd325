"""At-least-once dead-lettering: dead letters wait until every target queue has accepted them.

ALO1  The original message is settled when every queue that its dead letter is routed to has accepted it,
      and not before.
ALO2  At most `OFFERED_DEAD_LETTERS_MAX` dead letters of a queue are rejected and waiting for a retry; the
      following ones wait behind them, in order.
ALO3  A queue with too many waiting dead letters stalls: it dispatches nothing, so that no more messages can
      die, until half of them are gone.

A rejected dead letter is retried when a reason for the rejection may have gone: the topology or the
settings of its queue have changed, or a queue that rejected it has space. These conditions are polled every
`RETRY_INTERVAL_MS` without building the message again, so that a dead letter that waits forever costs
little. After a restart the original message is in its queue again, as before it was dead-lettered.
"""

from collections import deque
from collections.abc import Callable

from .arguments import QueueSettings
from .queue import Queue
from .run import Run
from .steps import Steps

OFFERED_DEAD_LETTERS_MAX = 32  # like RabbitMQ's dead_letter_worker_consumer_prefetch
HELD_DEAD_LETTERS_MAX = 4096  # per queue; a queue with this many stalls (ALO3)
HELD_BYTES_MAX = 16 << 20
RETRY_INTERVAL_MS = 50
_QUEUES_PER_RETRY = 64


class HeldDeadLetter:
    """A dead letter, and the queues that have accepted it so far."""

    __slots__ = (
        "accepted_by",
        "died_at",
        "epoch",
        "number",
        "reason",
        "rejected_by",
        "run",
        "settings",
    )

    def __init__(self, run: Run, reason: str, died_at: int, number: int) -> None:
        self.number = number
        self.run = run
        self.reason = reason
        self.died_at = died_at
        self.accepted_by: set[Queue] = set()
        self.rejected_by: list[Queue] = []  # in the last attempt
        self.epoch = -1  # the vhost's epoch in that attempt
        self.settings: QueueSettings | None = None

    def start_attempt(self, epoch: int, settings: QueueSettings) -> None:
        """Record the conditions of an attempt, for `can_retry`."""
        self.epoch = epoch
        self.settings = settings
        self.rejected_by = []

    def can_retry(self, queue: Queue) -> bool:
        """Whether another attempt may have a different result."""
        return (
            self.epoch != queue.vhost.epoch
            or self.settings is not queue.settings
            or any(not target.would_reject(self.run) for target in self.rejected_by)
        )


class QueueDeadLetters:
    """The waiting dead letters of one queue."""

    __slots__ = ("_next_number", "is_offering", "queue", "rejected", "retryable", "waiting")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.retryable: deque[HeldDeadLetter] = deque()  # rejected before, and worth a retry
        self.rejected: deque[HeldDeadLetter] = deque()
        self.waiting: deque[tuple[Run, str, int]] = deque()  # with the reason and the time of death
        self._next_number = 0
        self.is_offering = False  # an attempt is in progress

    def can_offer(self) -> bool:
        return bool(self.retryable) or (
            bool(self.waiting) and len(self.rejected) < OFFERED_DEAD_LETTERS_MAX
        )

    def pop_next(self) -> HeldDeadLetter:
        """Remove and return the dead letter to offer next.

        Retries come first, because they are older and may have the same target.
        """
        if not self.retryable:
            self.find_retryable()
        if self.retryable:
            return self.retryable.popleft()
        run, reason, died_at = self.waiting[0]
        message = run.take(1)
        if message is run:
            self.waiting.popleft()
        self._next_number += 1
        return HeldDeadLetter(message, reason, died_at, self._next_number)

    def find_retryable(self) -> None:
        """Find the rejected dead letters that are worth a retry."""
        dead_letters = sorted([*self.retryable, *self.rejected], key=_number)
        self.retryable.clear()
        self.rejected.clear()
        for dead_letter in dead_letters:
            (self.retryable if dead_letter.can_retry(self.queue) else self.rejected).append(
                dead_letter
            )


def _number(dead_letter: HeldDeadLetter) -> int:
    return dead_letter.number


Offer = Callable[[Queue, HeldDeadLetter], Steps[bool]]


class AtLeastOnceDeadLetters:
    """The at-least-once dead letters of one vhost.

    `offer` publishes a dead letter in steps and returns whether all target queues have accepted it.
    """

    def __init__(self, offer: Offer, now: Callable[[], int]) -> None:
        self._offer = offer
        self._now = now
        self._by_queue: dict[Queue, QueueDeadLetters] = {}
        self._ready: dict[Queue, QueueDeadLetters] = {}  # those that can offer a dead letter now
        self._retry_at: int | None = None

    def add(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        """Hold the messages of a run that died in a queue; stall the queue if it has too many (ALO3)."""
        held = self._by_queue.setdefault(queue, QueueDeadLetters(queue))
        held.waiting.append((run, reason, now))
        queue.hold_dead_letters(run)
        if (
            queue.held_dead_letters >= HELD_DEAD_LETTERS_MAX
            or queue.held_dead_letter_bytes >= HELD_BYTES_MAX
        ):
            queue.stall()
        self._update_ready(held)

    def deadline(self) -> int | None:
        """Return when there is work, in ms: 0 for now, None if no dead letter waits."""
        return 0 if self._ready else self._retry_at

    @property
    def can_offer(self) -> bool:
        return bool(self._ready)

    def offer_next(self) -> Steps[None]:
        """Offer one dead letter of the next queue."""
        queue = next(iter(self._ready))
        held = self._ready.pop(queue)
        if queue.deleted:
            del self._by_queue[queue]
            return
        dead_letter = held.pop_next()
        held.is_offering = True
        accepted = yield from self._offer(queue, dead_letter)
        held.is_offering = False
        if accepted:
            self._settle(queue, dead_letter, self._now())
        else:
            held.rejected.append(dead_letter)
            if self._retry_at is None:
                self._retry_at = self._now() + RETRY_INTERVAL_MS
        self._update_ready(held)

    def retry(self, now: int) -> None:
        """Look for rejected dead letters that are worth a retry, in a limited number of queues."""
        if self._retry_at is None or now < self._retry_at:
            return
        for _ in range(min(len(self._by_queue), _QUEUES_PER_RETRY)):
            queue = next(iter(self._by_queue))
            held = self._by_queue[queue] = self._by_queue.pop(queue)
            held.find_retryable()
            self._update_ready(held)
        self._retry_at = now + RETRY_INTERVAL_MS if self._by_queue else None

    def _settle(self, queue: Queue, dead_letter: HeldDeadLetter, now: int) -> None:
        queue.settle_forwarded(dead_letter.run, dead_letter.accepted_by)
        queue.release_dead_letters(dead_letter.run)
        if (
            queue.stalled
            and queue.held_dead_letters <= HELD_DEAD_LETTERS_MAX // 2
            and queue.held_dead_letter_bytes <= HELD_BYTES_MAX // 2
        ):
            queue.end_stall(now)

    def _update_ready(self, held: QueueDeadLetters) -> None:
        if held.queue.deleted or held.can_offer():
            self._ready[held.queue] = held
        elif not held.rejected and not held.is_offering:
            del self._by_queue[held.queue]
