"""A stream: a queue that keeps what was read, for everybody who wants to read it.

T1  Each consumer gets every message that it wants from where it began, once, in order, at its own speed:
    nothing that others read or that it acknowledges is taken away. An ack makes room for more, as does a nack.
T2  A message is shown to nobody before it is safe, so that no offset ever stands for two messages.
T3  A consumer never holds more than its prefetch; all together are given a limited share of a turn.
T4  A consumer with room gets what is safe, if not in this turn then in one of the next.

To the rest of the broker it is a queue: declared, bound, published to and consumed as one. Between what a
channel is given from a stream and what it is given from elsewhere, no order is promised.
"""

from collections import deque
from collections.abc import Sequence

from recado.amqp.errors import NotImplementedHere, PreconditionFailed

from .arguments import QueueSettings, describe
from .checks import StreamOffset
from .consumer import Consumer
from .queue import Queue
from .run import Run
from .steps import STEP_UNITS
from .stream_consumer import StreamConsumer
from .stream_log import Blocks, StreamLog

TURN_BYTES = 1 << 20  # rendered for all consumers of a stream, before others get their turn
BYTES_PER_UNIT = 512  # of `recado.broker.steps`: the share of a turn takes about 10 ms


class Stream(Queue):
    consumer_type = StreamConsumer

    def open(self, log: StreamLog, now: int) -> None:
        """Begin with what is kept already, all of which is safe."""
        self._log = log
        self._blocks = Blocks()
        self._safe = log.next  # all before this offset may be shown
        self._promises: deque[tuple[int, int]] = deque()  # (ticket, what is safe with it)
        self._up_to_date: dict[Consumer, None] = {}  # those who wait for what is new
        self._now = now
        self.ready = log.next - log.first
        self._trim()

    # ── entering ──────────────────────────────────────────────────────────────────────────────────────

    def publish(self, run: Run, now: int) -> Sequence[int]:
        self._now = now
        self._log.append(run, now)
        self.ready += len(run)
        keeper, promises = self._keeper, self._promises
        if not keeper.keeps:
            self._show(self._log.next)
        elif promises and promises[-1][0] == keeper.ticket:
            promises[-1] = (keeper.ticket, self._log.next)
        else:
            promises.append((keeper.ticket, self._log.next))
            keeper.tell(self)
        return ()

    def kept(self) -> None:
        """More is safe."""
        safe, promises = self._safe, self._promises
        while promises and promises[0][0] <= self._keeper.safe:
            safe = promises.popleft()[1]
        if safe > self._safe and not self.deleted:
            self._show(safe)

    def _show(self, safe: int) -> None:
        self._safe = safe
        self._trim()
        for consumer in self._up_to_date:
            self._rota.wake(consumer)
        self._up_to_date.clear()
        self.deal(self._now)

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────────

    def deal(self, now: int) -> None:
        share = TURN_BYTES
        while (turns := self._rota.foremost) is not None:
            consumer = turns[0]
            assert isinstance(consumer, StreamConsumer)
            room = consumer.room()
            if room <= 0:
                self._rota.sleep(consumer)
            elif consumer.next >= self._safe:
                self._rota.sleep(consumer)
                self._up_to_date[consumer] = None
            elif share <= 0:
                self._set_alarm(now + 1)  # not in the same turn
                return
            else:
                read, cost = self._blocks.find(self._log, consumer.next, self._safe)
                cost += consumer.give(read, room)
                share -= cost
                # Charged to the client that caused it; otherwise each of its acks would have a share.
                self.vhost.cleanup.spent += cost // BYTES_PER_UNIT
                turns.rotate(-1)

    def expire(self, now: int) -> int:
        """Let go of what is too old, and go on with what was left over for this turn."""
        self._due = None
        self._now = now
        self._trim()
        self.deal(now)
        return STEP_UNITS

    def reconfigure(self, settings: QueueSettings, now: int) -> None:
        self._adopt(settings)
        self.expire(now)

    def _trim(self) -> None:
        age, most = self.settings.max_age, self.settings.max_length_bytes
        if age is None and most is None:
            return
        oldest = None if age is None else self._now - age
        newest = self._log.trim(most, oldest, self._safe)
        self.ready = self._log.next - self._log.first
        if age is not None and newest is not None:
            self._set_alarm(newest + age + 1)

    def put_back(self, runs: list[Run], now: int) -> None:
        """They never left."""

    def reject(self, runs: list[Run], now: int) -> None:
        """They stay for others."""

    def get(self, now: int) -> Run | None:
        raise NotImplementedHere(f"basic.get not supported by stream queues {self._description()}")

    def purge(self) -> int:
        if not self.deleted:
            raise NotImplementedHere(
                f"queue.purge not supported by stream queues {self._description()}"
            )
        count, self.ready = self.ready, 0
        return count

    # ── consumers ─────────────────────────────────────────────────────────────────────────────────────

    def check_consumer(self, *, no_ack: bool, prefetch: int) -> None:
        if not prefetch:
            raise PreconditionFailed(
                f"consumer prefetch count is not set for '{self._description()}'"
            )
        if no_ack:
            raise NotImplementedHere(
                f"automatic acknowledgement not supported by stream queues {self._description()}"
            )

    def add_consumer(self, consumer: Consumer, now: int) -> None:
        assert isinstance(consumer, StreamConsumer)
        consumer.next = self._offset_of(consumer.settings.stream_offset, now)
        super().add_consumer(consumer, now)

    def _offset_of(self, wanted: StreamOffset, now: int) -> int:
        log = self._log
        if wanted.kind == "first":
            return log.first
        if wanted.kind == "last":
            return max(self._safe - 1, log.first)
        if wanted.kind == "next":
            return log.next
        if wanted.kind == "offset":
            return max(wanted.value, log.first)
        return log.offset_at(wanted.value if wanted.kind == "time" else now - wanted.value)

    def wake(self, consumer: Consumer) -> None:
        if consumer not in self._up_to_date:
            super().wake(consumer)

    def remove_consumer(self, consumer: Consumer, now: int) -> None:
        self._up_to_date.pop(consumer, None)
        super().remove_consumer(consumer, now)

    def _description(self) -> str:
        return describe("queue", self.name, self.vhost.name)
