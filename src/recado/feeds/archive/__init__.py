"""The storage of an archive: a journal for recent rows, Parquet files for older ones, and a manifest.

`ArchiveStore` writes, `Archive` reads concurrently; both need pyarrow.
"""
