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

from recado.amqp.facts import Facts, without_ttl
from recado.amqp.frames import OVERHEAD, PROPERTIES_AT, body_of, content_frames, properties_of
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.values import MAX_ENTRIES_GROWN, Int64, Table, Timestamp, Value

from .assured import AssuredLetters, Letter
from .exchange import Exchange
from .queue import Queue
from .routing import distribute_in_steps
from .run import Origin, Run
from .search import find_queues
from .steps import Steps, Work
from .vhost import Vhost

_HEADER_REST = PROPERTIES_AT + OVERHEAD  # what a header frame has beside its properties, and some
_MOST_DEATHS = 1 << 62  # a client may claim any count
AT_A_TIME = 128  # letters that are each unlike the one before; some 10 ms of work
_LETTERS_BEYOND = 16  # by which the last may exceed the allowance; one that costs more is divided
_UNITS = 16  # the cost of such a letter, beside the search for its queues
_ALIKE = 50  # letters with the same properties that are the work of one


def rewritten(
    run: Run, change: Callable[[Properties], Properties], origin: Origin, facts: Facts
) -> Iterator[tuple[Properties, Run]]:
    """The messages with other properties, together where neighbours have the same.

    A header must fit into one frame, so messages whose header no longer does are left out.
    """
    for before, contents in groupby(run.contents(), properties_of):
        properties = change(decode_properties(before, max_entries=MAX_ENTRIES_GROWN))
        after = encode_properties(properties)
        if len(after) + _HEADER_REST <= run.frame_max:
            tails = [
                content_frames(run.channel, after, body_of(content), run.frame_max)
                for content in contents
            ]
            yield properties, Run(origin, facts, run.channel, run.frame_max, b"", tails, True)


