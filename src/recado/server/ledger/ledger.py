"""The keeper that writes a journal.

LG3  What is kept between `begin` and `end` is one group of the journal.
LG4  A checkpoint agrees with all that is before it in the journal. Ids of `x-message-deduplication` are written
     before it, in several turns; it says from where on.
LG5  A segment is dropped when nothing in it is live, and both a later checkpoint and whatever settled its
     messages are durable.

During a turn of the loop the broker's calls only gather. `flush` at its end renders what was gathered: messages
first, then what was settled and delivered, which nobody waits for.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from recado.amqp.values import Table
from recado.broker.binding import Binding
from recado.broker.exchange import Exchange
from recado.broker.queue import Queue
from recado.broker.run import Run
from recado.broker.steps import STEP_UNITS, Steps, Work, parts
from recado.broker.stream_log import StreamLog, segment_size
from recado.journal.journal import Journal
from recado.journal.record import Corrupt

from . import shelf
from .account import Account
from .catalogue import Catalogue, Name
from .gathered import Shelf
from .pages import Pages
from .records import encode_account, encode_checkpoint, encode_ids_from, encode_seen
from .streams import Folders, Streams
from .sync import Side, Sync
from .tickets import Later, Tickets
from .turn import Turn

REWRITE_UNITS = 4 * STEP_UNITS  # for a checkpoint, in one turn
IDS_PER_STEP = 1024  # that are written again
ROOM = 64 << 20
SCARCE_ROOM = 1 << 20


class Ledger(Tickets):
    def __init__(
        self, journal: Journal, folders: Folders | None = None, *, room: int = ROOM
    ) -> None:
        """`folders` are those of streams; `room` is how much a queue may have in memory."""
        super().__init__()
        self.journal = journal
        self.pages = Pages(journal)
        self.streams = None if folders is None else Streams(folders, self)
        self.side_journals: set[Side] = set() if self.streams is None else {self.streams}
        """Written and synced together with this one."""
        self.on_failure: Callable[[str], None] = _ignore
        """Told when what was kept cannot be read any more."""
        self.shortage_now: Callable[[], str | None] = _no_shortage
        self.catalogue = Catalogue()
        self.accounts: dict[int, Account] = {}
        self.next_queue = 1
        self.restored: dict[Name, Account] | None = None
        """Accounts of queues that a broker is just being told of: nothing is to be written again."""
        self.room = self._ample_room = room
        self._of_queue: dict[Queue, Account] = {}
        self.exchanges: dict[Name, Exchange[Any]] = {}
        self._turn = Turn()
        self._later = Later(self)
        # Ids of what is not safe in a stream yet, and the tickets that it waits for.
        self._early: dict[tuple[Exchange[Any], bytes], int] = {}
        self._rewriting: Work[None] | None = None  # ids, for a checkpoint
        self._ids_from: int | None = None  # the position of the first of them
        self._ids_size = 0  # bytes

    @property
    def facts(self) -> dict[tuple[str, str, str], bytes]:
        """What was remembered, by kind, vhost and name."""
        return self.catalogue.facts

    @property
    def cut(self) -> int:
        """Bytes at the end of journals that recovery found not to be whole."""
        return self.journal.cut + (0 if self.streams is None else self.streams.cut)

    # ── topology and facts ────────────────────────────────────────────────────────────────────────────

    def note(self, record: bytes) -> None:
        """A change to what is declared or remembered; somebody will wait for it."""
        self.entries += 1
        self.changed = self.ticket
        self._turn.note(record)

    def exchange_declared(self, vhost: str, exchange: Exchange[Any]) -> None:
        self.exchanges[vhost, exchange.name] = exchange
        if self.restored is None:
            self.note(self.catalogue.add_exchange(vhost, exchange))

    def exchange_deleted(self, vhost: str, exchange: Exchange[Any]) -> None:
        del self.exchanges[vhost, exchange.name]
        self.note(self.catalogue.remove_exchange(vhost, exchange))

    def queue_declared(self, queue: Queue) -> None:
        account = (self.restored or {}).get((queue.vhost.name, queue.name))
        if self.streams is not None and queue.declared.queue_type == "stream":
            # Before it is noted, for a full disk may have no room for its folder.
            number = self.next_queue if account is None else account.number
            size = segment_size(queue.settings.segment_size)
            self.streams.open(number, size, known=account is not None)
        if account is not None:
            self._adopt(account, queue)
        else:
            account = self._open_account(queue)
            self.note(self.catalogue.add_queue(account.number, queue))

    def queue_deleted(self, queue: Queue) -> None:
        account = self._of_queue.pop(queue, None)
        if account is not None:
            account.forget()
            self._turn.forget(account)
            del self.accounts[account.number]
            if account.lasting:
                self.note(self.catalogue.remove_queue(account.number))
            if self.streams is not None and queue.declared.queue_type == "stream":
                self.streams.delete(account.number)

    def bound(self, vhost: str, binding: Binding[Any]) -> None:
        if self.restored is None:
            self.note(self.catalogue.add_binding(vhost, binding))

    def unbound(self, vhost: str, binding: Binding[Any]) -> None:
        self.note(self.catalogue.remove_binding(vhost, binding))

    def remember(self, kind: str, vhost: str, name: str, value: bytes | None) -> None:
        if self.facts.get((kind, vhost, name)) != value:
            self.note(self.catalogue.remember(kind, vhost, name, value))

    def seen(
        self,
        vhost: str,
        owner: Queue | Exchange[Any],
        message_id: bytes,
        when: int,
        to: Iterable[Queue],
    ) -> None:
        if isinstance(owner, Exchange):
            table: Table = {"vhost": vhost, "name": owner.name}
        else:
            table = {"number": self._of_queue[owner].number}
        note = encode_seen(table, [(message_id, when)])
        self.entries += 1
        if isinstance(owner, Exchange) and self._is_apart(to):
            self._early[owner, message_id] = self.ticket
            self._later.add(partial(self._note_id, vhost, owner, message_id, note))
        else:
            self._turn.note(note)
            self._turn.indivisible = True  # or the message might be there without its id

    def _note_id(self, vhost: str, owner: Exchange[Any], message_id: bytes, note: bytes) -> None:
        if self._early.get((owner, message_id), 0) <= self.safe:
            self._early.pop((owner, message_id), None)
        if self.exchanges.get((vhost, owner.name)) is owner:
            self.entries += 1
            self._turn.note(note)

    def require_sync(self) -> None:
        self.entries += 1

    def open_stream(self, queue: Queue) -> StreamLog:
        if self.streams is None:
            return super().open_stream(queue)
        return self.streams.log_of(self._of_queue[queue].number)

    def _open_account(self, queue: Queue) -> Account:
        account = Account(self.next_queue, queue, lasting=queue.lasting)
        self.next_queue += 1
        self._adopt(account, queue)
        return account

    def _adopt(self, account: Account, queue: Queue) -> None:
        account.queue = queue
        self.accounts[account.number] = self._of_queue[queue] = account

    # ── messages ──────────────────────────────────────────────────────────────────────────────────────

    def enter(self, queue: Queue, run: Run) -> None:
        self.entries += 1
        self._turn.enter(self._of_queue[queue], run)

    def shelve(self, queue: Queue, run: Run, lane: int, *, durable: bool) -> None:
        account = self._of_queue.get(queue) or self._open_account(queue)
        self.entries += durable
        held = account.shelves.get(lane)
        if held is None:
            held = account.shelves[lane] = Shelf(run.first)
        self._turn.shelve(account, held, run, not durable)

    def fetch(self, queue: Queue, lane: int) -> list[Run]:
        account = self._of_queue[queue]
        with self._telling_of(queue):
            runs = shelf.fetch(self.journal, account, lane)
        held = account.shelves[lane]
        if not held.stored and not held.waiting:
            del account.shelves[lane]
        return runs

    def shelved_bytes(self, queue: Queue) -> int:
        account = self._of_queue.get(queue)
        if account is None:
            return 0
        with self._telling_of(queue):
            return shelf.weigh(self.journal, account)

    @contextmanager
    def _telling_of(self, queue: Queue) -> Iterator[None]:
        try:
            yield
        except (Corrupt, OSError) as error:
            self.on_failure(f"messages of queue {queue.name!r} cannot be read: {error}")
            raise

    def empty_shelves(self, queue: Queue) -> Steps[None]:
        account = self._of_queue[queue]
        shelves, account.shelves = account.shelves, {}
        for held in shelves.values():
            if account.highest_lane:
                account.going += [(one.first, each.count, 1) for each, one in held.waiting]
            else:  # nothing behind the first is anywhere else
                account.going.append((held.next, account.entered - held.next, 1))
            held.waiting.clear()
        self._turn.touch(account)
        self._turn.urgent = True
        return self._settle_stored(account, shelves if account.highest_lane else {})

    def _settle_stored(self, account: Account, shelves: Mapping[int, Shelf]) -> Steps[None]:
        """Read which messages were on these shelves, some at each step."""
        nexts = {lane: held.next for lane, held in shelves.items() if held.stored}
        cursor, end = Shelf(min(nexts.values(), default=account.stored)), account.stored
        while cursor.next < end and not account.deleted:
            assert account.queue is not None
            with self._telling_of(account.queue):
                going, cost = shelf.next_places(self.journal, account, cursor, nexts, end)
            account.going += going
            self._turn.touch(account)
            self._turn.urgent = True
            yield cost

    def settle(self, queue: Queue, first: int, count: int, step: int) -> None:
        self.acknowledge(queue, first, count, step)
        self._turn.urgent = True

    def acknowledge(self, queue: Queue, first: int, count: int, step: int) -> None:
        account = self._of_queue[queue]
        account.going.append((first, count, step))
        self._turn.touch(account)

    def passed_on(
        self, queue: Queue, first: int, count: int, step: int, to: Iterable[Queue]
    ) -> None:
        if self._is_apart(to):
            self._later.add(partial(self._settle_if_there, queue, first, count, step))
        else:
            self.settle(queue, first, count, step)
            self._turn.indivisible = True  # or both might be there after a crash, and it dies again

    def _is_apart(self, queues: Iterable[Queue]) -> bool:
        """Whether what they took is in another journal too, which may come to the disk later than this one."""
        return self.streams is not None and any(
            each.declared.queue_type == "stream" for each in queues
        )

    def _settle_if_there(self, queue: Queue, first: int, count: int, step: int) -> None:
        if queue in self._of_queue:
            self.settle(queue, first, count, step)

    def purged(self, queue: Queue) -> None:
        self.entries += 1
        self.changed = self.ticket

    def delivered(self, queue: Queue, first: int, count: int, step: int) -> None:
        account = self._of_queue[queue]
        if account.lasting:
            account.out.append((first, count, step))
            self._turn.touch(account)
            self._turn.urgent = True  # or a message might come again unmarked after a crash

    def spare_memory(self, *, scarce: bool) -> None:
        self.scarce = scarce
        self.room = min(SCARCE_ROOM, self._ample_room) if scarce else self._ample_room

    def shortage(self) -> str | None:
        return self.shortage_now()

    # ── to the journal ────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        self.flush()

    def end(self) -> None:
        if self._turn:
            self.entries += 1
            self._turn.indivisible = True
            self._turn.append(self.pages)

    def flush(self) -> None:
        """Append all that was gathered."""
        if self._turn:
            self._turn.append(self.pages)
        if self.pages.checkpoint_due:
            self._advance_checkpoint()

    def roll(self) -> None:
        """Begin a segment and a checkpoint, so that the last segment can be dropped; see `Pages.roll`."""
        self.pages.roll()
        self._rewriting = None  # ids that were written there have to be written again

    def _advance_checkpoint(self) -> None:
        """Write ids again, some in each turn, and then all else in one record."""
        if self._rewriting is None:
            self._rewriting, self._ids_from, self._ids_size = Work(self._rewrite_ids()), None, 0
        self._rewriting.advance(REWRITE_UNITS)
        if self._rewriting.is_done:
            self._rewriting = None
            self.pages.append_checkpoint(self._checkpoint(), self._ids_from, self._ids_size)

    def _rewrite_ids(self) -> Steps[None]:
        """Ids that are known when their queue or exchange has its turn; new ones are written as they come."""
        for account in list(self.accounts.values()):
            queue = account.queue
            if account.lasting and queue is not None and queue.window is not None:
                for some in parts(queue.window.ids(), IDS_PER_STEP):
                    if some and not account.deleted:
                        self._append_ids({"number": account.number}, queue.window.lasting(some))
                    yield STEP_UNITS
        for (vhost, name), exchange in list(self.exchanges.items()):
            if exchange.window is not None:
                for some in parts(exchange.window.ids(), IDS_PER_STEP):
                    if some and not exchange.deleted:
                        known = exchange.window.lasting(some)
                        safe = [each for each in known if (exchange, each[0]) not in self._early]
                        self._append_ids({"vhost": vhost, "name": name}, safe)
                    yield STEP_UNITS

    def _append_ids(self, owner: Table, ids: Iterable[tuple[bytes, int]]) -> None:
        record = encode_seen(owner, ids)
        page, at = self.pages.append(record)
        self._ids_size += len(record)
        if self._ids_from is None:
            self._ids_from = page.base + at

    def _checkpoint(self) -> bytes:
        """All that is known, but for messages and ids."""
        records = list(self.catalogue.records())
        if self._ids_from is not None:
            records.append(encode_ids_from(self._ids_from))
        for account in self.accounts.values():
            if account.lasting and account.stored:
                account.forget_delivered()
                ranges = [list(each) for each in (account.settled, *account.delivered)]
                records.append(encode_account(account.number, account.stored, ranges))
        return encode_checkpoint(self.next_queue, records)

    # ── to the disk ───────────────────────────────────────────────────────────────────────────────────

    @property
    def has_more(self) -> bool:
        """Whether there is something to write or to sync."""
        return self._turn.urgent or self.is_awaited

    @property
    def has_rest(self) -> bool:
        return bool(self._turn) or self._rewriting is not None

    @property
    def unsynced(self) -> int:
        """Bytes of the journal that are not on disk yet."""
        return self.journal.position - self.journal.durable

    @property
    def is_durable(self) -> bool:
        """Whether all that was appended is on disk."""
        return self.journal.durable == self.journal.position and all(
            side.is_durable for side in self.side_journals
        )

    def write(self) -> None:
        """Hand all to the system; after an OSError the rest is still to be written."""
        self.flush()
        self.journal.write()
        for side in self.side_journals:
            side.write()

    def begin_sync(self, *, full: bool = False) -> Sync:
        """To be called right after `write`. If the disk was `full`, it is to make room, and nobody is told."""
        ticket = self.safe if full else self.next_ticket()
        empty = self.pages.spare() if full else self.pages.empty()
        return Sync(ticket, self.journal, tuple(self.side_journals), empty)

    def end_sync(self, sync: Sync) -> None:
        self.pages.note_durable()
        self.pages.drop(sync.empty)
        self.reached(sync.ticket)

    def close(self) -> None:
        """Make everything durable, and let go of the files; nobody is told any more."""
        if self._later:
            self.write()
            sync = self.begin_sync()
            sync.run()
            self.safe = sync.ticket
            self._later.kept()
        self.flush()
        self.journal.close()
        for side in self.side_journals:
            side.close()


def _ignore(_reason: str) -> None:
    pass


def _no_shortage() -> None:
    return None
