"""The journal of durable mailboxes: recovery, dropped segments, and crashes."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recado.actors.durable_mailbox import journal
from recado.actors.durable_mailbox.journal import MailboxJournal, MessageStored, PendingMessage
from recado.actors.errors import SystemClosedError
from recado.actors.runtime.mailbox import Origin
from recado.journal.disk import Disk, FolderInUseError, MemoryDisk
from recado.journal.record import CorruptJournalError
from recado.simulator.disk import SimulatedDisk

INCARNATION = b"i" * 16


def enter(
    mailbox_journal: MailboxJournal, body: bytes, box: str = "box", origin: Origin | None = None
) -> PendingMessage | None:
    return mailbox_journal.append(
        lambda number: MessageStored(number, box, origin, 0, "", False, 1, "", body)
    )


def entered(mailbox_journal: MailboxJournal, body: bytes, box: str = "box") -> PendingMessage:
    entry = enter(mailbox_journal, body, box)
    assert entry is not None
    return entry


def wait_until_synced(mailbox_journal: MailboxJournal) -> BaseException | None:
    """Wait until everything that was entered is synced; return the error if that failed."""
    done = threading.Event()
    told: list[BaseException | None] = []

    def then(failure: BaseException | None) -> None:
        told.append(failure)
        done.set()

    mailbox_journal.when_synced(then)
    assert done.wait(10)
    return told[0]


@contextmanager
def opened(disk: Disk, segment_size: int = 1 << 16) -> Iterator[MailboxJournal]:
    mailbox_journal = MailboxJournal(disk, segment_size)
    try:
        yield mailbox_journal
    finally:
        mailbox_journal.close()


def bodies(mailbox_journal: MailboxJournal, box: str = "box") -> list[bytes]:
    return [record.body for _, record in mailbox_journal.pending_of(box)]


def test_what_is_safe_is_found_again_in_order_until_it_is_handled() -> None:
    disk = MemoryDisk()
    with opened(disk) as mailbox_journal:
        entries = [entered(mailbox_journal, body) for body in (b"one", b"two", b"three")]
        entered(mailbox_journal, b"other", "another")
        assert wait_until_synced(mailbox_journal) is None
        mailbox_journal.record_attempt(entries[1])
        mailbox_journal.record_handled(entries[1])
    with opened(disk) as mailbox_journal:
        assert bodies(mailbox_journal) == [b"one", b"three"]
        assert mailbox_journal.pending_counts() == {"box": 2, "another": 1}


def test_attempts_are_counted_over_lives() -> None:
    disk = MemoryDisk()
    for attempts in range(3):
        with opened(disk) as mailbox_journal:
            if not attempts:
                entered(mailbox_journal, b"poison")
            ((entry, _),) = mailbox_journal.pending_of("box")
            assert entry.attempts == attempts
            mailbox_journal.record_attempt(entry)


def test_an_origin_enters_once_in_all_lives() -> None:
    disk = MemoryDisk()
    with opened(disk) as mailbox_journal:
        entry = enter(mailbox_journal, b"one", origin=(INCARNATION, 7))
        assert entry is not None
        assert enter(mailbox_journal, b"one", origin=(INCARNATION, 7)) is None
        assert enter(mailbox_journal, b"one", origin=(b"j" * 16, 7)) is not None
        mailbox_journal.record_handled(entry)
    with opened(disk) as mailbox_journal:
        assert enter(mailbox_journal, b"one", origin=(INCARNATION, 7)) is None
        assert enter(mailbox_journal, b"two", origin=(INCARNATION, 8)) is not None


def test_segments_of_no_use_go_and_nothing_that_lives_goes_with_them() -> None:
    disk = MemoryDisk()
    with opened(disk, 2_000) as mailbox_journal:
        kept = entered(mailbox_journal, b"kept")
        mailbox_journal.record_attempt(kept)
        first = enter(mailbox_journal, b"first", origin=(INCARNATION, 1))
        assert first is not None
        mailbox_journal.record_handled(first)
        for number in range(300):
            entry = enter(mailbox_journal, bytes(50), origin=(INCARNATION, 2 + number))
            assert entry is not None
            mailbox_journal.record_attempt(entry)
            mailbox_journal.record_handled(entry)
            assert wait_until_synced(mailbox_journal) is None
    assert sum(name.endswith(".journal") for name in disk.names()) < 6
    with opened(disk, 2_000) as mailbox_journal:
        ((entry, record),) = mailbox_journal.pending_of("box")
        assert (record.body, entry.attempts) == (b"kept", 1)
        assert enter(mailbox_journal, b"first", origin=(INCARNATION, 1)) is None
        assert enter(mailbox_journal, b"last", origin=(INCARNATION, 301)) is None
        assert enter(mailbox_journal, b"new", origin=(INCARNATION, 302)) is not None
        later = entered(mailbox_journal, b"later")
        assert later.message_id > entry.message_id


def test_a_full_disk_is_told_and_what_waits_is_written_when_there_is_room() -> None:
    disk = SimulatedDisk()
    with opened(disk) as mailbox_journal:
        disk.fill()
        entered(mailbox_journal, b"one")
        failure = wait_until_synced(mailbox_journal)
        assert isinstance(failure, OSError)
        assert failure.errno == errno.ENOSPC
        disk.fill(None)
        assert wait_until_synced(mailbox_journal) is None


def test_who_cannot_be_told_keeps_nobody_else_from_it() -> None:
    def fails(failure: BaseException | None) -> None:
        raise RuntimeError("the loop is closed")

    with opened(MemoryDisk()) as mailbox_journal:
        entered(mailbox_journal, b"one")
        mailbox_journal.when_synced(fails)
        assert wait_until_synced(mailbox_journal) is None


def test_after_a_failed_sync_nothing_is_promised() -> None:
    disk = SimulatedDisk()
    mailbox_journal = MailboxJournal(disk)
    entered(mailbox_journal, b"one")
    disk.fail_sync()
    assert isinstance(wait_until_synced(mailbox_journal), OSError)
    assert isinstance(wait_until_synced(mailbox_journal), OSError)
    mailbox_journal.close()


def test_a_closed_room_says_so_and_an_open_one_is_nobody_elses() -> None:
    disk = MemoryDisk()
    with opened(disk) as mailbox_journal, pytest.raises(FolderInUseError):
        MailboxJournal(disk)
    mailbox_journal.close()
    assert isinstance(wait_until_synced(mailbox_journal), SystemClosedError)
    MailboxJournal(disk).close()


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["enter", "enter again", "attempt", "handle", "safe", "reopen"]),
        st.integers(0, 50),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(operations=OPERATIONS)
def test_it_is_what_was_entered_less_what_was_handled_in_all_lives(
    operations: list[tuple[str, int]],
) -> None:
    """Beside a model, with segments so small that they come and go all the time."""
    disk = MemoryDisk()
    mailbox_journal = MailboxJournal(disk, 400)
    model: dict[bytes, int] = {}  # attempts, in the order of entering
    sequence = 0
    for what, which in operations:
        entries = {record.body: entry for entry, record in mailbox_journal.pending_of("box")}
        chosen = list(entries)[which % len(entries)] if entries else None
        match what:
            case "enter":
                sequence += 1
                body = b"%d" % sequence + bytes(which)
                assert enter(mailbox_journal, body, origin=(INCARNATION, sequence)) is not None
                model[body] = 0
            case "enter again":
                if sequence:
                    known = (INCARNATION, 1 + which % sequence)
                    assert enter(mailbox_journal, b"again", origin=known) is None
            case "attempt":
                if chosen is not None:
                    mailbox_journal.record_attempt(entries[chosen])
                    model[chosen] += 1
            case "handle":
                if chosen is not None:
                    mailbox_journal.record_handled(entries[chosen])
                    del model[chosen]
            case "safe":
                assert wait_until_synced(mailbox_journal) is None
            case _:
                mailbox_journal.close()
                mailbox_journal = MailboxJournal(disk, 400)
        assert {r.body: e.attempts for e, r in mailbox_journal.pending_of("box")} == model
        assert bodies(mailbox_journal) == list(model)
    for _ in range(20):  # some segments are dropped by each
        assert wait_until_synced(mailbox_journal) is None
    mailbox_journal.close()
    size = sum(len(content) for name, content in disk.files.items() if name.endswith(".journal"))
    live = sum(len(body) + 60 for body in model)
    assert size <= 2 * live + 5 * 400


def test_a_damaged_journal_is_told_and_the_folder_is_free_again() -> None:
    disk = MemoryDisk()
    with opened(disk) as mailbox_journal:
        entered(mailbox_journal, b"one")
        entered(mailbox_journal, b"two")
        assert wait_until_synced(mailbox_journal) is None
    (name,) = (name for name in disk.names() if name.endswith(".journal"))
    disk.files[name][60] ^= 1
    for _ in range(2):
        with pytest.raises(CorruptJournalError):
            MailboxJournal(disk)


def test_much_that_is_known_does_not_make_the_journal_grow() -> None:
    """What is known of senders is larger than a segment here, and goes along whenever one is dropped."""
    disk = MemoryDisk()
    with opened(disk, 2_000) as mailbox_journal:
        for number in range(600):
            entry = enter(
                mailbox_journal, bytes(20), origin=(b"%16d" % (number % 100), 1 + 2 * number)
            )
            assert entry is not None
            mailbox_journal.record_handled(entry)
            assert wait_until_synced(mailbox_journal) is None
    known = max(len(content) for content in disk.files.values())
    assert known > 3_000
    size = sum(len(content) for name, content in disk.files.items() if name.endswith(".journal"))
    assert size < 12 * known
    with opened(disk, 2_000) as mailbox_journal:
        assert all(
            enter(mailbox_journal, b"", origin=(b"%16d" % (number % 100), 1 + 2 * number)) is None
            for number in range(600)
        )


def test_the_longest_silent_incarnation_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "INCARNATIONS_MAX", 2)
    with opened(MemoryDisk()) as mailbox_journal:
        for incarnation in (b"a", b"b", b"a", b"c"):
            enter(mailbox_journal, b"", origin=(incarnation, 1))
        assert enter(mailbox_journal, b"", origin=(b"a", 1)) is None
        assert enter(mailbox_journal, b"", origin=(b"b", 1)) is not None


def test_a_disk_that_fills_up_while_it_is_cleaned_loses_nothing() -> None:
    disk = SimulatedDisk()
    with opened(disk, 1_000) as mailbox_journal:
        kept = [b"%d" % number + bytes(100) for number in range(100)]
        for _ in range(40):
            mailbox_journal.record_handled(entered(mailbox_journal, bytes(100)))
        disk.fill(0)
        told = []
        for body in kept:
            entered(mailbox_journal, body)
            told.append(wait_until_synced(mailbox_journal))
        assert isinstance(
            told[-1], OSError
        )  # sooner or later: a segment may have had mailbox_journal
        disk.fill(None)
        for _ in range(20):
            assert wait_until_synced(mailbox_journal) is None
        assert bodies(mailbox_journal) == kept
    with opened(disk, 1_000) as mailbox_journal:
        assert bodies(mailbox_journal) == kept


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    steps=st.lists(st.sampled_from(["enter", "handle", "attempt", "safe"]), max_size=40),
)
def test_after_a_loss_of_power_all_that_was_safe_and_not_handled_is_there(
    seed: int, steps: list[str]
) -> None:
    disk = SimulatedDisk(seed)
    mailbox_journal = MailboxJournal(disk, 600)
    live: list[PendingMessage] = []
    names: dict[int, bytes] = {}
    promised: set[bytes] = set()
    handled: set[bytes] = set()
    for number, step in enumerate(steps):
        if step == "enter":
            body = b"%d" % number + bytes(30)
            live.append(entered(mailbox_journal, body))
            names[live[-1].message_id] = body
        elif step == "safe":
            assert wait_until_synced(mailbox_journal) is None
            promised.update(names.values())
        elif live:
            if step == "attempt":
                mailbox_journal.record_attempt(live[0])
            else:
                entry = live.pop(0)
                mailbox_journal.record_handled(entry)
                handled.add(names[entry.message_id])
    with disk._lock:  # its thread may be at work, and this is one moment for all files
        after = disk.crash()
    mailbox_journal.close()
    with opened(after, 600) as recovered:
        found = bodies(recovered)
        assert len(found) == len(set(found))
        assert promised - handled <= set(found) <= set(names.values())
        order = list(names.values())
        assert found == sorted(found, key=order.index)


class Watched(MailboxJournal):
    def __init__(self, disk: Disk, segment_bytes: int) -> None:
        self.synced = threading.Event()
        super().__init__(disk, segment_bytes)

    def _sync(self) -> BaseException | None:
        failure = super()._sync()
        self.synced.set()
        return failure


def test_what_is_only_told_and_handled_is_dropped_too() -> None:  # MR4
    """Nobody waits for a sync, and it comes even so, by the segment."""
    mailbox_journal = Watched(MemoryDisk(), 2_000)
    try:
        while mailbox_journal._journal.position < 10_000:
            mailbox_journal.record_handled(entered(mailbox_journal, bytes(40)))
        assert mailbox_journal.synced.wait(10)
    finally:
        mailbox_journal.close()


def test_a_sync_drops_all_that_is_of_no_use(monkeypatch: pytest.MonkeyPatch) -> None:  # MR4
    monkeypatch.setattr(
        MailboxJournal, "_request_sync_if_large", lambda _: None
    )  # so that none comes before
    disk = MemoryDisk()
    with opened(disk, 2_000) as mailbox_journal:
        for _ in range(1_000):
            mailbox_journal.record_handled(entered(mailbox_journal, bytes(40)))
        assert len(disk.names()) > 20
        assert wait_until_synced(mailbox_journal) is None
        assert len([name for name in disk.names() if name.endswith(".journal")]) <= 3


def test_a_closed_room_takes_nothing_and_bears_those_who_are_late() -> None:
    disk = MemoryDisk()
    with opened(disk) as mailbox_journal:
        entry = entered(mailbox_journal, b"one")
    mailbox_journal.record_attempt(entry)
    mailbox_journal.record_handled(entry)
    mailbox_journal.flush()
    with pytest.raises(SystemClosedError):
        entered(mailbox_journal, b"two")
    with opened(disk) as mailbox_journal:
        assert bodies(mailbox_journal) == [b"one"]
