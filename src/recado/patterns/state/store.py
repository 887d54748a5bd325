"""The port through which stateful patterns store their state, and its transaction.

A store has four kinds of entries, which change together in a transaction:

    state      values of the steps by table and key, some with a deadline
    inbox      the ids of messages that a consumer has processed
    outputs    encoded messages that are not published yet, in order, in partitions
    leases     exclusive rights of one process, with an owner and a time at which they expire

A flow processes messages in this way:

    run(function)          one transaction: the inbox does not have the message; steps change the state; the
                           outputs are added; the inbox gets the id of the message
    publish                the outputs, with confirms
    run(remove_outputs)
    acknowledge            the message

A process that is killed before the commit has changed nothing, and the message is redelivered. Killed after it,
the outputs are published by the next process, and the redelivered message is found in the inbox.

Implementations: `SqliteStore` (a file, several processes of one machine), `PostgresStore` (several machines) and
`MemoryStore` (tests). All pass the same tests.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from ..step import StateTransaction

T = TypeVar("T")

KEY_BYTES_MAX: Final = 1024  # an index row of PostgreSQL has at most 2,704 bytes


class OutputRow(msgspec.Struct, frozen=True):
    """An output that is stored and not published yet."""

    id: int
    key: str
    content: bytes
    added_at: float


class StoreTransaction(StateTransaction, Protocol):
    """All changes of one transaction of a store.

    Keys, ids and names are any text of at most `KEY_BYTES_MAX` bytes in UTF-8; longer ones raise `ValueError`.
    """

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        """Execute an SQL statement on tables of the program in the same transaction; return the cursor.

        The placeholders are those of the database. Raises `StateError` if the store has none, and the errors of its
        driver.
        """

    def next_deadline(self, tables: Iterable[str]) -> float | None:
        """Return the earliest deadline of the entries of these tables, or None."""

    def has_processed(self, consumer: str, message_id: str) -> bool:
        """Whether the inbox of a consumer has the id of a message."""

    def mark_processed(self, consumer: str, message_id: str) -> bool:
        """Add the id of a message to the inbox of a consumer; return False if it was there."""

    def forget_processed(self, consumer: str, *, age_max: float, count_max: int) -> None:
        """Forget ids that are older than `age_max` seconds, and all but the newest `count_max`."""

    def add_output(self, partition: str, content: bytes, *, key: str = "") -> int:
        """Append an output to a partition and return its id; ids grow within a partition."""

    def outputs(self, partition: str, *, after: int = 0, limit: int = 100) -> list[OutputRow]:
        """Return the first outputs of a partition with an id greater than `after`, in order."""

    def remove_outputs(self, ids: Sequence[int]) -> None:
        """Remove outputs that have been published; ids that are gone are ignored."""

    def oldest_output(self, partition: str) -> float | None:
        """Return when the first output of a partition was added, or None."""

    def acquire_lease(self, name: str, owner: str, duration: float) -> bool:
        """Take a lease for so many seconds if it is free, expired or already the owner's; return whether it is held."""

    def renew_lease(self, name: str, owner: str, duration: float) -> bool:
        """Prolong a lease. Returns False if another owner has taken it.

        Until this transaction ends, no other process can take the lease.
        """

    def release_lease(self, name: str, owner: str) -> None:
        """Free a lease, if the owner holds it."""

    def leases(self, prefix: str = "") -> dict[str, str]:
        """Return the owners of leases that have not expired, by name."""


class StateStore(ABC):
    """A store of state. It belongs to one event loop; each process opens its own."""

    @abstractmethod
    async def open(self) -> None:
        """Connect and create missing tables; raises `StateError`. Opening an open store has no effect."""

    @abstractmethod
    async def close(self) -> None:
        """Wait for running transactions and disconnect."""

    @abstractmethod
    async def run(
        self, function: Callable[[StoreTransaction], T], *, locks: Iterable[str] = ()
    ) -> T:
        """Run a synchronous function in a transaction and return its result.

        The transaction is committed and durable when this returns, and rolled back if the function raises.
        `locks` are names that only one transaction of all processes holds at a time. The function runs in the
        thread of the store and must not keep the transaction. Raises `StateError` if the database fails; it is then
        unknown whether the transaction was committed.
        """


def check_key(key: str) -> str:
    """Return the key; raises `ValueError` if it is too long for an index."""
    if len(key) > KEY_BYTES_MAX // 4 and len(encode_key(key)) > KEY_BYTES_MAX:
        raise ValueError(
            f"key {key[:40]!r}… is longer than {KEY_BYTES_MAX} bytes; store a digest of it"
        )
    return key


def encode_key(key: str) -> bytes:
    """Return a key as bytes, whose order is that of the texts. Surrogates come from texts that are not UTF-8."""
    return key.encode("utf-8", "surrogatepass")
