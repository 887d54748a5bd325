"""Dead letters: what happens to messages that a queue drops, where it was declared with an exchange for them.

Each gets an entry in its `x-death` header that says why, where and when; the entries count how often a message
died of the same cause in the same queue. A message that would come back to a queue where it died before,
without anybody having rejected it since, goes round in circles and is dropped.

A letter may cause others, where the queue it comes to is full in turn. They are worked off one after the other,
what a letter causes before the next one, so a long chain of queues costs no depth; and only so many at a
time, so that a hundred thousand messages that expire at once keep nobody else waiting.
"""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import groupby

import msgspec

from recado.amqp.facts import Facts, without_ttl
from recado.amqp.frames import OVERHEAD, PROPERTIES_AT, body_of, content_frames, properties_of
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.values import Int64, Table, Timestamp, Value

from .exchange import Exchange
from .queue import Queue
from .routing import distribute
from .run import Origin, Run
from .vhost import Vhost

_HEADER_REST = PROPERTIES_AT + OVERHEAD  # what a header frame has beside its properties, and some
_MOST_DEATHS = 1 << 62  # a client may claim any count
_ENTRIES_HERE = 1 << 16  # what came in was within the limit; deaths are added to that
_AT_A_TIME = 128  # letters that are each unlike the one before; some 20 ms of work
_ALIKE = 50  # letters with the same properties that are the work of one


def rewritten(
    run: Run, change: Callable[[Properties], Properties], origin: Origin, facts: Facts
) -> Iterator[tuple[Properties, Run]]:
    """The messages with other properties, together where neighbours have the same.

    A header must fit into one frame, so messages whose header no longer does are left out.
    """
    for before, contents in groupby(run.contents(), properties_of):
        properties = change(decode_properties(before, max_entries=_ENTRIES_HERE))
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
        self._allowance = (0, _AT_A_TIME)  # how many more at this time
        self.waiting: deque[tuple[Queue, Run, str]] = deque()

    def __call__(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        """Send these messages on, or let them go; `run` may be emptied later, if there are many."""
        if queue.settings.dead_letter_exchange is None:
            queue.settle(run)
            return
        if self._working:
            self._caused.append((queue, run, reason))
            return
        self.waiting.append((queue, run, reason))
        if self._allowance[0] != now:
            self._allowance = (now, _AT_A_TIME)
        self._work(now)

    def go_on(self, now: int) -> None:
        """Some more of what is left over."""
        self._allowance = (now, _AT_A_TIME)
        self._work(now)

    def _work(self, now: int) -> None:
        self._working = True
        try:
            while self.waiting and self._allowance[1] > 0:
                queue, run, reason = self.waiting.popleft()
                part = run.take(self._allowance[1] * (_ALIKE if run.head else 1))
                if part is not run:
                    self.waiting.appendleft((queue, run, reason))
                self._allowance = (now, self._allowance[1] - self._send(queue, part, reason, now))
                queue.settle(part)
                self.waiting.extendleft(reversed(self._caused))
                self._caused.clear()
        finally:
            self._working = False

    def _send(self, queue: Queue, run: Run, reason: str, now: int) -> int:
        """Gives the work it was, in letters of the usual size: long headers count for more."""
        settings = queue.settings
        exchange = self._vhost.exchanges.get(settings.dead_letter_exchange or "")
        if exchange is None:
            return 1
        key = settings.dead_letter_routing_key
        origin = Origin(exchange.name, run.origin.routing_key if key is None else key)

        def record(properties: Properties) -> Properties:
            headers = dict(properties.headers or {})
            _add_death(headers, queue.name, reason, run, properties.expiration, now)
            if key is not None:
                headers.pop("CC", None)
            return msgspec.structs.replace(properties, headers=headers, expiration=None)

        work = 1
        for properties, letters in rewritten(run, record, origin, without_ttl(run.facts)):
            size = len(properties_of(letters.tails[0]))
            work += 1 + len(letters) // _ALIKE + size // 512
            queues = self._receivers(exchange, origin, properties.headers or {}, reason)
            if queues:
                distribute(letters, queues, now)
        return work

    def _receivers(
        self, exchange: Exchange[Queue], origin: Origin, headers: Table, reason: str
    ) -> list[Queue]:
        copies = receivers_in(headers, "CC")
        routed = self._vhost.route(exchange, origin.routing_key, headers, copies)
        if reason == "rejected":
            return routed
        deaths = headers.get("x-death")
        return [queue for queue in routed if not _goes_in_circles(queue.name, deaths)]


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
