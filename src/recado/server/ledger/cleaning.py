"""Making room: what is live in segments that are mostly garbage is stored again, and the segments are dropped.

Without it one message that nobody consumes would hold a whole segment for ever. It goes in slices, each some
milliseconds long, and each leaves everything consistent: a message is in the one segment or in the other.

A message that is stored again keeps its place. After a crash both may be found, and the later one counts.
"""

from collections.abc import Iterator

from recado.journal.record import Corrupt

from .account import Account
from .ledger import Ledger
from .pages import LIVE_SHARE_MAX, Page
from .records import LOAN, MOVED, Destination, RunRecord, decode_run, destinations_of, encode_run

_SPARE_SEGMENTS = 4  # of garbage, before it is worth the work
_SHORT_MOVE_MAX_BYTES = 4 << 20  # to move messages takes room before it frees some
_SLICE = 1 << 20  # bytes that are read or written at a time: about 5 ms


class Cleaner:
    def __init__(
        self, ledger: Ledger, *, slice_size: int = _SLICE, spare_segments: int = _SPARE_SEGMENTS
    ) -> None:
        self._ledger = ledger
        self._spare_segments = spare_segments
        self._slice_size = slice_size
        self._records: Iterator[tuple[int, bytes]] | None = None  # what is left of a segment
        self._source = Page(0)

    def clean(self, *, short: bool = False) -> bool:
        """Do a slice of the work; whether there is more to do at once. Raises Corrupt, OSError.

        On a disk that is `short` of room every segment with much garbage is worth the work.
        """
        if self._records is None:
            base = self._choose(short)
            if base is None:
                return False
            segments = self._ledger.journal.segments
            end = next(segment.end for segment in segments if segment.base == base)
            self._records = self._ledger.journal.scan(base, end)
            self._source = self._ledger.pages.page(base)
        self._ledger.flush()  # what was settled must be in the journal before what is moved
        if not self._clean_some(self._source, self._records):
            self._records = None
        self._ledger.flush()  # a checkpoint may be due
        return True

    def _clean_some(self, source: Page, records: Iterator[tuple[int, bytes]]) -> bool:
        """Whether something is left in the segment."""
        done = 0
        while source.live:
            if done >= self._slice_size:
                return True
            _, record = next(records, (0, b""))
            if not record:
                what = f"{source.live} messages are not in their segment"
                raise Corrupt("the journal", source.base, what)
            done += len(record)
            if record[0] <= MOVED:
                done += self._move(record, source)
        return False

    def _choose(self, short: bool) -> int | None:
        """The segment with the smallest part that is live, if it is worth it."""
        pages = self._ledger.pages
        garbage = live = largest = 0.0
        best: tuple[float, int] | None = None
        for segment, page in pages.closed():
            size = segment.end - segment.base
            share = page.live_share
            live += size * share
            garbage += size * (1 - share)
            largest = max(largest, size)
            if short and size * share > _SHORT_MOVE_MAX_BYTES:
                continue
            if page.live and share < LIVE_SHARE_MAX and (best is None or share < best[0]):
                best = share, segment.base
        if best is None or (not short and garbage < live + self._spare_segments * largest):
            return None
        return best[1]

    def _move(self, record: bytes, source: Page) -> int:
        """Append what of a run is live in this segment; gives the bytes."""
        run = decode_run(record)
        count = len(run.tails)
        # Queues in which the same messages are live share a record again.
        shared: dict[tuple[tuple[int, int], ...], list[tuple[Account, Destination]]] = {}
        for destination in destinations_of(record):
            account = self._ledger.accounts.get(destination[0] & ~LOAN)
            if account is not None:
                parts = _live(account, destination[1], count, source)
                if parts:
                    shared.setdefault(parts, []).append((account, destination))
        size = 0
        for parts, receivers in shared.items():
            for low, high in parts:
                size += self._append(run, low, high, receivers)
        return size

    def _append(
        self, run: RunRecord, low: int, high: int, receivers: list[tuple[Account, Destination]]
    ) -> int:
        record = encode_run(
            [(queue, first + low, expires) for _, (queue, first, expires) in receivers],
            run.facts,
            run.names,
            run.channel,
            run.frame_max,
            run.head,
            run.tails[low:high],
            kind=MOVED,
        )
        page, at = self._ledger.pages.append(record)
        for account, (_, first, _) in receivers:
            account.move(first + low, first + high, at, len(record), page)
        return len(record)


def _live(account: Account, first: int, count: int, source: Page) -> tuple[tuple[int, int], ...]:
    """Which messages of a run are live and to be found here, counted within the run."""
    end = first + count
    parts: list[tuple[int, int]] = []
    for stretch in account.stretches[account.stretch_of(first) :]:
        if stretch.first >= end:
            break
        if stretch.page is source:
            low, high = max(first, stretch.first), min(end, stretch.end)
            parts += account.settled.missing(low, high)
    return tuple((low - first, high - first) for low, high in parts)
