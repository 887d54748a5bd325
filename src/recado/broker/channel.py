"""A channel: what one conversation on a connection holds. Here the consuming half; `publisher` is the other.

C1  Delivery tags count up from 1; a tag is settled once, by the channel that was given it.
C2  When the channel ends, what it has not settled returns to its queues.
C3  In a transaction settlements happen at commit; until then nobody else can settle those tags.
C4  Messages that return together are all in their queues before one of them is delivered again.
C5  The next single active consumer gets the messages that a closed channel held before newer ones.

A range of tags with many deliveries is settled in steps (see `steps` and `cleanup`), and so is a channel with
many consumers closed. For C4 and C5 the queues deliver nothing until the last step.

A small transaction is committed in one step, and is one group for the keeper. A larger one is committed in
steps, its messages first. Once begun it is completed, also if the connection ends meanwhile; only then does
the channel requeue what it holds.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from recado.amqp.errors import AccessRefused, ClosesChannel, NotAllowed, PreconditionFailed
from recado.amqp.frames import FRAME_DEFAULT, method_frame
from recado.amqp.methods import BasicCancel, BasicGetOk, Method

from .arguments import ConsumerSettings, describe
from .cleanup import Cleanup
from .consumer import Consumer, Outlet
from .delivery_count import counted
from .publisher import Publisher
from .queue import Queue
from .routing import Admission
from .run import Run
from .steps import STEP_UNITS, TURN_UNITS, Steps, Work, finish
from .unacked import Unacked

_ENTRIES_PER_UNIT: Final = 2  # deliveries to settle, with what their consumers are given instead
_CONSUMERS_PER_UNIT: Final = 8  # to look for one that has messages waiting
_RESUMED_PER_UNIT: Final = 32  # consumers without a message waiting: 0.07 to 0.15 µs each

ATOMIC_UNITS: Final = TURN_UNITS // 2
"""The cost up to which a transaction is committed in one step: about a thousand messages."""


class Settlement(Enum):
    ACK = "ack"
    REQUEUE = "requeue"
    REJECT = "reject"


class Getter:
    """Holds what basic.get took from a queue, as a consumer holds its deliveries."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def release(self, count: int) -> None:
        self.queue.unacked -= count


class _ClosedOutlet:
    """The outlet of a closed channel: nothing is delivered to its consumers until they are removed."""

    frame_max = FRAME_DEFAULT
    congested = True
    told_of_cancel = False
    noted = False

    def write(self, data: bytes) -> None:
        """Drop a direct reply, the only thing that is delivered to a congested peer."""

    def close_channel(self, number: int, error: ClosesChannel, now: int) -> None:
        """It is closed."""


