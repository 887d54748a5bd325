"""The declared objects: queues of every kind that must survive a crash, and their bindings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from recado.amqp.values import FieldTable

DEAD: Final = "dead"
EXPIRED: Final = "expired"
RECEIPTS: Final = "receipts"
EXPIRY_MS: Final = 150


@dataclass(frozen=True)
class Queue:
    name: str
    arguments: FieldTable = field(default_factory=dict)

    @property
    def letters_to(self) -> str | None:
        """The queue for those that die here; all are reached by the default exchange."""
        target = self.arguments.get("x-dead-letter-routing-key")
        return target if isinstance(target, str) else None

    @property
    def expires(self) -> bool:
        return "x-message-ttl" in self.arguments


def dead_letters(target: str) -> FieldTable:
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}


# Dead-letter queues come last, so that they are drained last.
QUEUES: Final = (
    Queue("orders"),
    Queue("bulk"),
    Queue("news-1"),
    Queue("news-2"),
    Queue("news-3", {"x-queue-mode": "lazy"}),
    Queue("ranked", {"x-max-priority": 5}),
    Queue("quorum", {"x-queue-type": "quorum"}),
    Queue("ledger-a"),
    Queue("ledger-b"),
    Queue("narrow", {"x-max-length": 40, "x-overflow": "reject-publish"}),
    Queue("picked", dead_letters(DEAD)),
    Queue("brief", {"x-message-ttl": EXPIRY_MS, **dead_letters(EXPIRED)}),
    Queue(RECEIPTS),
    Queue(DEAD),
    Queue(EXPIRED),
)

EXCHANGES: Final = {"shop": "direct", "herald": "fanout", "books": "topic"}

BINDINGS: Final = (
    ("shop", "orders", "order"),
    ("herald", "news-1", ""),
    ("herald", "news-2", ""),
    ("herald", "news-3", ""),
    ("books", "ledger-a", "a.#"),
    ("books", "ledger-b", "#.b"),
)
"""Exchange, queue, key."""


@dataclass(frozen=True)
class Route:
    """Where a message is sent, and where it must arrive."""

    exchange: str
    key: str
    queues: tuple[str, ...]


def direct(queue: str) -> Route:
    return Route("", queue, (queue,))


ORDER: Final = Route("shop", "order", ("orders",))
ASTRAY: Final = Route("shop", "nowhere", ())
NEWS: Final = Route("herald", "", ("news-1", "news-2", "news-3"))
BOOKS: Final = (
    Route("books", "a.x", ("ledger-a",)),
    Route("books", "x.b", ("ledger-b",)),
    Route("books", "a.b", ("ledger-a", "ledger-b")),
)
