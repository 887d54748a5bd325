"""The storage of an archive: a journal for recent rows, Parquet files for older ones, and a manifest.

`ArchiveStore` writes, `Archive` reads concurrently; both need pyarrow. A stored message is called a row. Rows
are appended to the journal; from time to time they are *sealed*, that is written to Parquet files, which are
later merged and, by retention, deleted. The *tail* is the part of the journal that is not sealed yet.

    store   file_set   sealer   retention   repair          the writer
    archive   follower   query   tail                       readers
    layout   manifest   identity   files   views_table      the files in the folder
    records   columns   batches   messages   certainty      conversion between batches, records and columns
    damage   errors                                         unreadable files
"""
