"""Decide whether a table already has a batch: by its content, not by its number alone.

Spark numbers the batches of a checkpoint. If an older checkpoint is restored, or a copy of it runs elsewhere,
the same numbers come again with other rows. So a table stores two digests with each batch:

    offsets   of the entry in Spark's offset log by which the batch was planned. Equal only for a retry of
              the same plan, whose rows may still differ (`current_timestamp`, `rand`). For a named batch: of
              its source rows, lookup tables and steps
    rows      of the rows, independent of their order. Equal also if the batch was planned again and happens
              to have the same rows

Spark retries only its last batch. "Last" below means the last batch of the same writer in the table.

LB1  A batch with a higher number than the last is new.
LB2  A batch with the same or a lower number is already written if one of its digests equals the table's.
LB3  An empty batch with a lower number is already written: there is nothing to write.
LB4  If the table has no digests for the last batch (from older versions), the last batch counts as retried.
LB5  Any other batch is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from .errors import TableError

RECENT_BATCH_COUNT: Final = 100
"""Batches of a writer whose digests are stored in table metadata; as many as Spark retains in a
checkpoint (`spark.sql.streaming.minBatchesToRetain`).
"""
_DIGEST_BITS: Final = 63  # Delta's log stores signed 64-bit numbers


class Batch(NamedTuple):
    """The identity of a batch."""

    writer: str
    """PIPELINE-SINK-ID; ID is the stream id, or the name of a named batch."""
    number: int
    retry_key: str = ""
    """A text that only retries of the batch have: a digest of its entry in Spark's offset log, or for a named
    batch a description of its content. Empty if there is none."""
    is_named: bool = False
    """Whether a user named it (`run --batch --name`): it is the only batch of its writer."""

    @property
    def key(self) -> str:
        """A folder name, ordered by number."""
        return f"{self.writer}-{self.number:09d}"


class RowsFingerprint(NamedTuple):
    """Identifies the rows of a batch in any order: their number, and sums of their hashes."""

    row_count: int
    hash_sums: tuple[int, ...]


class BatchDigests(msgspec.Struct, frozen=True):
    """The digests of one batch. They include its number, so digests of different batches differ."""

    offsets: int
    rows: int

    @classmethod
    def compute(cls, batch: Batch, rows: RowsFingerprint) -> BatchDigests:
        return cls(offsets_digest(batch), rows_digest(batch, rows))


def offsets_digest(batch: Batch) -> int:
    """Return the digest `offsets` that a table stores: of the number and the retry key of the batch."""
    return _digest(batch.number, batch.retry_key)


def rows_digest(batch: Batch, rows: RowsFingerprint) -> int:
    return _digest(batch.number, rows.row_count, *rows.hash_sums)


def _digest(*parts: object) -> int:
    data = sha256(repr(parts).encode()).digest()
    return int.from_bytes(data[:8], "big") & ((1 << _DIGEST_BITS) - 1)


def is_already_written(
    table: str,
    batch: Batch,
    last_number: int | None,
    table_digests: BatchDigests | None,
    fingerprint: Callable[[], RowsFingerprint],
) -> bool:
    """Whether a table already has a batch.

    Args:
        table: the name of the table, for errors.
        last_number: the number of the writer's last batch in the table.
        table_digests: the digests that the table has for this batch number, if any.
        fingerprint: computes the fingerprint of the rows; called only if the offsets digest does not decide.

    Raises:
        TableError: the batch is neither new nor known to be written (LB5).
    """
    if last_number is None or batch.number > last_number:
        return False  # LB1
    if table_digests is None and batch.number == last_number:
        return True  # LB4
    if (
        table_digests is not None
        and batch.retry_key
        and table_digests.offsets == offsets_digest(batch)
    ):
        return True  # LB2
    found = fingerprint()
    if table_digests is not None and table_digests.rows == rows_digest(batch, found):
        return True  # LB2
    if batch.number < last_number and not found.row_count:
        return True  # LB3
    if batch.is_named:
        raise TableError(
            f"{table} already has the batch {batch.writer} with other rows, so nothing was written. The "
            "sources or the steps have changed since. Run the batch under another name; rows that both "
            "batches have will be in the table twice"
        )
    what = (
        "the table does not know which rows it has under this number"
        if table_digests is None
        else "the table has other rows under this number"
    )
    raise TableError(
        f"{table} has batches up to {last_number} of {batch.writer}, so batch {batch.number} was not written: "
        f"{what}. The checkpoint is older than the table: it was "
        "restored from a backup, or two pipelines run with copies of it. Put back the newest "
        "checkpoint, which wrote the table; or start with a new checkpoint and a new table. With only "
        "a new checkpoint, rows that the sources still have would be in the table twice. If a source "
        "is a queue, keep the folder spool of this checkpoint: it may have the only copy of some "
        "messages"
    )
