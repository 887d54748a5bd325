"""The journal: an append-only log (write-ahead log) of opaque records in segment files.

It knows nothing of AMQP: each user encodes its own records. The message store of the server, the journals of
streams, the archives of feeds and the durable mailboxes of actors are all built on it.
"""
