"""A store in memory, for tests and for flows whose state may be lost.

It runs functions in the event loop itself. A transaction that fails is undone by its undo log. The content
(`StoredState`) can be given to a second store, as a database outlives its process.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ..errors import StateError
from .store import OutputRow, StateStore, StoreTransaction, check_key

T = TypeVar("T")


class _Value(msgspec.Struct, frozen=True):
    content: bytes
    deadline: float | None


class _StoredOutput(msgspec.Struct, frozen=True):
    partition: str
    row: OutputRow


class _LeaseEntry(msgspec.Struct, frozen=True):
    owner: str
    expires_at: float


class StoredState(msgspec.Struct):
    """The content of a store in memory."""

    tables: dict[str, dict[str, _Value]] = {}
    inboxes: dict[str, OrderedDict[str, float]] = {}  # when messages were processed, oldest first
    outputs: dict[int, _StoredOutput] = {}
    leases: dict[str, _LeaseEntry] = {}
    last_output_id: int = 0


class MemoryStore(StateStore):
    """A store whose content is lost with the process."""

    def __init__(
        self, content: StoredState | None = None, *, clock: Callable[[], float] = time.time
    ) -> None:
        self._content = StoredState() if content is None else content
        self._clock = clock
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    async def run(
        self, function: Callable[[StoreTransaction], T], *, locks: Iterable[str] = ()
    ) -> T:
        if not self._is_open:
            raise StateError("the store of stateful patterns is not open")
        transaction = _MemoryTransaction(self._content, self._clock())
        try:
            return function(transaction)
        except BaseException:
            transaction.undo()
            raise


class _MemoryTransaction:
    def __init__(self, content: StoredState, now: float) -> None:
        self._content = content
        self._now = now
        self._undo: list[Callable[[], object]] = []

    def undo(self) -> None:
        for step in reversed(self._undo):
            step()

    @property
    def now(self) -> float:
        return self._now

    def _set(self, entries: dict[Any, Any], key: Any, value: Any) -> None:
        if key in entries:
            old = entries[key]
            self._undo.append(lambda: entries.__setitem__(key, old))
        else:
            self._undo.append(lambda: entries.pop(key))
        entries[key] = value

    def _remove(self, entries: dict[Any, Any], key: Any) -> None:
        if key in entries:
            old = entries.pop(key)
            self._undo.append(lambda: entries.__setitem__(key, old))

    def _table(self, name: str) -> dict[str, _Value]:
        return self._content.tables.setdefault(name, {})

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> Any:
        raise StateError("a MemoryStore has no SQL: use a SqliteStore or PostgresStore")

    # ── state ─────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, table: str, key: str) -> bytes | None:
        value = self._table(table).get(check_key(key))
        return None if value is None else value.content

    def put(self, table: str, key: str, value: bytes, *, deadline: float | None = None) -> None:
        self._set(self._table(table), check_key(key), _Value(value, deadline))

    def delete(self, table: str, key: str) -> None:
        self._remove(self._table(table), check_key(key))

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        entries = self._table(table)
        for key in sorted(entries):
            if key.startswith(prefix) and key in entries:
                yield key, entries[key].content

    def due(self, table: str, limit: int) -> list[tuple[str, bytes]]:
        found = sorted(
            (value.deadline, key, value.content)
            for key, value in self._table(table).items()
            if value.deadline is not None and value.deadline <= self._now
        )
        return [(key, content) for _, key, content in found[:limit]]

    def next_deadline(self, tables: Iterable[str]) -> float | None:
        deadlines = [
            value.deadline
            for table in tables
            for value in self._table(table).values()
            if value.deadline is not None
        ]
        return min(deadlines, default=None)

    # ── inbox ─────────────────────────────────────────────────────────────────────────────────────────────

    def _inbox(self, consumer: str) -> OrderedDict[str, float]:
        return self._content.inboxes.setdefault(consumer, OrderedDict())

    def _forget_first(self, inbox: OrderedDict[str, float]) -> None:
        message_id, processed_at = inbox.popitem(last=False)

        def restore() -> None:
            inbox[message_id] = processed_at
            inbox.move_to_end(message_id, last=False)

        self._undo.append(restore)

    def has_processed(self, consumer: str, message_id: str) -> bool:
        return check_key(message_id) in self._inbox(consumer)

    def mark_processed(self, consumer: str, message_id: str) -> bool:
        inbox = self._inbox(consumer)
        if check_key(message_id) in inbox:
            return False
        self._set(inbox, message_id, self._now)
        return True

    def forget_processed(self, consumer: str, *, age_max: float, count_max: int) -> None:
        inbox = self._inbox(consumer)
        while inbox and (
            len(inbox) > count_max or next(iter(inbox.values())) < self._now - age_max
        ):
            self._forget_first(inbox)

    # ── outputs ───────────────────────────────────────────────────────────────────────────────────────────

    def add_output(self, partition: str, content: bytes, *, key: str = "") -> int:
        # As in a database, an id is not used again after a rollback.
        self._content.last_output_id += 1
        number = self._content.last_output_id
        row = OutputRow(number, key, content, self._now)
        self._set(self._content.outputs, number, _StoredOutput(partition, row))
        return number

    def outputs(self, partition: str, *, after: int = 0, limit: int = 100) -> list[OutputRow]:
        rows = [
            each.row
            for number, each in sorted(self._content.outputs.items())
            if each.partition == partition and number > after
        ]
        return rows[:limit]

    def remove_outputs(self, ids: Sequence[int]) -> None:
        for each in ids:
            self._remove(self._content.outputs, each)

    def oldest_output(self, partition: str) -> float | None:
        rows = self.outputs(partition, limit=1)
        return rows[0].added_at if rows else None

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────

    def acquire_lease(self, name: str, owner: str, duration: float) -> bool:
        lease = self._content.leases.get(check_key(name))
        is_free = lease is None or lease.owner == owner or lease.expires_at <= self._now
        if is_free:
            self._set(self._content.leases, name, _LeaseEntry(owner, self._now + duration))
        return is_free

    def renew_lease(self, name: str, owner: str, duration: float) -> bool:
        lease = self._content.leases.get(check_key(name))
        is_held = lease is not None and lease.owner == owner
        if is_held:
            self._set(self._content.leases, name, _LeaseEntry(owner, self._now + duration))
        return is_held

    def release_lease(self, name: str, owner: str) -> None:
        lease = self._content.leases.get(check_key(name))
        if lease is not None and lease.owner == owner:
            self._remove(self._content.leases, name)

    def leases(self, prefix: str = "") -> dict[str, str]:
        return {
            name: lease.owner
            for name, lease in sorted(self._content.leases.items())
            if name.startswith(prefix) and lease.expires_at > self._now
        }
