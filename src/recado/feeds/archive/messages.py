"""Builds messages from the columns of a table; repeated values are decoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, TypeVar

import pyarrow as pa

from ..message import NO_HEADERS, Message, decode_headers, decode_message_properties
from ..views import Certainty
from .certainty import CERTAINTY_COLUMN
from .columns import parse_view_id

T = TypeVar("T")


class ArchivedMessage(Message, frozen=True):
    """A message and its offset in the archive."""

    offset: int


def read_messages(table: pa.RecordBatch) -> Iterable[ArchivedMessage]:
    """Build the messages of a table that has all columns."""
    column = table.column
    certainty: Iterable[Certainty] = repeat(Certainty.LIVE)
    if CERTAINTY_COLUMN in table.schema.names:
        certainty = decode_distinct(column(CERTAINTY_COLUMN), lambda name: Certainty[name.upper()])
    return map(
        ArchivedMessage,
        decode_distinct(column("feed"), str),
        decode_distinct(column("publisher"), bytes.fromhex),
        column("sequence").to_pylist(),
        decode_distinct(column("view"), parse_view_id),
        column("timestamp").cast(pa.int64()).to_pylist(),
        decode_distinct(column("routing_key"), str),
        column("message_id").fill_null("").to_pylist(),
        decode_distinct(column("headers"), decode_headers, NO_HEADERS),
        decode_distinct(column("properties"), decode_message_properties),
        column("body").to_pylist(),
        certainty,
        column("offset").to_pylist(),
    )


def decode_distinct(column: pa.Array, read: Callable[[Any], T], null: Any = None) -> Iterable[T]:
    """Decode a column; each distinct value is decoded once."""
    if column.null_count == len(column):
        return repeat(null, len(column))
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    values = [read(value) for value in column.dictionary.to_pylist()]
    if len(values) == 1 and not column.null_count:
        return repeat(values[0], len(column))
    if column.null_count:
        values.append(null)
        indices = column.indices.fill_null(len(values) - 1)
    else:
        indices = column.indices
    return map(values.__getitem__, indices.to_pylist())
