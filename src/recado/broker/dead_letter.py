"""Dead-lettering: messages that a queue drops are published to its dead-letter exchange.

Each message gets an entry in its `x-death` header with the reason, queue and time; the entries count how
often a message died for the same reason in the same queue. A dead letter that would return to a queue where
it died before, without having been rejected by a consumer since, is in a cycle and is dropped.

A dead letter may cause further ones, if its target queue is full in turn. They are processed iteratively,
those caused by a dead letter before the next one, so that a long chain of queues needs no recursion. The
number per turn is limited, so that a hundred thousand messages that expire at once do not block other
clients. The search for target queues is charged as well and may continue in a later turn.

A dead letter is published once, and a queue that rejects it does not get it, unless the strategy is
at-least-once (see `at_least_once`).
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import groupby

import msgspec

from recado.amqp.frames import (
    FRAME_OVERHEAD_BYTES,
    PROPERTIES_OFFSET,
    encode_content,
    extract_body,
    extract_properties,
)
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.traits import MessageTraits, without_ttl
from recado.amqp.values import STORED_MAX_ENTRY_COUNT, FieldTable, FieldValue, Int64, Timestamp

from .at_least_once import AtLeastOnceDeadLetters, HeldDeadLetter
from .exchange import Exchange
from .queue import Queue
from .route_search import find_queues
from .routing import publish_in_steps
from .run import Origin, Run
from .steps import Steps, StepTask
from .vhost import Vhost

# The size of a header frame without its properties, with a reserve.
HEADER_OVERHEAD_BYTES = PROPERTIES_OFFSET + FRAME_OVERHEAD_BYTES
_DEATH_COUNT_MAX = 1 << 62  # limits the count in a client's header
DEAD_LETTERS_PER_TURN = 128  # dead letters with different properties; about 10 ms of work
# The last dead letter may exceed the budget by this; more expensive ones are divided into steps.
_OVERRUN_LETTERS_MAX = 16
_UNITS_PER_LETTER = 16  # in addition to the search for its queues
# Messages with equal properties that cost as much as one dead letter.
_ALIKE_MESSAGES_PER_LETTER = 50


def rewrite_properties(
    run: Run, change: Callable[[Properties], Properties], origin: Origin, traits: MessageTraits
) -> Iterator[tuple[Properties, Run]]:
    """Return the messages with changed properties, in one run where neighbours have equal properties.

    Each run has the positions of its messages. A header must fit into one frame; messages whose header no longer
    fits are left out.
    """
    position = run.first_position
    for encoded, contents in groupby(run.contents(), extract_properties):
        properties = change(decode_properties(encoded, max_entries=STORED_MAX_ENTRY_COUNT))
        changed = encode_properties(properties)
        bodies = [extract_body(content) for content in contents]
        if len(changed) + HEADER_OVERHEAD_BYTES <= run.frame_max:
            payloads = [
                encode_content(run.channel, changed, body, run.frame_max) for body in bodies
            ]
            rewritten = Run(origin, traits, run.channel, run.frame_max, b"", payloads, True)
            rewritten.first_position, rewritten.stride = position, run.stride
            yield properties, rewritten
        position += len(bodies) * run.stride


class DeadLetterRouter:
    """Publishes the dead letters of one vhost."""

    def __init__(self, vhost: Vhost[Queue]) -> None:
        self._vhost = vhost
        self._caused: list[tuple[Queue, Run, str]] = []
        self._is_working = False
        # Time, and how many more dead letters may be published at that time.
        self._budget = (0, DEAD_LETTERS_PER_TURN)
        self._pending: deque[tuple[Queue, Run, str]] = deque()
        self._current: StepTask[None] | None = None  # the unfinished task
        self._now = 0
        self._at_least_once = AtLeastOnceDeadLetters(self._offer, lambda: self._now)

    def __call__(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        """Dead-letter the messages, or drop them if the queue has no dead-letter exchange.

        If there are many, `run` is emptied in later turns.
        """
        if queue.settings.dead_letter_exchange is None:
            for observer in queue.observers:
                observer.dropped(queue, run, reason)
            queue.settle(run)
            return
        if queue.settings.is_at_least_once:
            self._at_least_once.add(queue, run, reason, now)
        else:
            queue.start_dead_lettering()
            (self._caused if self._is_working else self._pending).append((queue, run, reason))
        if self._is_working:
            return
        if self._budget[0] != now:
            self._budget = (now, DEAD_LETTERS_PER_TURN)
        self._advance_within_budget(now)

    def deadline(self) -> int | None:
        """Return when to call `advance`, or None; 0 means immediately."""
        return 0 if self._pending or self._current is not None else self._at_least_once.deadline()

    def advance(self, now: int) -> None:
        """Continue with pending dead letters."""
        self._at_least_once.retry(now)
        self._budget = (now, DEAD_LETTERS_PER_TURN)
        self._advance_within_budget(now)

    def _advance_within_budget(self, now: int) -> None:
        self._is_working, self._now = True, now
        try:
            while (left := self._budget[1]) > 0:
                if self._current is None:
                    if self._pending:
                        self._current = StepTask(self._publish_some(left))
                    elif self._at_least_once.can_offer:
                        self._current = StepTask(self._at_least_once.offer_next())
                    else:
                        break
                # An ordinary dead letter is published in one step, so that clients never find it missing from
                # both its old and its new queue.
                cost = self._current.advance((left + _OVERRUN_LETTERS_MAX) * _UNITS_PER_LETTER)
                if self._current.is_done:
                    self._current = None
                self._budget = (now, left - max(cost // _UNITS_PER_LETTER, 1))
                self._pending.extendleft(reversed(self._caused))
                self._caused.clear()
        finally:
            self._is_working = False

    def _publish_some(self, limit: int) -> Steps[None]:
        """Publish dead letters of the first pending run: up to `limit`, or more if they have equal properties.

        Each is published once: a target queue that rejects it does not get it.
        """
        queue, run, reason = self._pending.popleft()
        part = run.take(limit * (_ALIKE_MESSAGES_PER_LETTER if run.prefix else 1))
        if part is not run:
            self._pending.appendleft((queue, run, reason))
        targets: dict[Queue, None] = {}
        exchange = self._exchange_of(queue)
        yield _UNITS_PER_LETTER
        if exchange is None:
            for observer in queue.observers:
                observer.dropped(queue, part, reason)
        else:
            for batch in self._write_batches(queue, exchange, part, reason, self._now):
                yield batch.cost_letters * _UNITS_PER_LETTER
                _, queues = yield from self._find_targets(exchange, batch, reason)
                for observer in queue.observers:
                    observer.forwarded(queue, batch.run, reason, exchange.name)
                yield from publish_in_steps(batch.run, queues, self._now)
                targets.update(dict.fromkeys(queues))
        queue.settle_forwarded(part, targets)
        if part is run:
            queue.finish_dead_lettering()

    def _offer(self, queue: Queue, dead_letter: HeldDeadLetter) -> Steps[bool]:
        """Publish a dead letter to the queues that have not accepted it; return whether all have now.

        A target queue that rejects it and dead-letters it in turn counts as having accepted it: otherwise each
        retry would dead-letter it there again.
        """
        dead_letter.start_attempt(self._vhost.epoch, queue.settings)
        exchange = self._exchange_of(queue)
        yield _UNITS_PER_LETTER
        if exchange is None:
            # Wait for an exchange that is not declared; if none is configured any more, drop the message.
            return queue.settings.dead_letter_exchange is None
        # A held run is one message, so there is one batch, or none if its header no longer fits into a frame:
        # then the message is dropped.
        is_accepted = True
        for batch in self._write_batches(
            queue, exchange, dead_letter.run, dead_letter.reason, dead_letter.died_at
        ):
            yield batch.cost_letters * _UNITS_PER_LETTER
            routed, targets = yield from self._find_targets(exchange, batch, dead_letter.reason)
            is_accepted = routed or bool(dead_letter.accepted_by)
            for observer in queue.observers:
                observer.forwarded(queue, batch.run, dead_letter.reason, exchange.name)
            for target in targets:
                if target in dead_letter.accepted_by or target.deleted:
                    continue
                rejected = target.publish(batch.run.copy_for_queue(), self._now)
                if rejected and target.settings.overflow == "reject-publish":
                    dead_letter.rejected_by.append(target)
                else:
                    dead_letter.accepted_by.add(target)
                yield 1
        return is_accepted and not dead_letter.rejected_by

    def _exchange_of(self, queue: Queue) -> Exchange[Queue] | None:
        # No name if a policy was removed while the messages were pending.
        name = queue.settings.dead_letter_exchange
        return None if name is None else self._vhost.exchanges.get(name)

    def _write_batches(
        self, queue: Queue, exchange: Exchange[Queue], run: Run, reason: str, died_at: int
    ) -> Iterator["_DeadLetterBatch"]:
        routing_key = queue.settings.dead_letter_routing_key
        origin = Origin(
            exchange.name, run.origin.routing_key if routing_key is None else routing_key
        )

        def record(properties: Properties) -> Properties:
            headers = dict(properties.headers or {})
            _add_death(headers, queue.name, reason, run, properties.expiration, died_at)
            if routing_key is not None:
                headers.pop("CC", None)
            return msgspec.structs.replace(properties, headers=headers, expiration=None)

        for properties, dead_letters in rewrite_properties(
            run, record, origin, without_ttl(run.traits)
        ):
            dead_letters.is_forwarded = True
            size = len(extract_properties(dead_letters.payloads[0]))
            cost = 1 + len(dead_letters) // _ALIKE_MESSAGES_PER_LETTER + size // 512
            yield _DeadLetterBatch(dead_letters, properties.headers or {}, cost)

    def _find_targets(
        self, exchange: Exchange[Queue], batch: "_DeadLetterBatch", reason: str
    ) -> Steps[tuple[bool, list[Queue]]]:
        """Return whether dead letters are routable, and the target queues without cycles."""
        headers = batch.headers
        copies = read_routing_keys(headers, "CC")
        key = batch.run.origin.routing_key
        queues = yield from find_queues(self._vhost, exchange, key, headers, copies)
        if reason == "rejected":
            return bool(queues), queues
        deaths = headers.get("x-death")
        return bool(queues), [target for target in queues if not _is_cycle(target.name, deaths)]


class _DeadLetterBatch(msgspec.Struct):
    run: Run
    headers: FieldTable
    cost_letters: int
    """In dead letters of ordinary size: long headers cost more."""


def read_routing_keys(headers: FieldTable, name: str) -> list[str]:
    """Return the routing keys in a CC or BCC header."""
    keys = headers.get(name)
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []


def _add_death(
    headers: FieldTable, queue: str, reason: str, run: Run, expiration: str | None, now: int
) -> None:
    deaths = headers.get("x-death")
    entries: list[FieldValue] = list(deaths) if isinstance(deaths, list) else []
    for entry in entries:
        if (
            isinstance(entry, dict)
            and entry.get("queue") == queue
            and entry.get("reason") == reason
        ):
            entries.remove(entry)
            count = entry.get("count")
            previous_count = count if isinstance(count, int) and 0 < count < _DEATH_COUNT_MAX else 0
            death = {**entry, "count": Int64(previous_count + 1)}
            break
    else:
        keys: list[FieldValue] = [run.origin.routing_key, *read_routing_keys(headers, "CC")]
        death = {
            "count": Int64(1),
            "reason": reason,
            "queue": queue,
            "time": Timestamp(now // 1000),
            "exchange": run.origin.exchange,
            "routing-keys": keys,
        }
        if expiration is not None:
            death["original-expiration"] = expiration
    headers["x-death"] = [death, *entries]
    if "x-first-death-reason" not in headers:
        headers["x-first-death-reason"] = reason
        headers["x-first-death-queue"] = queue
        headers["x-first-death-exchange"] = run.origin.exchange


def _is_cycle(queue: str, deaths: object) -> bool:
    """Whether the message died in this queue before and no consumer rejected it since."""
    for entry in deaths if isinstance(deaths, list) else ():
        if not isinstance(entry, dict) or entry.get("reason") == "rejected":
            return False
        if entry.get("queue") == queue:
            return True
    return False
