"""Dead letters: what happens to messages that a queue drops, where it was declared with an exchange for them.

Each gets an entry in its `x-death` header that says why, where and when; the entries count how often a message
died of the same cause in the same queue. A message that would come back to a queue where it died before,
without anybody having rejected it since, goes round in circles and is dropped.

A letter may cause others, where the queue it comes to is full in turn. They are worked off one after the other,
what a letter causes before the next one, so a long chain of queues costs no depth; and only so many at a
time, so that a hundred thousand messages that expire at once keep nobody else waiting. The search for the
queues of a letter counts, too, and may be continued at another time.

A letter is offered once, and whoever refuses it does not get it; unless the queue wants its letters taken at
least once, see `assured`.
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

_HEADER_OVERHEAD_BYTES = (
    PROPERTIES_OFFSET + FRAME_OVERHEAD_BYTES
)  # what a header frame has beside its properties, and some
_DEATH_COUNT_MAX = 1 << 62  # a client may claim any count
DEAD_LETTERS_PER_TURN = 128  # letters that are each unlike the one before; some 10 ms of work
_OVERRUN_LETTERS_MAX = (
    16  # by which the last may exceed the allowance; one that costs more is divided
)
_UNITS_PER_LETTER = 16  # the cost of such a letter, beside the search for its queues
_ALIKE_MESSAGES_PER_LETTER = 50  # letters with the same properties that are the work of one


def rewrite_properties(
    run: Run, change: Callable[[Properties], Properties], origin: Origin, traits: MessageTraits
) -> Iterator[tuple[Properties, Run]]:
    """The messages with other properties, together where neighbours have the same.

    A header must fit into one frame, so messages whose header no longer does are left out.
    """
    for encoded, contents in groupby(run.contents(), extract_properties):
        properties = change(decode_properties(encoded, max_entries=STORED_MAX_ENTRY_COUNT))
        changed = encode_properties(properties)
        if len(changed) + _HEADER_OVERHEAD_BYTES <= run.frame_max:
            tails = [
                encode_content(run.channel, changed, extract_body(content), run.frame_max)
                for content in contents
            ]
            yield properties, Run(origin, traits, run.channel, run.frame_max, b"", tails, True)


class DeadLetterRouter:
    """Takes what the queues of one vhost drop."""

    def __init__(self, vhost: Vhost[Queue]) -> None:
        self._vhost = vhost
        self._caused: list[tuple[Queue, Run, str]] = []
        self._is_working = False
        self._budget = (0, DEAD_LETTERS_PER_TURN)  # how many more at this time
        self._pending: deque[tuple[Queue, Run, str]] = deque()
        self._current: StepTask[None] | None = None  # what is not done yet
        self._now = 0
        self._at_least_once = AtLeastOnceDeadLetters(self._offer, lambda: self._now)

    def __call__(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        """Send these messages on, or let them go; `run` may be emptied later, if there are many."""
        if queue.settings.dead_letter_exchange is None:
            queue.settle(run)
            return
        if queue.settings.is_at_least_once:
            self._at_least_once.add(queue, run, reason, now)
        else:
            queue.dead_lettering_runs += 1
            (self._caused if self._is_working else self._pending).append((queue, run, reason))
        if self._is_working:
            return
        if self._budget[0] != now:
            self._budget = (now, DEAD_LETTERS_PER_TURN)
        self._advance_within_budget(now)

    def deadline(self) -> int | None:
        """When to go on; 0 is at once."""
        return 0 if self._pending or self._current is not None else self._at_least_once.deadline()

    def advance(self, now: int) -> None:
        """Some more of what is left over."""
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
                # A usual letter is not divided, so that nobody can see it on its way.
                spent = self._current.advance((left + _OVERRUN_LETTERS_MAX) * _UNITS_PER_LETTER)
                if self._current.is_done:
                    self._current = None
                self._budget = (now, left - max(spent // _UNITS_PER_LETTER, 1))
                self._pending.extendleft(reversed(self._caused))
                self._caused.clear()
        finally:
            self._is_working = False

    def _publish_some(self, limit: int) -> Steps[None]:
        """Offer letters of the run that waits longest, once."""
        queue, run, reason = self._pending.popleft()
        part = run.take(limit * (_ALIKE_MESSAGES_PER_LETTER if run.prefix else 1))
        if part is not run:
            self._pending.appendleft((queue, run, reason))
        targets: dict[Queue, None] = {}
        exchange = self._exchange_of(queue)
        yield _UNITS_PER_LETTER
        if exchange is not None:
            for batch in self._write_batches(queue, exchange, part, reason, self._now):
                yield batch.cost_letters * _UNITS_PER_LETTER
                _, queues = yield from self._find_targets(exchange, batch, reason)
                yield from publish_in_steps(batch.run, queues, self._now)
                targets.update(dict.fromkeys(queues))
        queue.settle_forwarded(part, targets)
        if part is run:
            queue.dead_lettering_runs -= 1

    def _offer(self, queue: Queue, letter: HeldDeadLetter) -> Steps[bool]:
        """Offer a letter to those who have not taken it; return whether all have now.

        What a queue refuses and sends to its own dead letters counts as taken: once is enough.
        """
        letter.epoch, letter.settings, letter.rejected_by = self._vhost.epoch, queue.settings, []
        exchange = self._exchange_of(queue)
        yield _UNITS_PER_LETTER
        if exchange is None:
            return queue.settings.dead_letter_exchange is None
        is_accepted = True
        for batch in self._write_batches(
            queue, exchange, letter.run, letter.reason, letter.died_at
        ):
            yield batch.cost_letters * _UNITS_PER_LETTER
            routed, targets = yield from self._find_targets(exchange, batch, letter.reason)
            is_accepted = routed or bool(letter.accepted_by)
            for target in targets:
                if target in letter.accepted_by or target.deleted:
                    continue
                refused = target.publish(batch.run.copy_for_queue(), self._now)
                if refused and target.settings.overflow == "reject-publish":
                    letter.rejected_by.append(target)
                else:
                    letter.accepted_by.add(target)
                yield 1
        return is_accepted and not letter.rejected_by

    def _exchange_of(self, queue: Queue) -> Exchange[Queue] | None:
        name = queue.settings.dead_letter_exchange  # none, if a policy went while these waited
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
            dead_letters.is_dead_letter = True
            size = len(extract_properties(dead_letters.payloads[0]))
            cost = 1 + len(dead_letters) // _ALIKE_MESSAGES_PER_LETTER + size // 512
            yield _DeadLetterBatch(dead_letters, properties.headers or {}, cost)

    def _find_targets(
        self, exchange: Exchange[Queue], batch: "_DeadLetterBatch", reason: str
    ) -> Steps[tuple[bool, list[Queue]]]:
        """Whether letters are routed anywhere, and to which queues they do not go in circles."""
        headers = batch.headers
        copies = read_routing_keys(headers, "CC")
        key = batch.run.origin.routing_key
        queues = yield from find_queues(self._vhost, exchange, key, headers, copies)
        if reason == "rejected":
            return bool(queues), queues
        deaths = headers.get("x-death")
        return bool(queues), [each for each in queues if not _is_cycle(each.name, deaths)]


class _DeadLetterBatch(msgspec.Struct):
    run: Run
    headers: FieldTable
    cost_letters: int
    """In letters of the usual size: long headers count for more."""


def read_routing_keys(headers: FieldTable, name: str) -> list[str]:
    """The routing keys in a CC or BCC header."""
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
    """Whether it died in this queue before and nobody rejected it since."""
    for entry in deaths if isinstance(deaths, list) else ():
        if not isinstance(entry, dict) or entry.get("reason") == "rejected":
            return False
        if entry.get("queue") == queue:
            return True
    return False
