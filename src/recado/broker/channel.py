"""A channel: what one conversation on a connection holds. Here the consuming half; `publisher` is the other.

C1  Delivery tags count up from 1; a tag is settled once, by the channel that was given it.
C2  When the channel ends, what it has not settled returns to its queues.
C3  In a transaction settlements happen at commit; until then nobody else can settle those tags.
"""

from collections.abc import Iterable
from enum import Enum

from recado.amqp.errors import AccessRefused, NotAllowed, PreconditionFailed
from recado.amqp.frames import method_frame
from recado.amqp.methods import BasicCancel, BasicGetOk, Method

from .arguments import ConsumerSettings, describe
from .consumer import Consumer, Outlet
from .delivery_count import counted
from .publisher import Publisher
from .queue import Queue
from .routing import Admission
from .run import Run
from .unacked import Unacked


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


class Channel:
    __slots__ = (
        "_claimed",
        "_claimed_up_to",
        "_claims",
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
        self._claims: list[tuple[Settlement, list[int]]] = []
        self._claimed: set[int] = set()
        self._claimed_up_to = 0  # whatever is outstanding up to this tag is claimed

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
        for consumer in list(self.consumers.values()):
            if self.limit and self.outstanding >= self.limit:
                break
            consumer.queue.wake(consumer)
            consumer.queue.deal(now)

    def served(self, consumer: Consumer) -> None:
        """Where consumers share a limit, whoever was given something is the last to be given more."""
        self.consumers[consumer.tag] = self.consumers.pop(consumer.tag)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────

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
        if self.publisher.pending is not None:
            self._claim(how, tag, multiple=multiple)
            return
        if multiple and tag == 0:
            self._settle(how, 0, self.next_tag - 1, now)
        elif not self.unacked.has(tag):
            raise _unknown(tag)
        else:
            self._settle(how, 0 if multiple else tag, tag, now)

    def recover(self, now: int) -> None:
        """Return everything but what a transaction claims (C3), for whoever comes first."""
        last = self.next_tag - 1
        if not self._claims:
            self._settle(Settlement.REQUEUE, 0, last, now)
            return
        for tag in list(self.unacked.tags(self._claimed_up_to + 1, last)):
            if tag not in self._claimed:
                self._settle(Settlement.REQUEUE, tag, tag, now)

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
        returned: dict[Queue, list[Run]] = {}
        holders: dict[Consumer | Getter, None] = {}
        for entry, low, high in self.unacked.spans(first, last):
            returned.setdefault(entry.holder.queue, []).extend(entry.pieces(low, high))
            holders[entry.holder] = None
            entry.holder.release(self.unacked.settle(entry, low, high))
        for holder in holders:
            if isinstance(holder, Consumer):
                holder.queue.wake(holder)
        for queue, runs in returned.items():
            if how is Settlement.REQUEUE:
                queue.put_back(runs, now)
            else:
                queue.reject(runs, now)
        for holder in holders:
            self._refill(holder, now)

    def _refill(self, holder: Consumer | Getter, now: int) -> None:
        if self._was_full:
            self.resume(now)
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
        if multiple:
            last = tag or self.next_tag - 1
            outstanding = self.unacked.tags(self._claimed_up_to + 1, last)
            tags = [each for each in outstanding if each not in self._claimed]
            self._claimed_up_to = last
        else:
            tags = [tag]
        self._claimed.update(tags)
        self._claims.append((how, tags))

    def commit(self, now: int) -> None:
        self._keeper.begin()
        try:
            self.publisher.commit(now)
            for how, tags in self._forget_claims():
                for tag in tags:
                    self._settle(how, tag, tag, now)
        finally:
            self._keeper.end()

    def rollback(self) -> None:
        self.publisher.rollback()
        self._forget_claims()

    def _forget_claims(self) -> Iterable[tuple[Settlement, list[int]]]:
        claims, self._claims = self._claims, []
        self._claimed.clear()
        self._claimed_up_to = 0
        return claims

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────

    def close(self, now: int) -> list[Queue]:
        """Let go of everything; gives the queues that lost a consumer, wire taps aside."""
        self.publisher.close()
        self.admission.timeouts.forget(self)
        consumers = self.consumers.values()
        queues = {each.queue: None for each in consumers if not each.settings.wire_tap}
        for consumer in list(self.consumers.values()):
            self.remove(consumer, now)
        self.limit = 0
        self._settle(Settlement.REQUEUE, 0, self.next_tag - 1, now)
        return list(queues)


def _unknown(tag: int) -> PreconditionFailed:
    return PreconditionFailed(f"unknown delivery tag {tag}")
