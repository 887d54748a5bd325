"""A channel. This module is its consuming half: consumers, deliveries, settlement, transactions.

The publishing half is in `publisher`. A delivery is settled by an ack, a requeue or a reject. A requeued
message is delivered again, with another tag.

CH1  Delivery tags count up from 1; a tag is settled once, by the channel that it belongs to.
CH2  When the channel closes, its unsettled messages are requeued.
CH3  In a transaction settlements are deferred to the commit; until then the same tags cannot be settled
     again.
CH4  Messages that are requeued together are all in their queues before one of them is redelivered.
CH5  When the channel of a single active consumer closes, its messages are requeued before the next active
     consumer gets any message.
CH6  A delivery that an operator has requeued is no longer the client's: the first settlement of its tag is
     ignored, because the client cannot know.

A range of tags with many deliveries is settled in bounded steps (see `steps` and `background_work`), and
a channel with many consumers is closed in steps. For CH4 and CH5 the queues pause delivery until the
last step.

A small transaction is committed in one step, and is one atomic group for the store. A larger one is
committed in steps, messages first. Once started, a commit is completed even if the connection closes
meanwhile; the channel requeues its messages after that.
"""

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

from recado.amqp.errors import (
    AccessRefusedError,
    ChannelLevelError,
    NotAllowedError,
    PreconditionFailedError,
)
from recado.amqp.frames import FRAME_MAX_DEFAULT_BYTES, encode_method_frame
from recado.amqp.methods import BasicCancel, BasicGetOk, Method

from .arguments import ConsumerSettings, describe_entity
from .background_work import BackgroundWork
from .consumer import Consumer, PeerConnection
from .delivery_count import add_delivery_count
from .observer import Change
from .publisher import Publisher
from .queue import Queue
from .routing import VhostAccess
from .run import Run
from .steps import STEP_UNITS_MAX, TURN_UNITS_MAX, Steps, StepTask, run_to_completion
from .unacked_deliveries import UnackedDeliveries

if TYPE_CHECKING:
    from .work_queue import WorkQueue

# Entries of `UnackedDeliveries` to settle, including the dispatch of the messages that replace them.
_ENTRIES_PER_UNIT: Final = 2
_CONSUMERS_PER_UNIT: Final = 8  # consumers to check, when searching for one with ready messages
# Messages that a step stores, one by one if they are not adjacent.
_LATE_MESSAGES_PER_STEP: Final = STEP_UNITS_MAX // 2
_RESUMED_CONSUMERS_PER_UNIT: Final = 32  # to wake, without ready messages: 0.07 to 0.15 µs each

WITHDRAWN_TAGS_MAX: Final = 65_536
"""Tags of a channel that are remembered; beyond them, an ack of the oldest closes the channel."""

ATOMIC_UNITS_MAX: Final = TURN_UNITS_MAX // 2
"""The cost up to which a transaction is committed in one step: about a thousand messages."""


class Settlement(Enum):
    ACK = "ack"
    REQUEUE = "requeue"
    REJECT = "reject"