class DeadLetters:
    """Takes what the queues of one vhost drop."""

    def __init__(self, vhost: Vhost[Queue]) -> None:
        self._vhost = vhost
        self._caused: list[tuple[Queue, Run, str]] = []
        self._working = False
        self._allowance = (0, AT_A_TIME)  # how many more at this time
        self._waiting: deque[tuple[Queue, Run, str]] = deque()
        self._current: Work[None] | None = None  # what is not done yet
        self._now = 0
        self._assured = AssuredLetters(self._attempt, lambda: self._now)

    def __call__(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        """Send these messages on, or let them go; `run` may be emptied later, if there are many."""
        if queue.settings.dead_letter_exchange is None:
            queue.settle(run)
            return
        if queue.settings.assured:
            self._assured.add(queue, run, reason, now)
        else:
            queue.dying += 1
            (self._caused if self._working else self._waiting).append((queue, run, reason))
        if self._working:
            return
        if self._allowance[0] != now:
            self._allowance = (now, AT_A_TIME)
        self._work(now)

    def deadline(self) -> int | None:
        """When to go on; 0 is at once."""
        return 0 if self._waiting or self._current is not None else self._assured.deadline()

    def go_on(self, now: int) -> None:
        """Some more of what is left over."""
        self._assured.look(now)
        self._allowance = (now, AT_A_TIME)
        self._work(now)

    def _work(self, now: int) -> None:
        self._working, self._now = True, now
        try:
            while (left := self._allowance[1]) > 0:
                if self._current is None:
                    if self._waiting:
                        self._current = Work(self._send_some(left))
                    elif self._assured.can_go_on:
                        self._current = Work(self._assured.try_next())
                    else:
                        break
                # A usual letter is not divided, so that nobody can see it on its way.
                spent = self._current.advance((left + _LETTERS_BEYOND) * _UNITS)
                if self._current.is_done:
                    self._current = None
                self._allowance = (now, left - max(spent // _UNITS, 1))
                self._waiting.extendleft(reversed(self._caused))
                self._caused.clear()
        finally:
            self._working = False

    def _send_some(self, most: int) -> Steps[None]:
        """Offer letters of the run that waits longest, once."""
        queue, run, reason = self._waiting.popleft()
        part = run.take(most * (_ALIKE if run.head else 1))
        if part is not run:
            self._waiting.appendleft((queue, run, reason))
        receivers: dict[Queue, None] = {}
        exchange = self._exchange_of(queue)
        yield _UNITS
        if exchange is not None:
            for written in self._written(queue, exchange, part, reason, self._now):
                yield written.work * _UNITS
                _, found = yield from self._receivers(exchange, written, reason)
                yield from distribute_in_steps(written.letters, found, self._now)
                receivers.update(dict.fromkeys(found))
        queue.pass_on(part, receivers)
        if part is run:
            queue.dying -= 1

    def _attempt(self, queue: Queue, letter: Letter) -> Steps[bool]:
        """Offer a letter to those who have not taken it; return whether all have now.

        What a queue refuses and sends to its own dead letters counts as taken: once is enough.
        """
        letter.epoch, letter.settings, letter.refusing = self._vhost.epoch, queue.settings, []
        exchange = self._exchange_of(queue)
        yield _UNITS
        if exchange is None:
            return queue.settings.dead_letter_exchange is None
        done = True
        for written in self._written(queue, exchange, letter.run, letter.reason, letter.died):
            yield written.work * _UNITS
            routed, receivers = yield from self._receivers(exchange, written, letter.reason)
            done = routed or bool(letter.taken)
            for receiver in receivers:
                if receiver in letter.taken or receiver.deleted:
                    continue
                refused = receiver.publish(written.letters.for_another_queue(), self._now)
                if refused and receiver.settings.overflow == "reject-publish":
                    letter.refusing.append(receiver)
                else:
                    letter.taken.add(receiver)
                yield 1
        return done and not letter.refusing

    def _exchange_of(self, queue: Queue) -> Exchange[Queue] | None:
        name = queue.settings.dead_letter_exchange  # none, if a policy went while these waited
        return None if name is None else self._vhost.exchanges.get(name)

    def _written(
        self, queue: Queue, exchange: Exchange[Queue], run: Run, reason: str, died: int
    ) -> Iterator["_Written"]:
        key = queue.settings.dead_letter_routing_key
        origin = Origin(exchange.name, run.origin.routing_key if key is None else key)

        def record(properties: Properties) -> Properties:
            headers = dict(properties.headers or {})
            _add_death(headers, queue.name, reason, run, properties.expiration, died)
            if key is not None:
                headers.pop("CC", None)
            return msgspec.structs.replace(properties, headers=headers, expiration=None)

        for properties, letters in rewritten(run, record, origin, without_ttl(run.facts)):
            letters.letter = True
            size = len(properties_of(letters.tails[0]))
            work = 1 + len(letters) // _ALIKE + size // 512
            yield _Written(letters, properties.headers or {}, work)

    def _receivers(
        self, exchange: Exchange[Queue], written: "_Written", reason: str
    ) -> Steps[tuple[bool, list[Queue]]]:
        """Whether letters are routed anywhere, and to which queues they do not go in circles."""
        headers = written.headers
        copies = receivers_in(headers, "CC")
        key = written.letters.origin.routing_key
        routed = yield from find_queues(self._vhost, exchange, key, headers, copies)
        if reason == "rejected":
            return bool(routed), routed
        deaths = headers.get("x-death")
        return bool(routed), [each for each in routed if not _goes_in_circles(each.name, deaths)]


class _Written(msgspec.Struct):
    letters: Run
    headers: Table
    work: int
    """In letters of the usual size: long headers count for more."""


def receivers_in(headers: Table, name: str) -> list[str]:
    """The routing keys in a CC or BCC header."""
    keys = headers.get(name)
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []


def _add_death(
    headers: Table, queue: str, reason: str, run: Run, expiration: str | None, now: int
) -> None:
    deaths = headers.get("x-death")
    entries: list[Value] = list(deaths) if isinstance(deaths, list) else []
    for entry in entries:
        if (
            isinstance(entry, dict)
            and entry.get("queue") == queue
            and entry.get("reason") == reason
        ):
            entries.remove(entry)
            count = entry.get("count")
            known = count if isinstance(count, int) and 0 < count < _MOST_DEATHS else 0
            death = {**entry, "count": Int64(known + 1)}
            break
    else:
        keys: list[Value] = [run.origin.routing_key, *receivers_in(headers, "CC")]
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


def _goes_in_circles(queue: str, deaths: object) -> bool:
    """Whether it died in this queue before and nobody rejected it since."""
    for entry in deaths if isinstance(deaths, list) else ():
        if not isinstance(entry, dict) or entry.get("reason") == "rejected":
            return False
        if entry.get("queue") == queue:
            return True
    return False
