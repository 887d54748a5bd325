"""A vector: for each publisher, the last sequence up to which all messages were received, and the holes.

Subscribers use vectors to say which messages they have, archives which messages are durable, and views where
they begin. Sequences start at 1. A publisher that is not in a vector counts as 0, so the empty vector is before
every message. A hole is a range of messages that was skipped because no reachable member had them: a recovery
from the vector requests them again. Only vectors of delivered messages have holes.

    text form, for files and databases:  publisher as 32 hex digits, ":", sequence; joined by ","
    holes follow the sequence:           0123…cdef:120/11-20/57-57
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

PUBLISHER_ID_BYTES: Final = 16
MAX_PUBLISHERS: Final = 65_536
"""Limit of publishers that one member tracks."""
MAX_VECTOR_ENTRIES: Final = 2 * MAX_PUBLISHERS
"""Decoding limit: a vector may combine those of two groups that merge, or contain publishers of the past."""
MAX_SEQUENCE_ID: Final = 2**63 - 1
MAX_HOLES: Final = 64
"""Limit per publisher. If there are more, the two closest holes are merged: the messages between them are then
recovered again instead of being lost."""

Span = tuple[int, int]
"""First and last sequence of a range, both included."""
Holes = Mapping[bytes, tuple[Span, ...]]


class Vector(Mapping[bytes, int]):
    """An immutable mapping from publisher to last sequence, with holes."""

    __slots__ = ("_entries", "_holes")

    def __init__(
        self,
        entries: Mapping[bytes, int] | None = None,
        holes: Mapping[bytes, Iterable[Span]] | None = None,
    ) -> None:
        self._entries: dict[bytes, int] = {p: s for p, s in entries.items() if s} if entries else {}
        self._holes: dict[bytes, tuple[Span, ...]] = {}
        for publisher, spans in (holes or {}).items():
            self._set_holes(publisher, spans)

    def _set_holes(self, publisher: bytes, spans: Iterable[Span]) -> None:
        """Normalise the holes of a publisher: sorted, disjoint, none at the end."""
        last = self._entries.get(publisher, 0)
        holes = [(low, min(high, last)) for low, high in merge_spans(spans) if low <= last]
        if holes and holes[-1][1] == last:
            last = holes.pop()[0] - 1
            self._entries[publisher] = last
            if not last:
                del self._entries[publisher]
        if holes:
            self._holes[publisher] = tuple(holes)

    def __getitem__(self, publisher: bytes) -> int:
        return self._entries[publisher]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        entries = ", ".join(f"{p.hex()[:8]}: {s}" for p, s in self.items())
        holes = ", ".join(f"{p.hex()[:8]}: {list(spans)}" for p, spans in self._holes.items())
        return f"Vector({{{entries}}}, holes={{{holes}}})" if holes else f"Vector({{{entries}}})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Vector):
            return self._entries == other._entries and self._holes == other._holes
        return not self._holes and self._entries == other

    def __hash__(self) -> int:
        return hash((frozenset(self._entries.items()), frozenset(self._holes.items())))

    def last_of(self, publisher: bytes) -> int:
        return self._entries.get(publisher, 0)

    @property
    def holes(self) -> Holes:
        """For each publisher that has holes, the missing ranges below its last sequence."""
        return self._holes

    def contains(self, publisher: bytes, sequence: int) -> bool:
        """Return whether this message was received."""
        if sequence > self._entries.get(publisher, 0):
            return False
        return not any(low <= sequence <= high for low, high in self._holes.get(publisher, ()))

    def merge(self, other: Mapping[bytes, int]) -> "Vector":
        """Return the maximum of both vectors per publisher, without holes."""
        entries = dict(self._entries)
        raise_entries(entries, other)
        return Vector(entries)

    def intersect(self, other: Mapping[bytes, int]) -> "Vector":
        """Return the minimum of both vectors per publisher, without holes."""
        return Vector({p: min(s, other.get(p, 0)) for p, s in self._entries.items()})

    def covers(self, other: Mapping[bytes, int]) -> bool:
        """Return whether this vector contains every message up to the other one."""
        if any(spans[0][0] <= other.get(p, 0) for p, spans in self._holes.items()):
            return False
        return all(self._entries.get(p, 0) >= s for p, s in other.items())

    def limit_holes(self, max_holes: int) -> "Vector":
        """Return a vector with at most this many holes. A publisher whose holes do not all fit ends before its first
        hole."""
        entries, holes = dict(self._entries), {}
        for publisher, spans in self._holes.items():
            if max_holes >= len(spans):
                holes[publisher] = spans
                max_holes -= len(spans)
            else:
                entries[publisher] = spans[0][0] - 1
        return Vector(entries, holes)

    def to_text(self) -> str:
        return ",".join(
            f"{p.hex()}:{s}{self._format_holes(p)}" for p, s in sorted(self._entries.items())
        )

    def _format_holes(self, publisher: bytes) -> str:
        return "".join(f"/{low}-{high}" for low, high in self._holes.get(publisher, ()))

    @classmethod
    def from_text(cls, text: str) -> "Vector":
        """Parse the text form; raise `ValueError` that names the invalid entry."""
        entries: dict[bytes, int] = {}
        holes: dict[bytes, list[Span]] = {}
        for part in text.split(",") if text else ():
            publisher, colon, numbers = part.strip().partition(":")
            sequence, *spans = numbers.split("/")
            try:
                key, value = bytes.fromhex(publisher), int(sequence)
                missing = [_parse_span(span) for span in spans]
            except ValueError:
                key, value, missing = b"", 0, []
            if not colon or len(key) != PUBLISHER_ID_BYTES or not 0 <= value <= MAX_SEQUENCE_ID:
                raise ValueError(
                    f"invalid entry {part!r}: expected 32 hex digits, a colon and a sequence"
                )
            entries[key] = value
            if missing:
                holes[key] = missing
        if len(entries) > MAX_VECTOR_ENTRIES:
            raise ValueError(
                f"vector of {len(entries):,} publishers exceeds the limit of {MAX_VECTOR_ENTRIES:,}"
            )
        return cls(entries, holes)


class DeliveryProgress:
    """A mutable vector that follows delivery."""

    __slots__ = ("_holes", "entries")

    def __init__(self, start: Vector) -> None:
        self.entries = dict(start)
        self._holes: dict[bytes, list[Span]] = {p: list(s) for p, s in start.holes.items()}

    def deliver(self, publisher: bytes, first: int, last: int) -> None:
        """Add delivered messages: after the last sequence, or out of a hole."""
        if last > self.entries.get(publisher, 0):
            self.entries[publisher] = last
        if publisher in self._holes:
            self._set_holes(publisher, subtract_span(self._holes[publisher], first, last))

    def skip(self, publisher: bytes, first: int, last: int) -> None:
        """Add skipped messages as a hole."""
        first = max(first, self.entries.get(publisher, 0) + 1)
        if first <= last:
            self.entries[publisher] = last
            self._set_holes(
                publisher, merge_spans([*self._holes.get(publisher, ()), (first, last)])
            )

    def withdraw(self, publisher: bytes, first: int, last: int) -> None:
        """Turn delivered messages into a hole again: the application has not finished them."""
        self._set_holes(publisher, merge_spans([*self._holes.get(publisher, ()), (first, last)]))

    def start_after(self, publisher: bytes, last: int) -> None:
        """Start a publisher after this sequence; earlier messages will not be delivered."""
        self.entries[publisher] = last

    def advance_to(self, other: Mapping[bytes, int]) -> None:
        raise_entries(self.entries, other)

    def snapshot(self) -> Vector:
        return Vector(self.entries, self._holes)

    def _set_holes(self, publisher: bytes, spans: list[Span]) -> None:
        if len(spans) > MAX_HOLES:
            closest = min(range(1, len(spans)), key=lambda i: spans[i][0] - spans[i - 1][1])
            spans[closest - 1 : closest + 1] = [(spans[closest - 1][0], spans[closest][1])]
        if spans:
            self._holes[publisher] = spans
        else:
            self._holes.pop(publisher, None)


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the spans sorted, with adjacent and overlapping ones merged."""
    result: list[Span] = []
    for low, high in sorted(spans):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


