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

WINDOW = 32  # as RabbitMQ's dead_letter_worker_consumer_prefetch
MOST_LETTERS = 4096  # of one queue; then it stalls
MOST_BYTES = 16 << 20
PAUSE = 50  # milliseconds between two looks
_QUEUES_AT_A_LOOK = 64


class Letter:
    """A message that died, with who has taken it so far."""

    __slots__ = ("died", "epoch", "number", "reason", "refusing", "run", "settings", "taken")

    def __init__(self, run: Run, reason: str, died: int, number: int) -> None:
        self.number = number
        self.run = run
        self.reason = reason
        self.died = died
        self.taken: set[Queue] = set()
        self.refusing: list[Queue] = []  # at the last attempt
        self.epoch = -1  # of that attempt
        self.settings: QueueSettings | None = None

    def has_hope(self, queue: Queue) -> bool:
        """Whether another attempt may have another result."""
        return (
            self.epoch != queue.vhost.epoch
            or self.settings is not queue.settings
            or any(not receiver.refuses(self.run) for receiver in self.refusing)
        )


class Held:
    """The letters of one queue."""

    __slots__ = ("_count", "again", "is_trying", "queue", "rest", "tried")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.again: deque[Letter] = deque()  # tried in vain before, and worth another attempt
        self.tried: deque[Letter] = deque()
        self.rest: deque[tuple[Run, str, int]] = deque()  # with the reason, and the time of death
        self._count = 0
        self.is_trying = False  # an attempt is not done yet

    def can_go_on(self) -> bool:
        return bool(self.again) or (bool(self.rest) and len(self.tried) < WINDOW)

    def next(self) -> Letter:
        """One that was tried before comes first if it has hope: its receiver may be the same."""
        if not self.again:
            self.look()
        if self.again:
            return self.again.popleft()
        run, reason, died = self.rest[0]
        one = run.take(1)
        if one is run:
            self.rest.popleft()
        self._count += 1
        return Letter(one, reason, died, self._count)

    def look(self) -> None:
        """Find those that are worth another attempt."""
        letters = sorted([*self.again, *self.tried], key=_number)
        self.again.clear()
        self.tried.clear()
        for letter in letters:
            (self.again if letter.has_hope(self.queue) else self.tried).append(letter)


def _number(letter: Letter) -> int:
    return letter.number


Attempt = Callable[[Queue, Letter], Steps[bool]]


class AssuredLetters:
    """Those of one vhost. `attempt` offers a letter in steps, and returns whether all have taken it now."""

    def __init__(self, attempt: Attempt, now: Callable[[], int]) -> None:
        self._attempt = attempt
        self._now = now
        self._held: dict[Queue, Held] = {}
        self._going: dict[Queue, Held] = {}  # those that can go on at once
        self._look_at: int | None = None

    def add(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        held = self._held.setdefault(queue, Held(queue))
        held.rest.append((run, reason, now))
        queue.letters += len(run)
        queue.letter_bytes += sum(run.body_sizes())
        if queue.letters >= MOST_LETTERS or queue.letter_bytes >= MOST_BYTES:
            queue.stalled = True
        self._note(held)

    def deadline(self) -> int | None:
        return 0 if self._going else self._look_at

    @property
    def can_go_on(self) -> bool:
        return bool(self._going)

    def try_next(self) -> Steps[None]:
        """Try one letter, of the queue whose turn it is."""
        queue = next(iter(self._going))
        held = self._going.pop(queue)
        if queue.deleted:
            del self._held[queue]
            return
        letter = held.next()
        held.is_trying = True
        done = yield from self._attempt(queue, letter)
        held.is_trying = False
        if done:
            self._take_off(queue, letter, self._now())
        else:
            held.tried.append(letter)
            if self._look_at is None:
                self._look_at = self._now() + PAUSE
        self._note(held)

    def look(self, now: int) -> None:
        """See whether something has changed for those that were tried in vain; some queues at a time."""
        if self._look_at is None or now < self._look_at:
            return
        for _ in range(min(len(self._held), _QUEUES_AT_A_LOOK)):
            queue = next(iter(self._held))
            held = self._held[queue] = self._held.pop(queue)
            held.look()
            self._note(held)
        self._look_at = now + PAUSE if self._held else None

    def _take_off(self, queue: Queue, letter: Letter, now: int) -> None:
        queue.pass_on(letter.run, letter.taken)
        queue.letters -= 1
        queue.letter_bytes -= sum(letter.run.body_sizes())
        if (
            queue.stalled
            and queue.letters <= MOST_LETTERS // 2
            and queue.letter_bytes <= MOST_BYTES // 2
        ):
            queue.stalled = False
            queue.expire(now)
            queue.deal(now)

    def _note(self, held: Held) -> None:
        if held.queue.deleted or held.can_go_on():
            self._going[held.queue] = held
        elif not held.tried and not held.is_trying:
            del self._held[held.queue]
