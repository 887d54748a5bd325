"""Lake tables as sinks whose batches are idempotent: a batch that is written twice is there once.

settings.py   what may be said of them
batch.py      which batch it is
files.py      Parquet files, as Spark writes them, for all three
parquet.py    a folder that anything reads
delta.py      a Delta table, by deltalake
iceberg.py    an Iceberg table of an SQL catalogue, by pyiceberg
reading.py    Delta and Iceberg as tables to read
errors.py     what can be wrong with a table

Spark writes the files, on whichever machines it runs; the driver makes them part of the table, in one step that
also notes the batch.
"""
