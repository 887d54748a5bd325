"""The rules by which a table recognises a batch (LB1 to LB5), without a table."""

from __future__ import annotations

import pytest

from recado.pipeline.lake.batch import (
    Batch,
    BatchDigests,
    RowsFingerprint,
    is_already_written,
    rows_digest,
)
from recado.pipeline.lake.errors import TableError
from recado.pipeline.lake.iceberg import WriterHistory

ROWS = RowsFingerprint(3, (10, 20))
OTHERS = RowsFingerprint(3, (10, 21))
NONE = RowsFingerprint(0, (0, 0))
PLANNED = Batch("w", 5, "planned at noon")
REPLANNED = PLANNED._replace(retry_key="planned at one")
KNOWN = BatchDigests.compute(PLANNED, ROWS)


def found(
    batch: Batch, last: int | None, known: BatchDigests | None, rows: RowsFingerprint
) -> bool:
    return is_already_written("table", batch, last, known, lambda: rows)


def test_lb1_a_higher_number_is_new() -> None:
    assert not found(PLANNED, None, None, ROWS)
    assert not found(PLANNED, 4, None, ROWS)


def test_lb2_the_same_plan_is_a_repeat_whatever_its_rows_are() -> None:
    def never() -> RowsFingerprint:
        raise AssertionError("the offsets decide")

    assert is_already_written("table", PLANNED, 5, KNOWN, never)
    assert is_already_written("table", PLANNED, 9, KNOWN, never)


def test_lb2_the_same_rows_are_a_repeat_whenever_they_were_planned() -> None:
    assert found(REPLANNED, 5, KNOWN, ROWS)
    assert found(REPLANNED, 9, KNOWN, ROWS)
    without = Batch("w", 5)
    assert found(without, 5, BatchDigests.compute(without, ROWS), ROWS)


def test_lb3_nothing_is_to_be_written() -> None:
    assert found(REPLANNED, 9, None, NONE)
    assert found(REPLANNED, 9, KNOWN, NONE)


def test_lb4_tables_of_before_digests_were_kept() -> None:
    assert found(PLANNED, 5, None, OTHERS)


@pytest.mark.parametrize(
    ("batch", "last", "known", "rows"),
    [
        (REPLANNED, 5, KNOWN, OTHERS),
        (REPLANNED, 5, KNOWN, NONE),  # its rows will come again, under a higher number
        (REPLANNED, 9, KNOWN, OTHERS),
        (REPLANNED, 9, None, ROWS),  # a number that had no rows, or is of before digests were kept
        (Batch("w", 5), 5, BatchDigests.compute(Batch("w", 5), ROWS), OTHERS),
        (Batch("w", 105), 105, KNOWN, ROWS),  # digests of another number
    ],
)
def test_lb5_any_other_batch_is_refused(
    batch: Batch, last: int, known: BatchDigests | None, rows: RowsFingerprint
) -> None:
    with pytest.raises(
        TableError, match=r"Put back the newest checkpoint.* or start with a new.* spool"
    ):
        found(batch, last, known, rows)


def test_lb5_a_batch_with_a_name_has_the_same_content() -> None:
    named = Batch("w", 0, "these rows", is_named=True)
    known = BatchDigests.compute(named, ROWS)
    assert found(named, 0, known, OTHERS)
    assert found(named._replace(retry_key="other rows"), 0, known, ROWS)
    with pytest.raises(
        TableError, match=r"table already has the batch w with other rows.*another name"
    ):
        found(named._replace(retry_key="other rows"), 0, known, OTHERS)


def test_a_history_is_bounded() -> None:
    history = WriterHistory(-1)
    for number in range(250):
        history = history.with_batch(number, BatchDigests(0, rows_digest(Batch("w", number), ROWS)))
    assert history.last == 249
    assert [*history.digests] == [*range(150, 250)]
