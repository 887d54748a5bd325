"""The names of the members of a world."""

from __future__ import annotations

import msgspec

ARCHIVES = ("a1", "a2", "a3")


class Company(msgspec.Struct, frozen=True):
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]

    @property
    def everybody(self) -> tuple[str, ...]:
        return (*ARCHIVES, *self.publishers, *self.subscribers)

    def besides(self, *names: str) -> list[str]:
        return [name for name in self.everybody if name not in names]