class Channel:
    __slots__ = (
        "_claim_units",
        "_claimed",
        "_claimed_up_to",
        "_claims",
        "_committing",
        "_keeper",
        "_was_full",
        "acknowledged",
        "admission",
        "consumers",
        "last_queue",
        "limit",
        "next_tag",
        "number",
        "outlet",
        "outstanding",
        "prefetch",
        "publisher",
        "unacked",
    )

    def __init__(self, number: int, outlet: Outlet, admission: Admission) -> None:
        self.number = number
        self.outlet = outlet
        self.admission = admission
        self._keeper = admission.vhost.keeper
        self.publisher = Publisher(number, outlet, admission)
        self.consumers: dict[str, Consumer] = {}
        self.unacked: Unacked[Consumer | Getter] = Unacked()
        self.next_tag = 1
        self.acknowledged = 0  # how many it ever was
        self.prefetch = 0  # for each consumer to come
        self.limit = 0  # for all consumers of the channel together
        self.outstanding = 0  # what counts for that limit
        self.last_queue: str | None = None  # what an empty queue name stands for
        self._was_full = False  # the shared limit kept its consumers asleep
        self._claims: list[tuple[Settlement, int, int]] = []  # first and last tag
        self._claim_units = 0  # the cost of settling them
        self._claimed: set[int] = set()  # singly
        self._claimed_up_to = 0  # whatever is outstanding up to this tag is claimed
        self._committing: Work[None] | None = None  # a transaction that takes several steps

    def send(self, method: Method) -> None:
        self.outlet.write(method_frame(self.number, method))

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────

    def consume(
        self,
        queue: Queue,
        tag: str,
        settings: ConsumerSettings,
        *,
        no_ack: bool,
        exclusive: bool,
        now: int,
    ) -> Consumer:
        """Add a consumer; let the queue deal once the peer knows its tag."""
        self.check_new_tag(tag)
        if settings.wire_tap:
            if not no_ack:
                raise PreconditionFailed(
                    "a wire tap takes nothing, so it has nothing to ack: set no-ack"
                )
        elif queue.is_taken(exclusive):
            described = describe("queue", queue.name, queue.vhost.name)
            raise AccessRefused(f"{described} in exclusive use")
        queue.check_consumer(no_ack=no_ack, prefetch=self.prefetch)
        consumer = queue.consumer_type(
            self, queue, tag, settings, no_ack=no_ack, exclusive=exclusive, limit=self.prefetch
        )
        self.consumers[tag] = consumer
        self.admission.timeouts.watch(self, now)
        self._count_crowd(consumer, +1)
        queue.add_consumer(consumer, now)
        return consumer

    def check_new_tag(self, tag: str) -> None:
        if tag in self.consumers:
            raise NotAllowed(f"attempt to reuse consumer tag '{tag}'")

    def remove(self, consumer: Consumer, now: int) -> None:
        """Forget a consumer; what it holds stays with the channel."""
        self._count_crowd(consumer, -1)
        del self.consumers[consumer.tag]
        consumer.queue.remove_consumer(consumer, now)

    def dismiss(self, consumer: Consumer, now: int) -> None:
        """Remove a consumer whose queue is gone, and tell a client that wants to know."""
        self.remove(consumer, now)
        if self.outlet.told_of_cancel:
            self.send(BasicCancel(consumer.tag, no_wait=True))

    def _count_crowd(self, consumer: Consumer, change: int) -> None:
        """Queues are told which consumers share a channel with others; alone is not a crowd."""
        size = len(self.consumers)
        if size == 2:
            for each in self.consumers.values():
                each.queue.crowded += change
        elif size > 2:
            consumer.queue.crowded += change

    def get(self, queue: Queue, *, no_ack: bool, now: int) -> bool:
        """Answer basic.get with a message, if there is one."""
        run = queue.get(now)
        if run is None:
            return False
        tag = self.next_tag
        self.next_tag += 1
        origin = run.origin
        shown = counted(run) if run.returns else run
        head, (tail,) = shown.head, shown.tails
        if run.channel != self.number or self.outlet.frame_max < run.frame_max:
            head, (tail,) = shown.fitted(self.number, self.outlet.frame_max)
        self.outlet.noted |= run.kept
        if no_ack:
            queue.settle(run)
        else:
            self.unacked.add(tag, run, Getter(queue))
            self.admission.timeouts.watch(self, now)
            queue.unacked += 1
            if run.kept:
                queue.note_delivered(run)
        self.send(
            BasicGetOk(tag, run.redelivered, origin.exchange, origin.routing_key, queue.ready)
        )
        self.outlet.write(head + tail)
        return True

    def resume(self, now: int) -> None:
        """The peer keeps up again, or the channel's limit grew: its consumers may have room."""
        resumed = 0
        for consumer in list(self.consumers.values()):
            if self.limit and self.outstanding >= self.limit:
                break
            resumed += 1
            consumer.queue.wake(consumer)
            consumer.queue.deal(now)
        self.admission.vhost.cleanup.spent += resumed // _RESUMED_PER_UNIT

    def served(self, consumer: Consumer) -> None:
        """Where consumers share a limit, whoever was given something is the last to be given more."""
        self.consumers[consumer.tag] = self.consumers.pop(consumer.tag)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────

    def acks_per_step(self, most: int) -> int:
        """The number of single acks to handle at once: with a shared limit each may resume all consumers."""
        if not self._shares_limit():
            return most
        return max(min(most, STEP_UNITS * _RESUMED_PER_UNIT // len(self.consumers)), 1)

    def ack_each(self, first: int, count: int, now: int) -> None:
        """As many single acks, tags counting up."""
        if self.publisher.pending is not None:
            for tag in range(first, first + count):
                self._claim(Settlement.ACK, tag, multiple=False)
            return
        last, unknown = first + count - 1, None
        if self.unacked.surely_holds(first, last) and not self._shares_limit():
            self._settle(Settlement.ACK, first, last, now)
            return
        for tag in range(first, last + 1):
            if not self.unacked.has(tag):
                unknown = tag
                break
            self._settle(Settlement.ACK, tag, tag, now)
        if unknown is not None:
            raise _unknown(unknown)

    def settle(self, how: Settlement, tag: int, now: int, *, multiple: bool) -> None:
        """Settle one delivery, or all up to it; if they are many, `Cleanup` goes on with that."""
        if self.publisher.pending is not None:
            self._claim(how, tag, multiple=multiple)
            return
        if multiple and tag == 0:
            self._settle_range(how, self.next_tag - 1, now)
        elif not self.unacked.has(tag):
            raise _unknown(tag)
        elif multiple:
            self._settle_range(how, tag, now)
        else:
            self._settle(how, tag, tag, now)

    def recover(self, now: int) -> None:
        """Requeue all deliveries that no transaction has claimed (C3); `Cleanup` goes on if they are many."""
        last = self.next_tag - 1
        if self._claims:
            self._cleanup_at(now).begin(self._requeue_unclaimed(last))
        else:
            self._settle_range(Settlement.REQUEUE, last, now)

    def _cleanup_at(self, now: int) -> Cleanup:
        cleanup = self.admission.vhost.cleanup
        cleanup.now = now
        return cleanup

    def _settle_range(self, how: Settlement, last: int, now: int) -> None:
        """Settle all deliveries up to a tag."""
        if self.unacked.reach(0, last, self._entries_per_step()) == last:
            self._settle(how, 0, last, now)
        elif how is Settlement.ACK:
            self._cleanup_at(now).begin(self._accept_in_steps(0, last))
        else:
            self._cleanup_at(now).begin(self._refuse_in_steps(how, 0, last))

    def _entries_per_step(self) -> int:
        """Where a shared limit was reached, all consumers may have to be looked at for each."""
        units = 1 + len(self.consumers) // _CONSUMERS_PER_UNIT if self.limit else 1
        return max(STEP_UNITS * _ENTRIES_PER_UNIT // units, 1)

    def _parts(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Parts of a range of tags, each enough for a step; others may be delivered or settled meanwhile."""
        while first <= last:
            end = self.unacked.reach(first, last, self._entries_per_step())
            yield first, end
            first = end + 1

    def _accept_in_steps(self, first: int, last: int) -> Steps[None]:
        for start, end in self._parts(first, last):
            cost = 1 + self.unacked.entries_in(start, end) // _ENTRIES_PER_UNIT
            self._settle(Settlement.ACK, start, end, self.admission.vhost.cleanup.now)
            yield cost

    def _requeue_unclaimed(self, last: int) -> Steps[None]:
        """One by one, for what is claimed lies in between."""
        for first, end in self._parts(0, last):
            for tag in list(self.unacked.tags(max(first, self._claimed_up_to + 1), end)):
                if tag not in self._claimed:
                    self._settle(Settlement.REQUEUE, tag, tag, self.admission.vhost.cleanup.now)
                    yield 1
            yield 1

    def _refuse_in_steps(self, how: Settlement, first: int, last: int) -> Steps[None]:
        """Settle a range of deliveries; nothing is delivered from their queues until all are there (C4)."""
        cleanup, was_full = self.admission.vhost.cleanup, 0 < self.limit <= self.outstanding
        queues: dict[Queue, dict[Consumer, None]] = {}
        for start, end in self._parts(first, last):
            returned, holders = self._take_back(start, end)
            for queue in returned:
                if queue not in queues:
                    queue.returning += 1
                    queues[queue] = {}
            for holder in holders:
                queues[holder.queue][holder] = None
            _give_back(how, returned, cleanup.now)
            yield 1 + sum(map(len, returned.values()))  # with what the journal makes of it
        for queue, consumers in queues.items():
            queue.returning -= 1
            for consumer in consumers:
                queue.wake(consumer)
            queue.deal(cleanup.now)
            yield 1 + len(consumers)
        if was_full:
            self.resume(cleanup.now)

    def _shares_limit(self) -> bool:
        """Room then opens for one message at a time, and who gets it depends on who is next."""
        return self.limit > 0 and len(self.consumers) > 1

    def _settle(self, how: Settlement, first: int, last: int, now: int) -> None:
        self._was_full = 0 < self.limit <= self.outstanding
        if how is Settlement.ACK:
            self._accept(first, last, now)
        else:
            self._refuse(how, first, last, now)
        self.unacked.sweep()

    def _accept(self, first: int, last: int, now: int) -> None:
        """Deals after each stretch of one holder's messages, so that it matters not how acks are bundled."""
        holder: Consumer | Getter | None = None
        for entry, low, high in self.unacked.spans(first, last):
            if holder is not entry.holder:
                if holder is not None:
                    self._refill(holder, now)
                holder = entry.holder
            if entry.run.kept:
                for start, end in entry.unsettled(low, high):
                    holder.queue.acknowledge(entry.run, start, end)
            count = self.unacked.settle(entry, low, high)
            self.acknowledged += count
            holder.release(count)
        if holder is not None:
            self._refill(holder, now)

    def _refuse(self, how: Settlement, first: int, last: int, now: int) -> None:
        returned, holders = self._take_back(first, last)
        for holder in holders:
            holder.queue.wake(holder)
        _give_back(how, returned, now)
        for holder in holders:
            self._refill(holder, now)

    def _take_back(
        self, first: int, last: int
    ) -> tuple[dict[Queue, list[Run]], dict[Consumer, None]]:
        """Take deliveries from those who hold them: the messages by queue, and the consumers."""
        returned: dict[Queue, list[Run]] = {}
        holders: dict[Consumer, None] = {}
        for entry, low, high in self.unacked.spans(first, last):
            returned.setdefault(entry.holder.queue, []).extend(entry.pieces(low, high))
            if isinstance(entry.holder, Consumer):
                holders[entry.holder] = None
            entry.holder.release(self.unacked.settle(entry, low, high))
        self.unacked.sweep()
        return returned, holders

    def _refill(self, holder: Consumer | Getter, now: int) -> None:
        if self._was_full:
            self.resume(now)
            self._was_full = 0 < self.limit <= self.outstanding
        elif isinstance(holder, Consumer):
            holder.queue.wake(holder)
            holder.queue.deal(now)

    # ── transactions ──────────────────────────────────────────────────────────────────────────────────

    def _claim(self, how: Settlement, tag: int, *, multiple: bool) -> None:
        everything = multiple and tag == 0
        if not everything and (
            tag <= self._claimed_up_to or tag in self._claimed or not self.unacked.has(tag)
        ):
            raise _unknown(tag)
        if (
            multiple
        ):  # those that are claimed already are settled first, so they need not be left out
            first, last = self._claimed_up_to + 1, tag or self.next_tag - 1
            self._claimed_up_to = last
            self._claims.append((how, first, last))
            self._claim_units += 1 + self.unacked.entries_in(first, last)
            return
        self._claimed.add(tag)
        self._claim_units += 1
        if how is Settlement.ACK and self._claims:
            before, first, last = self._claims[-1]
            if before is how and last == tag - 1 and last in self._claimed:
                self._claims[-1] = (how, first, tag)
                return
        self._claims.append((how, tag, tag))

    def commit(self, now: int) -> None:
        """Carry out the transaction: in one step if it is small, else `Cleanup` goes on with it."""
        cleanup, publisher = self._cleanup_at(now), self.publisher
        if not publisher.is_prepared:
            finish(publisher.prepare())
        if publisher.commit_units + self._claim_units > ATOMIC_UNITS:
            self._committing = cleanup.begin(self._commit_in_steps())
            return
        self._keeper.begin()
        try:
            cleanup.spent += sum(self._carry_out())
        finally:
            self._keeper.end()

    def _commit_in_steps(self) -> Steps[None]:
        yield from self._carry_out()
        self._keeper.require_sync()

    def _carry_out(self) -> Steps[None]:
        claims = self._forget_claims()
        yield from self.publisher.commit()
        for how, first, last in claims:
            yield from self._settle_claim(how, first, last)

    def _settle_claim(self, how: Settlement, first: int, last: int) -> Steps[None]:
        if how is not Settlement.ACK and first < last:
            yield from self._refuse_in_steps(how, first, last)
        elif how is Settlement.ACK and not self._shares_limit():
            yield from self._accept_in_steps(first, last)
        else:
            for start, end in self._parts(first, last):
                for tag in list(self.unacked.tags(start, end)):
                    self._settle(how, tag, tag, self.admission.vhost.cleanup.now)
                    yield 1
            yield 1

    def rollback(self) -> None:
        self.publisher.rollback()
        self._forget_claims()

    def _forget_claims(self) -> Iterable[tuple[Settlement, int, int]]:
        claims, self._claims = self._claims, []
        self._claimed = set()
        self._claimed_up_to = self._claim_units = 0
        return claims

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> Steps[list[Queue]]:
        """Deliver nothing more; return steps that remove consumers and requeue all that they hold (C2).

        Their result is the queues that lost a consumer, apart from those of wire taps.
        """
        self.publisher.close()
        self.admission.timeouts.forget(self)
        self.outlet = _ClosedOutlet()
        self.limit = 0
        return self._let_go()

    def _let_go(self) -> Steps[list[Queue]]:
        cleanup = self.admission.vhost.cleanup
        queues: dict[Queue, None] = {}
        paused: dict[Queue, None] = {}  # to remove the active consumer activates the next one (C5)
        for consumer in list(self.consumers.values()):
            queue = consumer.queue
            if not consumer.settings.wire_tap:
                queues[queue] = None
                if queue.settings.single_active_consumer and queue not in paused:
                    queue.returning += 1
                    paused[queue] = None
            if consumer.tag in self.consumers:  # else its queue was deleted meanwhile
                self.remove(consumer, cleanup.now)
            yield queue.removal_units
        while self._committing is not None and not self._committing.is_done:
            yield self._committing.advance(STEP_UNITS)
        yield from self._refuse_in_steps(Settlement.REQUEUE, 0, self.next_tag - 1)
        for queue in paused:
            queue.returning -= 1
            queue.deal(cleanup.now)
            yield 1
        return list(queues)


def _give_back(how: Settlement, returned: dict[Queue, list[Run]], now: int) -> None:
    """Messages that were out for delivery are for their queues to requeue, or to drop."""
    for queue, runs in returned.items():
        if how is Settlement.REQUEUE:
            queue.put_back(runs, now)
        else:
            queue.reject(runs, now)


def _unknown(tag: int) -> PreconditionFailed:
    return PreconditionFailed(f"unknown delivery tag {tag}")
