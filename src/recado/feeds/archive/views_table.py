"""The views table: records other than messages, as one small Parquet file that each seal rewrites.

The column `record` contains the encoded record; the other columns make it readable with SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from recado.journal.disk import Disk

from ..block import MalformedDataError
from ..vector import Vector
from ..views import (
    AcknowledgementRecord,
    FoundRange,
    LostRange,
    MemberId,
    ViewId,
    ViewRecord,
    ViewStability,
)
from ..wire import decode_record, encode_record
from . import files
from .columns import format_view_id
from .errors import CorruptArchiveError
from .layout import VIEWS_FOLDER, ReadableTree, file_name
from .manifest import ViewsFile
from .records import StoredRecord

_VECTOR_TYPE: Final = pa.map_(pa.string(), pa.int64())
SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("stored", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("view", pa.string()),
        pa.field("number", pa.int64()),
        pa.field("members", pa.list_(pa.string())),
        pa.field("member", pa.string()),
        pa.field("incarnation", pa.string()),
        pa.field("vector", _VECTOR_TYPE),
        pa.field("record", pa.binary(), nullable=False),
    ]
)


def write(disk: Disk, records: Sequence[StoredRecord], end: int, generation: int) -> ViewsFile:
    table = pa.Table.from_pylist([_row(record) for record in records], SCHEMA)
    name = file_name(end, generation)
    written = files.write_parquet(disk, name, SCHEMA, [table])
    return ViewsFile(f"{VIEWS_FOLDER}/{name}", table.num_rows, *written)


def read(tree: ReadableTree, file: ViewsFile | None) -> list[StoredRecord]:
    if file is None:
        return []
    with files.ParquetReader(tree, file) as reader:
        groups = range(len(reader.group_rows))
        columns = ["offset", "stored", "record"]
        rows = [row for each in groups for row in _rows(reader.read_group(each, columns))]
    found = []
    for number, (offset, stored, record) in enumerate(rows):
        try:
            found.append(StoredRecord(stored, offset, decode_record(record)))
        except MalformedDataError as error:
            raise CorruptArchiveError(tree.path(file.path), f"row {number}", str(error)) from None
    return found


def _rows(group: pa.RecordBatch) -> Iterable[tuple[int, int, bytes]]:
    stored = group.column("stored").cast(pa.int64())
    columns = (group.column("offset"), stored, group.column("record"))
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _row(stored: StoredRecord) -> dict[str, Any]:
    record = stored.record
    row: dict[str, Any] = {
        "offset": stored.offset,
        "stored": stored.stored_us,
        "record": encode_record(record),
    }
    match record:
        case ViewRecord():
            row |= {"kind": "view", "vector": _vector(record.cut), **_view(record.view.id)}
            row["members"] = [member.name for member in record.view.members()]
        case AcknowledgementRecord():
            row |= {"kind": "acknowledged", "vector": _vector(record.vector)}
            row |= {**_view(record.view_id), **_member(record.member)}
        case ViewStability():
            row |= {
                "kind": "settled",
                "vector": _vector(record.delivery_bound),
                **_view(record.view_id),
            }
        case LostRange():
            row |= {"kind": "lost", "vector": [(record.publisher.hex(), record.last)]}
        case FoundRange():
            row |= {"kind": "found", "vector": [(record.publisher.hex(), record.last)]}
    return row


def _view(view: ViewId) -> dict[str, Any]:
    return {"view": format_view_id(view), "number": view.number}


def _member(member: MemberId) -> dict[str, Any]:
    return {"member": member.name, "incarnation": member.incarnation.hex()}


def _vector(vector: Vector) -> list[tuple[str, int]]:
    return [(publisher.hex(), sequence) for publisher, sequence in vector.items()]
