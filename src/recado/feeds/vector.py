"""A vector: of each publisher, the sequence up to which everything was had, but for holes.

It is how a subscriber says what it has, an archive what is safe, and a view where it begins. Sequences begin
at 1, and a publisher that is not in a vector counts as 0, so the empty vector is before everything. A hole is a
range of messages that were passed over because nobody present had them: they were not had, and a recovery from
the vector asks for them again. Only vectors of what a subscriber was given have holes.

    text of a vector, for files and databases:  publisher as 32 hex digits, ":", sequence; joined by ","
    holes follow their sequence:                0123…cdef:120/11-20/57-57
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

PUBLISHER_ID_BYTES: Final = 16
MAX_PUBLISHERS: Final = 65_536
"""That a member takes part with."""
MAX_VECTOR_ENTRIES: Final = 2 * MAX_PUBLISHERS
"""What is read. It may be that of two groups that meet, or know more publishers than a feed that began anew."""
MAX_SEQUENCE_ID: Final = 2**63 - 1
MAX_HOLES: Final = 64
"""Of one publisher. Of more, the two that are nearest to each other become one: what is between them is then
asked for again, rather than lost."""

Span = tuple[int, int]
"""The first and the last sequence of a range."""
Holes = Mapping[bytes, tuple[Span, ...]]


class Vector(Mapping[bytes, int]):
    """Does not change; `of` is 0 for a publisher that it does not have."""

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
        """In normal form: in order, apart from each other, and none at the end."""
        last = self._entries.get(publisher, 0)
        kept = [(low, min(high, last)) for low, high in merge_spans(spans) if low <= last]
        if kept and kept[-1][1] == last:
            last = kept.pop()[0] - 1
            self._entries[publisher] = last
            if not last:
                del self._entries[publisher]
        if kept:
            self._holes[publisher] = tuple(kept)

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
        """Of publishers that have some, the ranges below their sequence that were not had."""
        return self._holes

    def contains(self, publisher: bytes, sequence: int) -> bool:
        """Whether this message was had."""
        if sequence > self._entries.get(publisher, 0):
            return False
        return not any(low <= sequence <= high for low, high in self._holes.get(publisher, ()))

    def merge(self, other: Mapping[bytes, int]) -> "Vector":
        """The larger of each, without holes: how far both have come."""
        entries = dict(self._entries)
        raise_entries(entries, other)
        return Vector(entries)

    def intersect(self, other: Mapping[bytes, int]) -> "Vector":
        """The smaller of each, without holes."""
        return Vector({p: min(s, other.get(p, 0)) for p, s in self._entries.items()})

    def covers(self, other: Mapping[bytes, int]) -> bool:
        """Whether all that is up to the other was had."""
        if any(spans[0][0] <= other.get(p, 0) for p, spans in self._holes.items()):
            return False
        return all(self._entries.get(p, 0) >= s for p, s in other.items())

    def limit_holes(self, max_holes: int) -> "Vector":
        """With at most so many holes: where there are more it ends before them, and says less than was had."""
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
        """Raises ValueError that names the entry."""
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
                    f"{part!r} is not a publisher's 32 hex digits, a colon and a sequence"
                )
            entries[key] = value
            if missing:
                holes[key] = missing
        if len(entries) > MAX_VECTOR_ENTRIES:
            raise ValueError(
                f"a vector has at most {MAX_VECTOR_ENTRIES:,} publishers, not {len(entries):,}"
            )
        return cls(entries, holes)


class DeliveryProgress:
    """A vector that grows with what a subscriber is given."""

    __slots__ = ("_holes", "entries")

    def __init__(self, start: Vector) -> None:
        self.entries = dict(start)
        self._holes: dict[bytes, list[Span]] = {p: list(s) for p, s in start.holes.items()}

    def deliver(self, publisher: bytes, first: int, last: int) -> None:
        """These were given: behind all others, or out of a hole."""
        if last > self.entries.get(publisher, 0):
            self.entries[publisher] = last
        if publisher in self._holes:
            self._set_holes(publisher, subtract_span(self._holes[publisher], first, last))

    def skip(self, publisher: bytes, first: int, last: int) -> None:
        """These were passed over: they are a hole."""
        first = max(first, self.entries.get(publisher, 0) + 1)
        if first <= last:
            self.entries[publisher] = last
            self._set_holes(
                publisher, merge_spans([*self._holes.get(publisher, ()), (first, last)])
            )

    def withdraw(self, publisher: bytes, first: int, last: int) -> None:
        """These were given, and count as not given all the same."""
        self._set_holes(publisher, merge_spans([*self._holes.get(publisher, ()), (first, last)]))

    def start_after(self, publisher: bytes, last: int) -> None:
        """What is behind `last` follows, and nothing before."""
        self.entries[publisher] = last

    def advance_to(self, other: Mapping[bytes, int]) -> None:
        raise_entries(self.entries, other)

    def snapshot(self) -> Vector:
        return Vector(self.entries, self._holes)

    def _set_holes(self, publisher: bytes, spans: list[Span]) -> None:
        if len(spans) > MAX_HOLES:
            near = min(range(1, len(spans)), key=lambda i: spans[i][0] - spans[i - 1][1])
            spans[near - 1 : near + 1] = [(spans[near - 1][0], spans[near][1])]
        if spans:
            self._holes[publisher] = spans
        else:
            self._holes.pop(publisher, None)


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """In order; those that touch are one."""
    result: list[Span] = []
    for low, high in sorted(spans):
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


def subtract_span(spans: Iterable[Span], first: int, last: int) -> list[Span]:
    """What is left of them."""
    left: list[Span] = []
    for low, high in spans:
        left += [
            (a, b) for a, b in ((low, min(high, first - 1)), (max(low, last + 1), high)) if a <= b
        ]
    return left


def clip_spans(spans: Iterable[Span], first: int, last: int) -> list[Span]:
    """The parts of them in first..last."""
    return [(max(a, first), min(b, last)) for a, b in spans if a <= last and b >= first]


def _parse_span(text: str) -> Span:
    low, _, high = text.partition("-")
    if not 1 <= int(low) <= int(high) <= MAX_SEQUENCE_ID:
        raise ValueError(text)
    return int(low), int(high)


def update_bounded(entries: dict[bytes, int], other: Mapping[bytes, int]) -> None:
    """Replace entries by those of the other; of publishers that are new, as many as there is room for."""
    for publisher, sequence in other.items():
        if publisher in entries or len(entries) < MAX_VECTOR_ENTRIES:
            entries[publisher] = sequence


def raise_entries(entries: dict[bytes, int], other: Mapping[bytes, int]) -> None:
    """Make each entry at least what it is in the other."""
    for publisher, sequence in other.items():
        if entries.get(publisher, 0) < sequence:
            entries[publisher] = sequence
