"""The spool: what was taken from a queue, on disk until Spark has committed it.

A queue has no offsets, and forgets what was acknowledged. So messages are appended here, synced, and only then
acknowledged; Spark reads the rows, by offsets that count up, as often as it has to.

D1  What `sync` said is durable is found again after any crash: the same rows with the same offsets.
D2  A message whose id is in the window is not taken again; its id is as durable as its row, and outlasts it.
D3  Offsets count up without gaps, also over restarts, also when all rows have been removed.
D4  No row is removed that was not committed.

All but `sync` belongs to one thread; `sync` may run in another at the same time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from math import ceil
from typing import NamedTuple

from recado.client.messages import Delivery
from recado.journal.disk import Disk
from recado.journal.journal import Journal
from recado.journal.record import OVERHEAD, Corrupt

from .spooled import Committed, Head, Piece, Rows, as_batch, decode
from .window import Window, id_of

SEGMENT_SIZE = 16 << 20
RECORD_SIZE = 8 << 20  # about; a single message may be larger


class WrongSpool(Exception):
    """The folder has the spool of something else."""


class _Place(NamedTuple):
    """Where the rows from `offset` on are in the journal."""

    offset: int
    position: int
    size: int


class Spool:
    def __init__(self, disk: Disk, *, window: int, segment_size: int = SEGMENT_SIZE) -> None:
        """To be recovered before it is used; `window` is the number of ids that are remembered."""
        self.id = b""
        self.end = 0
        """The offset of the row that is taken next."""
        self.durable = 0
        """All rows before this offset are safe."""
        self.committed = 0
        self.is_new = False
        self.repeats = 0
        """How many messages were not taken since they had been before."""
        self._disk = disk
        self._queue = ""
        self._journal = Journal(disk, segment_size=segment_size)
        self._window = Window(window)
        self._places: list[_Place] = []
        self._handed_out = 0  # how many of the places are in batches of the reader's
        self._waiting = 0  # bytes of the others
        self._head_at = 0  # where the last head is in the journal
        self._written = 0
        self._committed_written = 0
        self._safely_committed = 0
        self._size = window

    def recover(self, queue: str, make_id: Callable[[], bytes]) -> None:
        """What is in the folder; if that is nothing, a new spool for this queue."""
        known = ""
        needed = 0  # what is before this offset is missing: so it must have been committed
        for position, payload in self._journal.recover():
            match decode(payload):
                case Head(name, following, committed, known, ids):
                    self.id = name
                    self.committed = max(self.committed, committed)
                    self._window = Window(self._size, ids)
                    self._head_at = position
                    if following > self.end:
                        needed = self._skip_to(following)
                case Rows(offset, batch):
                    if offset > self.end:
                        needed = self._skip_to(offset)
                    for header in batch.column("header").to_pylist():
                        self._window.take(id_of(header))
                    self._enter(position, len(payload), batch.num_rows)
                case Committed(offset):
                    self.committed = max(self.committed, offset)
        if needed > self.committed:
            what = f"rows before offset {needed} are missing that were never committed"
            raise Corrupt(self._disk.folder, self._journal.position, what)
        if known not in ("", queue):
            raise WrongSpool(
                f"{self._disk.folder} is the spool of the queue '{known}', and this query reads '{queue}'. "
                "Give each queue and query a folder of its own."
            )
        self._queue, self.is_new = queue, not known
        if self.is_new:
            self.id = make_id()
            [self._head_at] = self._journal.append(self._head())
            self.write()
            self.sync()
        self.durable = self._written = self.end
        self._safely_committed = self.committed
        self._let_go()
        self.remove_committed()

    def _skip_to(self, offset: int) -> int:
        """A removal that a crash undid in part leaves older segments behind, which are of no use."""
        self._places.clear()
        self._handed_out = self._waiting = 0
        self.end = offset
        return offset

    def _head(self) -> bytes:
        return Head(self.id, self.end, self.committed, self._queue, list(self._window)).encode()

    @property
    def waiting(self) -> int:
        """Bytes of rows that are in no batch yet."""
        return self._waiting

    # -- writing -----------------------------------------------------------------------------------

    def append(self, deliveries: Sequence[Delivery], received: int) -> int:
        """Take what is new of it; gives how much that is. `received` is in microseconds since 1970."""
        take = self._window.take
        new = [each for each in deliveries if take(id_of(each.header))]
        self.repeats += len(deliveries) - len(new)
        for some in _portions(new):
            self._append(Rows(self.end, as_batch(some, received)))
        return len(new)

    def _append(self, rows: Rows) -> None:
        before = len(self._journal.segments)
        payload = rows.encode()
        [position] = self._journal.append(payload)
        self._enter(position, len(payload), rows.batch.num_rows)
        if len(self._journal.segments) > before:
            # The ids in the segments before it are needed when those are gone.
            [self._head_at] = self._journal.append(self._head())

    def _enter(self, position: int, size: int, rows: int) -> None:
        self._places.append(_Place(self.end, position, size))
        self._waiting += size
        self.end += rows

    def write(self) -> None:
        """Hand it to the system. After an OSError it is still pending, to be tried again."""
        self._journal.write()
        self._written, self._committed_written = self.end, self.committed

    def sync(self) -> int:
        """Make durable what is written; gives the offset before which all is."""
        end, committed = self._written, self._committed_written
        self._journal.sync()
        self.durable, self._safely_committed = end, committed
        return end

    # -- reading -----------------------------------------------------------------------------------

    def pieces(self, start: int, end: int, size: int) -> list[Piece]:
        """Where the rows [start, end) are, in pieces of about the same size, of about `size` bytes at most;
        LookupError if they are not."""
        if start >= end:
            return []
        first = bisect_right(self._places, start, key=_offset) - 1
        if first < 0 or end > self.durable:
            raise LookupError(
                f"rows {start} to {end} are asked for, and the spool has "
                f"{self._places[0].offset if self._places else self.end} to {self.durable}"
            )
        places = list(takewhile(lambda each: each[0].offset < end, self._from(first)))
        total = sum(place.size for place, _ in places)
        share = total / ceil(total / size)  # whoever has the largest is waited for
        pieces: list[Piece] = []
        current = -1, 0  # the segment and the share of the last piece
        before = 0  # bytes
        for place, behind in places:
            base = self._journal.segment_of(place.position)
            stop = place.position + OVERHEAD + place.size
            middle = before + place.size / 2
            before += place.size
            if current == (base, int(middle / share)):
                pieces[-1] = pieces[-1]._replace(stop=stop, end=min(behind, end))
            else:
                current = base, int(middle / share)
                begin = max(place.offset, start)
                pieces.append(Piece(base, place.position, stop, begin, min(behind, end)))
        return pieces

    def _from(self, index: int) -> Iterator[tuple[_Place, int]]:
        """The places from this one on, each with the offset behind its rows."""
        places = self._places
        while index < len(places):
            following = places[index + 1].offset if index + 1 < len(places) else self.end
            yield places[index], following
            index += 1

    def hand_out(self, offset: int) -> None:
        """All rows before `offset` are in batches, and make room; they stay until they are committed."""
        for place, behind in self._from(self._handed_out):
            if behind > offset:
                break
            self._handed_out += 1
            self._waiting -= place.size

    # -- removing ----------------------------------------------------------------------------------

    def commit(self, offset: int) -> None:
        """Nobody will ask for rows before `offset` again. When that is synced they can be removed."""
        if offset > self.committed:
            self.committed = offset
            self._journal.append(Committed(offset).encode())
            self._let_go()

    def _let_go(self) -> None:
        self.hand_out(self.committed)
        done = sum(1 for _ in takewhile(lambda each: each[1] <= self.committed, self._from(0)))
        del self._places[:done]
        self._handed_out -= done

    def remove_committed(self) -> None:
        """Remove the segments in which all is committed, as far as the disk knows that, and where the journal
        goes on: after a crash what is missing must be known to have been of no use (D4)."""
        kept = self._places[0].position if self._places else self._journal.position
        for segment in list(self._journal.segments[:-1]):
            end = segment.end
            if end > kept or end > self._head_at or self._head_at >= self._journal.durable:
                break
            if self._safely_committed < self.committed:
                break
            self._journal.drop(segment.base)
        self._journal.let_go()

    def close(self) -> None:
        """Make all durable, and let go of the files."""
        self._journal.close()


def _offset(place: _Place) -> int:
    return place.offset


def _portions(deliveries: list[Delivery]) -> Iterator[list[Delivery]]:
    """In pieces that make records of a bearable size."""
    start = size = 0
    for index, each in enumerate(deliveries):
        size += len(each.body) + len(each.header)
        if size >= RECORD_SIZE:
            yield deliveries[start : index + 1]
            start, size = index + 1, 0
    if start < len(deliveries):
        yield deliveries[start:]
