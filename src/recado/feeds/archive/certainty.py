"""The column `certainty`: whether a subscriber has received each row of an archive (see `delivery_records`).

delivered   an incarnation of the subscriber has acknowledged it
uncertain   it was not acknowledged, but may have been delivered to an incarnation of the subscriber
missed      certainly not delivered to any incarnation of the subscriber, or delivered to one that left the feed
            and reported that it had not finished processing it
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import pyarrow as pa

from ..delivery_records import DeliveryRecords
from ..views import Certainty
from .batches import read_keys
from .records import StoredRecord
from .sealer import publisher_ranges

CERTAINTY_COLUMN: Final = "certainty"
_CERTAINTY_NAMES: Final = [each.name.lower() for each in sorted(Certainty)]


class CertaintyClassifier:
    def __init__(self, subscriber: str, records: Iterable[StoredRecord]) -> None:
        self._status = DeliveryRecords(stored.record for stored in records).delivery_status(
            subscriber
        )

    def add_column(self, table: pa.RecordBatch) -> pa.RecordBatch:
        keys = read_keys(table)
        codes = np.zeros(table.num_rows, np.int32)
        spans = publisher_ranges(keys)
        for number, publisher in enumerate(keys.publishers):
            if publisher.hex() in spans:
                ranges = self._status.split(publisher, *spans[publisher.hex()])
                lasts = np.array([last for _, last, _ in ranges], np.int64)
                classes = np.array([certainty for _, _, certainty in ranges], np.int32)
                rows = keys.publisher == number
                codes[rows] = classes[np.searchsorted(lasts, keys.sequence[rows])]
        column = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(_CERTAINTY_NAMES))
        return table.append_column(CERTAINTY_COLUMN, column)
