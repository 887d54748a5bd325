"""A `StateTransaction` on dicts, for tests of single steps: its clock is set by the test."""

from __future__ import annotations

from collections.abc import Iterator


class DictState:
    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now
        self.tables: dict[str, dict[str, tuple[bytes, float | None]]] = {}

    def get(self, table: str, key: str) -> bytes | None:
        entry = self.tables.get(table, {}).get(key)
        return None if entry is None else entry[0]

    def put(self, table: str, key: str, value: bytes, *, deadline: float | None = None) -> None:
        self.tables.setdefault(table, {})[key] = (value, deadline)

    def delete(self, table: str, key: str) -> None:
        self.tables.get(table, {}).pop(key, None)

    def scan(self, table: str, prefix: str = "") -> Iterator[tuple[str, bytes]]:
        for key, (value, _) in sorted(self.tables.get(table, {}).items()):
            if key.startswith(prefix):
                yield key, value

    def due(self, table: str, limit: int) -> list[tuple[str, bytes]]:
        entries = [
            (deadline, key, value)
            for key, (value, deadline) in self.tables.get(table, {}).items()
            if deadline is not None and deadline <= self.now
        ]
        return [(key, value) for _, key, value in sorted(entries)[:limit]]
