"""A queue whose messages wait in lanes, one for each priority: not too many of them, and not too long.

L1  Nothing is given out that has outlived its time.
L2  What is dropped comes from the shelf in small portions, one in a turn, and none while letters of the last
    wait to be sent: however much expires at once, it needs little memory, and others have their turn. From
    memory 4,096 runs are dropped in a turn. Until then the queue may be longer than it should, and who asks for
    a message may be told that there is none.
"""

from functools import partial

from recado.amqp.frames import read_body_size

from .arguments import QueueSettings
from .priority_bucket import PriorityBucket
from .queue import ExclusiveOwner, Queue, QueueContext
from .run import Run

DROPPED_BYTES_MAX = 1 << 20
"""Bytes in one turn, of a lane that is longer than what is in memory: some 10 ms."""
DROPPED_RUNS_MAX = 4096
"""Runs in one turn, of a lane that is in memory: 0.7 µs each, twice that with a journal."""
DROPPED_RUNS_MIN = 2  # runs, for each message that enters: a queue at its limit stays there
_CHANGES_PER_UNIT = 2  # messages dropped or delivered


class LimitedQueue(Queue):
    __slots__ = (
        "_buckets",
        "_drop_budget",
        "_drop_retry_at",
        "_has_limits",
        "_has_ttl",
        "_ready_bytes",
        "_rejects_publishes",
    )

    def __init__(
        self,
        context: QueueContext,
        name: str,
        settings: QueueSettings,
        owner: ExclusiveOwner | None,
        now: int,
    ) -> None:
        super().__init__(context, name, settings, owner, now)
        self._ready_bytes = 0  # counted only for a limit in bytes
        self._has_ttl = False  # some messages were given a time to live
        self._drop_budget = (
            -1,
            0,
            0,
        )  # at this time so many more bytes and runs may be dropped (L2)
        self._drop_retry_at = 0  # when to go on with that
        self._buckets: list[PriorityBucket] = []
        self._add_bucket()

    def _apply_settings(self, settings: QueueSettings) -> None:
        """What was declared and what policies make of it, and what follows from that."""
        super()._apply_settings(settings)
        self._has_limits = settings.max_length is not None or settings.max_length_bytes is not None
        self._rejects_publishes = self._has_limits and settings.overflow != "drop-head"

    def reconfigure(self, settings: QueueSettings, now: int) -> None:
        """Policies came or went. Messages that are there keep the time they have to live."""
        counted = self.settings.max_length_bytes is not None
        self._apply_settings(settings)
        if settings.max_length_bytes is not None and not counted:
            self._measure_ready_bytes()
        self.touch(now)
        self._drop_excess(now)

    # ── lanes ─────────────────────────────────────────────────────────────────────────────────────────

    def _bucket_index(self, run: Run) -> int:
        highest = self.settings.max_priority
        if highest is None:
            return 0
        priority = min(run.traits.priority, highest)
        while len(self._buckets) <= priority:
            self._add_bucket()
        return priority

    def _add_bucket(self) -> None:
        if self._store.has_disk:
            self._buckets.append(
                PriorityBucket(partial(self._store.page_in, self, len(self._buckets)))
            )
        else:
            self._buckets.append(PriorityBucket())

    def _count_ready(self, run: Run) -> None:
        self.ready += len(run)
        if self.settings.max_length_bytes is not None:
            self._ready_bytes += sum(run.body_sizes())

    def _front_bucket(self) -> PriorityBucket:
        """The lane whose turn it is; something must be ready."""
        lanes = self._buckets
        if len(lanes) == 1:
            return lanes[0]
        return next(lane for lane in reversed(lanes) if lane.front is not None)

    def _take_front(self, count: int) -> Run:
        run = self._front_bucket().take(count)
        self._uncount_ready(run)
        return run

    def _uncount_ready(self, run: Run) -> None:
        self.ready -= len(run)
        if self.settings.max_length_bytes is not None:
            self._ready_bytes -= sum(run.body_sizes())

    # ── limits ────────────────────────────────────────────────────────────────────────────────────────

    def would_reject(self, message: Run) -> bool:
        """Whether there is no room for a message; dead letters that wait here take room too."""
        length_max, bytes_max = self.settings.max_length, self.settings.max_length_bytes
        bytes_here = self._ready_bytes + self.held_dead_letter_bytes
        return self._rejects_publishes and (
            (length_max is not None and self.ready + self.held_dead_letters + 1 > length_max)
            or (bytes_max is not None and bytes_here + message.body_sizes()[0] > bytes_max)
        )

    def _drop_excess(self, now: int) -> None:
        """Drop from the front what is too much; of a priority queue that is the most urgent, as in RabbitMQ."""
        if self._rejects_publishes or not self._has_limits:
            return
        length_max, bytes_max = self.settings.max_length, self.settings.max_length_bytes
        self._renew_drop_budget(now, DROPPED_RUNS_MIN)
        may_drop = True
        while may_drop and length_max is not None and self.ready > length_max:
            may_drop = self._drop(self._front_bucket(), self.ready - length_max, "maxlen", now)
        while may_drop and bytes_max is not None and self._ready_bytes > bytes_max:
            bucket = self._front_bucket()
            front = bucket.front
            size = read_body_size(front.prefix) if front is not None and front.prefix else 0
            count = -(-(self._ready_bytes - bytes_max) // size) if size else 1
            may_drop = self._drop(bucket, count, "maxlen", now)
        self._set_ttl_timer()

    def on_timer(self, now: int) -> int:
        """Let go of what has outlived its time at the front of a lane; and go on with what was left to do."""
        self._timer_due = None
        before = self.ready
        for bucket in reversed(self._buckets):
            while (
                not self.stalled
                and (front := bucket.front) is not None
                and front.expires_at is not None
                and front.expires_at <= now
                and self._drop(bucket, len(front), "expired", now)
            ):
                pass
        self.dispatch(now)
        self._drop_excess(now)
        self._set_ttl_timer()
        self._set_expiry_timer()
        return 1 + abs(before - self.ready) // _CHANGES_PER_UNIT

    def _set_ttl_timer(self) -> None:
        # Heads may be on the shelf, and should stay there if they have time.
        if self.stalled or not self._has_ttl:
            return
        for bucket in self._buckets:
            front = bucket.front
            if front is not None and front.expires_at is not None:
                self._set_timer(max(front.expires_at, self._drop_retry_at))

    def _drop_expired_front(self, now: int) -> bool:
        """Make sure that what is at the front has time left, and did not return too often: if something is.

        A new message with no time at all may still go to a consumer that waits for it, a returned one may not.
        """
        while self.ready and not self.stalled:
            bucket = self._front_bucket()
            front = bucket.front
            assert front is not None
            if front.delivery_count and self._exceeds_delivery_limit(
                front
            ):  # when the process ended, or a policy came
                reason = "delivery_limit"
            elif (
                front.expires_at is None
                or front.expires_at > now
                or (front.expires_at == now and not front.redelivered)
            ):
                return True
            else:
                reason = "expired"
            if not self._drop(bucket, len(front), reason, now):
                return False
        return False

    def _drop(self, bucket: PriorityBucket, count: int, reason: str, now: int) -> bool:
        """Up to so many from the front of a lane; or none, later, if it may not be now (L2)."""
        self._renew_drop_budget(now)
        _, bytes_left, runs_left = self._drop_budget
        from_disk = bucket.paged_out_count > 0
        if (self.dead_lettering_runs or bytes_left <= 0) if from_disk else runs_left <= 0:
            self._drop_retry_at = now + 1
            self._set_timer(now + 1)
            return False
        run = bucket.take(count)
        if from_disk:
            bytes_left -= run.memory_bytes()
        self._drop_budget = (now, bytes_left, runs_left - 1)
        self._uncount_ready(run)
        self._dead_letter(self, run, reason, now)
        return True

    def _renew_drop_budget(self, now: int, runs_min: int = 0) -> None:
        """Allow more to be dropped if it is a new turn; of what is in memory always `runs_min` runs."""
        at, size, runs = self._drop_budget
        if at != now:
            self._drop_budget = (now, DROPPED_BYTES_MAX, DROPPED_RUNS_MAX)
        elif runs < runs_min:
            self._drop_budget = (now, size, runs_min)

    def _exceeds_delivery_limit(self, run: Run) -> bool:
        """Whether it came back too often."""
        limit = self.settings.delivery_limit
        return limit is not None and run.delivery_count > limit

    def _measure_ready_bytes(self) -> None:
        """A limit in bytes must know the size of every message, of those on the shelf too."""
        here = sum(sum(run.body_sizes()) for lane in self._buckets for run in lane.runs())
        self._ready_bytes = here + self._store.paged_out_bytes(self)
