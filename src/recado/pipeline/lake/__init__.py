"""Lake tables as sinks whose batches are idempotent: a batch that is written twice is there once.

settings.py   their options, and where a table may be
batch.py      which batch it is, and whether a table has it
files.py      Parquet files in a folder, as Spark writes them, for all three
objects.py    Parquet files in an object store, for Delta and Iceberg
parquet.py    a folder that anything reads
delta.py      a Delta table, by deltalake
iceberg.py    an Iceberg table of an SQL catalogue, by pyiceberg
reading.py    Delta and Iceberg as tables to read
errors.py     what can be wrong with a table

Spark's tasks write the files, on whichever machines they run; the driver makes them part of the table, by one
commit that also records the batch.
"""
