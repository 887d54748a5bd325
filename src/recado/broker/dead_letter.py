"""Dead letters: what happens to messages that a queue drops, where it was declared with an exchange for them.

Each gets an entry in its `x-death` header that says why, where and when; the entries count how often a message
died of the same cause in the same queue. A message that would come back to a queue where it died before,
without anybody having rejected it since, goes round in circles and is dropped.

Dead letters may cause others (the queue they come to may be full), so they are worked off one after the other:
a long chain of queues costs no depth.
"""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from recado.amqp.facts import Facts, without_ttl
from recado.amqp.frames import OVERHEAD, PROPERTIES_AT, body_of, content_frames, properties_of
from recado.amqp.properties import Properties, decode_properties, encode_properties
from recado.amqp.values import Int64, Table, Timestamp, Value

from .exchange import Exchange
from .queue import Queue
from .routing import Origin, distribute
from .run import Run
from .vhost import Vhost

_HEADER_REST = PROPERTIES_AT + OVERHEAD  # what a header frame has beside its properties, and some
_ENTRIES_HERE = 1 << 16  # what came in was within the limit; deaths are added to that


def rewritten(
    run: Run, change: Callable[[Properties], Properties], origin: Origin, facts: Facts
) -> Run:
    """The messages with other properties; those that had the same before have the same afterwards.

    A header must fit into one frame, so a message whose header no longer does is left out.
    """
    tails = []
    known: dict[bytes, bytes] = {}
    for content in run.contents():
        before = properties_of(content)
        after = known.get(before)
        if after is None:
            properties = decode_properties(before, max_entries=_ENTRIES_HERE)
            after = known[before] = encode_properties(change(properties))
        if len(after) + _HEADER_REST <= run.frame_max:
            tails.append(content_frames(run.channel, after, body_of(content), run.frame_max))
    return Run(origin, facts, run.channel, run.frame_max, b"", tails, True)


class DeadLetters:
    """Takes what the queues of one vhost drop."""

    def __init__(self, vhost: Vhost[Queue]) -> None:
        self._vhost = vhost
        self._waiting: deque[tuple[Queue, Run, str]] = deque()
        self._working = False

    def __call__(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        if queue.settings.dead_letter_exchange is None:
            return
        self._waiting.append((queue, run, reason))
        if self._working:
            return
        self._working = True
        try:
            while self._waiting:
                self._send(*self._waiting.popleft(), now)
        finally:
            self._working = False

    def _send(self, queue: Queue, run: Run, reason: str, now: int) -> None:
        settings = queue.settings
        exchange = self._vhost.exchanges.get(settings.dead_letter_exchange or "")
        if exchange is None:
            return
        key = settings.dead_letter_routing_key
        origin = Origin(exchange.name, run.origin.routing_key if key is None else key)

        def record(properties: Properties) -> Properties:
            headers = dict(properties.headers or {})
            _add_death(headers, queue.name, reason, run, properties.expiration, now)
            if key is not None:
                headers.pop("CC", None)
            return msgspec.structs.replace(properties, headers=headers, expiration=None)

        letters = rewritten(run, record, origin, without_ttl(run.facts))
        self._publish(letters, exchange, reason, now)

    def _publish(self, run: Run, exchange: Exchange[Queue], reason: str, now: int) -> None:
        """Messages of one run may have different headers, and so different ways."""
        for i, content in enumerate(run.contents()):
            properties = decode_properties(properties_of(content), max_entries=_ENTRIES_HERE)
            headers = properties.headers or {}
            routed = self._vhost.route(
                exchange, run.origin.routing_key, headers, receivers_in(headers, "CC")
            )
            deaths = headers.get("x-death")
            queues: Sequence[Queue] = [
                queue
                for queue in routed.queues
                if reason == "rejected" or not _goes_in_circles(queue.name, deaths)
            ]
            if queues:
                distribute(run.slice(i, i + 1), queues, now)


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
        if isinstance(entry, dict) and entry.get("queue") == queue and entry.get("reason") == reason:
            entries.remove(entry)
            count = entry.get("count")
            death = {**entry, "count": Int64(count + 1 if isinstance(count, int) else 1)}
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
