"""A stream: an append-only log that any number of consumers read, each at its own offset.

BS1  Each consumer gets every message that matches its filter from its starting offset, once, in order and
     at its own speed. Reading and acknowledging remove nothing; an ack or nack only frees credit.
BS2  A message is delivered only when it is durable, so that no offset ever identifies two messages.
BS3  A consumer never holds more than its prefetch; all consumers of a stream together are served within a
     budget per turn.
BS4  A consumer with credit gets all durable messages, in this turn or in one of the next.

For the rest of the broker it is a queue. There is no order between deliveries of a stream and of other
queues on the same channel.
"""

from collections import deque
from collections.abc import Sequence

from recado.amqp.errors import AmqpNotImplementedError, PreconditionFailedError

from .arguments import QueueSettings, describe_entity
from .checks import StreamOffset
from .consumer import Consumer
from .queue import Queue
from .run import Run
from .steps import STEP_UNITS_MAX
from .stream_consumer import StreamConsumer
from .stream_log import StreamLog, StreamReadCache

TURN_BYTES = 1 << 20  # rendered per turn for all consumers of a stream
BYTES_PER_UNIT = 512  # of cost; the budget of a turn takes about 10 ms


class Stream(Queue):
    consumer_type = StreamConsumer

    def attach_log(self, log: StreamLog, now: int) -> None:
        """Start with the messages of the log, all of which are durable."""
        self._log = log
        self._read_cache = StreamReadCache()
        self._next_position = self._started_at_position = log.next_offset
        self._durable_offset = log.next_offset  # messages before this offset may be delivered
        # Pairs of an LSN and the offset up to which messages become durable with it.
        self._pending_durable: deque[tuple[int, int]] = deque()
        self._caught_up: dict[Consumer, None] = {}  # consumers waiting for new messages
        self._now = now
        self.ready = log.next_offset - log.first_offset
        self._trim()

    @property
    def first_offset(self) -> int:
        """The offset of the first message; retention has removed those before it."""
        return self._log.first_offset

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────

    def publish(self, run: Run, now: int) -> Sequence[int]:
        self._now = now
        self._log.append(run, now)
        if self.observers:
            run.first_position = self._next_position
            for observer in self.observers:
                observer.entered(self, run)
        self._next_position = self._log.next_offset
        self.ready += len(run)
        store, pending = self._store, self._pending_durable
        if not store.has_disk:
            self._advance_durable_offset(self._log.next_offset)
        elif pending and pending[-1][0] == store.lsn:
            pending[-1] = (store.lsn, self._log.next_offset)
        else:
            pending.append((store.lsn, self._log.next_offset))
            store.notify_when_durable(self)
        return ()

    def on_durable(self) -> None:
        """Deliver messages that have become durable."""
        durable_offset, pending = self._durable_offset, self._pending_durable
        while pending and pending[0][0] <= self._store.durable_lsn:
            durable_offset = pending.popleft()[1]
        if durable_offset > self._durable_offset and not self.deleted:
            self._advance_durable_offset(durable_offset)

    def _advance_durable_offset(self, durable_offset: int) -> None:
        self._durable_offset = durable_offset
        self._trim()
        for consumer in self._caught_up:
            self._ring.wake(consumer)
        self._caught_up.clear()
        self.dispatch(self._now)

    # ── reading ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def durable_offset(self) -> int:
        """The offset after the last message that may be delivered."""
        return self._durable_offset

    def read(self, offset: int, end: int) -> list[Run]:
        """Return some messages from `offset` on and before `end`, for a reader that is no consumer."""
        return self._log.read(offset, end)

    # ── delivering ────────────────────────────────────────────────────────────────────────────────────

    def dispatch(self, now: int) -> None:
        bytes_left = TURN_BYTES
        while (group := self._ring.front_group) is not None:
            consumer = group[0]
            assert isinstance(consumer, StreamConsumer)
            credit = consumer.credit()
            if credit <= 0:
                self._ring.sleep(consumer)
            elif consumer.next_offset >= self._durable_offset:
                self._ring.sleep(consumer)
                self._caught_up[consumer] = None
            elif bytes_left <= 0:
                self._set_timer(now + 1)  # in the next turn
                return
            else:
                run, cost = self._read_cache.read(
                    self._log, consumer.next_offset, self._durable_offset
                )
                cost += consumer.deliver_next(run, credit)
                bytes_left -= cost
                # Charged to the client that caused it; otherwise each of its acks would have a budget of
                # its own.
                self.vhost.background.charge(cost // BYTES_PER_UNIT)
                group.rotate(-1)

    def on_timer(self, now: int) -> int:
        """Remove messages beyond retention, and continue dispatching."""
        self._timer_due = None
        self._now = now
        self._trim()
        self.dispatch(now)
        return STEP_UNITS_MAX

    def reconfigure(self, settings: QueueSettings, now: int) -> None:
        self._apply_settings(settings)
        self.on_timer(now)

    def _trim(self) -> None:
        max_age, bytes_max = self.settings.max_age_ms, self.settings.max_length_bytes
        if max_age is None and bytes_max is None:
            return
        oldest_time = None if max_age is None else self._now - max_age
        newest = self._log.trim(bytes_max, oldest_time, self._durable_offset)
        self.ready = self._log.next_offset - self._log.first_offset
        if max_age is not None and newest is not None:
            self._set_timer(newest + max_age + 1)

    def requeue(self, runs: list[Run], now: int) -> None:
        """Do nothing: the messages never left the stream."""

    def reject(self, runs: list[Run], now: int) -> None:
        """Do nothing: the messages stay in the stream."""

    def get(self, now: int) -> Run | None:
        raise AmqpNotImplementedError(
            f"basic.get not supported by stream queues {self._describe()}"
        )

    def purge(self) -> int:
        if not self.deleted:
            raise AmqpNotImplementedError(
                f"queue.purge not supported by stream queues {self._describe()}"
            )
        count, self.ready = self.ready, 0
        return count

    # ── consumers ─────────────────────────────────────────────────────────────────────────────────────

    def check_consumer(self, *, no_ack: bool, prefetch: int) -> None:
        if not prefetch:
            raise PreconditionFailedError(
                f"consumer prefetch count is not set for '{self._describe()}'"
            )
        if no_ack:
            raise AmqpNotImplementedError(
                f"automatic acknowledgement not supported by stream queues {self._describe()}"
            )

    def add_consumer(self, consumer: Consumer, now: int) -> None:
        assert isinstance(consumer, StreamConsumer)
        consumer.next_offset = self.resolve_offset(consumer.settings.stream_offset, now)
        super().add_consumer(consumer, now)

    def resolve_offset(self, requested: StreamOffset, now: int) -> int:
        """Return the offset at which to start reading."""
        log = self._log
        if requested.kind == "first":
            return log.first_offset
        if requested.kind == "last":
            return max(self._durable_offset - 1, log.first_offset)
        if requested.kind == "next":
            return log.next_offset
        if requested.kind == "offset":
            return max(requested.value, log.first_offset)
        return log.offset_at(requested.value if requested.kind == "time" else now - requested.value)

    def wake(self, consumer: Consumer) -> None:
        if consumer not in self._caught_up:
            super().wake(consumer)

    def remove_consumer(self, consumer: Consumer, now: int) -> None:
        self._caught_up.pop(consumer, None)
        super().remove_consumer(consumer, now)

    def _describe(self) -> str:
        return describe_entity("queue", self.name, self.vhost.name)
