"""The steps applied to DataFrames, the same for batches and streams.

flow.py            the rows between two steps: rows that continue, rows for sinks, dead letters
safe_sql.py        SQL that detects the rows on which an expression fails
analysis.py        SQL expressions, checked by Spark's analyser
translate.py       translate: change columns
routing.py         filter, route, wire_tap, dead_letter
enrich.py          enrich: join a lookup table
split.py           split: a row for each element of an array
aggregate.py       aggregate: a row for each key and window
deduplicate.py     deduplicate: one row for each key
resequence.py      resequence: rows in order; reorder_buffer.py is its pure state machine
watermark.py       how long a stream waits for late rows
sources.py         the sources as DataFrames
traversal.py       all steps of a pipeline, and the rows of each sink
"""
