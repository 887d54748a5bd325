"""`format("amqp")`: queues of any AMQP 0-9-1 broker as streaming sources, and its exchanges as sinks.

options.py       options for reading and writing
source.py        the data source that Spark calls
consumer.py      takes messages from the queue into the spool
spool.py         the messages on disk, until Spark commits them
spool_record.py  the records of the spool, and how tasks read them
dedup_window.py  ids of recent messages
row_decoder.py   spooled messages to rows
row_encoder.py   rows to messages
message_ids.py   message ids made of columns
writer.py        publishes rows to an exchange
"""
