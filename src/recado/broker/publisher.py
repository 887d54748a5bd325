"""The publishing half of a channel: routes, returns, confirms and transactions.

P1  A message that was mandatory and had nowhere to go is returned before it is confirmed.
P2  Confirms tell of every message once: acks for all that was taken in, nacks for what a queue refused.
P3  What is published in a transaction happens at commit, all of it, or not at all.
P4  A confirm waits until all that it tells of is taken in, and safe with the keeper.
P5  What is published on a channel enters each queue in the order in which it came.

Most publishes have a known route to a few queues, and are taken in by one call. Where the route must be
searched for, where each message has its own, or where there are many queues, that is done in steps (see
`steps`), and the session comes back with the same event until it is done. Nothing else of its connection is
handled meanwhile.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from recado.amqp.errors import PreconditionFailed
from recado.amqp.events import Interleaved, Published
from recado.amqp.facts import PLAIN, REPLY_HERE
from recado.amqp.frames import ack_frame, method_frame
from recado.amqp.methods import BasicNack, BasicReturn
from recado.amqp.properties import Properties

from .consumer import Outlet
from .deduplication import Passage
from .queue import Queue
from .routing import Admission, Route, distribute, is_nowhere
from .run import Run
from .single_message import delivered_form, read_single
from .steps import STEP_UNITS, TURN_UNITS, Steps, Work, parts
from .strands import Strands, as_they_came, by_route

_NO_ROUTE = 312
_UNITS_ALONE = 4  # of a message whose properties are read, beside its way to queues
_HEADER_BYTES_PER_UNIT = 256  # of properties that are read: 20 ns for each byte
_COPIES_PER_UNIT = 6  # keys of copies that are read, checked and looked up: 0.6 to 1.6 µs each
_EVENTS_PER_UNIT = 16  # of a transaction, whose routes are known: to look them up

_Target: TypeAlias = Sequence[Queue] | None


class Publisher:
    __slots__ = (
        "_admission",
        "_awaited",
        "_confirmed",
        "_gathering",
        "_is_closed",
        "_keeper",
        "_now",
        "_number",
        "_outlet",
        "_prepared",
        "_promises",
        "_published",
        "_refused",
        "_search",
        "_sending",
        "_strands",
        "_unnumbered",
        "commit_units",
        "confirming",
        "pending",
        "reply_queue",
    )

    def __init__(self, number: int, outlet: Outlet, admission: Admission) -> None:
        self._number = number
        self._outlet = outlet
        self._admission = admission
        self._keeper = admission.vhost.keeper
        self._gathering = admission.gathering
        self._published = 0
        self._unnumbered = 0  # published before confirms were asked for
        self._confirmed = 0
        # None until they are needed: an empty deque takes 600 bytes, and there are many channels.
        self._refused: deque[int] | None = None  # numbers of those that will be nacked
        self._awaited = 0  # the ticket of what was kept last
        self._promises: deque[tuple[int, int]] | None = None  # (ticket, all up to this number)
        self._strands: Strands | None = None  # some of which may not be taken in yet
        self._now = 0  # of the turn that work in steps goes on in
        self._search: Work[Route] | None = None  # for the route of the event that is not done
        self._sending: Work[None] | None = None
        # Routes of a transaction as they are now, and for each event the queues of its single messages.
        self._prepared: tuple[dict[Route, Route], list[Sequence[_Target]]] | None = None
        self._is_closed = False
        self.commit_units = 0  # the cost of `commit`, about, when it is prepared
        self.confirming = False
        self.pending: list[tuple[Route, Published]] | None = None  # of a transaction
        self.reply_queue: str | None = None  # where direct replies to this channel go

    def publish(
        self, event: Published, now: int, budget: int = TURN_UNITS
    ) -> tuple[Published | None, int]:
        """Take in messages as far as the budget allows; return the event if it is not done, and the cost.

        The caller comes back with an event that is not done before it brings another one.
        """
        if self._sending is not None:
            return self._continue(self._sending, event, now, budget)
        route, cost = self._admission.route(event.method), 0
        if route is None:
            search, self._search = self._search or Work(self._admission.search(event.method)), None
            cost = search.advance(budget)
            if not search.is_done:
                self._search = search
                return event, cost
            route = search.result
        facts, queues = event.facts, route.queues
        if facts is not PLAIN:
            if facts.fault is not None:
                raise PreconditionFailed(facts.fault)
            if facts.user_id is not None:
                self._check_user(facts.user_id)
        if self.pending is not None:
            cost += self._check_singles(route, event)
            self.pending.append((route, event))
            return None, cost + 1
        gathering = self._gathering
        if gathering.is_open or gathering.run is not None:  # else it could not be: 1 µs of 17
            if len(event.tails) == 1 and not event.head and self._is_gathered(route, event, now):
                return None, cost + 1
            gathering.let_in(now)
        if queues is None or facts.alone:
            sending = Work(self._send_singly(route, event))
        elif (len(event.tails) == 1 or not any(queue.is_laborious for queue in queues)) and (
            len(queues) < 2 or len(queues) * _units_per_queue(event.tails) <= STEP_UNITS
        ):
            self._send(route, event, now)
            return None, cost + (len(queues) or 1)
        else:
            sending = Work(self._send_to_many(route, event, queues))
        rest, more = self._continue(sending, event, now, budget - cost)
        return rest, cost + more

    def _continue(
        self, sending: Work[None], event: Published, now: int, budget: int
    ) -> tuple[Published | None, int]:
        self._gathering.let_in(now)
        self._now = now
        self._sending = None
        cost = sending.advance(budget)
        if sending.is_done:
            return None, cost
        self._sending = sending
        return event, cost

    def _is_gathered(self, route: Route, event: Published, now: int) -> bool:
        """Whether a single message waits now, to go in with others of its kind."""
        gathering, facts, queues = self._gathering, event.facts, route.queues
        number, frame_max = self._number, self._outlet.frame_max
        if not gathering.joins(route, facts, number, frame_max, event.tails[0]):
            if not (gathering.is_open and queues and len(queues) == 1 and not facts.alone):
                return False
            gathering.let_in(now)
            (queue,) = queues
            if not queue.gathers(facts):
                return False
            gathering.begin(queue, Run(route, facts, number, frame_max, b"", event.tails, True))
        if self.confirming and gathering.kept:
            self._awaited = self._keeper.ticket
        self._published += 1
        return True

    def sorted(self, event: Interleaved) -> Iterator[Published]:
        """The same publishes in runs: all of a route together, unless somebody could see that.

        So it costs 1.2 µs, not 6, to send each message to another of ten queues.
        """
        frames = dict.fromkeys(event.methods)
        if (
            self.pending is None
            and not event.facts.alone
            and len(frames) * 2 <= len(event.tails)
            and self._admission.are_apart(frames)
        ):
            if self.confirming:
                self._strands = Strands(self._published, event.methods)
            return by_route(event, frames)
        return as_they_came(event)

    def prepare(self) -> Steps[None]:
        """Find out where the messages of the transaction go, so that only giving them to queues is left to do.

        Messages that pass exchanges which find duplicates are left out: one of them may decide about the next.
        """
        routes: dict[Route, Route] = {}
        found: list[Sequence[_Target]] = []
        units = 0
        for known, event in self.pending or ():
            if known not in routes:
                routes[known] = yield from self._admission.renew(known)
            route = routes[known]
            if route.queues is None or event.facts.alone:
                targets = yield from self._find_targets(route, event)
                found.append(targets)
                units += sum(_UNITS_ALONE + len(queues or ()) for queues in targets)
            else:
                found.append(())
                units += max(len(route.queues) * _units_per_queue(event.tails), 1)
                if len(found) % _EVENTS_PER_UNIT == 0:
                    yield 1
        self._prepared = routes, found
        self.commit_units = units

    def _find_targets(self, route: Route, event: Published) -> Steps[list[_Target]]:
        """The queues of messages that each have their own; None if that is to be found out later."""
        targets: list[_Target] = []
        for one in self._singles(route, event):
            properties, more_keys, units = self._checked(route, one)
            yield units
            passage = Passage(properties, self._now)
            queues = yield from self._admission.queues_for(
                route, properties.headers, more_keys, passage
            )
            targets.append(None if passage.is_watched else queues)
        return targets

    @property
    def is_prepared(self) -> bool:
        """Whether `commit` has nothing to search for."""
        return self._prepared is not None

    def commit(self) -> Steps[None]:
        """Send what the transaction gathered, by the routes that `prepare` has found.

        The time of each step is that of the vhost's `Cleanup`.
        """
        assert self._prepared is not None
        (routes, found), self._prepared = self._prepared, None
        pending, self.pending = self.pending or [], []
        cleanup = self._admission.vhost.cleanup
        # From the end, so that the memory of each is freed in its own step.
        pending.reverse()
        found.reverse()
        while pending:
            (known, event), targets = pending.pop(), found.pop()
            route = routes[known]
            self._now = cleanup.now
            if targets:
                steps = self._send_singly(route, event, targets)
            else:
                steps = self._send_to_many(route, event, route.queues or ())
            for cost in steps:
                yield cost
                self._now = cleanup.now

    def rollback(self) -> None:
        """Forget what the transaction gathered; the memory is freed in portions."""
        if self.pending:
            self._admission.vhost.disposal.add(self.pending)
            self.pending = []
        self._prepared = None

    def _check_user(self, claimed: str) -> None:
        user = self._admission.user
        if claimed != user.name and "impersonator" not in user.tags:
            raise PreconditionFailed(
                f"user_id property set to '{claimed}' but authenticated user was '{user.name}'"
            )

    def _run(self, route: Route, event: Published, tails: list[bytes]) -> Run:
        frame_max = self._outlet.frame_max
        return Run(route, event.facts, self._number, frame_max, event.head, tails, True)

    def _send(self, route: Route, event: Published, now: int) -> None:
        """Messages that are alike, at once."""
        frame_max, queues = self._outlet.frame_max, route.queues
        # Not by `_run`: another call would take 1 % of a message.
        run = Run(route, event.facts, self._number, frame_max, event.head, event.tails, True)
        refused: Sequence[int] = ()
        keeper = self._keeper
        entries = keeper.entries
        if queues:
            one = len(queues) == 1
            refused = queues[0].publish(run, now) if one else distribute(run, queues, now)
        if route.returns:
            self._return(route, run)
        if self.confirming:
            if keeper.entries != entries:
                self._awaited = keeper.ticket
            if refused:
                self._refuse(refused)
        self._published += len(event.tails)

    def _send_to_many(self, route: Route, event: Published, queues: Sequence[Queue]) -> Steps[None]:
        """Messages that are alike, to many queues, or to some that take them in one by one."""
        if len(event.tails) > 1 and any(queue.is_laborious for queue in queues):
            for one in self._singles(route, event):
                yield from self._enter(route, one, queues)
        else:
            yield from self._enter(route, self._run(route, event, event.tails), queues)

    def _singles(self, route: Route, event: Published) -> Iterator[Run]:
        return (self._run(route, event, [tail]) for tail in event.tails)

    def _enter(
        self, route: Route, run: Run, queues: Sequence[Queue], passage: Passage | None = None
    ) -> Steps[None]:
        """Give messages to all of these queues, some at each step; those that are deleted meanwhile miss them.

        Where duplicates are found it is one step: else another message with the same id might get through.
        """
        keeper = self._keeper
        refused: set[int] = set()
        each = _units_per_queue(run.tails)
        whole = passage is not None and passage.is_watched
        for some in parts(queues, len(queues) if whole else max(STEP_UNITS // each, 1)):
            entries = keeper.entries
            living = [queue for queue in some if not queue.deleted]
            refused.update(distribute(run, living, self._now))
            if passage is not None and queues and not refused:
                passage.arrive(queues)
            self._await_kept(entries)
            yield max(each * len(some), 1)
        if route.mandatory and is_nowhere(queues) and not (passage and passage.stopped):
            self._return(route, run)
        if self.confirming and refused:
            self._refuse(sorted(refused))
        self._published += len(run)

    def _await_kept(self, entries: int) -> None:
        """Confirms wait for what was kept since the keeper had so many entries (P4)."""
        if self.confirming and self._keeper.entries != entries:
            self._awaited = self._keeper.ticket

    def _refuse(self, indexes: Sequence[int]) -> None:
        """Those of the messages that are just taken in will be nacked."""
        if self._refused is None:
            self._refused = deque()
        if self._strands is None or self._published >= self._strands.last:
            self._refused.extend(self._published + 1 + i for i in indexes)
        else:
            numbers = self._strands.numbers(self._published, indexes)
            self._refused = deque(sorted((*self._refused, *numbers)))

    def _send_singly(
        self,
        route: Route,
        event: Published,
        targets: Sequence[_Target] | None = None,
    ) -> Steps[None]:
        """Messages whose headers decide where each goes, or must be changed on the way.

        `targets` are the queues of each, where they were found before.
        """
        for i, one in enumerate(self._singles(route, event)):
            properties, more_keys, units = self._checked(route, one)
            yield units
            headers = properties.headers or {}
            message = delivered_form(one, properties, self.reply_queue)
            passage = Passage(properties, self._now)
            queues = targets[i] if targets is not None else None
            entries = self._keeper.entries
            while queues is None:
                queues = yield from self._admission.queues_for(route, headers, more_keys, passage)
                if passage.was_overtaken():
                    passage, queues = Passage(properties, self._now), None
            self._await_kept(entries)  # a duplicate may repeat what is not safe yet
            yield from self._enter(route, message, queues, passage)

    def _check_singles(self, route: Route, event: Published) -> int:
        """Refuse now what could not be sent at commit (P3); return the cost."""
        cost = 0
        if event.facts.alone:
            for one in self._singles(route, event):
                _, _, units = self._checked(route, one)
                cost += units
        return cost

    def _checked(self, route: Route, one: Run) -> tuple[Properties, list[str], int]:
        """The properties of a message, the keys of its copies, and the cost, if it may be sent like this."""
        properties, more_keys, size = read_single(one)
        for key in more_keys:
            self._admission.check_topic(route.source, key)
        if properties.reply_to == REPLY_HERE and self.reply_queue is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        units = _UNITS_ALONE + size // _HEADER_BYTES_PER_UNIT + len(more_keys) // _COPIES_PER_UNIT
        return properties, more_keys, units

    def _return(self, route: Route, run: Run) -> None:
        if self._is_closed:
            return
        method = BasicReturn(_NO_ROUTE, "NO_ROUTE", route.exchange, route.routing_key)
        frame = method_frame(self._number, method)
        for content in run.contents():
            self._outlet.write(frame + content)

    # ── confirms ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def published(self) -> int:
        """All that was taken in, unroutable or not."""
        return self._unnumbered + self._published

    @property
    def confirmed(self) -> int:
        """How many the peer was told of."""
        return self._confirmed

    def begin_confirming(self) -> None:
        """Number what is published from now on."""
        if not self.confirming:
            self.confirming = True
            self._unnumbered, self._published = self._published, 0

    def confirm(self) -> None:
        """Confirm all that was published up to now, at the end of a read; or promise to, once it is safe."""
        promises, last = self._promises, self._published
        if self._strands is not None:
            last = self._last_whole(self._strands)
        if self._awaited <= self._keeper.safe:
            self._answer_up_to(last)
        elif promises and promises[-1][0] == self._awaited:
            promises[-1] = (self._awaited, last)
        else:
            if promises is None:
                promises = self._promises = deque()
            promises.append((self._awaited, last))
            self._keeper.tell(self)

    def _last_whole(self, strands: Strands) -> int:
        """The number up to which all were taken in, if those of a turn that just ended were in strands."""
        if self._published < strands.last:
            return strands.before
        self._strands = None
        return self._published

    def kept(self) -> None:
        """More is safe: keep the promises that this allows."""
        promises, last = self._promises, 0
        while promises and promises[0][0] <= self._keeper.safe:
            last = promises.popleft()[1]
        self._answer_up_to(last)

    def close(self) -> None:
        """Send the client nothing more, and roll back a transaction that was not committed."""
        self._promises = None
        self._is_closed = True
        self.rollback()

    def _answer_up_to(self, last: int) -> None:
        while self._refused and self._refused[0] <= last:
            number = self._refused.popleft()
            self._ack_up_to(number - 1)
            self._outlet.write(method_frame(self._number, BasicNack(number, False, False)))
            self._confirmed = number
        self._ack_up_to(last)

    def _ack_up_to(self, last: int) -> None:
        if last > self._confirmed:
            several = last > self._confirmed + 1
            self._confirmed = last
            self._outlet.write(ack_frame(self._number, last, multiple=several))


def _units_per_queue(tails: Sequence[bytes]) -> int:
    """The cost of giving messages to one queue and its consumer; they are about as long as the first."""
    return 1 + len(tails) // 16 + (len(tails) * len(tails[0]) >> 14)
