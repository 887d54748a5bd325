"""`format("recado")`: feeds as tables and streams, read from their archives, and rows published on a feed.

options.py        options for reading and writing
bounds.py         the start and end offset of a read, from options and archive
position.py       how far a stream has read, and the rows between two positions (pure)
row_reader.py     rows of an archive as Arrow batches with Spark's schema
batch_reader.py   a feed as a table
stream_reader.py  a feed as a stream
staging_area.py   rows on their way to a feed, and the publish record
writer.py         rows published on a feed
source.py         the data source that Spark calls
"""
