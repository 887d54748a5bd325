"""The store of an archive: a journal for what has just come, Parquet files for all before, and a manifest.

`Store` writes, `Archive` reads beside it; pyarrow is needed for both.
"""
