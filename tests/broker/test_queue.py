"""A queue against a reference model, in any order of commands; then cases that the model does not cover.

The model dispatches one message at a time and the queue gets runs, so equality is WQ5; the other invariants
(WQ1 to WQ4) are checked after every command.
"""

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from recado.amqp.frames import extract_body
from recado.amqp.properties import Properties
from recado.broker.arguments import ConsumerSettings, Overflow, QueueSettings
from recado.broker.channel import Channel, Settlement
from recado.broker.consumer import Consumer
from recado.broker.memory_reclaimer import MemoryReclaimer
from recado.broker.priority_bucket import ReadLimits
from recado.broker.queue import Queue, QueueContext
from recado.broker.ready_messages import ReadyMessages
from recado.broker.run import Run
from recado.broker.store import MessageStore
from recado.broker.work_queue import WorkQueue

from .queue_model import ModelQueue, Taker, rank_of
from .stage import Peer, close_channel, consume, new_broker, open_channel, run_of
from .stores import PagingStore

HOW = {
    "ack": Settlement.ACK,
    "requeue": Settlement.REQUEUE,
    "reject": Settlement.REJECT,
}
COUNTS = st.sampled_from((1, 2, 3, 5, 8))
# Settings that policies may change: length, bytes, overflow, time to live.
POLICIES: tuple[tuple[int | None, int | None, Overflow, int | None], ...] = (
    (None, None, "drop-head", None),
    (2, None, "drop-head", None),
    (None, 20, "drop-head", 20),
    (None, None, "drop-head", 5),
    (1, None, "reject-publish", None),
    (None, 15, "reject-publish-dlx", None),
)


