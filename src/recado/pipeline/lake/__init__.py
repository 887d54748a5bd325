"""Lake tables as sinks with idempotent batches: a batch that is written twice is stored once.

options.py        options, and the allowed locations of a table
batch.py          identity of a batch, and whether a table already has it
parquet_files.py  Parquet files in a folder, written by Spark, for all three formats
object_files.py   Parquet files in an object store, for Delta and Iceberg
parquet.py        a folder of Parquet files
delta.py          a Delta table, by deltalake
iceberg.py        an Iceberg table of an SQL catalogue, by pyiceberg
reader.py         Delta and Iceberg tables as sources
errors.py         errors of tables

Spark's tasks write the files, on whichever machines they run. The driver adds them to the table, by one
commit that also records the batch.
"""
