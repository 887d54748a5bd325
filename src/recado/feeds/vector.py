"""A vector: of each publisher, the sequence up to which there is nothing missing.

It is how a subscriber says what it has, an archive what is safe, and a view where it begins. Sequences begin
at 1, and a publisher that is not in a vector counts as 0, so the empty vector is before everything.

    text of a vector, for files and databases:  publisher as 32 hex digits, ":", sequence; joined by ","
"""

from collections.abc import Iterator, Mapping
from typing import Final

PUBLISHER_SIZE: Final = 16
MAX_PUBLISHERS: Final = 65_536
"""That a member takes part with."""
MAX_VECTOR: Final = 2 * MAX_PUBLISHERS
"""What is read. It may be that of two groups that meet, or know more publishers than a feed that began anew."""
MAX_SEQUENCE: Final = 2**63 - 1


class Vector(Mapping[bytes, int]):
    """Does not change; `of` is 0 for a publisher that it does not have."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[bytes, int] | None = None) -> None:
        self._entries: dict[bytes, int] = {p: s for p, s in entries.items() if s} if entries else {}

    def __getitem__(self, publisher: bytes) -> int:
        return self._entries[publisher]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return "Vector({" + ", ".join(f"{p.hex()[:8]}: {s}" for p, s in self.items()) + "})"

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def of(self, publisher: bytes) -> int:
        return self._entries.get(publisher, 0)

    def joined(self, other: Mapping[bytes, int]) -> "Vector":
        """The larger of each."""
        entries = dict(self._entries)
        raise_to(entries, other)
        return Vector(entries)

    def met(self, other: Mapping[bytes, int]) -> "Vector":
        """The smaller of each."""
        return Vector({p: min(s, other.get(p, 0)) for p, s in self._entries.items()})

    def covers(self, other: Mapping[bytes, int]) -> bool:
        return all(self._entries.get(p, 0) >= s for p, s in other.items())

    def to_text(self) -> str:
        return ",".join(f"{p.hex()}:{s}" for p, s in sorted(self._entries.items()))

    @classmethod
    def from_text(cls, text: str) -> "Vector":
        """Raises ValueError that names the entry."""
        entries: dict[bytes, int] = {}
        for part in text.split(",") if text else ():
            publisher, colon, sequence = part.strip().partition(":")
            try:
                key, value = bytes.fromhex(publisher), int(sequence)
            except ValueError:
                key, value = b"", 0
            if not colon or len(key) != PUBLISHER_SIZE or not 0 <= value <= MAX_SEQUENCE:
                raise ValueError(
                    f"{part!r} is not a publisher's 32 hex digits, a colon and a sequence"
                )
            entries[key] = value
        if len(entries) > MAX_VECTOR:
            raise ValueError(
                f"a vector has at most {MAX_VECTOR:,} publishers, not {len(entries):,}"
            )
        return cls(entries)


def put_within(entries: dict[bytes, int], other: Mapping[bytes, int]) -> None:
    """Replace entries by those of the other; of publishers that are new, as many as there is room for."""
    for publisher, sequence in other.items():
        if publisher in entries or len(entries) < MAX_VECTOR:
            entries[publisher] = sequence


def raise_to(entries: dict[bytes, int], other: Mapping[bytes, int]) -> None:
    """Make each entry at least what it is in the other."""
    for publisher, sequence in other.items():
        if entries.get(publisher, 0) < sequence:
            entries[publisher] = sequence