@dataclass
class Pair:
    """A consumer and its counterpart in the model."""

    channel: Channel
    peer: Peer
    taker: Taker
    consumer: Consumer | None = None


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = new_broker()
        self.now = 1000
        self.due: int | None = None
        self.dropped: list[tuple[str, bytes]] = []
        self.pairs: list[Pair] = []
        self.taps: list[Pair] = []
        self.number = 0
        self.getter = self._new_pair(prefetch=0, priority=0, no_ack=False)
        self.got: list[tuple[int, bytes, bool]] = []

    @initialize(
        max_length=st.none() | st.integers(0, 4),
        max_bytes=st.none() | st.integers(0, 40),
        overflow=st.sampled_from(("drop-head", "reject-publish", "reject-publish-dlx")),
        ttl=st.none() | st.sampled_from((0, 5, 20)),
        max_priority=st.none() | st.just(3),
        single_active=st.sampled_from((False, False, True)),
        limited=st.sampled_from((False, False, True)),
        timed=st.booleans(),
        room=st.none() | st.sampled_from((0, 100, 1000)),
        delivery_limit=st.sampled_from((None, None, 0, 1, 2)),
    )
    def declare(
        self,
        max_length: int | None,
        max_bytes: int | None,
        overflow: Any,
        ttl: int | None,
        max_priority: int | None,
        single_active: bool,
        limited: bool,
        timed: bool,
        room: int | None,
        delivery_limit: int | None,
    ) -> None:
        if not limited:
            max_length = max_bytes = None
        if not timed:
            ttl = None
        wanted = QueueSettings(
            durable=room is not None,
            max_length=max_length,
            max_length_bytes=max_bytes,
            overflow=overflow,
            message_ttl_ms=ttl,
            max_priority=max_priority,
            single_active_consumer=single_active,
            queue_type="classic" if delivery_limit is None else "quorum",
            delivery_limit=delivery_limit,
        )
        vhost = self.broker.vhosts["/"]
        self.store = MessageStore() if room is None else PagingStore(room)
        context = QueueContext(vhost, self._drop, self._set_alarm, self.store, MemoryReclaimer())
        self.queue = WorkQueue(context, "q", wanted, None, self.now)
        self.model = ModelQueue(
            *(max_length, max_bytes, overflow, ttl, max_priority, single_active, delivery_limit)
        )

    def _drop(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        self.dropped += ((reason, extract_body(content)) for content in run.contents())
        queue.settle(run)

    def _set_alarm(self, queue: Queue, at: int) -> None:
        self.due = at

    def _new_pair(self, prefetch: int, priority: int, no_ack: bool) -> Pair:
        self.number += 1
        peer = Peer()
        channel = open_channel(self.broker, peer)
        return Pair(channel, peer, Taker(f"c{self.number}", priority, prefetch, no_ack))

    # ── publishing ────────────────────────────────────────────────────────────────────────────────────

    @rule(count=COUNTS, alike=st.booleans())
    def publish_plain(self, count: int, alike: bool) -> None:
        self.publish(count, None, None, 6, alike)

    @rule(
        count=COUNTS,
        priority=st.sampled_from((None, 0, 1, 2, 9)),
        ttl=st.sampled_from((None, None, None, 0, 5, 30)),
        size=st.sampled_from((6, 6, 6, 12)),
        alike=st.booleans(),
    )
    def publish(
        self, count: int, priority: int | None, ttl: int | None, size: int, alike: bool
    ) -> None:
        bodies = []
        for _ in range(count):
            self.number += 1
            bodies.append(f"{self.number:06}".encode().ljust(size, b"."))
        expiration = None if ttl is None else str(ttl)
        properties = Properties(priority=priority, expiration=expiration, delivery_mode=2)
        run = run_of(bodies, properties, alike=alike)
        refused = self.queue.publish(run, self.now)
        taken = [self.model.publish(body, priority or 0, ttl, self.now) for body in bodies]
        assert list(refused) == [i for i, was in enumerate(taken) if not was]

    # ── consuming ─────────────────────────────────────────────────────────────────────────────────────

    @rule(
        prefetch=st.integers(0, 3),
        priority=st.sampled_from((0, 0, 0, 5)),
        no_ack=st.sampled_from((False, False, True)),
    )
    def consume(self, prefetch: int, priority: int, no_ack: bool) -> None:
        pair = self._new_pair(prefetch, priority, no_ack)
        self.pairs.append(pair)
        pair.consumer = consume(
            pair.channel,
            self.queue,
            pair.taker.tag,
            prefetch=prefetch,
            no_ack=no_ack,
            priority=priority,
            now=self.now,
        )
        self.model.add(pair.taker, self.now)

    @rule(
        what=st.sampled_from(
            (
                *("tap", "untap", "cancel", "close", "congest", "go on", "purge", "reconfigure"),
                *("read", "remove", "remove"),
            )
        ),
        which=st.integers(0, 20),
    )
    def disturb(self, what: str, which: int) -> None:
        """Rare events, in one rule, because Hypothesis chooses all rules equally often."""
        match what:
            case "tap":
                self._tap()
            case "untap" if self.taps:
                self._untap(self.taps.pop(which % len(self.taps)))
            case "cancel" if self.pairs:
                self._cancel(self.pairs[which % len(self.pairs)])
            case "close" if self.pairs:
                self._close(self.pairs.pop(which % len(self.pairs)))
            case "congest" if self.pairs:
                pair = self.pairs[which % len(self.pairs)]
                pair.peer.congested = pair.taker.congested = True
            case "go on" if self.pairs:
                self._go_on(self.pairs[which % len(self.pairs)])
            case "purge":
                assert self.queue.purge() == len(self.model.ready)
                self.model.ready.clear()
            case "reconfigure":
                self._reconfigure(*POLICIES[which % len(POLICIES)])
            case "read" | "remove":
                self._read(which % 3 + 1, removed=what == "remove")
            case _:
                pass

    def _read(self, step: int, *, removed: bool) -> None:
        """RM1. All messages are read in order; every second or third of them is removed."""
        reader, expected = (
            ReadyMessages(self.queue, ReadLimits(2 * step, 1 << 20, step)),
            sorted(self.model.ready, key=rank_of),
        )
        seen: list[bytes] = []
        while (portion := reader.read()) is not None:
            chosen = []
            for run in portion.runs:
                for i, content in enumerate(run.contents()):
                    if removed and len(seen) % (step + 1) == 0:
                        chosen.append(run.slice(i, i + 1))
                        self.model.ready.remove(expected[len(seen)])
                    seen.append(extract_body(content))
            if chosen:
                paged_out = portion.is_paged_out
                self.queue.remove_ready(chosen, portion.priority, paged_out=paged_out)
                for run in chosen:
                    self.queue.settle(run)
        assert seen == [message.body for message in expected]

    def _reconfigure(
        self, length: int | None, size: int | None, overflow: Overflow, ttl: int | None
    ) -> None:
        wanted = replace(
            self.queue.declared_settings,
            max_length=length,
            max_length_bytes=size,
            overflow=overflow,
            message_ttl_ms=ttl,
        )
        self.queue.reconfigure(wanted, self.now)
        self.model.limit(length, size, overflow, ttl)

    def _tap(self) -> None:
        pair = self._new_pair(0, 0, no_ack=True)
        self.taps.append(pair)
        wanted = ConsumerSettings(wire_tap=True)
        pair.consumer = pair.channel.consume(
            self.queue, pair.taker.tag, wanted, no_ack=True, exclusive=False, now=self.now
        )
        self.model.taps.append(pair.taker)

    def _untap(self, pair: Pair) -> None:
        assert pair.consumer is not None
        pair.channel.remove_consumer(pair.consumer, self.now)
        self.model.taps.remove(pair.taker)

    def _cancel(self, pair: Pair) -> None:
        if pair.consumer is not None:
            pair.channel.remove_consumer(pair.consumer, self.now)
            pair.consumer = None
            self.model.remove(pair.taker)
            self.model.deal(self.now)

    def _close(self, pair: Pair) -> None:
        close_channel(pair.channel, self.now)
        if pair.consumer is not None:
            self.model.remove(pair.taker)
        self.model.settle(pair.taker, list(pair.taker.held), "requeue", self.now)
        # Not before: the next active consumer gets the requeued messages first.
        self.model.deal(self.now)

    def _go_on(self, pair: Pair) -> None:
        pair.peer.congested = pair.taker.congested = False
        pair.channel.resume(self.now)
        self.model.wake(pair.taker)
        self.model.deal(self.now)

    @rule()
    def get(self) -> None:
        message = self.model.get(self.now)
        assert self.getter.channel.get(self.queue, no_ack=False, now=self.now) is (
            message is not None
        )
        if message is not None:
            self.getter.taker.give(message)

    # ── settling ──────────────────────────────────────────────────────────────────────────────────────

    def _holders(self) -> list[Pair]:
        return [pair for pair in (self.getter, *self.pairs) if pair.taker.held]

    @precondition(lambda self: self._holders())
    @rule(
        which=st.integers(0, 20),
        at=st.integers(0, 20),
        multiple=st.booleans(),
        how=st.sampled_from(("ack", "ack", "requeue", "reject")),
    )
    def settle(self, which: int, at: int, multiple: bool, how: str) -> None:
        holders = self._holders()
        pair = holders[which % len(holders)]
        held = list(pair.taker.held)
        tag = held[at % len(held)]
        pair.channel.settle(HOW[how], tag, self.now, multiple=multiple)
        tags = [each for each in held if each <= tag] if multiple else [tag]
        self.model.settle(pair.taker, tags, how, self.now)

    @precondition(lambda self: self._holders())
    @rule(which=st.integers(0, 20), count=st.integers(1, 4))
    def ack_each(self, which: int, count: int) -> None:
        holders = self._holders()
        pair = holders[which % len(holders)]
        first, *more = pair.taker.held
        tags = [first]
        for tag in more[: count - 1]:
            if tag == tags[-1] + 1:
                tags.append(tag)
        pair.channel.ack_each(first, len(tags), self.now)
        for tag in tags:
            self.model.settle(pair.taker, [tag], "ack", self.now)

    # ── time ────────────────────────────────────────────────────────────────────────────

    @rule(milliseconds=st.sampled_from((1, 5, 15)), late=st.booleans())
    def wait(self, milliseconds: int, late: bool) -> None:
        """Advance the time; the timer may fire late, but it was set for the right time."""
        self.now += milliseconds
        if late:
            return
        if self.due is not None and self.due <= self.now:
            self.due = None
            self.queue.on_timer(self.now)
        self.model.expire(self.now)

    # ── what holds ────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def everybody_got_the_same(self) -> None:
        for pair in (*self.pairs, *self.taps):
            seen = [
                (method.delivery_tag, body, method.redelivered)
                for method, body in pair.peer.delivered()
            ]
            assert seen == pair.taker.given, pair.taker.tag
            pair.taker.given.clear()

    @invariant()
    def a_message_is_in_one_place(self) -> None:
        """WQ1; otherwise the sums differ."""
        held = [message for pair in self._holders() for message in pair.taker.held.values()]
        assert (self.queue.ready, self.queue.unacked) == (len(self.model.ready), len(held))
        if isinstance(self.store, PagingStore):
            kept = self.store.live[self.queue]
            assert len(kept) == self.queue.ready + self.queue.unacked
            assert len(self.store.out[self.queue]) >= self.queue.unacked
        if self.queue.has_dead_letter_exchange:
            assert self.dropped == self.model.dropped
        else:  # their order is not observable
            assert sorted(self.dropped) == sorted(self.model.dropped)

    @invariant()
    def nobody_has_too_much_or_waits(self) -> None:
        """WQ3 and WQ4."""
        for pair in self.pairs:
            consumer = pair.consumer
            if consumer is None:
                continue
            assert not consumer.prefetch or consumer.in_flight <= consumer.prefetch
            if self.queue.ready and self.model.active in (None, pair.taker):
                assert consumer.credit() <= 0

    def teardown(self) -> None:
        """The remaining messages leave in order (WQ2)."""
        left = []
        while (run := self.queue.get(self.now)) is not None:
            left.append(extract_body(run.contents()[0]))
        expected = []
        while (message := self.model.get(self.now)) is not None:
            expected.append(message.body)
        assert left == expected


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
