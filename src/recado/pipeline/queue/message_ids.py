"""Message ids that a sink makes of columns, so that a retried row has the same id.

The columns are, in this order of preference:
1. those named by the option `idColumns`; with `none`, messages have no ids;
2. `message_id`, where a row has one;
3. `publisher` and `sequence`, which identify a message of a feed.

Without the option and without such columns, the write is refused before anything runs. The position of a row
in its partition is never used: after a shuffle, another row may have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from recado.pipeline.options import OptionError

from ..errors import PipelineError

NO_IDS: Final = "none"
ID_BYTES_MAX: Final = 255  # limit of AMQP's short strings
_SEPARATOR: Final = ":"


class MessageIdError(PipelineError):
    """A row has no id, or the same id as a different row."""


IdColumns = tuple[tuple[str, ...], ...]
"""Columns that make a row's id, in order of preference; the next ones are used where one of these is NULL."""

_DEFAULT_COLUMNS: Final[IdColumns] = (("message_id",), ("publisher", "sequence"))


def choose_id_columns(
    option: str | None, columns: Sequence[str], format_: str = "amqp"
) -> IdColumns | None:
    """Return the columns that make the ids; None if messages have no ids. Raises OptionError."""
    if option is not None and option.strip().lower() == NO_IDS:
        return None
    if option is not None:
        names = tuple(name.strip() for name in option.split(","))
        missing = [name for name in names if name not in columns]
        if missing:
            raise OptionError(
                f"idColumns names {missing[0]!r}, but the columns are {', '.join(columns)}"
            )
        return (names,)
    known = tuple(names for names in _DEFAULT_COLUMNS if set(names) <= set(columns))
    if known:
        return known
    raise OptionError(
        f'format("{format_}") makes message ids of the column message_id, or of publisher and sequence, but '
        "the rows have neither. Name other columns that identify a row: .option('idColumns', 'order,line'); "
        "or publish without ids, which allows more duplicates: .option('idColumns', 'none')"
    )


def make_message_ids(batch: pa.RecordBatch, id_columns: Sequence[tuple[str, ...]]) -> list[bytes]:
    """Return the id of each row. Raises MessageIdError."""
    ids = pc.coalesce(
        *(
            _join_escaped([_to_strings(batch.column(name)) for name in names])
            for names in id_columns
        )
    )
    if ids.null_count:
        names = " nor ".join(" and ".join(each) for each in id_columns)
        raise MessageIdError(
            f"{ids.null_count} rows have no {names} to make an id of. Name columns with the option "
            "idColumns that have a value in every row, or publish without ids: idColumns=none"
        )
    if len(pc.unique(ids)) < len(ids):
        _check_duplicates(ids.to_pylist(), batch)
    return [_shorten(each) for each in ids.cast(pa.binary()).to_pylist()]


def _to_strings(column: pa.Array) -> pa.Array:
    return column if column.type == pa.string() else pc.cast(column, pa.string())


def _join_escaped(texts: list[pa.Array]) -> pa.Array:
    """Join values so that different values never make the same id."""
    if len(texts) == 1:
        return texts[0]
    escaped = (pc.replace_substring(each, "\\", "\\\\") for each in texts)
    return pc.binary_join_element_wise(
        *(pc.replace_substring(each, _SEPARATOR, f"\\{_SEPARATOR}") for each in escaped), _SEPARATOR
    )


def _check_duplicates(ids: list[str], batch: pa.RecordBatch) -> None:
    """Raise MessageIdError if different messages have the same id. The same message may come twice."""
    bodies = batch.column("body").to_pylist()
    known: dict[str, object] = {}
    for each, body in zip(ids, bodies, strict=True):
        if known.setdefault(each, body) != body:
            raise MessageIdError(
                f"different messages have the id {each!r}, and a broker with deduplication would drop "
                "all but one. If one message became several rows, add a column to the option idColumns "
                "that distinguishes them: idColumns=message_id,number"
            )


def _shorten(octets: bytes) -> bytes:
    return octets if len(octets) <= ID_BYTES_MAX else sha256(octets).hexdigest().encode()
