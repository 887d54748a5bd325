"""`format("recado")`: feeds as tables and streams, read from their archives; and rows published on a feed.

options.py   what may be asked for
choosing.py  where to begin and where to end, by what was asked for and what the archive has
offsets.py   how far a reader has come, and which rows are between two such places (pure)
reading.py   rows of an archive as Arrow batches of Spark's schema
batch.py     the reader of a table
stream.py    the reader of a stream
staging.py   rows on their way to a feed, and the note of what was published as what
sink.py      rows of Spark published on a feed
source.py    what Spark calls
errors.py    what can be wrong with reading
"""
