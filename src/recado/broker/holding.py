"""Where a delayed exchange holds messages until they are due.

HO1  A message leaves no sooner than it is due; those due at the same time leave in the order they came in.
HO2  It is routed when it leaves, by the bindings of then, and enters its queues before it is settled (K2).

It is a queue, so that what is held is kept like everything else: with places, and with the time when it is due
as the time when it expires. But it is nobody's to see: not among the queues of its vhost, and without
consumers. All that it holds is in memory.
"""

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush

import msgspec

from recado.amqp.frames import properties_of
from recado.amqp.properties import Properties, decode_properties
from recado.amqp.values import MAX_ENTRIES_GROWN

from .alarms import Alarms
from .arguments import QueueSettings
from .dead_letter import receivers_in, rewritten
from .delay import delay_of, served
from .exchange import Exchange
from .queue import Home, Queue
from .routing import distribute_in_steps
from .run import Run
from .search import find_queues
from .steps import TURN_UNITS, Steps, Work

PREFIX = "amq.delayed."  # before the name of the exchange; a client may not use it
_AT_A_TIME = 128  # messages that leave together
_UNITS_AT_A_TIME = TURN_UNITS
_UNITS_ALONE = 15  # of a message, beside the search for its queues
_GROWTH = 64  # more than a header grows by another number in it


class Holding(Queue):
    def __init__(self, exchange: Exchange[Queue], home: Home) -> None:
        settings = QueueSettings(durable=exchange.settings.durable)
        super().__init__(home, PREFIX + exchange.name, settings, None, 0)
        self._exchange = exchange
        self._heap: list[tuple[int, int, Run]] = []  # when it is due, its place
        self._now = 0
        self._releasing: Work[None] | None = None  # what was due and is not routed yet
        self._latest: Run | None = None  # what came last and is still here; the next may join it

    def _adopt(self, settings: QueueSettings) -> None:
        """Policies are for queues that people know of."""
        super()._adopt(self.declared)

    def publish(self, run: Run, now: int) -> Sequence[int]:
        """Hold messages; they have the same headers."""
        properties = properties_of(run.head + run.tails[0])
        headers = decode_properties(properties, max_entries=MAX_ENTRIES_GROWN).headers or {}
        run.tails = list(run.tails)
        run.owned = True
        run.first = self._next_place
        self._next_place += len(run)
        run.expires = now + delay_of(headers)
        if self.keeps(run.facts):
            self._keeper.enter(self, run)
        self._hold(run)
        self._set_alarm(self._heap[0][0])
        return ()

    def restore(
        self, next_place: int, shelved: Mapping[int, int], now: int, *, mortal: bool
    ) -> None:
        """What was held before a restart, all of it."""
        self._next_place = next_place
        count = sum(shelved.values())
        while self.ready < count:
            for run in self._keeper.fetch(self, 0):
                self._hold(run)

    def resume(self, now: int) -> None:
        if self._heap:
            self._set_alarm(self._heap[0][0])

    def _hold(self, run: Run) -> None:
        self.ready += len(run)
        if self._latest is not None and run.follows(self._latest):
            self._latest.tails += run.tails
        else:
            heappush(self._heap, (run.expires or 0, run.first, run))
            self._latest = run

    def expire(self, now: int) -> int:
        """Route what is due; some of it, if there is much, and the rest after others had their turn."""
        self._due, self._now = None, now
        heap, left = self._heap, _UNITS_AT_A_TIME
        while left > 0:
            if self._releasing is None:
                if not heap or heap[0][0] > now:
                    break
                self._releasing = Work(self._release(self._take_due()))
            left -= max(self._releasing.advance(left), 1)
            if self._releasing.is_done:
                self._releasing = None
        if self._releasing is not None:
            self._set_alarm(now + 1)
        elif heap:
            self._set_alarm(max(heap[0][0], now + 1))
        return _UNITS_AT_A_TIME - left

    def _take_due(self) -> Run:
        due, _, run = heappop(self._heap)
        part = run.take(_AT_A_TIME)
        if part is not run:
            heappush(self._heap, (due, run.first, run))
        elif run is self._latest:
            self._latest = None
        self.ready -= len(part)
        return part

    def _release(self, part: Run) -> Steps[None]:
        """Messages leave for the queues that they are routed to, and are settled then (HO2)."""
        receivers: dict[Queue, None] = {}
        for properties, messages in _let_through(part):
            headers = properties.headers or {}
            messages.letter = "x-death" in headers  # it came as one, perhaps before a restart
            keys = receivers_in(headers, "CC")
            yield _UNITS_ALONE * len(messages)
            queues = yield from find_queues(
                self.vhost, self._exchange, part.origin.routing_key, headers, keys
            )
            yield from distribute_in_steps(messages, queues, self._now)
            receivers.update(dict.fromkeys(queues))
        self.pass_on(part, receivers)

    def purge(self) -> int:
        """Let go of all, as the exchange is gone."""
        count, self.ready = self.ready, 0
        self._dispose(self._heap)
        self._heap = []
        self._latest = self._releasing = None
        return count


def _let_through(run: Run) -> list[tuple[Properties, Run]]:
    """The messages as they leave. None may be left out because its header just does not fit any more."""
    changed = list(rewritten(run, _served, run.origin, run.facts))
    if sum(len(messages) for _, messages in changed) < len(run):
        run = msgspec.structs.replace(run, frame_max=run.frame_max + _GROWTH)
        changed = list(rewritten(run, _served, run.origin, run.facts))
    return changed


def _served(properties: Properties) -> Properties:
    return msgspec.structs.replace(properties, headers=served(properties.headers or {}))


class Holdings:
    """Makes and discards those of one vhost: its `Holder`."""

    def __init__(self, home: Home, alarms: Alarms) -> None:
        self._home = home
        self._alarms = alarms

    def open(self, exchange: Exchange[Queue]) -> Holding:
        holding = Holding(exchange, self._home)
        if holding.lasting:
            self._home.keeper.queue_declared(holding)
        return holding

    def close(self, holding: Queue) -> None:
        """With all that is held."""
        assert isinstance(holding, Holding)
        holding.deleted = True
        holding.purge()
        self._home.keeper.queue_deleted(holding)
        self._alarms.drop(holding)
