"""What is certain about a subscriber and the rows of an archive: a column computed from the archive's views.

delivered   a life of the subscriber has acknowledged it
uncertain   it may have been delivered: acknowledged by nobody, before a view without the subscriber
missed      surely not delivered to any life of the subscriber
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from ..table import Table
from ..views import Certainty
from .batches import keys_of
from .records import StoredRecord
from .sealing import spans_of

CERTAINTY: Final = "certainty"
_NAMES: Final = [each.name.lower() for each in sorted(Certainty)]


class Judge:
    def __init__(self, subscriber: str, records: Iterable[StoredRecord]) -> None:
        self._standing = Table(stored.record for stored in records).standing(subscriber)

    def add_column(self, table: pa.RecordBatch) -> pa.RecordBatch:
        keys = keys_of(table)
        codes = np.zeros(table.num_rows, np.int32)
        spans = spans_of(keys)
        for number, publisher in enumerate(keys.publishers):
            if publisher.hex() in spans:
                ranges = self._standing.split(publisher, *spans[publisher.hex()])
                lasts = np.array([last for _, last, _ in ranges], np.int64)
                classes = np.array([certainty for _, _, certainty in ranges], np.int32)
                rows = keys.publisher == number
                codes[rows] = classes[np.searchsorted(lasts, keys.sequence[rows])]
        column = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(_NAMES))
        return table.append_column(CERTAINTY, column)
