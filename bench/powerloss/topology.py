"""The declared objects, in districts: some queues, their bindings, and the clients that publish and consume
there.

A run has a few of them, so that it is short; over many runs all combinations occur.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.crash.topology import Queue, Route, dead_letters, direct
from recado.amqp.values import FieldTable

EXPIRY_MS: Final = 150
RECEIPTS: Final = "receipts"


@dataclass(frozen=True)
class Exchange:
    name: str
    kind: str
    arguments: FieldTable | None = None


@dataclass(frozen=True)
class Habit:
    """How a client publishes."""

    name: str
    routes: tuple[Route, ...]
    window: int = 12
    """How many may be without a confirm, or in one transaction."""
    astray: Route | None = None
    """Where no queue is, and messages are to be returned from."""
    priorities: int = 0
    transient: float = 0.0
    transactions: bool = False
    longest_delay: int = 0
    """Milliseconds that messages ask to be held for, at most."""
    has_ids: bool = False
    """Messages have ids, and are sent again if they were not confirmed, or just so."""


@dataclass(frozen=True)
class Temper:
    """How a client consumes."""

    name: str
    queue: str
    prefetch: int = 8
    batch: int = 3
    multiple: bool = False
    requeues: float = 0.0
    rejects: float = 0.0
    leaves: float = 0.0
    automatic: bool = False
    """Without acks."""
    transactions: bool = False
    """Acks are sent in transactions, together with receipts."""


LIMITS: Final = frozenset(("x-max-length", "x-max-length-bytes"))


@dataclass(frozen=True)
class District:
    name: str
    queues: tuple[Queue, ...]
    habits: tuple[Habit, ...]
    tempers: tuple[Temper, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    bindings: tuple[tuple[str, str, str], ...] = ()
    """Exchange, queue, key."""
    streams: tuple[str, ...] = ()
    trimmed: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()
    at_least_once: tuple[str, ...] = ()
    purged: tuple[str, ...] = ()
    """Queues that are purged from time to time."""
    held: tuple[tuple[str, str], ...] = ()
    """The key of a delayed exchange, and the queue to which its messages go when they are due."""

    def dead_letters(self) -> list[tuple[str, str, bool]]:
        """Queue, the one for those that die there, and whether they also die by themselves."""
        found = [
            (queue.name, queue.letters_to, queue.expires or not LIMITS.isdisjoint(queue.arguments))
            for queue in self.queues
            if queue.letters_to
        ]
        return [*found, *((source, target, True) for source, target in self.held)]


STREAM: Final[FieldTable] = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1500}


def stream(name: str, most: int | None = None) -> Queue:
    return Queue(name, STREAM if most is None else {**STREAM, "x-max-length-bytes": most})


DELAYING: Final[FieldTable] = {"x-delayed-type": "direct"}
AT_LEAST_ONCE: Final[FieldTable] = {
    "x-queue-type": "quorum",
    "x-overflow": "reject-publish",
    "x-max-length": 30,
    "x-dead-letter-strategy": "at-least-once",
}

DISTRICTS: Final = (
    District(
        "orders",
        (Queue("orders"),),
        (
            Habit("serial", (Route("shop", "order", ("orders",)),), 1),
            Habit(
                "windowed",
                (Route("shop", "order", ("orders",)),),
                astray=Route("shop", "nowhere", ()),
                transient=0.1,
            ),
        ),
        (
            Temper("prompt", "orders", batch=1),
            Temper("late", "orders", 20, 8, multiple=True, requeues=0.1),
        ),
        (Exchange("shop", "direct"),),
        (("shop", "orders", "order"),),
        purged=("orders",),
    ),
    District(
        "news",
        (Queue("news-1"), Queue("news-2", {"x-queue-mode": "lazy"}), stream("news-log")),
        (Habit("herald", (Route("herald", "", ("news-1", "news-2", "news-log")),), 20),),
        (
            Temper("reader", "news-1", multiple=True),
            Temper("fleeting", "news-2", leaves=0.2, requeues=0.1),
        ),
        (Exchange("herald", "fanout"),),
        (("herald", "news-1", ""), ("herald", "news-2", ""), ("herald", "news-log", "")),
        streams=("news-log",),
        purged=("news-2",),
    ),
    District(
        "ranks",
        (Queue("ranked", {"x-max-priority": 5}),),
        (Habit("ranked", (direct("ranked"),), 20, priorities=5, transient=0.1),),
        (Temper("ranking", "ranked", requeues=0.1),),
        purged=("ranked",),
    ),
    District(
        "raft",
        (Queue("raft", {"x-queue-type": "quorum"}),),
        (Habit("raft", (direct("raft"),)),),
        (Temper("sailor", "raft", batch=4, requeues=0.2, leaves=0.1),),
    ),
    District(
        "books",
        (Queue("store-a"), Queue("store-b"), Queue(RECEIPTS)),
        (
            Habit(
                "books",
                (
                    Route("books", "a.x", ("store-a",)),
                    Route("books", "x.b", ("store-b",)),
                    Route("books", "a.b", ("store-a", "store-b")),
                ),
                8,
                transactions=True,
            ),
        ),
        (
            Temper("auditor", "store-a", transactions=True),
            Temper("clerk", "store-b", 20, 10, transactions=True, leaves=0.1),
        ),
        (Exchange("books", "topic"),),
        (("books", "store-a", "a.#"), ("books", "store-b", "#.b")),
    ),
    District(
        "narrow",
        (Queue("narrow", {"x-max-length": 6, "x-overflow": "reject-publish"}),),
        (Habit("narrow", (direct("narrow"),)),),
        (Temper("narrow", "narrow", 3),),
    ),
    District(
        "scales",  # weighed at each start, most of it on disk
        (Queue("scales", {"x-max-length-bytes": 2000, **dead_letters("heavy")}), Queue("heavy")),
        (Habit("scales", (direct("scales"),)),),
        (Temper("weigher", "scales", 3, 2), Temper("carrier", "heavy")),
    ),
    District(
        "picked",
        (Queue("picked", dead_letters("dead")), Queue("dead")),
        (Habit("picked", (direct("picked"),)),),
        (Temper("picky", "picked", rejects=0.4), Temper("undertaker", "dead", leaves=0.05)),
    ),
    District(
        "brief",
        (Queue("brief", {"x-message-ttl": EXPIRY_MS, **dead_letters("expired")}), Queue("expired")),
        (Habit("brief", (direct("brief"),)),),
        (Temper("hasty", "brief", 3, 2, rejects=0.2), Temper("heir", "expired")),
    ),
    District(
        "crowd",
        (Queue("crowd", {"x-max-length": 5, **dead_letters("outside")}), Queue("outside")),
        (Habit("crowd", (direct("crowd"),)),),
        (Temper("doorman", "crowd", 3, 2), Temper("outsider", "outside")),
    ),
    District(
        "kin",
        (
            Queue("elder", {**AT_LEAST_ONCE, **dead_letters("heir")}),
            Queue("heir", {"x-max-length": 3, "x-overflow": "reject-publish"}),
        ),
        (Habit("elder", (direct("elder"),)),),
        (Temper("reaper", "elder", rejects=0.6), Temper("heir", "heir", 2, 2)),
        at_least_once=("elder",),
    ),
    District(
        "tapes",
        (stream("log"), stream("tape", 2500)),
        (Habit("log", (direct("log"), direct("tape"))),),
        streams=("log", "tape"),
        trimmed=("tape",),
    ),
    District(
        "later",
        (Queue("later"),),
        (Habit("later", (Route("clock", "later", ("held later",)),), longest_delay=200),),
        (Temper("patient", "later"),),
        (Exchange("clock", "x-delayed-message", DELAYING),),
        (("clock", "later", "later"),),
        unordered=("later",),
        held=(("held later", "later"),),
    ),
    District(
        "once",
        (Queue("once", {"x-message-deduplication": True}),),
        (Habit("once", (direct("once"),), has_ids=True),),
        (Temper("one", "once", requeues=0.1),),
        unordered=("once",),
    ),
    District(
        "pair",
        (Queue("twin-1"), Queue("twin-2", {"x-queue-type": "quorum"})),
        (Habit("pair", (Route("sieve", "", ("twin-1", "twin-2")),), has_ids=True),),
        (Temper("elder", "twin-1", requeues=0.1), Temper("younger", "twin-2", leaves=0.1)),
        (Exchange("sieve", "fanout", {"x-message-deduplication": True}),),
        (("sieve", "twin-1", ""), ("sieve", "twin-2", "")),
        unordered=("twin-1", "twin-2"),
    ),
    District(
        "film",  # the ids of messages in a stream are recovered later than these, so a crash may duplicate them
        (stream("film"),),
        (Habit("film", (Route("sieve-2", "", ("held film",)),), has_ids=True),),
        exchanges=(Exchange("sieve-2", "fanout", {"x-message-deduplication": True}),),
        bindings=(("sieve-2", "film", ""),),
        streams=("film",),
        held=(("held film", "film"),),
    ),
    District(
        "taken",
        (Queue("taken"),),
        (Habit("taken", (direct("taken"),)),),
        (Temper("taker", "taken", automatic=True, leaves=0.1),),
    ),
    District(
        "attic",  # where one message in many stays for long
        (Queue("lobby"), Queue("attic"), Queue("loft", {"x-max-priority": 2})),
        (
            Habit(
                "attic",
                (
                    *(Route("house", "lobby", ("lobby",)),) * 4,
                    Route("house", "all", ("lobby", "attic", "loft")),
                ),
                30,
                priorities=2,
                transient=0.05,
            ),
        ),
        (
            Temper("porter", "lobby", 50, automatic=True),
            Temper("aunt", "attic", 2, 2, requeues=0.4, leaves=0.3),
        ),
        (Exchange("house", "direct"),),
        (
            ("house", "lobby", "lobby"),
            ("house", "lobby", "all"),
            ("house", "attic", "all"),
            ("house", "loft", "all"),
        ),
    ),
    District(
        "graves",
        (Queue("doomed", dead_letters("graves")), stream("graves")),
        (Habit("doomed", (direct("doomed"),)),),
        (Temper("judge", "doomed", rejects=0.5),),
        streams=("graves",),
        at_least_once=("doomed",),
    ),
    District(
        "tomorrow",
        (stream("tomorrow"),),
        (Habit("tomorrow", (Route("clock-2", "t", ("held tomorrow",)),), longest_delay=200),),
        exchanges=(Exchange("clock-2", "x-delayed-message", DELAYING),),
        bindings=(("clock-2", "tomorrow", "t"),),
        streams=("tomorrow",),
        held=(("held tomorrow", "tomorrow"),),
    ),
)