class GetHolder:
    """Holds the messages of basic.get, as a consumer holds its deliveries."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def release(self, count: int) -> None:
        self.queue.unacked -= count


DeliveryHolder: TypeAlias = Consumer | GetHolder


class _ClosedConnection:
    """Replaces the connection of a closed channel: its consumers have no credit until they are removed."""

    frame_max = FRAME_MAX_DEFAULT_BYTES
    congested = True
    supports_cancel_notify = False
    awaits_journal = False

    def write(self, data: bytes) -> None:
        """Drop a direct reply, the only kind of message that is delivered in spite of congestion."""

    def close_channel(self, number: int, error: ChannelLevelError, now: int) -> None:
        """Do nothing: the channel is closed."""


class Channel:
    __slots__ = (
        "_committing",
        "_deferred_cost",
        "_deferred_settlements",
        "_deferred_tags",
        "_deferred_up_to",
        "_store",
        "_was_at_limit",
        "_withdrawn_tags",
        "access",
        "acknowledged_count",
        "connection",
        "consumer_prefetch",
        "consumers",
        "delivered_no_ack_count",
        "get_count",
        "get_empty_count",
        "get_no_ack_count",
        "global_prefetch",
        "in_flight",
        "last_queue",
        "next_tag",
        "number",
        "opened_by",
        "publisher",
        "redelivered_count",
        "unacked",
    )

    def __init__(self, number: int, connection: PeerConnection, access: VhostAccess) -> None:
        self.number = number
        self.connection = connection
        self.opened_by = connection  # also after the channel was closed
        self.access = access
        self._store = access.vhost.store
        self.publisher = Publisher(number, connection, access)
        self.consumers: dict[str, Consumer] = {}
        self.unacked: UnackedDeliveries[DeliveryHolder] = UnackedDeliveries()
        self.next_tag = 1
        # Totals since the channel was opened, for statistics. Deliveries to consumers that ack have no counter,
        # because each delivery has a tag: their number is that of all tags so far, minus
        # `delivered_no_ack_count`, `get_count` and `get_no_ack_count`.
        self.acknowledged_count = self.redelivered_count = self.delivered_no_ack_count = 0
        self.get_count = self.get_no_ack_count = self.get_empty_count = 0
        self.consumer_prefetch = 0  # basic.qos: for each consumer that is added later
        self.global_prefetch = 0  # basic.qos with global=true: for all consumers together
        self.in_flight = 0  # messages that count towards the global prefetch
        self.last_queue: str | None = None  # used in place of an empty queue name
        self._was_at_limit = False  # the global prefetch had put consumers to sleep
        # Settlements of an open transaction, with first and last tag.
        self._deferred_settlements: list[tuple[Settlement, int, int]] = []
        self._deferred_cost = 0  # the cost of settling them
        self._deferred_tags: set[int] = set()  # tags that were settled one by one
        self._deferred_up_to = 0  # all unsettled tags up to this one
        self._committing: StepTask[None] | None = None  # a commit in several steps
        self._withdrawn_tags: dict[int, None] | None = None  # that the client will settle (CH6)

    def send(self, method: Method) -> None:
        self.connection.write(encode_method_frame(self.number, method))

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
        """Add a consumer and return it. The caller dispatches after it has sent consume-ok.

        Raises `AccessRefusedError` if the queue is used exclusively, `NotAllowedError` if the tag is in use,
        and `PreconditionFailedError` if the vhost has reached its consumer limit.
        """
        self.check_tag_unused(tag)
        if settings.wire_tap:
            if not no_ack:
                raise PreconditionFailedError("a wire tap cannot acknowledge: set no-ack")
        elif queue.excludes_consumer(exclusive):
            described = describe_entity("queue", queue.name, queue.vhost.name)
            raise AccessRefusedError(f"{described} in exclusive use")
        queue.check_consumer(no_ack=no_ack, prefetch=self.consumer_prefetch)
        if not queue.is_reply_address:
            queue.vhost.check_consumer_limit(queue.name)
        consumer = queue.consumer_type(
            self,
            queue,
            tag,
            settings,
            no_ack=no_ack,
            exclusive=exclusive,
            prefetch=self.consumer_prefetch,
        )
        self.consumers[tag] = consumer
        if not queue.is_reply_address:
            queue.vhost.consumer_count += 1
        self.access.consumer_timeouts.watch(self, now)
        self._count_shared_channel(consumer, +1)
        queue.add_consumer(consumer, now)
        self._report(Change.CREATED, consumer)
        return consumer

    def check_tag_unused(self, tag: str) -> None:
        if tag in self.consumers:
            raise NotAllowedError(f"attempt to reuse consumer tag '{tag}'")

    def remove_consumer(self, consumer: Consumer, now: int) -> None:
        """Remove a consumer; its unsettled deliveries stay with the channel."""
        self._count_shared_channel(consumer, -1)
        del self.consumers[consumer.tag]
        if not consumer.queue.is_reply_address:
            consumer.queue.vhost.consumer_count -= 1
        consumer.queue.remove_consumer(consumer, now)
        self._report(Change.DELETED, consumer)

    def _report(self, change: Change, consumer: Consumer) -> None:
        if not consumer.queue.is_reply_address and not consumer.settings.wire_tap:
            self.access.vhost.observer.consumer_changed(change, consumer)

    def cancel_consumer(self, consumer: Consumer, now: int) -> None:
        """Remove a consumer whose queue was deleted, and notify the client if it supports that."""
        self.remove_consumer(consumer, now)
        if self.connection.supports_cancel_notify:
            self.send(BasicCancel(consumer.tag, no_wait=True))

    def _count_shared_channel(self, consumer: Consumer, change: int) -> None:
        """Update the number of consumers of each queue that share a channel with other consumers."""
        count = len(self.consumers)
        if count == 2:
            for sharer in self.consumers.values():
                sharer.queue.count_shared_channel(change)
        elif count > 2:
            consumer.queue.count_shared_channel(change)

    def get(self, queue: Queue, *, no_ack: bool, now: int) -> bool:
        """Answer basic.get with a message, and return whether there was one."""
        run = queue.get(now)
        if run is None:
            queue.get_empty_count += 1
            self.get_empty_count += 1
            return False
        if run.redelivered:
            queue.redelivered_count += 1
            self.redelivered_count += 1
        tag = self.next_tag
        self.next_tag += 1
        origin = run.origin
        rendered = add_delivery_count(run) if run.delivery_count else run
        prefix, (payload,) = rendered.prefix, rendered.payloads
        if run.channel != self.number or self.connection.frame_max < run.frame_max:
            prefix, (payload,) = rendered.fit_frames(self.number, self.connection.frame_max)
        self.connection.awaits_journal |= run.stored
        if no_ack:
            queue.get_no_ack_count += 1
            self.get_no_ack_count += 1
            queue.settle(run)
        else:
            queue.get_count += 1
            self.get_count += 1
            self.unacked.add(tag, run, GetHolder(queue))
            self.access.consumer_timeouts.watch(self, now)
            queue.unacked += 1
            if run.stored:
                queue.record_delivery(run)
        for observer in queue.observers:
            observer.delivered(queue, run, self.connection, None, is_settled=no_ack)
        self.send(
            BasicGetOk(tag, run.redelivered, origin.exchange, origin.routing_key, queue.ready)
        )
        self.connection.write(prefix + payload)
        return True

    def resume(self, now: int) -> None:
        """Wake the consumers, because the peer has caught up or the global prefetch has free space."""
        resumed = 0
        for consumer in list(self.consumers.values()):
            if self.global_prefetch and self.in_flight >= self.global_prefetch:
                break
            resumed += 1
            consumer.queue.wake(consumer)
            consumer.queue.dispatch(now)
        self.access.vhost.background.charge(resumed // _RESUMED_CONSUMERS_PER_UNIT)

    def rotate_consumer(self, consumer: Consumer) -> None:
        """Move a consumer behind the others: with a global prefetch they receive in rotation."""
        self.consumers[consumer.tag] = self.consumers.pop(consumer.tag)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────

    def acks_per_step(self, limit: int) -> int:
        """Return the number of single acks to handle in one step.

        With a global prefetch each of them may wake all consumers.
        """
        if not self._has_shared_limit():
            return limit
        return max(
            min(limit, STEP_UNITS_MAX * _RESUMED_CONSUMERS_PER_UNIT // len(self.consumers)), 1
        )

    def ack_each(self, first: int, count: int, now: int) -> None:
        """Handle single acks of `count` consecutive tags."""
        if self.publisher.transaction is not None:
            for tag in range(first, first + count):
                self._defer_settlement(Settlement.ACK, tag, multiple=False)
            return
        last, unknown = first + count - 1, None
        if self.unacked.certainly_holds_all(first, last) and not self._has_shared_limit():
            self._settle(Settlement.ACK, first, last, now)
            return
        for tag in range(first, last + 1):
            if self.unacked.has(tag):
                self._settle(Settlement.ACK, tag, tag, now)
            elif not self._forget_withdrawn(tag):
                unknown = tag
                break
        if unknown is not None:
            raise _unknown_tag_error(unknown)

    def settle(self, settlement: Settlement, tag: int, now: int, *, multiple: bool) -> None:
        """Settle one delivery, or all up to it; many deliveries are settled in the background."""
        if self.publisher.transaction is not None:
            self._defer_settlement(settlement, tag, multiple=multiple)
            return
        if multiple and tag == 0:
            self._settle_up_to(settlement, self.next_tag - 1, now)
        elif not self.unacked.has(tag) and not self._forget_withdrawn(tag):
            raise _unknown_tag_error(tag)
        elif multiple:
            self._settle_up_to(settlement, tag, now)
        else:  # nothing, if the delivery was withdrawn
            self._settle(settlement, tag, tag, now)

    def withdraw(self, queue: Queue, tag: int, position: int) -> tuple[Run, DeliveryHolder] | None:
        """Take an unsettled delivery away from the client; return the message, which the caller requeues.

        None if the client has settled it meanwhile, also in an open transaction (CH3), or if the tag is not that of
        the message at this position of the queue.
        """
        if self._is_deferred(tag):
            return None
        for entry, low, high in self.unacked.spans(tag, tag):
            run = entry.run
            if (
                not entry.has(tag)
                or entry.holder.queue is not queue
                or run.first_position + low * run.stride != position
            ):
                return None
            message, holder = run.slice(low, high), entry.holder
            holder.release(self.unacked.settle(entry, low, high))
            self.unacked.compact()
            if self._withdrawn_tags is None:
                self._withdrawn_tags = {}
            elif len(self._withdrawn_tags) >= WITHDRAWN_TAGS_MAX:
                del self._withdrawn_tags[next(iter(self._withdrawn_tags))]
            self._withdrawn_tags[tag] = None
            return message, holder
        return None

    def _forget_withdrawn(self, tag: int) -> bool:
        """Whether a delivery was withdrawn, and is not settled yet (CH6)."""
        if self._withdrawn_tags is None or tag not in self._withdrawn_tags:
            return False
        del self._withdrawn_tags[tag]
        return True

    def recover(self, now: int) -> None:
        """Requeue all deliveries that no transaction has settled (CH3), in the background if they are many."""
        last = self.next_tag - 1
        if self._deferred_settlements:
            self._background_at(now).start(self._requeue_undeferred(last))
        else:
            self._settle_up_to(Settlement.REQUEUE, last, now)

    def _background_at(self, now: int) -> BackgroundWork:
        background = self.access.vhost.background
        background.begin_turn(now)
        return background

    def _settle_up_to(self, settlement: Settlement, last: int, now: int) -> None:
        """Settle all deliveries up to a tag."""
        if self.unacked.last_tag_within(0, last, self._entries_per_step()) == last:
            self._settle(settlement, 0, last, now)
        elif settlement is Settlement.ACK:
            self._background_at(now).start(self._ack_in_steps(0, last))
        else:
            self._background_at(now).start(self._return_in_steps(settlement, 0, last))

    def _entries_per_step(self) -> int:
        """Return the number of entries of `UnackedDeliveries` to settle in one step.

        With a global prefetch, settling an entry may require a scan of all consumers.
        """
        units = 1 + len(self.consumers) // _CONSUMERS_PER_UNIT if self.global_prefetch else 1
        return max(STEP_UNITS_MAX * _ENTRIES_PER_UNIT // units, 1)

    def _tag_ranges(self, first: int, last: int) -> Iterable[tuple[int, int]]:
        """Split a range of tags into one range per step.

        Deliveries may be added or settled between the steps.
        """
        while first <= last:
            end = self.unacked.last_tag_within(first, last, self._entries_per_step())
            yield first, end
            first = end + 1

    def _ack_in_steps(self, first: int, last: int) -> Steps[None]:
        for start, end in self._tag_ranges(first, last):
            cost = 1 + self.unacked.count_entries(start, end) // _ENTRIES_PER_UNIT
            self._settle(Settlement.ACK, start, end, self.access.vhost.background.now)
            yield cost

    def _requeue_undeferred(self, last: int) -> Steps[None]:
        """Requeue one by one, because deferred settlements lie in between.

        An exception to CH4: the first of them can be redelivered before the last is requeued.
        """
        for first, end in self._tag_ranges(0, last):
            for tag in list(self.unacked.unsettled_tags(max(first, self._deferred_up_to + 1), end)):
                if tag not in self._deferred_tags:
                    self._settle(Settlement.REQUEUE, tag, tag, self.access.vhost.background.now)
                    yield 1
            yield 1

    def _return_in_steps(self, settlement: Settlement, first: int, last: int) -> Steps[None]:
        """Requeue or reject a range of deliveries; their queues pause delivery until all are back (CH4)."""
        background = self.access.vhost.background
        was_at_limit = 0 < self.global_prefetch <= self.in_flight
        queues: dict[Queue, dict[Consumer, None]] = {}
        for start, end in self._tag_ranges(first, last):
            returned, holders = self._collect_unacked(start, end)
            for queue in returned:
                if queue not in queues:
                    queue.pause_delivery()
                    queues[queue] = {}
            for holder in holders:
                queues[holder.queue][holder] = None
            return_runs(settlement, returned, background.now)
            yield 1 + sum(map(len, returned.values()))  # a unit per run, with its journal record
        for queue, consumers in queues.items():
            queue.resume_delivery()
            for consumer in consumers:
                queue.wake(consumer)
            queue.dispatch(background.now)
            yield 1 + len(consumers)
        if was_at_limit:
            self.resume(background.now)

    def store_unacked_late(self, queue: "WorkQueue") -> Steps[None]:
        """Store the unsettled deliveries of a queue that must be stored late (see `alteration`)."""
        for start, end in self._tag_ranges(0, self.next_tag - 1):
            entries = [
                (entry, high)
                for entry, _, high in self.unacked.spans(start, end)
                if entry.holder.queue is queue
            ]
            yield STEP_UNITS_MAX // 4
            for entry, high in entries:
                run = entry.run
                for low in range(0, high, _LATE_MESSAGES_PER_STEP):
                    if not entry.unsettled_count or not queue.must_store_late(run):
                        break
                    # First: what is settled from now on must be settled in the store, too.
                    run.stored = True
                    for part in entry.unsettled_runs(low, min(high, low + _LATE_MESSAGES_PER_STEP)):
                        queue.store_late(part, is_unacked=True)
                    yield STEP_UNITS_MAX

    def _has_shared_limit(self) -> bool:
        """Whether several consumers share a prefetch.

        Acks are then handled one at a time, because each makes room for the next consumer in rotation.
        """
        return self.global_prefetch > 0 and len(self.consumers) > 1

    def _settle(self, settlement: Settlement, first: int, last: int, now: int) -> None:
        self._was_at_limit = 0 < self.global_prefetch <= self.in_flight
        if settlement is Settlement.ACK:
            self._ack(first, last, now)
        else:
            self._return_to_queues(settlement, first, last, now)
        self.unacked.compact()

    def _ack(self, first: int, last: int, now: int) -> None:
        """Ack deliveries, and dispatch whenever the next delivery has another holder.

        If all credit was released before the first dispatch, which consumer gets which message would depend on
        how the client batches its acks.
        """
        holder: DeliveryHolder | None = None
        for entry, low, high in self.unacked.spans(first, last):
            if holder is not entry.holder:
                if holder is not None:
                    self._dispatch_to(holder, now)
                holder = entry.holder
            if entry.run.stored:
                for start, end in entry.unsettled_ranges(low, high):
                    holder.queue.acknowledge(entry.run, start, end)
            for observer in holder.queue.observers:
                for start, end in entry.unsettled_ranges(low, high):
                    observer.settled(holder.queue, entry.run, start, end, Settlement.ACK)
            count = self.unacked.settle(entry, low, high)
            self.acknowledged_count += count
            holder.queue.acknowledged_count += count
            holder.release(count)
        if holder is not None:
            self._dispatch_to(holder, now)

    def _return_to_queues(self, settlement: Settlement, first: int, last: int, now: int) -> None:
        returned, holders = self._collect_unacked(first, last)
        for holder in holders:
            holder.queue.wake(holder)
        return_runs(settlement, returned, now)
        for holder in holders:
            self._dispatch_to(holder, now)

    def _collect_unacked(
        self, first: int, last: int
    ) -> tuple[dict[Queue, list[Run]], dict[Consumer, None]]:
        """Remove deliveries from their holders; return the messages by queue, and the consumers."""
        returned: dict[Queue, list[Run]] = {}
        holders: dict[Consumer, None] = {}
        for entry, low, high in self.unacked.spans(first, last):
            returned.setdefault(entry.holder.queue, []).extend(entry.unsettled_runs(low, high))
            if isinstance(entry.holder, Consumer):
                holders[entry.holder] = None
            entry.holder.release(self.unacked.settle(entry, low, high))
        self.unacked.compact()
        return returned, holders

    def _dispatch_to(self, holder: DeliveryHolder, now: int) -> None:
        if self._was_at_limit:
            self.resume(now)
            self._was_at_limit = 0 < self.global_prefetch <= self.in_flight
        elif isinstance(holder, Consumer):
            holder.queue.wake(holder)
            holder.queue.dispatch(now)

    # ── transactions ──────────────────────────────────────────────────────────────────────────────────

    def _defer_settlement(self, settlement: Settlement, tag: int, *, multiple: bool) -> None:
        is_everything = multiple and tag == 0
        if not is_everything and (
            self._is_deferred(tag) or not (self.unacked.has(tag) or self._forget_withdrawn(tag))
        ):
            raise _unknown_tag_error(tag)
        # Earlier deferred settlements are applied first, so the range may include their tags.
        if multiple:
            first, last = self._deferred_up_to + 1, tag or self.next_tag - 1
            self._deferred_up_to = last
            self._deferred_settlements.append((settlement, first, last))
            self._deferred_cost += 1 + self.unacked.count_entries(first, last)
            return
        self._deferred_tags.add(tag)
        self._deferred_cost += 1
        if settlement is Settlement.ACK and self._deferred_settlements:
            previous, first, last = self._deferred_settlements[-1]
            if previous is settlement and last == tag - 1 and last in self._deferred_tags:
                self._deferred_settlements[-1] = (settlement, first, tag)
                return
        self._deferred_settlements.append((settlement, tag, tag))

    def _is_deferred(self, tag: int) -> bool:
        """Whether the open transaction settles the delivery (CH3)."""
        return tag <= self._deferred_up_to or tag in self._deferred_tags

    def commit(self, now: int) -> None:
        """Commit the transaction, in one step if it is small, otherwise in the background."""
        background, publisher = self._background_at(now), self.publisher
        if not publisher.is_prepared:
            run_to_completion(publisher.prepare_commit())
        if publisher.commit_cost + self._deferred_cost > ATOMIC_UNITS_MAX:
            self._committing = background.start(self._commit_in_steps())
            return
        self._store.begin_atomic_group()
        try:
            background.charge(sum(self._apply_transaction()))
        finally:
            self._store.end_atomic_group()

    def _commit_in_steps(self) -> Steps[None]:
        yield from self._apply_transaction()
        self._store.require_sync()

    def _apply_transaction(self) -> Steps[None]:
        deferred = self._take_deferred_settlements()
        yield from self.publisher.commit()
        for settlement, first, last in deferred:
            yield from self._settle_deferred(settlement, first, last)

    def _settle_deferred(self, settlement: Settlement, first: int, last: int) -> Steps[None]:
        if settlement is not Settlement.ACK and first < last:
            yield from self._return_in_steps(settlement, first, last)
        elif settlement is Settlement.ACK and not self._has_shared_limit():
            yield from self._ack_in_steps(first, last)
        else:
            for start, end in self._tag_ranges(first, last):
                for tag in list(self.unacked.unsettled_tags(start, end)):
                    self._settle(settlement, tag, tag, self.access.vhost.background.now)
                    yield 1
            yield 1

    def rollback(self) -> None:
        self.publisher.rollback()
        self._take_deferred_settlements()

    def _take_deferred_settlements(self) -> Iterable[tuple[Settlement, int, int]]:
        deferred, self._deferred_settlements = self._deferred_settlements, []
        self._deferred_tags = set()
        self._deferred_up_to = self._deferred_cost = 0
        return deferred

    # ── closing ───────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> Steps[list[Queue]]:
        """Stop delivering, and return the steps that remove the consumers and requeue their messages (CH2).

        The result of the steps is the queues that lost a consumer, without those of wire taps.
        """
        self.publisher.close()
        self.access.consumer_timeouts.forget(self)
        self.connection = _ClosedConnection()
        self.global_prefetch = 0
        return self._release_all()

    def _release_all(self) -> Steps[list[Queue]]:
        background = self.access.vhost.background
        queues: dict[Queue, None] = {}
        paused: dict[Queue, None] = {}  # removing the active consumer activates the next one (CH5)
        for consumer in list(self.consumers.values()):
            queue = consumer.queue
            if not consumer.settings.wire_tap:
                queues[queue] = None
                if queue.settings.single_active_consumer and queue not in paused:
                    queue.pause_delivery()
                    paused[queue] = None
            if consumer.tag in self.consumers:  # otherwise its queue was deleted meanwhile
                self.remove_consumer(consumer, background.now)
            yield queue.removal_cost
        while self._committing is not None and not self._committing.is_done:
            yield self._committing.advance(STEP_UNITS_MAX)
        yield from self._return_in_steps(Settlement.REQUEUE, 0, self.next_tag - 1)
        for queue in paused:
            queue.resume_delivery()
            queue.dispatch(background.now)
            yield 1
        return list(queues)


def return_runs(settlement: Settlement, returned: dict[Queue, list[Run]], now: int) -> None:
    """Return delivered messages to their queues, which requeue or dead-letter them."""
    for queue, runs in returned.items():
        for observer in queue.observers:
            for run in runs:
                observer.settled(queue, run, 0, len(run), settlement)
        if settlement is Settlement.REQUEUE:
            queue.requeue(runs, now)
        else:
            queue.reject(runs, now)


def _unknown_tag_error(tag: int) -> PreconditionFailedError:
    return PreconditionFailedError(f"unknown delivery tag {tag}")
