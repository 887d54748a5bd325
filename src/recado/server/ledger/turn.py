"""What a turn of the loop gathers, and how it comes into the journal at its end.

LG2  A message that is entered and settled in the same turn is never written.

Messages come first, with whatever else is durable, in the order of events; then what was settled and delivered.
"""

from collections.abc import Mapping

from recado.broker.run import Run

from .account import Account
from .gathered import Entered, Gathered, Shelf
from .pages import Pages
from .ranges import clipped, covers, merged
from .records import DELIVERED, LOAN, NEVER, SETTLED, encode_ranges, encode_run


class Turn:
    __slots__ = ("_deleted", "_gathered", "_last", "_shelving", "_touched", "indivisible", "urgent")

    def __init__(self) -> None:
        self._gathered: list[Gathered | bytes] = []
        self._last: Gathered | None = None
        self._touched: dict[Account, None] = {}  # with something settled or delivered
        self._shelving: dict[Shelf, None] = {}  # with something gathered
        self._deleted = False  # a queue, for which something may be gathered
        self.indivisible = False
        """All of it is to be one group of the journal."""
        self.urgent = False
        """Somebody is, or will be, told of something in it."""

    def __bool__(self) -> bool:
        return bool(self._gathered or self._touched)

    def note(self, record: bytes) -> None:
        """Something that is not a message."""
        self._gathered.append(record)
        self._last = None
        self.urgent = True

    def enter(self, account: Account, run: Run) -> None:
        """Durable messages; fifty clients that send one each at the same time are one record, as a run is."""
        last = self._last
        if last is not None and last.precedes(account, run):
            run.kept = True
            account.entered = run.first + len(run.tails)
            last.take(run.tails)
        else:
            self._gather(account, run, loan=False)

    def _gather(self, account: Account, run: Run, *, loan: bool) -> tuple[Gathered, Entered]:
        run.kept = True
        tails, expires = run.tails, run.expires
        entered = Entered(account, run.first, NEVER if expires is None else expires, loan)
        count = len(tails)
        account.entered = run.first + count
        last = self._last
        if last is not None and last.tails is tails:
            last.entered.append(entered)
            return last, entered
        last = Gathered(
            run.origin, run.facts, run.channel, run.frame_max, run.head, tails, count, [entered]
        )
        self._last = last
        self._gathered.append(last)
        self.urgent = True
        return last, entered

    def shelve(self, account: Account, shelf: Shelf, run: Run, loan: bool) -> None:
        gathered, entered = self._gather(account, run, loan=loan)
        gathered.shelved = True
        shelf.waiting.append((gathered, entered))
        self._shelving[shelf] = None

    def touch(self, account: Account) -> None:
        """It has something in `going` or `out`."""
        self._touched[account] = None

    def forget(self, account: Account) -> None:
        """The queue is deleted."""
        self._deleted = True
        self._touched.pop(account, None)

    def append(self, pages: Pages) -> None:
        """Whatever was gathered, and begin anew."""
        self.urgent = False
        if self._touched or self._deleted or self.indivisible:
            self._append_all(pages)
        else:
            self._append_messages(pages)

    def _append_messages(self, pages: Pages) -> None:
        """What `_append_all` does, if that is all: 5 µs for a single message instead of 8."""
        gathered, self._gathered, self._last = self._gathered, [], None
        for each in gathered:
            if isinstance(each, bytes):
                pages.append(each)
            else:
                record = _render(each, each.entered)
                page, at = pages.append(record)
                for one in each.entered:
                    one.account.store(one.first, each.count, at, len(record), page)
        if self._shelving:
            self._fill_shelves()

    def _fill_shelves(self) -> None:
        """What was gathered can be read from the journal now."""
        for held in self._shelving:
            held.stored += sum(each.count for each, _ in held.waiting)
            held.waiting.clear()
        self._shelving.clear()

    def _append_all(self, pages: Pages) -> None:
        gathered, self._gathered, self._last = self._gathered, [], None
        touched, self._touched = self._touched, {}
        going = {account: merged(account.going) for account in touched if account.going}
        records: list[bytes] = []
        stored: list[tuple[int, int, list[Entered]]] = []  # index of the record, count, where
        stored_to: dict[Account, int] = {}
        for each in gathered:
            if isinstance(each, bytes):
                records.append(each)
                continue
            where = [one for one in each.entered if not _is_gone(one, each.count, going)]
            if where:
                stored.append((len(records), each.count, where))
                records.append(_render(each, where))
                for one in where:
                    stored_to[one.account] = one.first + each.count
        out = {account: _each_time(account) for account in touched if account.out}
        for kind, spans in ((SETTLED, going), (DELIVERED, out)):
            for account, ranges in spans.items():
                # What was never stored has places that may be given again after a restart.
                spans[account] = clipped(ranges, stored_to.get(account, account.stored))
            told = [
                (each.number, ranges) for each, ranges in spans.items() if ranges and each.lasting
            ]
            if told:
                records.append(encode_ranges(kind, told))
        if self.indivisible and records:
            where_to = pages.append_group(records)
        else:
            where_to = [pages.append(record) for record in records]
        for index, count, where in stored:
            page, at = where_to[index]
            for one in where:
                one.account.store(one.first, count, at, len(records[index]), page)
        self.indivisible = self._deleted = False
        self._fill_shelves()
        for account, ranges in going.items():
            account.going.clear()
            account.settle(ranges)
        for account, ranges in out.items():
            account.out.clear()
            account.deliver(ranges)


def _is_gone(one: Entered, count: int, going: Mapping[Account, list[tuple[int, int]]]) -> bool:
    """Whether all of it was settled, or its queue deleted, before it was ever written."""
    if one.account.deleted:
        return True
    ranges = going.get(one.account)
    return ranges is not None and covers(ranges, one.first, one.first + count)


def _each_time(account: Account) -> list[tuple[int, int]]:
    """What was delivered in this turn; twice what was delivered twice, if that counts."""
    if account.counts:
        return [one for span in account.out for one in merged([span])]
    return merged(account.out)


def _render(gathered: Gathered, where: list[Entered]) -> bytes:
    tails, count = gathered.tails, gathered.count
    destinations = []
    for one in where:
        number = one.account.number
        destinations.append((number | LOAN if one.loan else number, one.first, one.expires))
    return encode_run(
        destinations,
        gathered.facts,
        gathered.origin.first_time[1:-1],
        gathered.channel,
        gathered.frame_max,
        gathered.head,
        tails if len(tails) == count else tails[:count],
    )
