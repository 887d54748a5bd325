"""Damage to the Parquet files of an archive."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from recado.feeds.archive.archive import Archive


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def damage_column(path: Path, column: str, group: int = 0) -> None:
    """Flip a bit in the last page of a column."""
    about = pq.read_metadata(path).row_group(group)
    (chunk,) = (
        about.column(i)
        for i in range(about.num_columns)
        if about.column(i).path_in_schema == column
    )
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    flip(path, 8 * (start + chunk.total_compressed_size - 3))


def damage_footer(path: Path) -> None:
    flip(path, 8 * (path.stat().st_size - 20))


def file_of(folder: Path) -> Path:
    """The only Parquet file of the archive, apart from those in their grace period."""
    with Archive.open(folder) as archive:
        (path,) = archive.parquet_paths
    return Path(path)
