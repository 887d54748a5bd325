"""The spool by itself: recovery, deduplication and removal."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recado.client.messages import Delivery, DeliverySource
from recado.journal.disk import Disk, FolderDisk, MemoryDisk
from recado.journal.record import CorruptJournalError
from recado.pipeline.queue import spool_record
from recado.pipeline.queue.spool import Spool, WrongSpoolError
from recado.pipeline.queue.spool_record import (
    SpoolCommitted,
    SpoolHead,
    SpoolSlice,
    SpoolUnreachableError,
    decode,
)

from .deliveries import Settled, deliveries, delivery

ID = b"0123456789abcdef"


def opened(disk: Disk, *, window: int = 1000, segment_size: int = 4096) -> Spool:
    spool = Spool(disk, window_size=window, segment_bytes=segment_size)
    spool.recover("orders", lambda: ID)
    return spool


def save(spool: Spool) -> int:
    spool.write()
    return spool.sync()


def bodies(folder: Path, pieces: list[SpoolSlice]) -> list[tuple[int, bytes]]:
    found = []
    for piece in pieces:
        for rows in spool_record.read_slice(folder, piece):
            column = rows.batch.column("body").to_pylist()
            found += list(enumerate(column, rows.offset))
    return found


def expected(first: int, end: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(first, end)]


def test_a_batch_has_what_came_however_many_that_is() -> None:
    for count in range(20):
        came = [
            Delivery(
                DeliverySource(
                    Settled(), "consumer", number % 3 == 0, "é" * (number % 2), "key", False
                ),
                number,
                b"\0\0",
                b"x" * (number % 5),
            )
            for number in range(count)
        ]
        batch = spool_record.to_record_batch(came, 1_234_567)
        batch.validate(full=True)
        assert batch.to_pydict() == {
            "exchange": [each.exchange.encode() for each in came],
            "routing_key": [b"key"] * count,
            "redelivered": [each.redelivered for each in came],
            "received": [datetime(1970, 1, 1, 0, 0, 1, 234_567, UTC)] * count,
            "header": [b"\0\0"] * count,
            "body": [each.body for each in came],
        }


def test_to_take_messages_pandas_is_not_imported() -> None:
    """It takes 0.2 s, and a source is a new process for each query."""
    program = """if True:
        import sys
        from recado.journal.disk import MemoryDisk
        from recado.pipeline.queue.consumer import SpoolingConsumer
        from recado.pipeline.queue.source import QueueSource
        from recado.pipeline.queue.spool import Spool
        from tests.pipeline.queue.deliveries import deliveries
        spool = Spool(MemoryDisk(), window_size=10)
        spool.recover("orders", lambda: bytes(16))
        spool.append(deliveries(range(10)), 5)
        spool.write()
        spool.sync()
        assert spool.durable == 10
        print([each for each in ("pandas", "pyarrow.compute") if each in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_rows_are_read_as_they_came(tmp_path: Path) -> None:
    spool = opened(FolderDisk(tmp_path))
    assert spool.is_new
    assert spool.append(deliveries(range(10)), received_us=5) == 10
    assert spool.durable == 0
    assert save(spool) == 10
    assert bodies(tmp_path, spool.slice_rows(0, 10, 1 << 20)) == expected(0, 10)
    assert bodies(tmp_path, spool.slice_rows(3, 7, 1 << 20)) == expected(3, 7)
    assert spool.slice_rows(4, 4, 1 << 20) == []
    with pytest.raises(LookupError, match="rows 5 to 11 were requested, but the spool has 0 to 10"):
        spool.slice_rows(5, 11, 1 << 20)
    spool.close()


def test_what_was_synced_is_there_after_a_restart(tmp_path: Path) -> None:
    spool = opened(FolderDisk(tmp_path))
    for start in range(0, 500, 50):
        spool.append(deliveries(range(start, start + 50)), received_us=1)
    save(spool)
    spool.close()
    again = opened(FolderDisk(tmp_path))
    assert (again.is_new, again.id, again.end, again.durable) == (False, ID, 500, 500)
    pieces = again.slice_rows(0, 500, 1)
    assert len(pieces) == 10
    assert bodies(tmp_path, pieces) == expected(0, 500)
    again.close()


def test_pieces_have_about_the_same_size(tmp_path: Path) -> None:
    spool = opened(FolderDisk(tmp_path), segment_size=1 << 20)
    for start in range(0, 500, 5):
        spool.append(deliveries(range(start, start + 5)), received_us=1)
    save(spool)
    [whole] = spool.slice_rows(0, 500, 1 << 20)
    for share in (0.9, 0.6, 0.4, 0.35, 0.3):
        pieces = spool.slice_rows(0, 500, int((whole.stop - whole.start) * share))
        assert bodies(tmp_path, pieces) == expected(0, 500)
        assert len(pieces) == ceil(1 / share)
        rows = [piece.end - piece.first for piece in pieces]
        assert max(rows) - min(rows) <= 5 * len(pieces)
    spool.close()


def test_a_repeat_is_not_taken_also_when_its_row_is_gone(tmp_path: Path) -> None:
    spool = opened(FolderDisk(tmp_path))
    for start in range(0, 400, 40):
        spool.append(deliveries(range(start, start + 40)), received_us=1)
    save(spool)
    spool.commit(400)
    save(spool)
    spool.remove_committed()
    spool.close()
    again = opened(FolderDisk(tmp_path))
    assert again.append(deliveries(range(390, 410)), received_us=2) == 10
    assert again.duplicates == 10
    assert again.append(deliveries([405, 410, 410]), received_us=2) == 1
    assert again.end == 411
    save(again)
    assert bodies(tmp_path, again.slice_rows(400, 411, 1 << 20)) == expected(400, 411)
    again.close()


def test_the_window_has_a_size_and_messages_without_ids_pass() -> None:
    spool = opened(MemoryDisk(), window=3)
    assert spool.append(deliveries([1, 2, 3, 4]), received_us=1) == 4
    assert spool.append(deliveries([2, 3, 4]), received_us=1) == 0
    assert spool.append(deliveries([1]), received_us=1) == 1
    assert spool.append(deliveries([7, 7], ids=False), received_us=1) == 2
    without = opened(MemoryDisk(), window=0)
    assert without.append(deliveries([1, 1]), received_us=1) == 2


@pytest.mark.parametrize("header", [b"", b"\x00", b"\x00\x80", b"\x20\x80\xff", b"\xff\xff"])
def test_properties_that_make_no_sense_are_kept(tmp_path: Path, header: bytes) -> None:
    spool = opened(FolderDisk(tmp_path))
    odd = delivery(b"odd", header=header)
    assert spool.append([odd, odd], received_us=1) == 2
    save(spool)
    [rows] = spool_record.read_slice(tmp_path, spool.slice_rows(0, 2, 1)[0])
    assert rows.batch.column("header").to_pylist() == [header, header]
    spool.close()


def test_committed_segments_are_removed_and_offsets_go_on(tmp_path: Path) -> None:
    spool = opened(FolderDisk(tmp_path))
    for start in range(0, 400, 40):
        spool.append(deliveries(range(start, start + 40), size=30), received_us=1)
        save(spool)
    before = len(list(tmp_path.glob("*.journal")))
    waiting = spool.unplanned_bytes
    spool.commit(200)
    spool.commit(100)  # nothing is taken back
    assert spool.committed == 200
    assert spool.unplanned_bytes < waiting
    spool.remove_committed()
    assert len(list(tmp_path.glob("*.journal"))) == before  # the disk does not know of it yet
    save(spool)
    spool.remove_committed()
    assert len(list(tmp_path.glob("*.journal"))) < before
    with pytest.raises(LookupError):
        spool.slice_rows(0, 10, 1)
    spool.commit(400)
    save(spool)
    spool.remove_committed()
    assert spool.unplanned_bytes == 0
    assert len(list(tmp_path.glob("*.journal"))) == 1
    spool.close()
    again = opened(FolderDisk(tmp_path))
    assert (again.committed, again.end, again.unplanned_bytes) == (400, 400, 0)
    again.close()


def test_large_messages_have_records_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recado.pipeline.queue.spool.RECORD_BYTES", 1000)
    spool = opened(FolderDisk(tmp_path))
    spool.append([delivery(b"x" * size) for size in (10, 5000, 10, 990, 10, 10)], received_us=1)
    save(spool)
    rows = [
        each
        for piece in spool.slice_rows(0, 6, 1)
        for each in spool_record.read_slice(tmp_path, piece)
    ]
    assert [each.batch.num_rows for each in rows] == [2, 2, 2]
    assert [each.offset for each in rows] == [0, 2, 4]
    spool.close()


def test_a_spool_belongs_to_its_queue() -> None:
    disk = MemoryDisk()
    opened(disk).close()
    other = Spool(disk, window_size=10)
    with pytest.raises(
        WrongSpoolError, match="is the spool of the queue 'orders', but this query reads"
    ):
        other.recover("invoices", lambda: ID)


def test_who_does_not_see_the_spool_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(
        SpoolUnreachableError, match="on storage that the driver and all workers share"
    ):
        list(spool_record.read_slice(tmp_path, SpoolSlice(0, 28, 100, 0, 1)))


def test_rot_is_told_and_not_taken_for_rows(tmp_path: Path) -> None:
    spool = opened(FolderDisk(tmp_path))
    spool.append(deliveries(range(10)), received_us=1)
    save(spool)
    [piece] = spool.slice_rows(0, 10, 1 << 20)
    file = tmp_path / f"{piece.segment:020d}.journal"
    content = bytearray(file.read_bytes())
    content[piece.stop - 1] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptJournalError, match="checksum"):
        list(spool_record.read_slice(tmp_path, piece))
    spool.close()


def test_rows_that_are_missing_and_were_not_committed_are_an_error(tmp_path: Path) -> None:
    spool = opened(FolderDisk(tmp_path))
    for start in range(0, 400, 40):
        spool.append(deliveries(range(start, start + 40), size=30), received_us=1)
        save(spool)
    spool.close()
    _, second, *_ = sorted(tmp_path.glob("*.journal"))
    second.unlink()
    with pytest.raises(CorruptJournalError, match="missing, but were never committed"):
        opened(FolderDisk(tmp_path))


@given(st.binary(min_size=16, max_size=16), st.text(max_size=20), st.lists(st.binary(max_size=255)))
def test_what_is_written_is_read(name: bytes, queue: str, ids: list[bytes]) -> None:
    head = SpoolHead(name, 7, 5, queue, ids)
    assert decode(head.encode()) == head
    assert decode(SpoolCommitted(9).encode()) == SpoolCommitted(9)
    with pytest.raises(ValueError, match="type 9"):
        decode(b"\x09")


@given(st.integers(0, 2**32))
def test_any_order_of_calls_gives_each_message_once(seed: int) -> None:
    """Against a list: what a reader that commits what it has read gets is what was sent, once each."""
    random = Random(seed)
    disk = MemoryDisk()
    spool = opened(disk)
    sent: list[int] = []
    for _ in range(30):
        match random.choice(["new", "new", "repeat", "take", "commit", "restart"]):
            case "new":
                numbers = range(len(sent), len(sent) + random.randint(1, 30))
                sent += numbers
                assert spool.append(deliveries(numbers), received_us=1) == len(numbers)
                save(spool)
            case "repeat" if sent:
                again = random.sample(sent, min(len(sent), 5))
                assert spool.append(deliveries(again), received_us=1) == 0
            case "take":
                waiting = spool.unplanned_bytes
                spool.mark_planned(random.randint(spool.committed, spool.durable))
                assert 0 <= spool.unplanned_bytes <= waiting
            case "commit":
                spool.commit(random.randint(spool.committed, spool.durable))
                save(spool)
                spool.remove_committed()
            case "restart":
                spool.close()
                spool = opened(disk)
            case _:
                pass
        assert spool.end == spool.durable == len(sent)
        pieces = spool.slice_rows(spool.committed, spool.end, random.choice([1, 500, 1 << 20]))
        assert sum(piece.end - piece.first for piece in pieces) == spool.end - spool.committed
    spool.mark_planned(spool.end)
    assert spool.unplanned_bytes == 0
