"""The steps on DataFrames: the same for a batch and for a stream.

flow.py         what is between two steps: rows, rows for sinks, dead letters
guard.py        expressions that fail, and what they fail on
analysis.py     SQL expressions, checked by Spark
translate.py    other columns of the same row
choosing.py     filter, route, wire_tap, dead_letter: which rows go where
enrich.py       fields of a table
split.py        a row for each element
aggregate.py    a row for each key and window
deduplicate.py  of equal rows one
resequence.py   rows in their order; waiting.py: what a stream remembers for it (pure)
watermark.py    how long a stream remembers
reading.py      the sources as DataFrames
walking.py      all steps of a pipeline
"""

from .traversal import preview

__all__ = ["preview"]
