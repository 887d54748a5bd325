"""A queue whose messages wait in lanes, one for each priority: not too many of them, and not too long.

L1  Nothing is given out that has outlived its time.
L2  What is dropped comes from the shelf in small portions, one in a turn, and none while letters of the last
    wait to be sent: however much expires at once, it needs little memory, and others have their turn. From
    memory 4,096 runs are dropped in a turn. Until then the queue may be longer than it should, and who asks for
    a message may be told that there is none.
"""

from functools import partial

from recado.amqp.frames import body_size_of

from .arguments import QueueSettings
from .lane import Lane
from .queue import Home, Owner, Queue
from .run import Run

MOST_DROPPED = 1 << 20
"""Bytes in one turn, of a lane that is longer than what is in memory: some 10 ms."""
RUNS_DROPPED_MAX = 4096
"""Runs in one turn, of a lane that is in memory: 0.7 µs each, twice that with a journal."""
ALWAYS_DROPPED = 2  # runs, for each message that enters: a queue at its limit stays there
_CHANGES_PER_UNIT = 2  # messages dropped or delivered


class LimitedQueue(Queue):
    __slots__ = (
        "_allowance",
        "_lanes",
        "_later",
        "_limited",
        "_mortal",
        "_ready_bytes",
        "_refuses",
    )

    def __init__(
        self, home: Home, name: str, settings: QueueSettings, owner: Owner | None, now: int
    ) -> None:
        super().__init__(home, name, settings, owner, now)
        self._ready_bytes = 0  # counted only for a limit in bytes
        self._mortal = False  # some messages were given a time to live
        self._allowance = (-1, 0, 0)  # at this time so many more bytes and runs may be dropped (L2)
        self._later = 0  # when to go on with that
        self._lanes: list[Lane] = []
        self._add_lane()

    def _adopt(self, settings: QueueSettings) -> None:
        """What was declared and what policies make of it, and what follows from that."""
        super()._adopt(settings)
        self._limited = settings.max_length is not None or settings.max_length_bytes is not None
        self._refuses = self._limited and settings.overflow != "drop-head"

    def reconfigure(self, settings: QueueSettings, now: int) -> None:
        """Policies came or went. Messages that are there keep the time they have to live."""
        counted = self.settings.max_length_bytes is not None
        self._adopt(settings)
        if settings.max_length_bytes is not None and not counted:
            self._weigh()
        self.touch(now)
        self._drop_excess(now)

    # ── lanes ─────────────────────────────────────────────────────────────────────────────────────────

    def _lane_of(self, run: Run) -> int:
        highest = self.settings.max_priority
        if highest is None:
            return 0
        priority = min(run.facts.priority, highest)
        while len(self._lanes) <= priority:
            self._add_lane()
        return priority

    def _add_lane(self) -> None:
        if self._keeper.keeps:
            self._lanes.append(Lane(partial(self._keeper.fetch, self, len(self._lanes))))
        else:
            self._lanes.append(Lane())

    def _add(self, run: Run) -> None:
        self.ready += len(run)
        if self.settings.max_length_bytes is not None:
            self._ready_bytes += sum(run.body_sizes())

    def _front(self) -> Lane:
        """The lane whose turn it is; something must be ready."""
        lanes = self._lanes
        if len(lanes) == 1:
            return lanes[0]
        return next(lane for lane in reversed(lanes) if lane.head is not None)

    def _take_front(self, count: int) -> Run:
        run = self._front().take(count)
        self._subtract(run)
        return run

    def _subtract(self, run: Run) -> None:
        self.ready -= len(run)
        if self.settings.max_length_bytes is not None:
            self._ready_bytes -= sum(run.body_sizes())

    # ── limits ────────────────────────────────────────────────────────────────────────────────────────

    def refuses(self, one: Run) -> bool:
        """Whether there is no room for a message; dead letters that wait here take room too."""
        most, most_bytes = self.settings.max_length, self.settings.max_length_bytes
        bytes_here = self._ready_bytes + self.letter_bytes
        return self._refuses and (
            (most is not None and self.ready + self.letters + 1 > most)
            or (most_bytes is not None and bytes_here + one.body_sizes()[0] > most_bytes)
        )

    def _drop_excess(self, now: int) -> None:
        """Drop from the front what is too much; of a priority queue that is the most urgent, as in RabbitMQ."""
        if self._refuses or not self._limited:
            return
        most, most_bytes = self.settings.max_length, self.settings.max_length_bytes
        self._renew_allowance(now, ALWAYS_DROPPED)
        more = True
        while more and most is not None and self.ready > most:
            more = self._drop(self._front(), self.ready - most, "maxlen", now)
        while more and most_bytes is not None and self._ready_bytes > most_bytes:
            lane = self._front()
            head = lane.head
            size = body_size_of(head.head) if head is not None and head.head else 0
            count = -(-(self._ready_bytes - most_bytes) // size) if size else 1
            more = self._drop(lane, count, "maxlen", now)
        self._watch_head()

    def expire(self, now: int) -> int:
        """Let go of what has outlived its time at the front of a lane; and go on with what was left to do."""
        self._due = None
        before = self.ready
        for lane in reversed(self._lanes):
            while (
                not self.stalled
                and (head := lane.head) is not None
                and head.expires is not None
                and head.expires <= now
                and self._drop(lane, len(head), "expired", now)
            ):
                pass
        self.deal(now)
        self._drop_excess(now)
        self._watch_head()
        self._watch_idle()
        return 1 + abs(before - self.ready) // _CHANGES_PER_UNIT

    def _watch_head(self) -> None:
        # Heads may be on the shelf, and should stay there if they have time.
        if self.stalled or not self._mortal:
            return
        for lane in self._lanes:
            head = lane.head
            if head is not None and head.expires is not None:
                self._set_alarm(max(head.expires, self._later))

    def _drop_expired(self, now: int) -> bool:
        """Make sure that what is at the front has time left, and did not return too often: if something is.

        A new message with no time at all may still go to a consumer that waits for it, a returned one may not.
        """
        while self.ready and not self.stalled:
            lane = self._front()
            head = lane.head
            assert head is not None
            if head.returns and self._is_worn(head):  # when the process ended, or a policy came
                reason = "delivery_limit"
            elif (
                head.expires is None
                or head.expires > now
                or (head.expires == now and not head.redelivered)
            ):
                return True
            else:
                reason = "expired"
            if not self._drop(lane, len(head), reason, now):
                return False
        return False

    def _drop(self, lane: Lane, count: int, reason: str, now: int) -> bool:
        """Up to so many from the front of a lane; or none, later, if it may not be now (L2)."""
        self._renew_allowance(now)
        _, size, runs = self._allowance
        from_shelf = lane.shelved > 0
        if (self.dying or size <= 0) if from_shelf else runs <= 0:
            self._later = now + 1
            self._set_alarm(now + 1)
            return False
        run = lane.take(count)
        if from_shelf:
            size -= run.weight()
        self._allowance = (now, size, runs - 1)
        self._subtract(run)
        self._dead_letter(self, run, reason, now)
        return True

    def _renew_allowance(self, now: int, runs_min: int = 0) -> None:
        """Allow more to be dropped if it is a new turn; of what is in memory always `runs_min` runs."""
        at, size, runs = self._allowance
        if at != now:
            self._allowance = (now, MOST_DROPPED, RUNS_DROPPED_MAX)
        elif runs < runs_min:
            self._allowance = (now, size, runs_min)

    def _is_worn(self, run: Run) -> bool:
        """Whether it came back too often."""
        limit = self.settings.delivery_limit
        return limit is not None and run.returns > limit

    def _weigh(self) -> None:
        """A limit in bytes must know the size of every message, of those on the shelf too."""
        here = sum(sum(run.body_sizes()) for lane in self._lanes for run in lane.runs())
        self._ready_bytes = here + self._keeper.shelved_bytes(self)
