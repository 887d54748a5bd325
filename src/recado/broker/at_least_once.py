"""Dead letters that are to be taken at least once: those which wait until their receivers have room, or exist.

AS1  The message is settled when every queue that its letter is routed to has taken that, and not before.
AS2  At most `WINDOW` letters of a queue have been tried in vain; the others wait behind them, in order.
AS3  A queue with too many letters stalls: it deals out nothing, so that no more can die, until half of them
     are gone.

A letter that was refused is tried again when something has changed for it: the topology, the settings of its
queue, or the room in those who refused it. That is looked at in pauses, without writing the letter anew, so
what waits for ever costs next to nothing. After a restart its message is in its queue as before it died.
"""

from collections import deque
from collections.abc import Callable

from .arguments import QueueSettings
from .queue import Queue
from .run import Run
from .steps import Steps

OFFERED_LETTERS_MAX = 32  # as RabbitMQ's dead_letter_worker_consumer_prefetch
HELD_LETTERS_MAX = 4096  # of one queue; then it stalls
HELD_BYTES_MAX = 16 << 20
RETRY_INTERVAL_MS = 50  # milliseconds between two looks
_QUEUES_PER_RETRY = 64


class HeldDeadLetter:
    """A message that died, with who has taken it so far."""

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
        self.rejected_by: list[Queue] = []  # at the last attempt
        self.epoch = -1  # of that attempt
        self.settings: QueueSettings | None = None

    def can_retry(self, queue: Queue) -> bool:
        """Whether another attempt may have another result."""
        return (
            self.epoch != queue.vhost.epoch
            or self.settings is not queue.settings
            or any(not target.would_reject(self.run) for target in self.rejected_by)
        )


class QueueDeadLetters:
    """The letters of one queue."""

    __slots__ = ("_next_number", "is_offering", "queue", "rejected", "retryable", "waiting")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.retryable: deque[HeldDeadLetter] = (
            deque()
        )  # tried in vain before, and worth another attempt
        self.rejected: deque[HeldDeadLetter] = deque()
        self.waiting: deque[tuple[Run, str, int]] = (
            deque()
        )  # with the reason, and the time of death
        self._next_number = 0
        self.is_offering = False  # an attempt is not done yet

    def can_offer(self) -> bool:
        return bool(self.retryable) or (
            bool(self.waiting) and len(self.rejected) < OFFERED_LETTERS_MAX
        )

    def pop_next(self) -> HeldDeadLetter:
        """One that was tried before comes first if it has hope: its receiver may be the same."""
        if not self.retryable:
            self.find_retryable()
        if self.retryable:
            return self.retryable.popleft()
        run, reason, died = self.waiting[0]
        one = run.take(1)
        if one is run:
            self.waiting.popleft()
        self._next_number += 1
        return HeldDeadLetter(one, reason, died, self._next_number)

    def find_retryable(self) -> None:
        """Find those that are worth another attempt."""
        letters = sorted([*self.retryable, *self.rejected], key=_number)
        self.retryable.clear()
        self.rejected.clear()
        for letter in letters:
            (self.retryable if letter.can_retry(self.queue) else self.rejected).append(letter)


def _number(letter: HeldDeadLetter) -> int:
    return letter.number


Offer = Callable[[Queue, HeldDeadLetter], Steps[bool]]


class AtLeastOnceDeadLetters:
    """Those of one vhost. `attempt` offers a letter in steps, and returns whether all have taken it now."""

    def __init__(self, offer: Offer, now: Callable[[], int]) -> None:
        self._offer = offer
        self._now = now
        self._by_queue: dict[Queue, QueueDeadLetters] = {}
        self._ready: dict[Queue, QueueDeadLetters] = {}  # those that can go on at once
        self._retry_at: int | None = None

    def add(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        held = self._by_queue.setdefault(queue, QueueDeadLetters(queue))
        held.waiting.append((run, reason, now))
        queue.held_dead_letters += len(run)
        queue.held_dead_letter_bytes += sum(run.body_sizes())
        if (
            queue.held_dead_letters >= HELD_LETTERS_MAX
            or queue.held_dead_letter_bytes >= HELD_BYTES_MAX
        ):
            queue.stalled = True
        self._update_ready(held)

    def deadline(self) -> int | None:
        return 0 if self._ready else self._retry_at

    @property
    def can_offer(self) -> bool:
        return bool(self._ready)

    def offer_next(self) -> Steps[None]:
        """Try one letter, of the queue whose turn it is."""
        queue = next(iter(self._ready))
        held = self._ready.pop(queue)
        if queue.deleted:
            del self._by_queue[queue]
            return
        letter = held.pop_next()
        held.is_offering = True
        accepted = yield from self._offer(queue, letter)
        held.is_offering = False
        if accepted:
            self._settle(queue, letter, self._now())
        else:
            held.rejected.append(letter)
            if self._retry_at is None:
                self._retry_at = self._now() + RETRY_INTERVAL_MS
        self._update_ready(held)

    def retry(self, now: int) -> None:
        """See whether something has changed for those that were tried in vain; some queues at a time."""
        if self._retry_at is None or now < self._retry_at:
            return
        for _ in range(min(len(self._by_queue), _QUEUES_PER_RETRY)):
            queue = next(iter(self._by_queue))
            held = self._by_queue[queue] = self._by_queue.pop(queue)
            held.find_retryable()
            self._update_ready(held)
        self._retry_at = now + RETRY_INTERVAL_MS if self._by_queue else None

    def _settle(self, queue: Queue, letter: HeldDeadLetter, now: int) -> None:
        queue.settle_forwarded(letter.run, letter.accepted_by)
        queue.held_dead_letters -= 1
        queue.held_dead_letter_bytes -= sum(letter.run.body_sizes())
        if (
            queue.stalled
            and queue.held_dead_letters <= HELD_LETTERS_MAX // 2
            and queue.held_dead_letter_bytes <= HELD_BYTES_MAX // 2
        ):
            queue.stalled = False
            queue.on_timer(now)
            queue.dispatch(now)

    def _update_ready(self, held: QueueDeadLetters) -> None:
        if held.queue.deleted or held.can_offer():
            self._ready[held.queue] = held
        elif not held.rejected and not held.is_offering:
            del self._by_queue[held.queue]
