"""What the programs under siege and their judge have agreed upon: queues, files, and the points of each role."""

from __future__ import annotations

import json
import os
import time
from enum import Enum
from pathlib import Path
from typing import Any, Final

ATTEMPTS_COUNT: Final = 4
TASK_TIMEOUT_S: Final = 0.5
ACCOUNTS_COUNT: Final = 5
LISTS_PER_PAIR_COUNT: Final = 2
ITEMS_PER_LIST_COUNT: Final = 3
SALE_INTERVAL_S: Final = 0.03

POISON: Final = "poison"

TASKS_FILE: Final = "tasks.jsonl"
ENDS_FILE: Final = "ends.jsonl"
TRAPS_FOLDER: Final = "traps"
SHOP_FILE: Final = "shop.sqlite"
STATE_FILE: Final = "state.sqlite"
COLLECTED_FILE: Final = "collected.jsonl"
HALT_FILE: Final = "halt"  # while it exists, no more sales are made
PAYMENTS: Final = ("paid", "declined", None)
OUTCOMES: Final = ("paid", "refunded", "refunded")
"""By the number of an order: the answer to its payment, and how it must end."""
SALES: Final = "sales.made"  # the exchange of the outbox: to the ledger, and to the observer
SEEN: Final = "sales.seen"
COLLECTED: Final = (
    SEEN,
    "booked",
    "outcomes",
    "ordered",
    "sold",
    "tasks.dead",
    "tasks.invalid",
    "dead-letters",
    "invalid-messages",
)
"""The queues at the end."""


class Control(Enum):
    """What is off in a control run."""

    NONE = "none"
    STORES = "stores"
    """State in memory, no outbox, classic queues: RabbitMQ's do not count deliveries."""
    IDS = "ids"
    """Producers set no message ids, and tasks are acknowledged before they are handled."""


class Point(Enum):
    """Where a program can be killed or held."""

    BEGUN = "begun"  # the handler has begun
    FAILING = "failing"  # the handler is about to raise
    ENDED = "ended"  # the handler is about to return
    STEP = "step"  # in a flow, before the transaction
    TRANSACTION = "transaction"  # of a flow or an outbox, before its commit
    COMMITTED = "committed"
    ACK = "ack"  # everything is confirmed, the delivery is not acknowledged
    ACK_LIST = "ack-list"  # the same, of a message for the splitter
    ACK_ORDER = "ack-order"  # the same, of a message for the process manager
    SALE = "sale"  # the row and the message of the outbox are written, not committed
    SOLD = "sold"  # committed


POINTS: Final = {
    "tasks": (Point.BEGUN, Point.FAILING, Point.ENDED, Point.ACK),
    "flows": (
        *(Point.STEP, Point.TRANSACTION, Point.COMMITTED),
        *(Point.ACK, Point.ACK_LIST, Point.ACK_ORDER),
    ),
    "outbox": (Point.SALE, Point.SOLD, Point.TRANSACTION, Point.COMMITTED),
}
"""Those that the programs of each role pass."""


class Notes:
    """A file of lines; what was noted is on disk."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, **entry: Any) -> None:
        os.write(self._file, json.dumps({**entry, "at": time.time()}).encode() + b"\n")
        os.fsync(self._file)
