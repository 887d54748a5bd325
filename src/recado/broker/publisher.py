"""The publishing half of a channel: routes, returns, confirms and transactions.

PUB1  An unroutable mandatory message is returned before it is confirmed.
PUB2  Every message is confirmed once: with an ack if it was accepted, with a nack if a queue rejected it.
PUB3  The messages of a transaction are published at commit, all of them or none. Only a crash during the
      commit of a large transaction may leave a part of them (see `channel`).
PUB4  A confirm is sent when its messages have been accepted and those that the store records are durable.
PUB5  The messages of a channel enter each queue in the order in which they were published.

Most publishes have a cached route to a few queues and are handled in one call. A search for the route,
messages with individual routes, and publishes to many queues run in bounded steps (see `steps`): `publish`
returns the event until it is done, and the session calls again with the same event before it handles any
other input of the connection.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from recado.amqp.errors import PreconditionFailedError
from recado.amqp.events import InterleavedPublished, Published
from recado.amqp.frames import encode_ack_frame, encode_method_frame
from recado.amqp.methods import BasicNack, BasicReturn
from recado.amqp.properties import Properties
from recado.amqp.traits import DEFAULT_TRAITS, DIRECT_REPLY_TO

from .consumer import PeerConnection
from .deduplication import ExchangeDeduplication
from .interleaved_batch import InterleavedBatch, group_by_route, split_by_route
from .queue import Queue
from .routing import Route, VhostAccess, is_unroutable, publish_to_all
from .run import Run
from .single_message import prepare_for_delivery, read_single
from .steps import STEP_UNITS_MAX, TURN_UNITS_MAX, Steps, StepTask, chunks

_NO_ROUTE_CODE = 312
_UNITS_PER_MESSAGE = 4  # to read its properties, in addition to publishing
_HEADER_BYTES_PER_UNIT = 256  # of properties: 20 ns per byte
_COPIES_PER_UNIT = 6  # CC and BCC keys to read, check and look up: 0.6 to 1.6 µs each
_EVENTS_PER_UNIT = 16  # of a transaction, to look up cached routes

_MessageTargets: TypeAlias = Sequence[Queue] | None
"""The queues of one message; None if they are found at commit."""


class Publisher:
    __slots__ = (
        "_access",
        "_channel_number",
        "_coalescer",
        "_confirmed",
        "_connection",
        "_interleaved",
        "_is_closed",
        "_nacked",
        "_now",
        "_pending_confirms",
        "_prepared",
        "_published",
        "_published_before_confirms",
        "_publishing",
        "_rejected_numbers",
        "_required_lsn",
        "_route_search",
        "_sizes",
        "_store",
        "commit_cost",
        "confirms_enabled",
        "dropped",
        "reply_queue",
        "returned",
        "routed",
        "transaction",
    )

    def __init__(
        self, channel_number: int, connection: PeerConnection, access: VhostAccess
    ) -> None:
        self._channel_number = channel_number
        self._connection = connection
        self._access = access
        self._store = access.vhost.store
        self._coalescer = access.coalescer
        self._sizes = access.vhost.message_sizes
        self._published = 0
        self._published_before_confirms = 0  # not numbered
        # The number of the last message that was confirmed, with an ack or a nack.
        self._confirmed = 0
        self._nacked = 0
        # Totals for statistics, beside those of the properties below.
        self.routed = 0  # messages, counted for each queue
        self.dropped = self.returned = 0  # unroutable messages
        # Created on demand: an empty deque takes 600 bytes, and there are many channels.
        self._rejected_numbers: deque[int] | None = None  # publish numbers to be nacked
        self._required_lsn = 0  # LSN of the last stored message
        # Pairs of an LSN and the number up to which to confirm when it is durable.
        self._pending_confirms: deque[tuple[int, int]] | None = None
        # Set while some of its messages may not be published yet.
        self._interleaved: InterleavedBatch | None = None
        self._now = 0  # time of the current turn, for work in steps
        # The search for the route of the unfinished event.
        self._route_search: StepTask[Route] | None = None
        self._publishing: StepTask[None] | None = None
        # Current routes of the transaction, and for each event the queues of its messages with individual
        # routes.
        self._prepared: tuple[dict[Route, Route], list[Sequence[_MessageTargets]]] | None = None
        self._is_closed = False
        self.commit_cost = 0  # approximate cost of `commit`, once it is prepared
        self.confirms_enabled = False
        # The events of an open transaction.
        self.transaction: list[tuple[Route, Published]] | None = None
        self.reply_queue: str | None = None  # the target of direct replies to this channel

    def publish(
        self, event: Published, now: int, budget: int = TURN_UNITS_MAX
    ) -> tuple[Published | None, int]:
        """Publish messages within the budget; return the event if it is unfinished, and the cost.

        The caller must pass an unfinished event again before any other.
        """
        if self._publishing is not None:
            return self._advance(self._publishing, event, now, budget)
        route, cost = self._access.cached_route(event.method_frame), 0
        if route is None:
            search = self._route_search or StepTask(self._access.search_route(event.method_frame))
            self._route_search = None
            cost = search.advance(budget)
            if not search.is_done:
                self._route_search = search
                return event, cost
            route = search.result
        traits, queues = event.traits, route.queues
        if traits is not DEFAULT_TRAITS:
            if traits.refusal is not None:
                raise PreconditionFailedError(traits.refusal)
            if traits.user_id is not None:
                self._access.check_user_id(traits.user_id)
        if self.transaction is not None:
            cost += self._check_individually(route, event)
            self.transaction.append((route, event))
            return None, cost + 1
        coalescer = self._coalescer
        # Checked before the call, which would cost 1 µs of 17.
        if coalescer.is_enabled or coalescer.pending_run is not None:
            if (
                len(event.payloads) == 1
                and not event.prefix
                and self._try_coalesce(route, event, now)
            ):
                return None, cost + 1
            coalescer.flush(now)
        if queues is None or traits.unbatchable:
            publishing = StepTask(self._publish_individually(route, event))
        elif (len(event.payloads) == 1 or not any(queue.is_per_message for queue in queues)) and (
            len(queues) < 2 or len(queues) * _cost_per_queue(event.payloads) <= STEP_UNITS_MAX
        ):
            self._publish_run(route, event, now)
            return None, cost + (len(queues) or 1)
        else:
            publishing = StepTask(self._publish_in_steps(route, event, queues))
        unfinished, further_cost = self._advance(publishing, event, now, budget - cost)
        return unfinished, cost + further_cost

    def _advance(
        self, publishing: StepTask[None], event: Published, now: int, budget: int
    ) -> tuple[Published | None, int]:
        self._coalescer.flush(now)
        self._now = now
        self._publishing = None
        cost = publishing.advance(budget)
        if publishing.is_done:
            return None, cost
        self._publishing = publishing
        return event, cost

    def _try_coalesce(self, route: Route, event: Published, now: int) -> bool:
        """Add a single message to the coalescer's batch, or start one; return whether that was possible."""
        coalescer, traits, queues = self._coalescer, event.traits, route.queues
        channel_number, frame_max = self._channel_number, self._connection.frame_max
        if not coalescer.try_add(route, traits, channel_number, frame_max, event.payloads[0]):
            if not (
                coalescer.is_enabled and queues and len(queues) == 1 and not traits.unbatchable
            ):
                return False
            coalescer.flush(now)
            (queue,) = queues
            if not queue.can_coalesce(traits):
                return False
            coalescer.start_batch(
                queue, Run(route, traits, channel_number, frame_max, b"", event.payloads, True)
            )
        if self.confirms_enabled and coalescer.will_be_stored:
            self._required_lsn = self._store.lsn
        self._published += 1
        self.routed += 1
        self._sizes.observe_run(b"", event.payloads)
        if self._access.vhost.message_observers:
            run = Run(route, traits, channel_number, frame_max, b"", event.payloads, False)
            self._notify_observers(run, route.queues or ())
        route.source_exchange.published_in += 1
        route.source_exchange.published_out += 1
        return True

    def group_by_route(self, event: InterleavedPublished) -> Iterator[Published]:
        """Split the publishes into runs: one per route if the order of the routes is not observable.

        With ten queues in alternation this costs 1.2 µs per message instead of 6.
        """
        frames = dict.fromkeys(event.method_frames)
        if (
            self.transaction is None
            and not event.traits.unbatchable
            and len(frames) * 2 <= len(event.payloads)
            and self._access.are_independent(frames)
        ):
            if self.confirms_enabled:
                self._interleaved = InterleavedBatch(self._published, event.method_frames)
            return group_by_route(event, frames)
        return split_by_route(event)

    def prepare_commit(self) -> Steps[None]:
        """Find the queues of the transaction's messages, so that the commit only has to publish.

        Messages that pass deduplicating exchanges are left out, because one of them may make the next a
        duplicate.
        """
        routes: dict[Route, Route] = {}
        found: list[Sequence[_MessageTargets]] = []
        cost = 0
        for route_before, event in self.transaction or ():
            if route_before not in routes:
                routes[route_before] = yield from self._access.refresh_route(route_before)
            route = routes[route_before]
            if route.queues is None or event.traits.unbatchable:
                targets = yield from self._find_targets(route, event)
                found.append(targets)
                cost += sum(_UNITS_PER_MESSAGE + len(queues or ()) for queues in targets)
            else:
                found.append(())
                cost += max(len(route.queues) * _cost_per_queue(event.payloads), 1)
                if len(found) % _EVENTS_PER_UNIT == 0:
                    yield 1
        self._prepared = routes, found
        self.commit_cost = cost

    def _find_targets(self, route: Route, event: Published) -> Steps[list[_MessageTargets]]:
        """Find the queues of messages with individual routes; None for those to be found at commit."""
        targets: list[_MessageTargets] = []
        for single in self._single_runs(route, event):
            properties, more_keys, cost = self._read_checked(route, single)
            yield cost
            deduplication = ExchangeDeduplication(properties, self._now)
            queues = yield from self._access.find_message_queues(
                route, properties.headers, more_keys, deduplication
            )
            targets.append(None if deduplication.is_tracked else queues)
        return targets

    @property
    def is_prepared(self) -> bool:
        """Whether `commit` can run without searching."""
        return self._prepared is not None

    def commit(self) -> Steps[None]:
        """Publish the messages of the transaction by the routes that `prepare_commit` found.

        The time of each step is that of the vhost's `BackgroundWork`.
        """
        assert self._prepared is not None
        (routes, found), self._prepared = self._prepared, None
        pending, self.transaction = self.transaction or [], []
        background = self._access.vhost.background
        # From the end, so that the memory of each event is freed in its own step.
        pending.reverse()
        found.reverse()
        while pending:
            (route_before, event), targets = pending.pop(), found.pop()
            route = routes[route_before]
            self._now = background.now
            if targets:
                steps = self._publish_individually(route, event, targets)
            else:
                steps = self._publish_in_steps(route, event, route.queues or ())
            for cost in steps:
                yield cost
                self._now = background.now

    def rollback(self) -> None:
        """Discard the transaction; its memory is freed in portions."""
        if self.transaction:
            self._access.vhost.reclaimer.add(self.transaction)
            self.transaction = []
        self._prepared = None

    def _make_run(self, route: Route, event: Published, payloads: list[bytes]) -> Run:
        frame_max = self._connection.frame_max
        return Run(
            route, event.traits, self._channel_number, frame_max, event.prefix, payloads, True
        )

    def _publish_run(self, route: Route, event: Published, now: int) -> None:
        """Publish the messages of one event in one step."""
        frame_max, queues = self._connection.frame_max, route.queues or ()
        # Inlined `_make_run`: another call would cost 1 % of a message.
        run = Run(
            route, event.traits, self._channel_number, frame_max, event.prefix, event.payloads, True
        )
        rejected: Sequence[int] = ()
        store = self._store
        ops_before = store.durable_ops
        if self._access.vhost.message_observers:
            self._notify_observers(run, queues)
        if queues:
            is_single = len(queues) == 1
            rejected = (
                queues[0].publish(run, now) if is_single else publish_to_all(run, queues, now)
            )
        count, exchange = len(event.payloads), route.source_exchange
        if route.is_unroutable:
            self._return_or_drop(route, run)
        else:
            routed = count * len(queues)
            self.routed += routed
            exchange.published_out += routed
        if self.confirms_enabled:
            if store.durable_ops != ops_before:
                self._required_lsn = store.lsn
            if rejected:
                self._record_rejected(rejected)
        self._published += count
        self._sizes.observe_run(event.prefix, event.payloads)
        exchange.published_in += count

    def _publish_in_steps(
        self, route: Route, event: Published, queues: Sequence[Queue]
    ) -> Steps[None]:
        """Publish the messages of one event to many queues, or to queues that need them one by one."""
        if len(event.payloads) > 1 and any(queue.is_per_message for queue in queues):
            for message in self._single_runs(route, event):
                yield from self._enqueue(route, message, queues)
        else:
            yield from self._enqueue(route, self._make_run(route, event, event.payloads), queues)

    def _single_runs(self, route: Route, event: Published) -> Iterator[Run]:
        return (self._make_run(route, event, [payload]) for payload in event.payloads)

    def _enqueue(
        self,
        route: Route,
        run: Run,
        queues: Sequence[Queue],
        deduplication: ExchangeDeduplication | None = None,
    ) -> Steps[None]:
        """Publish messages to all these queues in steps, skipping those that are deleted meanwhile.

        Deduplicated messages are published in one step; otherwise another message with the same id might
        pass in between.
        """
        store = self._store
        rejected: set[int] = set()
        cost_per_queue = _cost_per_queue(run.payloads)
        is_one_step = deduplication is not None and deduplication.is_tracked
        if self._access.vhost.message_observers:
            self._notify_observers(run, queues)
        for chunk in chunks(
            queues, len(queues) if is_one_step else max(STEP_UNITS_MAX // cost_per_queue, 1)
        ):
            ops_before = store.durable_ops
            present = [queue for queue in chunk if not queue.deleted]
            rejected.update(publish_to_all(run, present, self._now))
            if deduplication is not None and queues and not rejected:
                deduplication.record(queues)
            self._require_durable(ops_before)
            yield max(cost_per_queue * len(chunk), 1)
        count, exchange = len(run), route.source_exchange
        if not is_unroutable(queues):
            self.routed += count * len(queues)
            exchange.published_out += count * len(queues)
        elif not (deduplication and deduplication.is_duplicate):
            self._return_or_drop(route, run)
        if self.confirms_enabled and rejected:
            self._record_rejected(sorted(rejected))
        self._published += count
        self._sizes.observe_run(run.prefix, run.payloads)
        exchange.published_in += count

    def _notify_observers(self, run: Run, queues: Sequence[Queue]) -> None:
        for observer in self._access.vhost.message_observers:
            observer.published(self._access, self._connection, self._channel_number, run, queues)

    def _require_durable(self, ops_before: int) -> None:
        """Let confirms wait for operations that were stored since `ops_before` (PUB4)."""
        if self.confirms_enabled and self._store.durable_ops != ops_before:
            self._required_lsn = self._store.lsn

    def _record_rejected(self, indexes: Sequence[int]) -> None:
        """Record which of the messages being published will be nacked."""
        if self._rejected_numbers is None:
            self._rejected_numbers = deque()
        if self._interleaved is None or self._published >= self._interleaved.last_number:
            self._rejected_numbers.extend(self._published + 1 + i for i in indexes)
        else:
            numbers = self._interleaved.publish_numbers(self._published, indexes)
            self._rejected_numbers = deque(sorted((*self._rejected_numbers, *numbers)))

    def _publish_individually(
        self,
        route: Route,
        event: Published,
        targets: Sequence[_MessageTargets] | None = None,
    ) -> Steps[None]:
        """Publish messages whose headers determine their routes or must be changed.

        `targets` are the queues of each message, if they were found before.
        """
        for i, single in enumerate(self._single_runs(route, event)):
            properties, more_keys, cost = self._read_checked(route, single)
            yield cost
            headers = properties.headers or {}
            message = prepare_for_delivery(single, properties, self.reply_queue)
            deduplication = ExchangeDeduplication(properties, self._now)
            queues = targets[i] if targets is not None else None
            ops_before = self._store.durable_ops
            while queues is None:
                queues = yield from self._access.find_message_queues(
                    route, headers, more_keys, deduplication
                )
                if deduplication.was_overtaken():
                    # During the search, a message with the same id was accepted: now this one is a duplicate.
                    deduplication, queues = ExchangeDeduplication(properties, self._now), None
            # If the original of a duplicate is not durable yet, the search has requested a sync for it (DD3).
            self._require_durable(ops_before)
            yield from self._enqueue(route, message, queues, deduplication)

    def _check_individually(self, route: Route, event: Published) -> int:
        """Refuse messages now that could not be published at commit (PUB3); return the cost."""
        cost = 0
        if event.traits.unbatchable:
            for single in self._single_runs(route, event):
                _, _, message_cost = self._read_checked(route, single)
                cost += message_cost
        return cost

    def _read_checked(self, route: Route, single: Run) -> tuple[Properties, list[str], int]:
        """Read the properties of a message and check them.

        Returns them with its CC and BCC keys and the cost.
        """
        properties, more_keys, size = read_single(single)
        for key in more_keys:
            self._access.check_topic_permission(route.source_exchange, key)
        if properties.reply_to == DIRECT_REPLY_TO and self.reply_queue is None:
            raise PreconditionFailedError("fast reply consumer does not exist")
        cost = (
            _UNITS_PER_MESSAGE + size // _HEADER_BYTES_PER_UNIT + len(more_keys) // _COPIES_PER_UNIT
        )
        return properties, more_keys, cost

    def _return_or_drop(self, route: Route, run: Run) -> None:
        """Return messages that reach no queue, or drop them if they are not mandatory."""
        for observer in self._access.vhost.message_observers:
            observer.unroutable(run, returned=route.mandatory)
        if not route.mandatory:
            self.dropped += len(run)
            return
        self.returned += len(run)
        if self._is_closed:
            return
        method = BasicReturn(_NO_ROUTE_CODE, "NO_ROUTE", route.exchange, route.routing_key)
        frame = encode_method_frame(self._channel_number, method)
        for content in run.contents():
            self._connection.write(frame + content)

    # ── confirms ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def published(self) -> int:
        """The total number of published messages, routable or not."""
        return self._published_before_confirms + self._published

    @property
    def published_for_confirm(self) -> int:
        """The total number of messages that were published to be confirmed."""
        return self._published if self.confirms_enabled else 0

    @property
    def confirmed(self) -> int:
        """The total number of messages confirmed with an ack."""
        return self._confirmed - self._nacked

    @property
    def unconfirmed(self) -> int:
        """The number of messages that are still to be confirmed."""
        return self.published_for_confirm - self._confirmed

    def enable_confirms(self) -> None:
        """Number and confirm the messages that are published from now on."""
        if not self.confirms_enabled:
            self.confirms_enabled = True
            self._published_before_confirms, self._published = self._published, 0

    def send_confirms(self) -> None:
        """Confirm all messages published so far, or schedule that for when they are durable."""
        pending, last = self._pending_confirms, self._published
        if self._interleaved is not None:
            last = self._last_complete(self._interleaved)
        if self._required_lsn <= self._store.durable_lsn:
            self._confirm_up_to(last)
        elif pending and pending[-1][0] == self._required_lsn:
            pending[-1] = (self._required_lsn, last)
        else:
            if pending is None:
                pending = self._pending_confirms = deque()
            pending.append((self._required_lsn, last))
            self._store.notify_when_durable(self)

    def _last_complete(self, batch: InterleavedBatch) -> int:
        """Return the number up to which all messages of an interleaved batch are published."""
        if self._published < batch.last_number:
            return batch.number_before
        self._interleaved = None
        return self._published

    def on_durable(self) -> None:
        """Send the confirms that the new durable LSN permits."""
        pending, last = self._pending_confirms, 0
        while pending and pending[0][0] <= self._store.durable_lsn:
            last = pending.popleft()[1]
        self._confirm_up_to(last)

    def close(self) -> None:
        """Stop sending to the client, and roll back an open transaction."""
        self._pending_confirms = None
        self._is_closed = True
        self.rollback()

    def _confirm_up_to(self, last: int) -> None:
        while self._rejected_numbers and self._rejected_numbers[0] <= last:
            number = self._rejected_numbers.popleft()
            self._ack_up_to(number - 1)
            self._connection.write(
                encode_method_frame(self._channel_number, BasicNack(number, False, False))
            )
            self._confirmed = number
            self._nacked += 1
        self._ack_up_to(last)

    def _ack_up_to(self, last: int) -> None:
        if last > self._confirmed:
            several = last > self._confirmed + 1
            self._confirmed = last
            self._connection.write(encode_ack_frame(self._channel_number, last, multiple=several))


def _cost_per_queue(payloads: Sequence[bytes]) -> int:
    """Return the cost of publishing messages to one queue and its consumer.

    It is one unit, plus one for each 16 messages, plus one for each 16 KiB if all messages are as large as the
    first one.
    """
    return 1 + len(payloads) // 16 + (len(payloads) * len(payloads[0]) >> 14)
