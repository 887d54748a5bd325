"""The queues that share out work: each message is for one consumer, until somebody has acknowledged it.

Q1  A message is in exactly one place: ready, out with a consumer, or settled.
Q2  Messages leave in order of place; one that returns goes back to its own place.
Q3  A consumer never holds more than its prefetch.
Q4  No message is ready while a consumer has room, or not for long: much is given out in several turns.
Q5  Whether messages come one by one or in runs, each consumer gets the same.

For Q5 consumers are dealt a run like cards. Two things make the order among several receivers visible to one of
them, and are then done message by message: consumers that share a channel, because they share its delivery
tags (`crowded`), and queues that pass on what they drop to another queue (`cascades`).
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from recado.amqp.facts import Facts

from .arguments import QueueSettings
from .consumer import DEAL_BYTES, UNLIMITED
from .limited_queue import ALWAYS_DROPPED, LimitedQueue
from .queue import Home, Owner
from .run import Run, joined
from .steps import STEP_UNITS, Steps

DEALS = 512  # runs that are given out in one turn, where they may come from the shelf one by one: some 15 ms
_RUNS_PER_STEP = (
    STEP_UNITS  # of a queue that is purged; what the journal makes of it is most of the cost
)
FEW = 1000
"""Messages that a consumer of a long queue may hold while memory is scarce: what is out is in memory."""


class WorkQueue(LimitedQueue):
    __slots__ = ("_keeps_all", "_simple", "cascades")

    def __init__(
        self, home: Home, name: str, settings: QueueSettings, owner: Owner | None, now: int
    ) -> None:
        super().__init__(home, name, settings, owner, now)
        # Quorum queues know nothing that is not persistent.
        self._keeps_all = self._keeps and settings.queue_type == "quorum"

    def _adopt(self, settings: QueueSettings) -> None:
        super()._adopt(settings)
        self.cascades = settings.dead_letter_exchange is not None
        lasting = settings.message_ttl is None and not settings.assured
        self._simple = lasting and not self._limited and self.window is None

    def gathers(self, facts: Facts) -> bool:
        return self._simple and facts.ttl is None and not self.taps

    def keeps(self, facts: Facts) -> bool:
        return self._keeps_all or super().keeps(facts)

    # ── entering ──────────────────────────────────────────────────────────────────────────────────────

    def publish(self, run: Run, now: int) -> Sequence[int]:
        """Take in messages; gives the indexes of those that were refused."""
        if (
            self._simple
            and not (self.ready or self.returning or self.taps)
            and run.facts.ttl is None
        ):
            # What follows would come to the same, at three times the cost for a run of one.
            group, count = self._rota.foremost, len(run.tails)
            if group is not None and (count == 1 or len(group) == 1) and group[0].room() >= count:
                run.first = self._next_place
                self._next_place += count
                if self._keeps and self.keeps(run.facts):
                    self._keeper.enter(self, run)
                group[0].deliver(run)
                if len(group) > 1:
                    group.rotate(-1)
                return ()
        if self.window is not None and not run.letter:
            return self.window.sift(run, now, self._take_in)
        return self._take_in(run, now)

    def _take_in(self, run: Run, now: int) -> Sequence[int]:
        if self._takes_singly(run):
            return self._publish_singly(run, now)
        self._enter(run, now)
        self._drop_excess(now)
        return ()

    def _takes_singly(self, run: Run) -> bool:
        """Whether the order of things within a run would show (Q5)."""
        fleeting = run.facts.ttl == 0 or self.settings.message_ttl == 0
        return (
            self._refuses
            or (self._limited and (self.cascades or fleeting))
            or (self.cascades and fleeting)
            or (self.crowded > 0 and bool(self.taps))
        )

    @property
    def is_laborious(self) -> bool:
        """Whether messages may have to be taken in one by one."""
        return self._refuses or self.cascades or self.crowded > 0 or self.window is not None

    def _publish_singly(self, run: Run, now: int) -> Sequence[int]:
        refused = []
        for i in range(len(run)):
            one = run.slice(i, i + 1)
            if self.refuses(one):
                refused.append(i)
                if self.settings.overflow == "reject-publish-dlx":
                    self._dead_letter(self, one, "maxlen", now)
            else:
                self._enter(one, now)
                self._drop_excess(now)
        return refused

    def _enter(self, run: Run, now: int) -> None:
        count = len(run.tails)
        run.first = self._next_place
        self._next_place += count
        ttl = self.settings.message_ttl
        if run.facts.ttl is not None:
            ttl = run.facts.ttl if ttl is None else min(ttl, run.facts.ttl)
        if ttl is not None:
            run.expires = now + ttl
            self._mortal = True
        for tap in self.taps:
            tap.show(run)
        self._add(run)
        self._append(run)
        self.deal(now)
        if ttl is not None:
            if ttl == 0:
                self._renew_allowance(now, ALWAYS_DROPPED)
                self.expire(now)
            self._watch_head()

    def _append(self, run: Run) -> None:
        """Behind all others of its lane: in memory, or on the shelf if there is no room or others are there."""
        number = self._lane_of(run)
        lane = self._lanes[number]
        durable = self.keeps(run.facts)
        if lane.shelved or lane.weight >= self._keeper.room:
            self._keeper.shelve(self, run, number, durable=durable)
            lane.shelved += len(run)
            return
        if durable:
            self._keeper.enter(self, run)
        lane.append(run)

    def put_back(self, runs: list[Run], now: int) -> None:
        """Return messages that were out for delivery to their places."""
        if self.deleted:
            return
        if self.settings.queue_type == "quorum":
            runs = self._count_return(runs, now)
        for run in runs:
            run.redelivered = True
        for run in joined(runs):  # or what came back one by one would also go out so
            self._add(run)
            self._lanes[self._lane_of(run)].put_back(run)
        self._drop_excess(now)
        self.deal(now)
        self._watch_head()

    def _count_return(self, runs: list[Run], now: int) -> list[Run]:
        """Gives those that may return once more."""
        for run in runs:
            run.returns += 1
        for run in filter(self._is_worn, runs):
            self._dead_letter(self, run, "delivery_limit", now)
        return [run for run in runs if not self._is_worn(run)]

    # ── leaving ───────────────────────────────────────────────────────────────────────────────────────

    def get(self, now: int) -> Run | None:
        """One message for a client that asks for it."""
        self.touch(now)
        if not self._drop_expired(now):
            return None
        run = self._take_front(1)
        self._watch_head()
        return run

    def deal(self, now: int) -> None:
        """Give out what is ready to those who have room (Q4)."""
        left = DEALS if self._keeper.keeps else UNLIMITED
        while self.ready and (group := self._rota.foremost) is not None and not self.returning:
            if not left:
                self._set_alarm(now + 1)  # not in the same turn
                break
            left -= 1
            if not self._drop_expired(now):
                break
            wanted = 1 if self.crowded else min(len(group), self.ready)
            hands, least = [], UNLIMITED
            for consumer in list(islice(group, wanted)):
                room = consumer.room()
                if self._keeper.scarce and not consumer.no_ack and self._front().shelved:
                    room = min(room, FEW - consumer.outstanding)
                if room > 0:
                    hands.append(consumer)
                    least = min(least, room)
                else:
                    self._rota.sleep(consumer)
            if not hands:
                continue
            if len(hands) < len(group):
                least = 1
            run = self._take_front(min(least, self._at_most()) * len(hands))
            count = len(run)
            if len(hands) == 1 or count == 1:
                hands[0].deliver(run)
            else:
                for consumer, part in zip(hands, run.deal(min(len(hands), count)), strict=False):
                    consumer.deliver(part)
            if len(group) > 1:
                group.rotate(-(count % len(group)))
        if self.ready:
            self._watch_head()

    def _at_most(self) -> int:
        """How many messages like the first make up a good write."""
        head = self._front().head
        size = len(head.tails[head.taken]) if head is not None else 0
        return DEAL_BYTES // (size + 64) + 1

    def purge(self) -> int:
        """Empty all lanes. What has to be settled message by message is settled in steps."""
        count, self.ready, self._ready_bytes = self.ready, 0, 0
        is_shelved = any(lane.shelved for lane in self._lanes)
        unsettled: list[deque[Run] | list[tuple[int, Run]]] = []
        for lane in self._lanes:
            first, places = lane.fresh_places
            fresh, returned = lane.empty()
            if self.deleted or not self._keeps:
                self._dispose(fresh)
                self._dispose(returned)
            elif len(self._lanes) > 1:  # others have messages in between
                unsettled += (fresh, returned)
            else:
                if places:
                    self._keeper.settle(self, first, places, 1)
                self._dispose(fresh)
                unsettled.append(returned)
            if self.deleted:
                lane.detach()
        if count and not self.deleted:
            shelved = self._keeper.empty_shelves(self) if is_shelved else None
            self.vhost.cleanup.begin(self._settle_purged(unsettled, shelved))
        return count

    def _settle_purged(
        self, unsettled: Iterable[deque[Run] | list[tuple[int, Run]]], shelved: Steps[None] | None
    ) -> Steps[None]:
        left = _RUNS_PER_STEP
        for runs in unsettled:
            while runs:
                last = runs.pop()
                self.settle(last[1] if isinstance(last, tuple) else last)
                left -= 1
                if not left:
                    yield STEP_UNITS
                    left = _RUNS_PER_STEP
        if shelved is not None:
            yield from shelved
        if self._keeps and not self.deleted:
            self._keeper.purged(self)

    def reject(self, runs: list[Run], now: int) -> None:
        """Messages that a consumer refused for good."""
        if not self.deleted:
            for run in runs:
                self._dead_letter(self, run, "rejected", now)

    # ── after a restart ───────────────────────────────────────────────────────────────────────────────

    def restore(
        self, next_place: int, shelved: Mapping[int, int], now: int, *, mortal: bool
    ) -> None:
        """What the keeper still has after a restart: so many messages in each lane, on the shelf.

        Some of them may expire if they are `mortal`.
        """
        self._next_place = next_place
        self._mortal = mortal
        for number, count in shelved.items():
            while len(self._lanes) <= number:
                self._add_lane()
            self._lanes[number].shelved = count
            self.ready += count

    def resume(self, now: int) -> None:
        """All queues are restored, so whatever is too much or too old may go to others."""
        if self.settings.max_length_bytes is not None:
            self._weigh()
        self._drop_excess(now)
        self._watch_head()