def subtract_span(spans: Iterable[Span], first: int, last: int) -> list[Span]:
    """Return what is left of the spans without first..last."""
    left: list[Span] = []
    for low, high in spans:
        left += [
            (a, b) for a, b in ((low, min(high, first - 1)), (max(low, last + 1), high)) if a <= b
        ]
    return left


def clip_spans(spans: Iterable[Span], first: int, last: int) -> list[Span]:
    """Return the parts of the spans that are within first..last."""
    return [(max(a, first), min(b, last)) for a, b in spans if a <= last and b >= first]


def _parse_span(text: str) -> Span:
    low, _, high = text.partition("-")
    if not 1 <= int(low) <= int(high) <= MAX_SEQUENCE_ID:
        raise ValueError(text)
    return int(low), int(high)


def update_bounded(entries: dict[bytes, int], other: Mapping[bytes, int]) -> None:
    """Copy all entries of the other mapping; add new publishers only up to the decoding limit."""
    for publisher, sequence in other.items():
        if publisher in entries or len(entries) < MAX_VECTOR_ENTRIES:
            entries[publisher] = sequence


def raise_entries(entries: dict[bytes, int], other: Mapping[bytes, int]) -> None:
    """Raise each entry to at least its value in the other mapping."""
    for publisher, sequence in other.items():
        if entries.get(publisher, 0) < sequence:
            entries[publisher] = sequence
